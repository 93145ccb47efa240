"""Correlation of scores with gold, and two evaluators compared by how each goes along with it.

Signed, since the sign is the finding: in SelfEval's own data mean log-probability goes *against*
the grade, and its table prints the absolute value. Intervals come from leaving out one prompt with
all its points at a time, on the scale on which the coefficient is nearest to normal (Fisher's z for
Pearson, the arcsine for ranks), with Student's t. `docs/statistics.md` has their measured coverage:
they hold at 20 prompts, except Pearson's of strongly skewed and correlated values (log-normal:
81 to 88 % for a level of 95 %, also with 200 prompts); use a rank correlation there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from orchestrator.records import Floats, Ints
from orchestrator.statistics.association import Kind, association, leave_one_out, midranks
from orchestrator.statistics.multiple import holm
from orchestrator.statistics.resampling import (
    ARCSINE,
    FISHER,
    Jackknifed,
    Resampling,
    Scale,
    complete_rows,
    jackknife_sums,
    jackknifed,
    mean_of_sums,
    sign_flip_p_value,
    student_interval,
    sums_by_prompt,
)
from orchestrator.statistics.results import Interval

MIN_POINTS: Final = 3
METHOD: Final = "jackknife over prompts, t quantile"


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation and what it rests on.

    Attributes:
        value: Signed; None where undefined.
        interval: Over prompts; None where there is none (see `undefined`).
        n: Prompts.
        n_points: Points with all values.
        n_missing: Points left out since a value is missing.
        method: Of the interval.
        undefined: Why there is no value or no interval; None where there are both.
    """

    value: float | None
    interval: Interval | None
    n: int
    n_points: int
    n_missing: int
    method: str
    undefined: str | None = None


@dataclass(frozen=True, slots=True)
class Points:
    """Complete points of columns that belong to prompts.

    Attributes:
        codes: Shape (n,), prompt of each point, in [0, P).
        columns: Each of shape (n,); ranks where the kind is one of ranks.
        n_missing: Points left out.
        undefined: Why nothing can be correlated; None if something can.
    """

    codes: Ints
    columns: tuple[Floats, ...]
    n_missing: int
    undefined: str | None

    @property
    def n_prompts(self) -> int:
        """Prompts that have a point."""
        return int(self.codes.max()) + 1 if self.codes.size else 0

    @property
    def sizes(self) -> Floats:
        """Points of each prompt, shape (P,)."""
        return np.bincount(self.codes).astype(np.float64)


def correlate(
    score: Floats,
    gold: Floats,
    prompts: Ints,
    *,
    kind: Kind = "spearman",
    confidence_level: float = 0.95,
) -> Correlation:
    """Correlation of a score with gold.

    All have shape (n,), nan where missing; infinite values have a rank but no Pearson. `prompts`
    are any whole numbers.

    Raises:
        StatisticsError: If the shapes differ, or the level is not in (0, 1).
    """
    points = points_of((score, gold), prompts, ("score", "gold"), kind)
    if points.undefined:
        return nothing(points)
    found = coefficient(points, 0, 1, kind)
    return reported(found.value, found.standard_error, kind, points, confidence_level)


def partial_correlation(
    score: Floats,
    gold: Floats,
    given: Floats,
    prompts: Ints,
    *,
    kind: Literal["pearson", "spearman"] = "spearman",
    confidence_level: float = 0.95,
) -> Correlation:
    """Correlation of a score with gold that length, or another covariate, does not explain.

    (r_sg - r_sc r_gc) / sqrt((1 - r_sc^2) (1 - r_gc^2)): Pearson's is that of residuals of linear
    regressions on the covariate, Spearman's the same of ranks. All have shape (n,), nan where
    missing; `given` is the covariate.
    """
    points = points_of((score, gold, given), prompts, ("score", "gold", "covariate"), kind)
    if points.undefined:
        return nothing(points)
    x, y, z = points.columns
    pairs = ((x, y), (x, z), (y, z))
    value = _partial(*(np.array([association(*pair, kind)]) for pair in pairs))[0]
    if math.isnan(value):
        return nothing(points, "the covariate determines the score or gold")
    left_out = _partial(*(leave_one_out(*pair, points.codes, kind) for pair in pairs))
    found = jackknifed(float(value), left_out)
    error = found.standard_error
    # The covariate takes a degree of freedom.
    return reported(found.value, error, kind, points, confidence_level, n_strata=2)


def correlate_within(
    score: Floats,
    gold: Floats,
    prompts: Ints,
    categories: Sequence[str],
    *,
    kind: Kind = "spearman",
    confidence_level: float = 0.95,
) -> tuple[dict[str, Correlation], Correlation]:
    """Correlations within categories, so that easy and hard categories add nothing, and their mean.

    All have shape (n,), nan where missing; a prompt may have points in several categories. Returns
    the correlation of each category, in the order of their names, and the unweighted mean over
    those where it is defined; its `undefined` says where it is not.
    """
    labels = np.asarray(list(categories), dtype=object)
    codes = np.unique(prompts, return_inverse=True)[1].reshape(-1).astype(np.int64)
    given = ~(np.isnan(score) | np.isnan(gold))
    errors = np.zeros(codes.size)
    rows: dict[str, Correlation] = {}
    found, used = [], np.zeros(codes.size, dtype=np.bool_)
    for name in sorted(set(categories)):
        chosen = labels == name
        points = points_of((score[chosen], gold[chosen]), codes[chosen], ("score", "gold"), kind)
        if points.undefined:
            rows[name] = nothing(points)
            continue
        one = coefficient(points, 0, 1, kind)
        rows[name] = reported(one.value, one.standard_error, kind, points, confidence_level)
        # Codes are places in a table of prompts, and there are no more prompts than points.
        errors[np.unique(codes[chosen & given])] += one.errors
        used |= chosen & given
        found.append(one.value)
    sizes = np.unique(codes[used], return_counts=True)[1].astype(np.float64)
    counts = sizes.size, int(used.sum()), int((~given).sum())
    if not found:
        nowhere = "undefined in every category"
        return rows, Correlation(None, None, *counts, METHOD, nowhere)
    over_categories = Jackknifed(float(np.mean(found)), errors / len(found))
    interval = student_interval(
        over_categories.value,
        over_categories.standard_error,
        sizes.size,
        confidence_level,
        scale=scale_of(kind),
        n_strata=len(found),
        sizes=sizes,
    )
    reasons = [interval] if isinstance(interval, str) else []
    if lacking := [name for name, row in rows.items() if row.value is None]:
        reasons.append(f"undefined in {', '.join(lacking)}")
    bounds = None if isinstance(interval, str) else interval
    value = over_categories.value
    return rows, Correlation(value, bounds, *counts, METHOD, "; ".join(reasons) or None)


def points_of(columns: Sequence[Floats], prompts: Ints, names: Sequence[str], kind: Kind) -> Points:
    """The complete points, as ranks where the kind is one of ranks; or why there is nothing."""
    codes, kept, n_missing = complete_rows(prompts, columns)
    reason = None
    if codes.size < MIN_POINTS:
        reason = f"{codes.size} points, fewer than {MIN_POINTS}"
    for name, column in zip(names, kept, strict=True):
        if reason is None and kind == "pearson" and not np.isfinite(column).all():
            reason = f"{name} has infinite values: only rank correlations are defined"
        elif reason is None and np.all(column == column[0]):
            reason = f"{name} is constant"
    if reason is None and kind != "pearson":
        kept = [midranks(column) for column in kept]
    return Points(codes, tuple(kept), n_missing, reason)


def coefficient(points: Points, one: int, two: int, kind: Kind) -> Jackknifed:
    """The correlation of two columns, with each prompt's error."""
    x, y = points.columns[one], points.columns[two]
    return jackknifed(association(x, y, kind), leave_one_out(x, y, points.codes, kind))


def scale_of(kind: Kind) -> Scale:
    """Return the scale on which intervals of a kind are computed."""
    return FISHER if kind == "pearson" else ARCSINE


def reported(
    value: float,
    standard_error: float,
    kind: Kind,
    points: Points,
    confidence_level: float,
    *,
    n_strata: int = 1,
) -> Correlation:
    """A correlation with its interval, or why there is none."""
    n = points.n_prompts
    interval = student_interval(
        value,
        standard_error,
        n,
        confidence_level,
        scale=scale_of(kind),
        n_strata=n_strata,
        sizes=points.sizes,
    )
    counts = n, points.codes.size, points.n_missing
    if isinstance(interval, str):
        return Correlation(value, None, *counts, METHOD, interval)
    return Correlation(value, interval, *counts, METHOD)


def nothing(points: Points, reason: str | None = None) -> Correlation:
    """An undefined correlation."""
    why = reason or points.undefined or "undefined"
    counts = points.n_prompts, points.codes.size, points.n_missing
    return Correlation(None, None, *counts, METHOD, why)


def _partial(r_sg: Floats, r_sc: Floats, r_gc: Floats) -> Floats:
    left = (1.0 - r_sc**2) * (1.0 - r_gc**2)
    defined = left > 1e-12
    value = (r_sg - r_sc * r_gc) / np.sqrt(np.where(defined, left, 1.0))
    return np.where(defined, np.clip(value, -1.0, 1.0), np.nan)


_COMPARED: Final = "jackknife over prompts, t quantile; p by flipping signs of prompts"


@dataclass(frozen=True, slots=True)
class Comparison(Correlation):
    """Difference of a first evaluator and a second, on the points that both and gold have.

    Its interval is not adjusted for the number of comparisons.

    Attributes:
        first: The first one's correlation or accuracy.
        second: The second one's.
        p_value: Two-sided, of no difference, not adjusted; None where there is none.
    """

    first: float | None = None
    second: float | None = None
    p_value: float | None = None


def compare_correlations(
    first: Floats, second: Floats, gold: Floats, prompts: Ints, kind: Kind, resampling: Resampling
) -> Comparison:
    """Difference of two evaluators' correlations with gold, on the points that both have.

    All have shape (n,), nan where missing. `resampling` is for the p-value, and the interval's
    level.

    Raises:
        StatisticsError: If the shapes differ.
    """
    names = ("the first score", "the second score", "gold")
    points = points_of((first, second, gold), prompts, names, kind)
    counts = points.n_prompts, points.codes.size, points.n_missing
    if points.undefined:
        return Comparison(None, None, *counts, _COMPARED, points.undefined)
    found = (coefficient(points, 0, 2, kind), coefficient(points, 1, 2, kind))
    return _compared(found, counts, points.sizes, resampling)


def compare_accuracies(
    first: Floats, second: Floats, prompts: Ints, resampling: Resampling
) -> Comparison:
    """Difference of two evaluators' accuracies (or any mean), on the points that both have.

    Both have shape (n,): 1 where right, 0 where wrong, or a credit between, nan where missing;
    `prompts` (n,). `resampling` is for the p-value, and the interval's level.

    Raises:
        StatisticsError: If the shapes differ.
    """
    codes, (one, two), n_missing = complete_rows(prompts, (first, second))
    if not codes.size:
        reason = "no points in common"
        return Comparison(None, None, 0, 0, n_missing, _COMPARED, reason)
    parts = sums_by_prompt(codes, (np.ones(codes.size), one, two))
    counts = len(parts), codes.size, n_missing
    found = (
        jackknife_sums(parts[:, [0, 1]], mean_of_sums),
        jackknife_sums(parts[:, [0, 2]], mean_of_sums),
    )
    return _compared(found, counts, parts[:, 0], resampling)


def holm_adjusted(comparisons: Sequence[Comparison]) -> tuple[float | None, ...]:
    """Holm's adjusted p-values over a family; None where a comparison has none."""
    known = np.array([math.nan if c.p_value is None else c.p_value for c in comparisons], float)
    return tuple(None if math.isnan(p) else float(p) for p in holm(known))


def _compared(
    found: tuple[Jackknifed, Jackknifed],
    counts: tuple[int, int, int],
    sizes: Floats,
    resampling: Resampling,
) -> Comparison:
    one, two = found
    gap = one.minus(two)
    level = resampling.confidence_level
    interval = student_interval(gap.value, gap.standard_error, gap.n_prompts, level, sizes=sizes)
    p_value = sign_flip_p_value(gap, resampling)
    reason = interval if isinstance(interval, str) else None
    shown = None if isinstance(interval, str) else interval
    p = None if math.isnan(p_value) else p_value
    return Comparison(gap.value, shown, *counts, _COMPARED, reason, one.value, two.value, p)
