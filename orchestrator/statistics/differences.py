"""Difference of two means over the same prompts: its interval at any level, and a test."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics import student
from orchestrator.statistics.bounded_mean import METHOD as BOUNDED
from orchestrator.statistics.bounded_mean import interval_of_mean, p_value_of_zero
from orchestrator.statistics.degrees import degrees_of_freedom
from orchestrator.statistics.jackknife import (
    complete_rows,
    jackknife_sums,
    mean_of_sums,
    student_interval,
    sums_by_prompt,
)
from orchestrator.statistics.means import with_doubt
from orchestrator.statistics.results import Interval, checked_level

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

METHOD: Final = "jackknife over prompts, t quantile: approximate, as the values have no known ends"
"""Of values without known ends; of others it is that of `bounded_mean`."""

NO_SPREAD: Final = 1e-12
"""Standard error up to which all prompts say the same, relative to the size of the values."""


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean of a second quantity minus that of a first, on the points that have both.

    Attributes:
        value: Second minus first; nan without points.
        first: Mean of the first.
        second: Mean of the second.
        standard_error: Of the difference, over prompts.
        totals: Shape (P,), summed differences of each prompt (or cluster of prompts).
        sizes: Shape (P,), its points.
        n_points: Points with both values.
        n_missing: Points left out.
        ends: Least and greatest difference there can be; None where that is not known.
    """

    value: float
    first: float
    second: float
    standard_error: float
    totals: Floats
    sizes: Floats
    n_points: int
    n_missing: int
    ends: tuple[float, float] | None = None

    @property
    def n(self) -> int:
        """P, the prompts (or clusters of them) that it rests on."""
        return int(self.sizes.size)

    @property
    def method(self) -> str:
        """Name of the interval's method."""
        return METHOD if self.ends is None else BOUNDED

    def interval(self, confidence_level: float) -> Interval | str:
        """Return the interval, or the reason why there is none.

        It is that of a bounded mean where the ends are known, else Student's, in doubt where the
        differences are too skewed for it.

        Args:
            confidence_level: In (0, 1).

        Raises:
            StatisticsError: If the level is not in (0, 1).
        """
        checked_level(confidence_level)
        if not self.n:
            return "no points in common"
        if self.ends is not None:
            if self.n < 2:
                return "one prompt: no interval"
            error = 1.0 - confidence_level
            bounds = interval_of_mean(self.totals, self.sizes, self.ends, error)
            return Interval(*bounds, confidence_level)
        error = 0.0 if self._has_no_spread else self.standard_error
        found = student_interval(self.value, error, self.n, confidence_level, sizes=self.sizes)
        return found if isinstance(found, str) else with_doubt(found, self.totals, self.sizes)

    def p_value(self) -> float:
        """Return the two-sided p-value of no difference.

        It is at most one minus a confidence level exactly where that interval excludes 0. It is nan
        where there is no interval at any level: for too few prompts, and for values without known
        ends that differ by the same on every prompt.
        """
        if isinstance(self.interval(0.5), str):
            return 1.0 if self._has_no_spread and abs(self.value) <= self._nothing else math.nan
        if self.ends is not None:
            return p_value_of_zero(self.totals, self.sizes, self.ends)
        dof = float(degrees_of_freedom(self.sizes[:, None])[0])
        return student.p_value(self.value, self.standard_error, dof)

    @property
    def _nothing(self) -> float:
        """A difference, or an error, that is rounding."""
        return NO_SPREAD * max(1.0, abs(self.first), abs(self.second))

    @property
    def _has_no_spread(self) -> bool:
        return self.n > 0 and self.standard_error <= self._nothing


def paired_difference(
    first: Floats, second: Floats, prompts: Ints, ends: tuple[float, float] | None = None
) -> PairedDifference:
    """Return the difference of two means over the points that have both values.

    Args:
        first: Shape (n,); nan where missing.
        second: Shape (n,), of the same points.
        prompts: Shape (n,), cluster of prompts of each point, any whole numbers.
        ends: Least and greatest difference there can be; None where that is not known.

    Raises:
        StatisticsError: If the shapes differ.
    """
    codes, (one, two), n_missing = complete_rows(prompts, (first, second))
    if not codes.size:
        nan, none = math.nan, np.empty(0)
        return PairedDifference(nan, nan, nan, nan, none, none, 0, n_missing)
    means = float(one.mean()), float(two.mean())
    is_finite = np.isfinite(one).all() and np.isfinite(two).all()
    parts = sums_by_prompt(codes, (np.ones(codes.size), two - one))
    sizes, totals = parts.T
    if not is_finite:
        value = means[1] - means[0]
        return PairedDifference(value, *means, math.nan, totals, sizes, codes.size, n_missing)
    found = jackknife_sums(parts, mean_of_sums)
    error = found.standard_error if len(parts) > 1 else math.nan
    return PairedDifference(found.value, *means, error, totals, sizes, codes.size, n_missing, ends)
