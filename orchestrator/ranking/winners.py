"""The better of two answers by references, the dataset or labels, and judges held to it."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from pydantic import Field

from orchestrator.clusters import prompt_words
from orchestrator.contracts.context import Context, Source, answers_behind, answers_of
from orchestrator.contracts.method import is_judging
from orchestrator.contracts.settings import Winner
from orchestrator.dataset.fields import key_text
from orchestrator.errors import UsageError
from orchestrator.frames import CATEGORIES, columns_of
from orchestrator.plugins.base import Settings
from orchestrator.ranking.cells import floats
from orchestrator.ranking.human_labels import SIDES, TIE, read_labels
from orchestrator.ranking.preferences import SOFT, UNIT, Preferences, judged_rows, preferences
from orchestrator.ranking.scores import source_of
from orchestrator.records import Floats
from orchestrator.statistics.judgments import Calibration, calibration
from orchestrator.tables import Cell, Table, make_table, measured, table_columns

CALIBRATED: Final = (*UNIT, SOFT)
TRUTH: Final = "truth"
"""Column of judged pairs that says whose answer is better."""


class JudgedWinner(Settings):
    """Settings of analyses that hold judges to a known winner."""

    winner: Winner = Field(Winner(exact_match=True), description="Source of the better answer.")
    methods: tuple[str, ...] = Field(
        (), description="Names of judging methods of this recipe. Default: all."
    )


def judging_sources(context: Context, methods: Sequence[str]) -> Sequence[Source]:
    """The judging methods of these names, all where there are none.

    Raises:
        UsageError: If there is none, or one that is named gives no preferences.
    """
    if methods:
        sources: Sequence[Source] = [source_of(context, name) for name in methods]
    else:
        sources = [source for source in context.sources if is_judging(source.method)]
    if not sources:
        raise UsageError(f"{context.name}: no method of this recipe judges pairs or rates answers")
    for source in sources:
        if not is_judging(source.method):
            raise UsageError(f"{context.name}: {source.name!r} gives no preferences")
    return sources


def source_of_judges(context: Context, name: str | None) -> Source:
    """Return the method of a name, or the first judging method with several judges.

    Raises:
        UsageError: If there is none, or that of the name has not several judges.
    """
    for source in context.sources if name is None else [source_of(context, name)]:
        if is_judging(source.method) and len(source.method.judges) > 1:
            return source
    if name is not None:
        raise UsageError(f"{context.name}: {name!r} does not have several judges")
    raise UsageError(f"{context.name}: no judging method of this recipe has several judges")


@dataclass(frozen=True)
class Judged:
    """One method with one judge, held to the better answer of each pair.

    Attributes:
        name: What tables call it.
        source: The method.
        judge: Name.
        pairs: The pairs that it judged, with the column `TRUTH`.
    """

    name: str
    source: Source
    judge: str
    pairs: Preferences

    @property
    def truth(self) -> Floats:
        """Shape (n,): 1 where A's answer is better, -1 where B's is, 0 if neither, nan: unknown."""
        return self.pairs.values(TRUTH)

    @cached_property
    def known(self) -> "Judged":
        """The same on the pairs of which one answer is known to be better."""
        rows = self.pairs.rows.filter(pl.col(TRUTH).abs() == 1.0)
        return replace(self, pairs=replace(self.pairs, rows=rows))

    def credits(self, estimator: str) -> Floats:
        """Return 1 for a right decision, 0.5 for a tie, 0 for a wrong one: of pairs in `known`."""
        return 0.5 + 0.5 * self.pairs.decisions(estimator) * self.truth


def judged(
    context: Context, sources: Sequence[Source], winner: Winner | None, columns: Sequence[str] = ()
) -> Iterator[Judged]:
    """Yield each judge of each method, held to `winner`; without one nothing is known.

    Only the given columns of its pairs are kept; all where none is given.

    Raises:
        UsageError: If it is known of no pair of a method who is better.
    """
    for source in sources:
        rows = judged_rows(context, source)
        if rows.is_empty():
            continue
        found = preferences(rows)
        # Most of a large run's columns are the other estimators.
        del rows
        if columns:
            found = replace(found, rows=found.rows.select(columns))
        if found.rows.is_empty():
            continue
        truth = np.full(len(found.rows), np.nan)
        if winner is not None:
            truth = truths(context, winner, found.rows, source.name)
        found = replace(found, rows=found.rows.with_columns(pl.Series(TRUTH, truth)))
        for name, judge, pairs in found.settings(source.name):
            yield Judged(name, source, judge, pairs)


def judged_settings(
    context: Context, methods: Sequence[str], winner: Winner | None
) -> list[Judged]:
    """Return each judge of the judging methods of these names, or of all (`judged`).

    Raises:
        UsageError: If there is no such method, or none judged a pair.
    """
    found = list(judged(context, judging_sources(context, methods), winner))
    if not found:
        raise UsageError(f"{context.name}: no judge of this recipe judged a pair of answers")
    return found


def truths(context: Context, winner: Winner, pairs: pl.DataFrame, source: str) -> Floats:
    """1 where model A's answer is the better one, -1 where B's is, 0 for a tie, nan if unknown.

    Pairs have the columns item, turn, model_a and model_b; `source` is the method whose answers
    these are.

    Raises:
        UsageError: If nothing of the kind is known of any pair.
    """
    if winner.exact_match:
        found = _by_reference(context, pairs, source)
    elif winner.model is not None:
        first, second = (
            (pairs[side] == winner.model).to_numpy() for side in ("model_a", "model_b")
        )
        found = np.where(first, 1.0, np.where(second, -1.0, np.nan))
    elif winner.order:
        place = {name: float(number) for number, name in enumerate(winner.order)}
        first, second = (
            pairs[side].replace_strict(place, default=np.nan, return_dtype=pl.Float64).to_numpy()
            for side in ("model_a", "model_b")
        )
        found = np.sign(second - first)
    elif winner.field is not None:
        items = columns_of(context.frames, "items", ("item", "fields"))
        if not items.width:
            raise UsageError(f"{context.name}: this run has no columns of its dataset")
        said: dict[str, str] = {}
        for item, text in items.iter_rows():
            value = json.loads(text).get(winner.field) if text else None
            if value is not None:
                said[item] = str(value)
        rows = pairs.select("item", "model_a", "model_b").iter_rows()
        found = np.array([_side(said.get(item), a, b, winner.values) for item, a, b in rows])
    else:
        found = _by_labels(winner, pairs)
    if len(pairs) and np.isnan(found).all():
        raise UsageError(f"{context.name}: of no pair in {source!r} is it known who is better")
    return found


def _by_reference(context: Context, pairs: pl.DataFrame, source: str) -> Floats:
    wanted = ("method", "item", "turn", "model", "exact_match")
    answers = answers_of(context.frames, wanted, as_categories=True)
    if answers.is_empty() or "exact_match" not in answers.columns:
        raise UsageError(f"{context.name}: this run has no answers to compare with a reference")
    right = (
        answers_behind(answers, source)
        .select("item", "turn", "model", right=pl.col("exact_match").cast(pl.Float64))
        .unique(["item", "turn", "model"], maintain_order=True)
    )
    joined = pairs.select("item", "turn", "model_a", "model_b").with_columns(CATEGORIES)
    for side in ("a", "b"):
        one = right.rename({"model": f"model_{side}", "right": f"right_{side}"})
        joined = joined.join(
            one, on=["item", "turn", f"model_{side}"], how="left", maintain_order="left"
        )
    gap = joined["right_a"] - joined["right_b"]
    return floats(gap)


def _by_labels(winner: Winner, pairs: pl.DataFrame) -> Floats:
    labels = read_labels(Path(winner.labels or ""))
    votes: dict[tuple[str, str, str], float] = {}
    columns = labels.select("item", "model_a", "model_b", "label")
    for item, a, b, label in columns.iter_rows():
        if a is None or b is None:
            continue
        value = winner.values.get(label, label)
        side = SIDES.get(key_text(str(value).lower()))
        vote = _side(value, a, b, {}) if side is None else 2 * side - 1
        for key, sign in (((item, a, b), 1.0), ((item, b, a), -1.0)):
            votes[key] = votes.get(key, 0.0) + sign * vote
    rows = pairs.select("item", "model_a", "model_b").iter_rows()
    return np.array([np.sign(votes.get(row, np.nan)) for row in rows], dtype=np.float64)


def _side(value: str | None, a: str, b: str, meanings: Mapping[str, str]) -> float:
    if value is None:
        return float("nan")
    meant = meanings.get(value, value)
    if meant in (a, b):
        return 1.0 if meant == a else -1.0
    return 0.0 if TIE in meant.lower() else float("nan")


# Calibration: whether judges are right as often as they are sure.
#
# A judge's confidence in a pair is the probability of the side it prefers, over its whole
# distribution and both orders. Pairs whose better answer is not known, or is a tie, are left out.


_OVERALL: Final = table_columns(
    "judge | accuracy: percent | too sure by: signed 3 | Brier score: number 3",
    "ECE: number 3 | pairs: count",
)
_BY_BIN: Final = table_columns(
    "judge | confidence from | mean confidence: number 3 | accuracy: percent", "pairs: count"
)


Calibrated = tuple[str, Calibration, str]
"""One method with one judge: what tables call it, its calibration, and the prompts of the pairs
whose better answer is known, with their clusters, in words."""


def calibrated(settings: Iterable[Judged], confidence_level: float) -> Iterator[Calibrated]:
    """The calibration of each judge of each method, of the columns `CALIBRATED` of its pairs."""
    for one in settings:
        pairs, truth = one.known.pairs, 0.5 + 0.5 * one.known.truth
        found = calibration(pairs.values(SOFT), truth, pairs.prompts(), confidence_level)
        name = f"{one.judge} ({one.source.name})" if one.judge else one.source.name
        yield name, found, prompt_words(pairs.rows)


def tables(found: Sequence[Calibrated]) -> list[Table]:
    """Return the findings as tables: a line a judge, then a line a judge and bin."""
    if not found:
        return []
    overall: list[list[Cell]] = [
        [
            name,
            measured(one.accuracy, with_n=True),
            measured(one.overconfidence, with_n=True),
            measured(one.brier, with_n=True),
            one.expected_error if one.n else None,
            one.n,
        ]
        for name, one, _ in found
    ]
    notes = [
        "too sure by: mean confidence minus accuracy, tied verdicts counting half",
        "Brier score: 0.25 for a coin toss; ECE (expected calibration error) over bins of 0.1 "
        "is never negative, so part of it is noise",
    ]
    _, _, prompts = max(found, key=lambda one: one[1].n)
    basis = f"{prompts} · pairs whose better answer is known"
    title = "Calibration of the judge"
    by_bin: list[list[Cell]] = [
        [
            name,
            " to ".join(f"{end:.1f}" for end in part.bounds),
            part.confidence,
            measured(part.accuracy, with_n=True),
            part.n,
        ]
        for name, one, _ in found
        for part in one.bins
        if part.n
    ]
    over = ["intervals: over prompts, by Gaffke's test of a bounded mean; for these judges"]
    bins = "judge_calibration.bins"
    return [
        make_table("judge_calibration", title, _OVERALL, overall, basis=basis, notes=notes),
        make_table(bins, "Confidence against accuracy", _BY_BIN, by_bin, notes=over),
    ]
