"""Votes of peer evaluation as arrays, and tables of bias towards a judge's own family."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.clusters import CLUSTER, PROMPT, codes
from orchestrator.plugin import Cell, Context, Measured, Table, make_table, table_columns
from orchestrator.ranking.cells import good_rows, numbered, packed
from orchestrator.records import Bools, Floats, Ints
from orchestrator.statistics.bradley_terry import fit_bradley_terry, to_elo
from orchestrator.statistics.means import clustered_share
from orchestrator.statistics.prompt_sums import Pairs, PromptSums
from orchestrator.statistics.resampling import JACKKNIFE, jackknife_sums, mean_of_sums
from orchestrator.tables import counted_words, measured

_CHUNK_ROWS: Final = 2**19
_PAIR: Final = ("item", "turn", "model_a", "model_b")


@dataclass(frozen=True)
class Votes:
    """n votes of M models on pairs of the others.

    Attributes:
        models: M names, sorted.
        prompts: Shape (n,), cluster of prompts of each vote, in [0, n_prompts).
        first: Shape (n,), in [0, M).
        second: Shape (n,), in [0, M).
        judge: Shape (n,), in [0, M).
        preference: Shape (n,): 1 for the first, 0 for the second, 0.5 a tie.
        row: Shape (n,), place of its pair of answers among those that have votes.
        n_prompts: Clusters with a vote; where each item stands alone these are the items.
        n_missing: Answers that were left out, by model.
        basis: What all rests on, in words.
    """

    models: tuple[str, ...]
    prompts: Ints
    first: Ints
    second: Ints
    judge: Ints
    preference: Floats
    row: Ints
    n_prompts: int
    n_missing: dict[str, int]
    basis: str

    @cached_property
    def sums(self) -> PromptSums:
        """The votes added up by cluster and pair."""
        pairs = Pairs(self.prompts, self.first, self.second, len(self.models))
        return pairs.summing()(self.preference)

    def win_matrix(self, kept: Bools) -> Floats:
        """Shape (M, M): wins of the row's model over the column's in the votes that are kept."""
        first, second, won = self.first[kept], self.second[kept], self.preference[kept]
        return Pairs(0 * first, first, second, len(self.models)).summing()(won).win_matrix

    def by_prompt(self, values: Floats, kept: Bools) -> tuple[Floats, Floats]:
        """Sums and numbers of values of the votes kept, by cluster: two of (n_prompts,)."""
        sums, counts = np.zeros((2, self.n_prompts))
        for begin in range(0, len(kept), _CHUNK_ROWS):
            part = slice(begin, begin + _CHUNK_ROWS)
            at, there = self.prompts[part][kept[part]], values[part][kept[part]]
            sums += np.bincount(at, there, minlength=self.n_prompts)
            counts += np.bincount(at, minlength=self.n_prompts)
        return sums, counts


def read_votes(context: Context) -> Votes | None:
    """The votes of a context's rows; None where there is none."""
    n_failed = len(context.rows) - len(good_rows(context.rows))
    if n_failed == len(context.rows):
        return None
    good = pairs_of(context, "undefined", "n_truncated", "missing")
    # Answers left out are counted once an item and turn.
    turns = good.filter(pl.struct("item", "turn").rle_id().is_first_distinct())
    missing = turns["missing"].explode().drop_nulls().cast(pl.String)
    models = tuple(sorted({*good["model_a"].unique(), *good["model_b"].unique(), *missing}))
    left_out = (
        (good["undefined"].sum(), "votes undefined"),
        (len(missing), "answers missing"),
        (turns["n_truncated"].sum(), "answers truncated for comparison"),
        (n_failed, "without votes"),
    )
    del good, turns
    # In which order units ended must not show in an Elo rating or a resample.
    good = pairs_of(context, "judges", "votes").with_row_index("row")
    single = good.select("row", "judges", "votes").explode("judges", "votes")
    good = good.drop("row", "judges", "votes")
    is_known = single["votes"].is_not_nan() & single["votes"].is_not_null()
    single = single if is_known.all() else single.filter(is_known)
    if single.is_empty():
        return None
    single = single.with_columns(pl.Series("judges", _codes(single["judges"], models)))
    single = single[packed(single, ("row", "judges")).arg_sort()]
    places = single["row"]
    clusters = good[CLUSTER].gather(places)
    found = clusters.unique(maintain_order=True)
    numbers = np.zeros(int(clusters.max()) + 1, np.int32)  # type: ignore[arg-type] # of numbers
    numbers[found] = np.arange(len(found))
    return Votes(
        models=models,
        prompts=numbers[clusters],
        first=_codes(good["model_a"], models)[places],
        second=_codes(good["model_b"], models)[places],
        judge=single["judges"].to_numpy(),
        preference=single["votes"].to_numpy().astype(np.float64),
        row=places.cast(pl.Int32).to_numpy(),
        n_prompts=len(found),
        n_missing=dict(Counter(missing)),
        basis=" · ".join(
            [
                counted_words(good[PROMPT].gather(places).n_unique(), len(found)),
                f"{len(single):,} votes",
                *(f"{n:,} {words}" for n, words in left_out if n),
            ]
        ),
    )


def pairs_of(context: Context, *columns: str) -> pl.DataFrame:
    """Return the rows that have votes with some columns, in the order of `Votes.row`."""
    rows = good_rows(numbered(context, (*_PAIR, "status", *columns))).drop("status", "method")
    models = pl.concat([rows["model_a"], rows["model_b"]]).unique().cast(pl.String).sort()
    models_in_order = pl.col("model_a", "model_b").cast(pl.Enum(models))
    # A sort by four columns would take several times the memory of the rows.
    order = packed(rows.select("item", "turn", models_in_order), _PAIR).arg_sort()
    return pl.DataFrame([rows.drop_in_place(name).gather(order) for name in rows.columns])


def matrix_of(
    pairs: pl.DataFrame, models: Sequence[str], ends: Sequence[pl.Series]
) -> tuple[Floats, Ints]:
    """Return the mean of values of both answers of pairs, by turn of an item and model.

    `ends` are of model_a and model_b. Shape (turns, M), nan where there is none; and the cluster of
    each turn.
    """
    turn = codes(packed(pairs, ("item", "turn")))
    n = int(turn.max(initial=-1)) + 1
    sums, counts = np.zeros((2, n * len(models)))
    for side, values in zip(("model_a", "model_b"), ends, strict=True):
        is_known = values.is_not_null().to_numpy()
        at = (turn * len(models) + _codes(pairs[side], models))[is_known]
        sums += np.bincount(at, values.drop_nulls().to_numpy(), minlength=len(sums))
        counts += np.bincount(at, minlength=len(sums))
    clusters = np.zeros(n, np.int64)
    clusters[turn] = codes(pairs[CLUSTER])
    means = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return means.reshape(n, len(models)), clusters


def _codes(column: pl.Series, names: Sequence[str]) -> Ints:
    return column.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int16)


_BIAS: Final = table_columns(
    "family | models: count | votes of its family: percent | votes of others: percent",
    "difference: signed",
)
_LEFT_OUT: Final = table_columns(
    "model | family | rating: rating | without votes of its family: rating", "change: signed 1"
)


def family_tables(context: Context, votes: Votes, named: Mapping[str, str]) -> list[Table]:
    """Bias, and ratings without kin; [] where no two models are of one family."""
    families = [named.get(model, model) for model in votes.models]
    if len(set(families)) == len(families):
        return []
    names, code = np.unique(families, return_inverse=True)
    return [
        _bias(context, votes, names.tolist(), code),
        _left_out(votes, families, code),
    ]


def _bias(context: Context, votes: Votes, names: Sequence[str], code: Ints) -> Table:
    """Compare kin's votes with others', on pairs of one model of a family and a stranger."""
    first, second, judge = code[votes.first], code[votes.second], code[votes.judge]
    rows: list[list[Cell]] = []
    for index, name in enumerate(names):
        n_models = int((code == index).sum())
        if n_models < 2:
            continue
        one_of_it = (first == index) != (second == index)
        for_it = np.where(first == index, votes.preference, 1.0 - votes.preference)
        kin = one_of_it & (judge == index)
        others = one_of_it & (judge != index)
        own, foreign = votes.by_prompt(for_it, kin), votes.by_prompt(for_it, others)
        rows.append(
            [
                name,
                n_models,
                measured(clustered_share(*own, context.confidence_level), with_n=True),
                measured(clustered_share(*foreign, context.confidence_level), with_n=True),
                _difference(np.column_stack((*own, *foreign)), context.confidence_level),
            ]
        )
    notes = [
        "pairs of one model of the family and one outside it; shares of votes for the model of "
        "the family; difference: its family's share minus the others' (jackknife over prompts)"
    ]
    title = "Votes for models of the same family"
    return make_table("peer_elo.families", title, _BIAS, rows, notes=notes)


def _difference(parts: Floats, confidence_level: float) -> Measured:
    """Difference of two shares; `parts` has sums and counts of both, shape (n_prompts, 4)."""
    parts = parts[parts[:, 1::2].sum(axis=1) > 0]
    n = len(parts)
    if not n or not np.all(parts[:, 1::2].sum(axis=0) > 0):
        return Measured(None, n=n, why="no such votes")

    found = jackknife_sums(
        parts, lambda sums: mean_of_sums(sums[:, [1, 0]]) - mean_of_sums(sums[:, [3, 2]])
    )
    sizes = parts[:, 1::2].sum(axis=1)
    return measured(found.estimate(JACKKNIFE, sizes, confidence_level), with_n=True)


def _left_out(votes: Votes, families: Sequence[str], code: Ints) -> Table:
    """Each model's rating beside the one without the votes of its own family."""
    judge, sizes = code[votes.judge], np.bincount(code)
    everyone = _strengths(votes, np.ones(len(judge), np.bool_))
    without = {int(index): _strengths(votes, judge != index) for index in np.flatnonzero(sizes > 1)}
    rows: list[list[Cell]] = []
    for i in np.argsort(-np.nan_to_num(everyone, nan=-np.inf), kind="stable"):
        if sizes[code[i]] < 2:
            continue
        rating, other = everyone[i], without[int(code[i])][i]
        change = other - rating
        rows.append(
            [
                votes.models[i],
                families[i],
                _cell(rating),
                _cell(other),
                None if not np.isfinite(change) else float(change),
            ]
        )
    notes = ["Bradley-Terry; without votes of its family: no model of the family votes on any pair"]
    title = "Ratings without votes of the same family"
    return make_table("peer_elo.without_kin", title, _LEFT_OUT, rows, notes=notes)


def _strengths(votes: Votes, kept: NDArray[np.bool_]) -> Floats:
    if not kept.any():
        return np.full(len(votes.models), np.nan)
    return to_elo(fit_bradley_terry(votes.win_matrix(kept)).strengths)


def _cell(value: float) -> Measured:
    return (
        Measured(None, why="not enough comparisons") if np.isnan(value) else Measured(float(value))
    )
