"""Means with intervals over prompts: of quantities with known ends, and without (ProbDiff's d)."""

import math
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.averages import scaled
from orchestrator.statistics.bounded_mean import METHOD as BOUNDED
from orchestrator.statistics.bounded_mean import interval_of_mean
from orchestrator.statistics.jackknife import (
    complete_rows,
    jackknife_sums,
    mean_of_sums,
    student_interval,
    sums_by_prompt,
)
from orchestrator.statistics.results import SKEWED, Estimate, Interval, checked_level

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_OF_THE_MEAN: Final = "jackknife over prompts, t quantile"

_COCHRAN: Final = 25.0


def with_doubt(interval: Interval, totals: Floats, sizes: Floats) -> Interval:
    """Student's interval of a mean, saying so if the values are too skewed for it.

    That is Cochran's rule (1977, Sampling Techniques, section 2.15): the normal approximation needs
    more than 25 G² prompts, where G is their skewness.

    Args:
        interval: Of the mean.
        totals: Shape (P,): sum over each prompt, or cluster of them.
        sizes: Shape (P,): points of each.
    """
    apart = totals - totals.sum() / sizes.sum() * sizes
    # Cubes of the greatest numbers there are would be infinite, of the least ones 0.
    apart = scaled(apart)[0]
    squares, cubes = float(np.square(apart).mean()), float((apart**3).mean())
    is_skewed = _COCHRAN * cubes**2 > len(apart) * squares**3
    return replace(interval, doubt=SKEWED) if is_skewed else interval


def clustered_mean(
    values: Floats,
    prompts: Ints,
    confidence_level: float = 0.95,
    ends: tuple[float, float] | None = None,
) -> Estimate:
    """Mean over points, with an interval over prompts; what is missing is left out.

    Where the values have known ends, the interval is that of a bounded mean (`bounded_mean`).
    Without, it is Student's, an approximation, which says so where the values are too skewed for
    it (`with_doubt`): for a log-normal quantity it covers 87 % at 20 prompts and 92 % at 200 for a
    level of 95 %.

    Args:
        values: Shape (n,); nan where missing. An infinite value makes the mean infinite, without
            an interval.
        prompts: Shape (n,), any whole numbers.
        confidence_level: In (0, 1).
        ends: Least and greatest value there can be; None where that is not known.

    Raises:
        StatisticsError: If the shapes differ, or the level is not in (0, 1).
    """
    codes, (kept,), _ = complete_rows(prompts, (values,))
    if not codes.size:
        return Estimate(math.nan, None, 0, _OF_THE_MEAN, "no values")
    n, exponent = int(codes.max()) + 1, 0
    if not np.isfinite(kept).all():
        with np.errstate(invalid="ignore"):
            return Estimate(float(kept.sum()), None, n, _OF_THE_MEAN, "a value is infinite")
    if ends is None:
        # Sums and squares of the greatest numbers there are would be infinite, of the least ones 0.
        kept, exponent = scaled(kept)
    parts = sums_by_prompt(codes, (np.ones(codes.size), kept))
    found = jackknife_sums(parts, mean_of_sums)
    if ends is not None and n > 1:
        error = 1.0 - checked_level(confidence_level)
        least, most = interval_of_mean(parts[:, 1], parts[:, 0], ends, error)
        return Estimate(found.value, Interval(least, most, confidence_level), n, BOUNDED)
    interval = student_interval(
        found.value, found.standard_error, n, confidence_level, sizes=parts[:, 0]
    )
    value = float(np.ldexp(found.value, exponent))
    if isinstance(interval, str):
        return Estimate(value, None, n, _OF_THE_MEAN, interval)
    with np.errstate(over="ignore"):
        low, high = (float(np.ldexp(end, exponent)) for end in (interval.low, interval.high))
    interval = with_doubt(Interval(low, high, confidence_level), parts[:, 1], parts[:, 0])
    return Estimate(value, interval, n, _OF_THE_MEAN)
