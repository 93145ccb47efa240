"""Peer evaluation: ratings from the models' votes, and what else the votes follow.

Two things draw votes that are no merit: length (a longer answer can only raise the precision of a
judge's answer against it) and kinship (models that resemble each other vote for each other). Both
are measured here.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np
import polars as pl

from orchestrator import numbers
from orchestrator.clusters import OVER
from orchestrator.methods.peer_elo import Config
from orchestrator.plugin import (
    Cell,
    Column,
    Context,
    Measured,
    Summary,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import groups, mean_of, plain_mean
from orchestrator.statistics.correlation import correlate
from orchestrator.statistics.elo import BASE, SCALE, bootstrap_elo
from orchestrator.statistics.means import Shares, clustered_share
from orchestrator.statistics.prompt_sums import Pairs, mean_preferences, win_rates
from orchestrator.statistics.ratings import METHOD, Ratings, rate
from orchestrator.summaries._peer import Votes, family_tables, matrix_of, pairs_of, read_votes
from orchestrator.tables import measured

# A report is made in seconds; sequential ratings of more votes take minutes.
MOST_BATTLES: Final = 300_000
_RATINGS: Final = table_columns(
    "model | rating: rating | rank | win rate: percent | votes: count | missing: count",
    "length: number 0",
)
_ELO: Final = table_columns(
    "model | as published: rating | wins: count | ties: count",
)
_PREDICTED: Final = table_columns("model | against | predicted win rate: percent")
_WINS: Final = table_columns("model | against | win rate: percent | votes: count")
_LENGTH: Final = table_columns("what | value: signed | points: count")
_NEAREST: Final = (Column("model"), Column("F1 with the top model", "number"))


class Kind(Summary[Config]):
    """Ratings from the models' votes, and what else the votes follow."""

    bradley_terry = True
    reads_alone = True
    reads = ("status",)

    def summarise(self, context: Context) -> list[Table]:
        """Ratings, win rates, the effect of length, bias by family, nearness to the top model."""
        votes = read_votes(context)
        if votes is None:
            return []
        rated = rate(votes.sums, votes.models, confidence_level=context.confidence_level)
        # Best first; those that can't be ranked last.
        order = sorted(
            range(len(votes.models)),
            key=lambda i: (rated.rank[i] == 0, rated.rank[i], votes.models[i]),
        )
        return [
            _ratings(context, votes, rated, order),
            *_elo(context, votes, order, self.config.elo_orders),
            _wins(context, votes, order),
            _length(context, votes),
            *family_tables(context, votes, self.config.families),
            _nearest(context, votes, order, self.config.baseline),
        ]


def _ratings(context: Context, votes: Votes, rated: Ratings, order: Sequence[int]) -> Table:
    sums = votes.sums
    shares = mean_preferences(sums, context.confidence_level)
    n_votes = sums.model_counts.sum(axis=0)
    # Mean characters of an answer that was compared, by model.
    pairs = pairs_of(context, "length_a", "length_b")
    lengths, _ = matrix_of(pairs, votes.models, [pairs["length_a"], pairs["length_b"]])
    del pairs
    rows: list[list[Cell]] = []
    for i in order:
        low, high = int(rated.rank_low[i]), int(rated.rank_high[i])
        span = "" if low == high else f" ({numbers.rank(low, high)})"
        rows.append(
            [
                votes.models[i],
                _cell(rated, i, votes),
                f"{rated.rank[i]}{span}" if rated.rank[i] else None,
                _cell(shares, i, votes),
                int(n_votes[i]),
                votes.n_missing.get(votes.models[i], 0),
                plain_mean(pl.Series(lengths[:, i]).drop_nans()),
            ]
        )
    notes = [
        f"rating: {METHOD}; ties count half; it does not depend on the order of the votes",
        "rank: with its range, by all pairs decided together",
        "missing: answers that are excluded; length: mean characters of an answer",
        *rated.notes,
    ]
    title = "Ratings by peers"
    return make_table("peer_elo", title, _RATINGS, rows, basis=votes.basis, notes=notes)


def _elo(context: Context, votes: Votes, order: Sequence[int], n_orders: int) -> list[Table]:
    """Tabulate Elo and wins as published; [] if it was not asked for."""
    if not n_orders:
        return []
    title, basis = "Elo and wins, as published", votes.basis
    n, tied = len(votes.models), votes.preference == 0.5
    wins = np.bincount(votes.first[votes.preference == 1.0], minlength=n)
    wins += np.bincount(votes.second[votes.preference == 0.0], minlength=n)
    ties = np.bincount(votes.first[tied], minlength=n)
    ties += np.bincount(votes.second[tied], minlength=n)
    if len(votes.prompts) > MOST_BATTLES:
        none = Measured(None, why="too many votes")
        rows: list[list[Cell]] = [
            [votes.models[i], none, int(wins[i]), int(ties[i])] for i in order
        ]
        notes = [
            f"{len(votes.prompts):,} votes in sequence are too many for a report; use "
            f"orchestrator.statistics.elo.bootstrap_elo"
        ]
        return [make_table("peer_elo.elo", title, _ELO, rows, basis=basis, notes=notes)]
    resampling = context.resampling(n_orders)
    battles = Pairs(votes.prompts, votes.first, votes.second, n)
    elo, low, high = bootstrap_elo(battles, votes.preference, resampling)
    fought = np.bincount(np.concatenate((votes.first, votes.second)), minlength=n)
    rows = []
    for i in order:
        value, lowest, highest = (numbers.finite(float(of_all[i])) for of_all in (elo, low, high))
        cell = Measured(value, lowest, highest)
        if not fought[i]:
            cell = Measured(None, why="no votes")
        rows.append([votes.models[i], cell, int(wins[i]), int(ties[i])])
    notes = [
        f"as published: K = 4, median over {n_orders:,} resamples of single votes; the percentiles "
        "take votes on one prompt as independent",
        "wins exclude ties",
    ]
    predicted: list[list[Cell]] = [
        [votes.models[i], votes.models[j], float(1.0 / (1.0 + BASE ** ((elo[j] - elo[i]) / SCALE)))]
        for i, j in combinations([i for i in order if fought[i]], 2)
    ]
    said = ["of the ratings as published; the shares of votes are in the table of win rates"]
    of_wins = "Win rates predicted by Elo"
    return [
        make_table("peer_elo.elo", title, _ELO, rows, basis=basis, notes=notes),
        make_table("peer_elo.elo_wins", of_wins, _PREDICTED, predicted, basis=basis, notes=said),
    ]


def _wins(context: Context, votes: Votes, order: Sequence[int]) -> Table:
    rates = win_rates(votes.sums, context.confidence_level)
    rows: list[list[Cell]] = [
        [
            votes.models[i],
            votes.models[j],
            _cell(rates, (i, j), votes),
            int(rates.n_judgments[i, j]),
        ]
        for place, i in enumerate(order)
        for j in order[place + 1 :]
    ]
    notes = ["ties count half; intervals: Gaffke's test of a bounded mean, clustered by prompt"]
    title = "Win rates by peers"
    return make_table("peer_elo.wins", title, _WINS, rows, basis=votes.basis, notes=notes)


def _length(context: Context, votes: Votes) -> Table:
    """Tabulate the relation of votes to the lengths of answers."""
    pairs = pairs_of(context, "length_a", "length_b", "prefer_a")
    longer = (pairs["length_a"] - pairs["length_b"]).sign().cast(pl.Int8).to_numpy()[votes.row]
    for_longer = votes.preference.copy()
    np.subtract(1.0, for_longer, out=for_longer, where=longer <= 0)
    apart = longer != 0
    share = clustered_share(*votes.by_prompt(for_longer, apart), context.confidence_level)
    n_apart = int(apart.sum())
    del longer, for_longer
    # An answer's share of the votes, and its length over the mean of those that were voted on.
    if pairs["prefer_a"].has_nulls():  # a filter that keeps all would copy all
        pairs = pairs.drop_nulls("prefer_a")
    won, clusters = matrix_of(pairs, votes.models, [pairs["prefer_a"], 1.0 - pairs["prefer_a"]])
    lengths, _ = matrix_of(pairs, votes.models, [pairs["length_a"], pairs["length_b"]])
    del pairs
    mean = np.nansum(lengths, axis=1) / np.maximum(np.isfinite(lengths).sum(axis=1), 1)
    relative = lengths / np.where(mean > 0.0, mean, np.nan)[:, None]
    is_there = np.isfinite(won)
    found = correlate(
        won[is_there],
        relative[is_there],
        np.repeat(clusters, is_there.sum(axis=1)),
        confidence_level=context.confidence_level,
    )
    rows: list[list[Cell]] = [
        ["share of votes for the longer answer", measured(share, with_n=True), n_apart],
        ["Spearman of win rate with length", measured(found, with_n=True), found.n_points],
    ]
    notes = [
        "length in characters, relative to the mean of the item's answers; 0.5 and 0 mean no "
        "effect of length",
        "a longer answer can only raise another answer's precision against it: if lengths differ, "
        "read the ratings with care or set beta above 0",
    ]
    title = "Votes and length"
    return make_table("peer_elo.length", title, _LENGTH, rows, basis=votes.basis, notes=notes)


def _nearest(context: Context, votes: Votes, order: Sequence[int], baseline: float | None) -> Table:
    """The others by the mean F1 of their answers with those of the model that is rated best."""
    top = votes.models[order[0]]
    near = pairs_of(context, "f1")
    near = near.filter((pl.col("model_a") == top) | (pl.col("model_b") == top))
    other = pl.when(pl.col("model_a") == top).then(pl.col("model_b")).otherwise(pl.col("model_a"))
    near = near.select("item", *OVER, other=other, f1=pl.col("f1").fill_nan(None))
    found = [
        (model, mean_of(by_item, pl.col("f1"), context.confidence_level, with_n=True))
        for (model,), frame in groups(near, "other")
        for by_item in [frame.group_by("item", *OVER, maintain_order=True).agg(pl.mean("f1"))]
    ]
    found.sort(key=lambda pair: (pair[1].value is None, -(pair[1].value or 0.0), pair[0]))
    notes = [f"top model: {top}; mean over prompts, Student's t"]
    if baseline is not None:
        notes.append(f"similarities are rescaled by the baseline {baseline}")
    title = "Similarity to the top model"
    basis = votes.basis
    return make_table("peer_elo.nearest", title, _NEAREST, found, basis=basis, notes=notes)


def _cell(found: Ratings | Shares, at: int | tuple[int, int], votes: Votes) -> Measured:
    """One number with its interval; nan is undefined, infinite is not bounded."""
    value, low, high = (
        None if math.isnan(of_all[at]) else float(of_all[at])
        for of_all in (found.values, found.low, found.high)
    )
    # The basis says what the whole table rests on.
    n = int(found.n_prompts[at])
    return Measured(value, low, high, None if n == votes.n_prompts else n)
