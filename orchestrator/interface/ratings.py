"""Judgments of several runs pooled: ratings of their models, and agreement of their judges.

A model is one competitor in all runs in which it was served alike and answered with the same
settings; elsewhere it is one competitor for each run. Runs without a competitor in common have no
common scale.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl

from orchestrator.clusters import OVER
from orchestrator.columns import PairColumns
from orchestrator.contracts.context import ranked_in
from orchestrator.contracts.method import is_judging
from orchestrator.frames import counted_by
from orchestrator.interface.sides import Common, Side
from orchestrator.numbers import bounds, counted
from orchestrator.ranking.agreement import PAIR, agreement_table, ordered, verdict_rows
from orchestrator.ranking.analysis import RankingAnalysis, analyse_ranking, with_decisions
from orchestrator.ranking.judged import Table as JudgedTable
from orchestrator.ranking.judged import has_modes, judgments, tabulate
from orchestrator.ranking.trust import thresholds_of
from orchestrator.report.words import rank_words
from orchestrator.runner.models.identity import identity_key
from orchestrator.statistics.ranking import Pair
from orchestrator.tables import Cell, Measured, Table, make_table, table_columns

# Of a model's entry, what changes its answers; the rest of it is in its identity, or about speed.
_ANSWERING: Final = ("system", "template", "thinking", "answers")
_COLUMNS: Final = table_columns("model | rating: rating | rank | judgments: count")
_OF_PAIRS: Final = table_columns(
    "better | worse | judgments: count | difference: rating | p (Holm): p | told apart"
)


def competitors(sides: Sequence[Side], method: str) -> dict[str, dict[str, str]]:
    """Return the name of each model's competitor by label of a run: "large", or "large · B"."""
    if len(sides) == 1:
        return {sides[0].label: {}}
    kinds: dict[str, dict[str, list[str]]] = {}
    for side in sides:
        for model in side.result.settings.get("models", {}):
            how = _key(side, model, side.own("method", method))
            kinds.setdefault(model, {}).setdefault(how, []).append(side.label)
    found: dict[str, dict[str, str]] = {side.label: {} for side in sides}
    for model, by_kind in kinds.items():
        for labels in by_kind.values():
            name = model if len(by_kind) == 1 else f"{model} · {', '.join(labels)}"
            for label in labels:
                found[label][model] = name
    return found


def _key(side: Side, model: str, method: str) -> str:
    settings = side.result.settings
    entry = settings.get("models", {}).get(model) or {}
    used: Mapping[str, Any] = next(
        (m for m in settings.get("methods", ()) if str(m.get("name") or m.get("kind")) == method),
        {},
    )
    identity = side.result.record.identities.get(model) or {}
    parts = [identity_key(identity).hex(), used.get("answer")]
    parts += [entry.get(name) for name in _ANSWERING]
    return json.dumps(parts, sort_keys=True, default=str)


def pooled(sides: Sequence[Side], common: Common, method: str) -> JudgedTable | None:
    """Return the judgments of a ranked method of all runs as one; None where none has any."""
    names = competitors(sides, method)
    kept, n_most, modes = common.items.implode(), 0, True
    slices: list[Iterator[pl.DataFrame]] = []

    def rows_of(side: Side, frame: str, pairs: PairColumns) -> Iterator[pl.DataFrame]:
        own, named = side.own("method", method), dict(names[side.label])
        for rows in judgments(side.result.frames, frame, pairs):
            mine = rows.filter((pl.col("method") == own) & pl.col("item").is_in(kept))
            mine = mine.with_columns(pl.col("model_a", "model_b").replace(named))
            yield common.clusters.of(mine) if common.clusters.are_known else mine

    for side in sides:
        own = side.own("method", method)
        for frame, pairs in ranked_in(side.result.frames).items():
            rows = counted_by(side.result.frames, frame, ("method",))
            n = sum(row["len"] for row in rows if row["method"] == own)
            if not n:
                continue
            n_most += n
            modes &= has_modes(side.result.frames, frame, pairs)
            slices.append(rows_of(side, frame, pairs))
    if not n_most:
        return None
    return tabulate((rows for part in slices for rows in part), n_most, has_modes=modes)


def _ranked(side: Side) -> list[str]:
    """Return the methods of a run whose judgments give rankings, by name in the first run."""
    found, renamed = [], side.renamed["method"]
    for frame in ranked_in(side.result.frames):
        rows = counted_by(side.result.frames, frame, ("method",))
        found += [renamed[row["method"]] for row in rows if row["method"] in renamed]
    return found


def rankings_of(
    sides: Sequence[Side], common: Common, confidence_level: float
) -> list[RankingAnalysis]:
    """Return the ranking of each method over the pooled judgments of all runs and judges."""
    settings = sides[0].result.settings
    found, others = [], [set(_ranked(side)) for side in sides[1:]]
    for method in _ranked(sides[0]):
        if not all(method in names for names in others):
            continue
        table = pooled(sides, common, method)
        if table is None:
            continue
        analysis = analyse_ranking(
            table, judge=None, confidence_level=confidence_level, thresholds=thresholds_of(settings)
        )
        analysis = replace(analysis, source=method)
        if len(sides) > 1:
            analysis = with_decisions(analysis, partial(is_apart, analysis))
        found.append(analysis)
    return found


def rating_tables(sides: Sequence[Side], rankings: Sequence[RankingAnalysis]) -> list[Table]:
    """Return the ratings of each method, and the differences of all pairs of models."""
    tables = []
    for one in rankings:
        basis = f"{counted(one.n_items_used, 'common item')} · {one.method}; {one.uncertainty}"
        notes = [*one.notes, *_notes(sides, one)]
        rows = [
            (
                rating.model,
                _measured(rating.rating, *bounds(rating.low, rating.high,
                          low_open=rating.low_open, high_open=rating.high_open)),
                rank_words(rating),
                rating.n_judgments,
            )
            for rating in one.ratings
        ]  # fmt: skip
        pairs = [_of_pair(pair, one) for pair in one.pairs]
        together = f"{basis} · all pairs together (Holm)"
        for key, title, columns, shown, about, said in (
            ("compare.ratings", "Ratings on one scale", _COLUMNS, rows, basis, notes),
            (
                "compare.rating_differences",
                "Differences of ratings",
                _OF_PAIRS,
                pairs,
                together,
                (),
            ),
        ):
            if shown:
                table = make_table(key, title, columns, shown, basis=about, notes=said)
                found = msgspec.structs.replace(table, source=one.source, warning=one.warning)
                tables.append(found)
    return tables


def is_apart(found: RankingAnalysis, pair: Pair) -> bool:
    """Return whether two models of several runs are apart also by their own judgments.

    Over several runs, models have met different opponents. Then a difference also follows from
    the error of Bradley-Terry's model, which its interval does not hold: that of a model and its
    copy can exclude 0. So the judgments of these two alone must agree with it.
    """
    row, column = found.wins.place(pair.better, pair.worse)
    low = found.wins.low[row][column]
    return pair.resolvable and low is not None and low > 0.5


def _of_pair(pair: Pair, found: RankingAnalysis) -> tuple[Cell, ...]:
    """Return the row of a pair, which says why where the ratings alone would say otherwise."""
    row, column = found.wins.place(pair.better, pair.worse)
    n_met = found.wins.n[row][column]
    by_ratings = pair.adjusted_p is not None and pair.adjusted_p <= 1.0 - found.confidence_level
    apart = "no, not by their own judgments" if by_ratings and not found.warning else "no"
    if not n_met:
        apart = "not compared directly"
    ends = bounds(pair.low, pair.high, low_open=False, high_open=False)
    difference, p = _measured(pair.difference, *ends), Measured(pair.adjusted_p)
    return pair.better, pair.worse, n_met, difference, p, "yes" if pair.resolvable else apart


def _notes(sides: Sequence[Side], one: RankingAnalysis) -> list[str]:
    if len(sides) < 2:
        return []
    split = [rating.model for rating in one.ratings if " · " in rating.model]
    notes = []
    if split:
        notes.append(
            "a model followed by a run is another competitor in these runs: its weights, its "
            "prompt or the settings of its answers differ"
        )
    if len(one.ratings) > 2:
        notes.append(
            "models of different runs met different opponents, so ratings also rest on "
            "Bradley-Terry's model; two models are told apart only if their own judgments agree"
        )
    if len(one.judges) > 1:
        notes.append(f"judgments of {', '.join(one.judges)} are pooled")
    return notes


def _measured(value: float | None, low: float, high: float) -> Measured:
    return Measured(value, *((None, None) if np.isnan(low) or np.isnan(high) else (low, high)))


def verdicts(sides: Sequence[Side], common: Common, method: str) -> pl.DataFrame:
    """Return the verdicts of all judges of a method: one row a judge, item and pair of models.

    As `verdict_rows`; the judge is followed by the run where there are several.
    """
    names, kept = competitors(sides, method), common.items.implode()
    parts = []
    for side in sides:
        own, known = side.own("method", method), names[side.label]
        ending = f" · {side.label}" if len(sides) > 1 else ""
        for source in side.context.sources:
            if source.name == own:
                rows = verdict_rows(side.context, source).filter(pl.col("item").is_in(kept))
                named = rows.drop(OVER).with_columns(
                    pl.col("judge") + ending, pl.col("model_a", "model_b").replace(known)
                )
                # Renamed models may be in another order.
                found = common.clusters.of(ordered(named))
                parts.append(found.select("judge", *OVER, *PAIR, "verdict"))
    return pl.concat(parts)


def agreement_tables(sides: Sequence[Side], common: Common, confidence_level: float) -> list[Table]:
    """Return a table for each judging method with at least two judges, in one run or in several."""
    notes = []
    if len(sides) > 1:
        notes.append(
            "between runs, only models are used that answer alike in both; if their answers are "
            "sampled, judges also disagree because they judge different texts"
        )
    tables = []
    for source in sides[0].context.sources:
        # One judge has nobody to agree with.
        if not is_judging(source.method) or len(sides) * len(source.method.judges) < 2:
            continue
        rows = verdicts(sides, common, source.name)
        table = agreement_table("compare.agreement", rows, confidence_level, notes)
        if table.rows:
            tables.append(msgspec.structs.replace(table, source=source.name))
    return tables
