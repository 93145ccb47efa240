"""Calibration of judges: how it is measured, and ratings by calibrated preferences.

A judge's confidence in a pair is the probability of the side it prefers, over its whole
distribution and both orders. Pairs whose better answer is not known, or is a tie, are left out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
import polars as pl

from orchestrator.clusters import CLUSTER, codes, prompt_words
from orchestrator.contracts.context import Context, Source
from orchestrator.contracts.settings import Calibrate, Winner
from orchestrator.errors import StatisticsError, UsageError
from orchestrator.ranking.preferences import (
    SOFT,
    TIED,
    UNIT,
    Preferences,
    between,
    judged_rows,
    preferences,
)
from orchestrator.ranking.winners import truths
from orchestrator.records import Floats
from orchestrator.statistics.calibration import Calibration, Kind, calibration, cross_fitted
from orchestrator.statistics.prompt_sums import mean_preferences
from orchestrator.tables import (
    Cell,
    Column,
    Form,
    Measured,
    Table,
    make_table,
    measured,
    table_columns,
)

_OVERALL: Final = table_columns(
    "judge | accuracy: percent | too sure by: signed 3 | Brier score: number 3",
    "ECE: number 3 | pairs: count",
)
_BY_BIN: Final = table_columns(
    "judge | confidence from | mean confidence: number 3 | accuracy: percent", "pairs: count"
)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """One method with one judge.

    Attributes:
        name: What tables call it.
        found: Its calibration.
        prompts: Prompts of the pairs whose better answer is known, and their clusters, in words.
    """

    name: str
    found: Calibration
    prompts: str


def calibrated(context: Context, sources: Sequence[Source], winner: Winner) -> Iterator[Calibrated]:
    """The calibration of each judge of each source.

    Raises:
        UsageError: If it is known of no pair of a source who is better.
    """
    for source in sources:
        rows = judged_rows(context, source)
        if rows.is_empty():
            continue
        pairs = preferences(rows)
        # Most of a large run's columns are the other estimators.
        del rows
        judges = list(replace(pairs, rows=pairs.rows.select(*UNIT, SOFT)).by_judge())
        del pairs
        for judge, of_judge in judges:
            truth = truths(context, winner, of_judge.rows, source.name)
            kept = np.abs(truth) == 1.0
            rows_kept = of_judge.rows.filter(pl.Series(kept))
            found = calibration(
                of_judge.values(SOFT)[kept],
                0.5 + 0.5 * truth[kept],
                codes(rows_kept[CLUSTER]),
                context.confidence_level,
            )
            name = source.name if len(judges) == 1 else f"{source.name} · {judge}"
            yield Calibrated(name, found, prompt_words(rows_kept))


def tables(found: Sequence[Calibrated]) -> list[Table]:
    """Return the findings as tables: a line a judge, then a line a judge and bin."""
    if not found:
        return []
    overall: list[list[Cell]] = [
        [
            one.name,
            measured(one.found.accuracy),
            measured(one.found.overconfidence),
            measured(one.found.brier),
            one.found.expected_error if one.found.n else None,
            one.found.n,
        ]
        for one in found
    ]
    notes = [
        "too sure by: mean confidence minus accuracy, tied verdicts counting half",
        "Brier score: 0.25 for a coin toss; ECE (expected calibration error) over bins of 0.1 "
        "is never negative, so part of it is noise",
    ]
    most = max(found, key=lambda one: one.found.n)
    basis = f"{most.prompts} · pairs whose better answer is known"
    title = "Calibration of the judge"
    by_bin: list[list[Cell]] = [
        [
            one.name,
            " to ".join(f"{end:.1f}" for end in part.bounds),
            part.confidence,
            measured(part.accuracy),
            part.n,
        ]
        for one in found
        for part in one.found.bins
        if part.n
    ]
    over = ["intervals: over prompts, by Gaffke's test of a bounded mean; for these judges"]
    bins = "judge_calibration.bins"
    return [
        make_table("judge_calibration", title, _OVERALL, overall, basis=basis, notes=notes),
        make_table(bins, "Confidence against accuracy", _BY_BIN, by_bin, notes=over),
    ]


CITES: Final = ("guo2017calibration", "zadrozny2002transforming")
KEY: Final = "judge_recalibration"
"""Of the tables that show what calibration does."""

_BY_REFERENCE: Final = Winner(exact_match=True)


@dataclass(frozen=True, slots=True)
class CalibratedJudge:
    """One method with one judge.

    Attributes:
        name: Of this judge in tables.
        own: Its preferences.
        truth: Shape (n,), 1 where model A's answer is the better one, -1 where B's is, 0 for a tie,
            nan if unknown.
        by_map: Its calibrated preferences by each map, or why that can't be fitted.
    """

    name: str
    own: Preferences
    truth: Floats
    by_map: dict[Kind, Preferences | str]


def recalibrated(
    context: Context,
    calibrate: Calibrate | None,
    found: Preferences,
    source: str,
    winner: Winner | None = None,
) -> Preferences:
    """Return the preferences with each judge's calibrated; the same where there is no such setting.

    Each is mapped by a fit to other prompts. Ties, where they were read, shrink in the proportion
    in which the odds of a side move, so that the probabilities of the verdicts fit the preference.
    `winner` is the analysis', where the setting names none.

    Raises:
        UsageError: If too few pairs of a judge have a known winner, or the map can't be fitted.
    """
    if calibrate is None or found.rows.is_empty():
        return found
    truth = truths(context, calibrate.winner or winner or _BY_REFERENCE, found.rows, source)
    result = np.empty(len(found.rows))
    for judge in found.rows["judge"].unique(maintain_order=True):
        mine = found.rows["judge"].eq_missing(pl.Series([judge])).to_numpy()
        one = Preferences(found.rows.filter(pl.Series(mine)), found.estimators, found.mean, 0)
        try:
            result[mine] = _mapped(context, calibrate.by, one, truth[mine])
        except StatisticsError as error:
            raise UsageError(f"{context.name}: {judge or source}: {error}") from None
    return _with(found, result)


def noted(table: Table, calibrate: Calibrate | None) -> Table:
    """Return the table with a note on the calibration of its preferences."""
    if calibrate is None:
        return table
    note = f"preferences: calibrated ({calibrate.by}), each pair by a fit to other prompts"
    return msgspec.structs.replace(table, notes=(*table.notes, note))


def calibrated_judges(
    context: Context, sources: Sequence[Source], kinds: Sequence[Kind], winner: Winner | None
) -> list[CalibratedJudge]:
    """Return every judge of the methods, calibrated by each map.

    Raises:
        UsageError: If no pair was judged, no better answer is known, or no map can be fitted to any
            judge.
    """
    judges = list(_judges(context, sources, kinds, winner or _BY_REFERENCE))
    if not judges:
        raise UsageError(f"{context.name}: no pair was judged")
    if not any(
        isinstance(found, Preferences) for judge in judges for found in judge.by_map.values()
    ):
        raise UsageError(f"{context.name}: {refusals(judges)[0]}")
    return judges


def refusals(judges: Sequence[CalibratedJudge]) -> list[str]:
    """Return the reasons why maps can't be fitted, a sentence for each judge and reason."""
    return [
        f"{judge.name}: {why}"
        for judge in judges
        for why in dict.fromkeys(found for found in judge.by_map.values() if isinstance(found, str))
    ]


def _judges(
    context: Context, sources: Sequence[Source], kinds: Sequence[Kind], winner: Winner
) -> Iterator[CalibratedJudge]:
    for source in sources:
        rows = judged_rows(context, source)
        if rows.is_empty():
            continue
        by_judge = list(preferences(rows).by_judge())
        for judge, own in by_judge:
            truth = truths(context, winner, own.rows, source.name)
            by_map: dict[Kind, Preferences | str] = {}
            for kind in kinds:
                try:
                    by_map[kind] = _with(own, _mapped(context, kind, own, truth))
                except StatisticsError as error:
                    by_map[kind] = str(error)
            named = [source.name] * (len(sources) > 1) + [judge] * (len(by_judge) > 1)
            name = " · ".join(named) or judge
            yield CalibratedJudge(name, own, truth, by_map)


def _mapped(context: Context, kind: Kind, one: Preferences, truth: Floats) -> Floats:
    """Return the calibrated preferences of one judge, shape (n,)."""
    # A tie has no better side, which nothing can be learned from.
    known = np.where(np.abs(truth) == 1.0, 0.5 + 0.5 * truth, np.nan)
    soft = np.clip(one.values(SOFT), 0.0, 1.0)
    return cross_fitted(kind, soft, known, codes(one.rows[CLUSTER]), context.rng())


def _with(found: Preferences, soft: Floats) -> Preferences:
    """Return the same pairs with other preferences, and ties that fit them."""
    columns = [pl.Series(SOFT, soft)]
    if TIED in found.rows.columns:
        # P(tie) is at most twice the smaller side.
        tied = found.rows[TIED].fill_null(0.0).to_numpy().astype(np.float64)
        own = np.clip(found.values(SOFT), 0.0, 1.0)
        before, after = (2.0 * np.minimum(p, 1.0 - p) for p in (own, soft))
        share = np.where(before > 0.0, tied / np.where(before > 0.0, before, 1.0), 0.0)
        columns.append(pl.Series(TIED, np.clip(share, 0.0, 1.0) * after))
    rows = found.rows.with_columns(columns)
    return Preferences(rows, found.estimators, found.mean, found.n_missing)


@dataclass(frozen=True, slots=True)
class CalibratedRatings:
    """Ratings and win rates by calibrated judges, beside those by their own probabilities.

    Attributes:
        source: The method.
        calibrate: The map, and where the better answers are known from.
    """

    source: Source
    calibrate: Calibrate

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate ratings, then win rates; without rows, a table says why there are none."""
        try:
            judges = calibrated_judges(
                context, [self.source], [self.calibrate.by], self.calibrate.winner
            )
        except UsageError as error:
            return [make_table(f"{KEY}.ratings", _RATINGS, (), [], notes=[str(error)])]
        return rating_tables(context, judges)


_RATINGS: Final = "Ratings by calibrated judges"
_NOTES: Final = (
    "calibrated: each pair by a fit to other prompts whose better answer is known; intervals over "
    "prompts, without the uncertainty of the maps",
    "calibration corrects a judge's confidence, not its errors: where a judge errs, calibrated "
    "models lie closer together than the true ones, which human_labels corrects",
)


def rating_tables(context: Context, judges: Sequence[CalibratedJudge]) -> list[Table]:
    """Tabulate ratings, then win rates, by each judge's own and by calibrated preferences."""

    def ratings(found: Preferences) -> list[Measured]:
        rated = found.rated(found.values(SOFT), context.confidence_level)
        return [between(*of) for of in zip(rated.values, rated.low, rated.high, strict=True)]

    def win_rates(found: Preferences) -> list[Measured]:
        sums = found.sides().sums(found.values(SOFT))
        rates = mean_preferences(sums, context.confidence_level)
        return [between(*of) for of in zip(rates.values, rates.low, rates.high, strict=True)]

    notes = (
        "ratings: Bradley-Terry, mean 1000",
        "win rate: mean of P(better), a tie as half a win",
    )
    return [
        _side_by_side(f"{KEY}.ratings", _RATINGS, "rating", judges, ratings, notes[0]),
        _side_by_side(
            f"{KEY}.win_rates",
            "Win rates by calibrated judges",
            "percent",
            judges,
            win_rates,
            notes[1],
        ),
    ]


def _side_by_side(
    key: str,
    title: str,
    form: Form,
    judges: Sequence[CalibratedJudge],
    of: Callable[[Preferences], list[Measured]],
    note: str,
) -> Table:
    """Return a line for each judge and model, best first by the judge's own probabilities."""
    lines: list[list[Cell]] = []
    for judge in judges:
        own, models = of(judge.own), judge.own.models()
        others = [
            [None] * len(models) if isinstance(found, str) else of(found)
            for found in judge.by_map.values()
        ]
        values = np.array([np.nan if cell.value is None else cell.value for cell in own])
        order = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable").tolist()
        lines += [[judge.name, models[at], *(one[at] for one in (own, *others))] for at in order]
    columns = [Column("judge"), Column("model"), Column("its own", form)]
    columns += [Column(kind, form) for kind in judges[0].by_map]
    return make_table(key, title, columns, lines, notes=[note, *_NOTES, *refusals(judges)])
