"""Two evaluators on the same prompts: is one better, given how each goes along with gold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.association import Kind
from orchestrator.statistics.correlation import coefficient, points_of
from orchestrator.statistics.jackknife import (
    Jackknifed,
    Resampling,
    complete_rows,
    jackknife_sums,
    mean_of_sums,
    sign_flip_p_value,
    student_interval,
    sums_by_prompt,
)
from orchestrator.statistics.multiple import holm
from orchestrator.statistics.results import Interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_COMPARED: Final = "jackknife over prompts, t quantile; p by flipping signs of prompts"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Difference of a first evaluator and a second.

    Attributes:
        value: Difference; None where undefined.
        first: The first one's correlation or accuracy.
        second: The second one's.
        interval: Of the difference, not adjusted for the number of comparisons.
        p_value: Two-sided, of no difference, not adjusted; None where there is none.
        n: Prompts.
        n_points: Points that both evaluators and gold have.
        n_missing: Points left out.
        method: Of interval and p-value.
        undefined: Why there is no value or no interval; None where there are both.
    """

    value: float | None
    first: float | None
    second: float | None
    interval: Interval | None
    p_value: float | None
    n: int
    n_points: int
    n_missing: int
    method: str
    undefined: str | None = None


def compare_correlations(
    first: Floats,
    second: Floats,
    gold: Floats,
    prompts: Ints,
    kind: Kind,
    resampling: Resampling,
) -> Comparison:
    """Difference of two evaluators' correlations with gold, on the points that both have.

    Args:
        first: Shape (n,), scores; nan where missing.
        second: Shape (n,).
        gold: Shape (n,).
        prompts: Shape (n,).
        kind: Which correlation.
        resampling: For the p-value, and the interval's level.

    Raises:
        StatisticsError: If the shapes differ.
    """
    names = ("the first score", "the second score", "gold")
    points = points_of((first, second, gold), prompts, names, kind)
    counts = points.n_prompts, points.codes.size, points.n_missing
    if points.undefined:
        return Comparison(None, None, None, None, None, *counts, _COMPARED, points.undefined)
    found = (coefficient(points, 0, 2, kind), coefficient(points, 1, 2, kind))
    return _compared(found, counts, points.sizes, resampling)


def compare_accuracies(
    first: Floats, second: Floats, prompts: Ints, resampling: Resampling
) -> Comparison:
    """Difference of two evaluators' accuracies (or any mean), on the points that both have.

    Args:
        first: Shape (n,), 1 where right, 0 where wrong, or a credit between; nan where missing.
        second: Shape (n,).
        prompts: Shape (n,).
        resampling: For the p-value, and the interval's level.

    Raises:
        StatisticsError: If the shapes differ.
    """
    codes, (one, two), n_missing = complete_rows(prompts, (first, second))
    if not codes.size:
        reason = "no points in common"
        return Comparison(None, None, None, None, None, 0, 0, n_missing, _COMPARED, reason)
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
    return Comparison(gap.value, one.value, two.value, shown, p, *counts, _COMPARED, reason)
