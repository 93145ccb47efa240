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
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from orchestrator.records import Floats, Ints
from orchestrator.statistics.association import Kind, association, leave_one_out, midranks
from orchestrator.statistics.multiple import holm
from orchestrator.statistics.resampling import (
    ARCSINE,
    FISHER,
    JACKKNIFE,
    Jackknifed,
    Resampling,
    Scale,
    codes_of,
    complete_rows,
    jackknife_sums,
    jackknifed,
    mean_of_sums,
    sign_flip_p_value,
    sums_by_prompt,
)
from orchestrator.statistics.results import Estimate

MIN_POINTS: Final = 3
# On these scales intervals are computed.
_SCALES: Final[dict[Kind, Scale]] = {"pearson": FISHER, "spearman": ARCSINE, "kendall": ARCSINE}


@dataclass(frozen=True, slots=True)
class Correlation(Estimate):
    """A correlation, or a difference of two, of so many points."""

    n_points: int = 0


@dataclass(frozen=True, slots=True)
class Points:
    """Complete points of columns that belong to prompts.

    Attributes:
        codes: Shape (n,), prompt of each point, in [0, P).
        columns: Each of shape (n,); ranks where the kind is one of ranks.
        undefined: Why nothing can be correlated; None if something can.
    """

    codes: Ints
    columns: tuple[Floats, ...]
    undefined: str | None

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
        return _nothing(points)
    return _estimate(_coefficient(points, 0, 1, kind), points, kind, confidence_level)


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
        return _nothing(points)
    x, y, z = points.columns
    pairs = ((x, y), (x, z), (y, z))
    value = _partial(*(np.array([association(*pair, kind)]) for pair in pairs))[0]
    if math.isnan(value):
        return _nothing(points, "the covariate determines the score or gold")
    left_out = _partial(*(leave_one_out(*pair, points.codes, kind) for pair in pairs))
    found = jackknifed(float(value), left_out)
    # The covariate takes a degree of freedom.
    return _estimate(found, points, kind, confidence_level, n_strata=2)


def correlate_within(
    score: Floats,
    gold: Floats,
    prompts: Ints,
    categories: Sequence[str],
    *,
    kind: Kind = "spearman",
    confidence_level: float = 0.95,
) -> tuple[dict[str, Estimate], Estimate]:
    """Correlations within categories, so that easy and hard categories add nothing, and their mean.

    All have shape (n,), nan where missing; a prompt may have points in several categories. Returns
    the correlation of each category, in the order of their names, and the unweighted mean over
    those where it is defined; its `undefined` says where it is not.
    """
    labels = np.asarray(list(categories), dtype=object)
    codes = codes_of(prompts)
    given = ~(np.isnan(score) | np.isnan(gold))
    errors = np.zeros(codes.size)
    rows: dict[str, Estimate] = {}
    found, used = [], np.zeros(codes.size, dtype=np.bool_)
    for name in sorted(set(categories)):
        chosen = labels == name
        points = points_of((score[chosen], gold[chosen]), codes[chosen], ("score", "gold"), kind)
        if points.undefined:
            rows[name] = _nothing(points)
            continue
        one = _coefficient(points, 0, 1, kind)
        rows[name] = _estimate(one, points, kind, confidence_level)
        # Codes are places in a table of prompts, and there are no more prompts than points.
        errors[np.unique(codes[chosen & given])] += one.errors
        used |= chosen & given
        found.append(one.value)
    if not found:
        return rows, Estimate(math.nan, None, 0, JACKKNIFE, "undefined in every category")
    sizes = np.unique(codes[used], return_counts=True)[1].astype(np.float64)
    mean = Jackknifed(float(np.mean(found)), errors / len(found)).estimate(
        JACKKNIFE, sizes, confidence_level, _SCALES[kind], n_strata=len(found)
    )
    lacking = ", ".join(name for name, row in rows.items() if math.isnan(row.value))
    reasons = filter(None, (mean.undefined, lacking and f"undefined in {lacking}"))
    return rows, replace(mean, undefined="; ".join(reasons) or None)


def points_of(columns: Sequence[Floats], prompts: Ints, names: Sequence[str], kind: Kind) -> Points:
    """The complete points, as ranks where the kind is one of ranks; or why there is nothing."""
    codes, kept, _ = complete_rows(prompts, columns)
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
    return Points(codes, tuple(kept), reason)


def _coefficient(points: Points, one: int, two: int, kind: Kind) -> Jackknifed:
    """The correlation of two columns, with each prompt's error."""
    x, y = points.columns[one], points.columns[two]
    return jackknifed(association(x, y, kind), leave_one_out(x, y, points.codes, kind))


def _estimate(
    found: Jackknifed, points: Points, kind: Kind, level: float, n_strata: int = 1
) -> Correlation:
    one = found.estimate(JACKKNIFE, points.sizes, level, _SCALES[kind], n_strata)
    return Correlation(one.value, one.interval, one.n, one.method, one.undefined, points.codes.size)


def _nothing(points: Points, reason: str | None = None) -> Correlation:
    """An undefined correlation."""
    why = reason or points.undefined
    return Correlation(math.nan, None, points.sizes.size, JACKKNIFE, why, points.codes.size)


def _partial(r_sg: Floats, r_sc: Floats, r_gc: Floats) -> Floats:
    left = (1.0 - r_sc**2) * (1.0 - r_gc**2)
    defined = left > 1e-12
    value = (r_sg - r_sc * r_gc) / np.sqrt(np.where(defined, left, 1.0))
    return np.where(defined, np.clip(value, -1.0, 1.0), np.nan)


_COMPARED: Final = f"{JACKKNIFE}; p by flipping signs of prompts"


@dataclass(frozen=True, slots=True)
class Comparison(Correlation):
    """Difference of a first evaluator and a second, on the points that both and gold have.

    Its interval is not adjusted for the number of comparisons.

    Attributes:
        first: The first one's correlation or accuracy; nan where undefined.
        second: The second one's.
        p_value: Two-sided, of no difference, not adjusted; nan where there is none.
    """

    first: float = math.nan
    second: float = math.nan
    p_value: float = math.nan


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
    if points.undefined:
        n, n_points = points.sizes.size, points.codes.size
        return Comparison(math.nan, None, n, _COMPARED, points.undefined, n_points)
    one, two = (_coefficient(points, which, 2, kind) for which in (0, 1))
    return _compared(one, two, points.sizes, resampling)


def compare_accuracies(
    first: Floats, second: Floats, prompts: Ints, resampling: Resampling
) -> Comparison:
    """Difference of two evaluators' accuracies (or any mean), on the points that both have.

    Both have shape (n,): 1 where right, 0 where wrong, or a credit between, nan where missing;
    `prompts` (n,). `resampling` is for the p-value, and the interval's level.

    Raises:
        StatisticsError: If the shapes differ.
    """
    codes, columns, _ = complete_rows(prompts, (first, second))
    if not codes.size:
        return Comparison(math.nan, None, 0, _COMPARED, "no points in common")
    parts = sums_by_prompt(codes, (np.ones(codes.size), *columns))
    one, two = (jackknife_sums(parts[:, [0, which]], mean_of_sums) for which in (1, 2))
    return _compared(one, two, parts[:, 0], resampling)


def holm_adjusted(comparisons: Sequence[Comparison]) -> list[float | None]:
    """Holm's adjusted p-values over a family; None where a comparison has none."""
    adjusted = holm(np.array([one.p_value for one in comparisons], dtype=np.float64))
    return [None if math.isnan(p) else p for p in adjusted.tolist()]


def _compared(
    one: Jackknifed, two: Jackknifed, sizes: Floats, resampling: Resampling
) -> Comparison:
    gap = one.minus(two)
    found = gap.estimate(_COMPARED, sizes, resampling.confidence_level)
    return Comparison(
        found.value,
        found.interval,
        found.n,
        found.method,
        found.undefined,
        int(sizes.sum()),
        one.value,
        two.value,
        sign_flip_p_value(gap, resampling),
    )
