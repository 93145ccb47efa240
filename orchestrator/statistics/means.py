"""Means and shares over prompts, and differences of two means, with intervals and tests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics import student
from orchestrator.statistics.bounded_mean import METHOD as BOUNDED
from orchestrator.statistics.bounded_mean import interval_of_mean, intervals, p_value_of_zero
from orchestrator.statistics.multiple import adjusted
from orchestrator.statistics.resampling import (
    JACKKNIFE,
    complete_rows,
    jackknife_sums,
    mean_of_sums,
    student_interval,
    sums_by_prompt,
)
from orchestrator.statistics.results import (
    SKEWED,
    Estimate,
    Interval,
    checked_level,
    interval_or_none,
)
from orchestrator.statistics.student import degrees_of_freedom, variance_factor

_ROUNDING: Final = 1e-12


def scaled(values: Floats) -> tuple[Floats, int]:
    """Return values over a power of two that brings the largest to [0.5, 1), and its exponent.

    Nothing is rounded, save values that are 1e300 times smaller than the largest. `values` are
    finite, shape (n,).
    """
    exponent = int(np.frexp(np.abs(values).max(initial=0.0))[1])
    result: Floats = np.ldexp(values, -exponent)
    return result, exponent


def levelled(means: Floats, size: float) -> Floats:
    """Return means of which those that differ by rounding alone are equal.

    The means of z-scores within each model are 0 for every model but for the last digits of a sum,
    which must not put the models in an order. `means` have shape (M,), nan where there is none;
    `size` is the mean absolute value of what they are means of, by which rounding is measured.
    Returns shape (M,): each mean, or the next greater one where less than rounding lies between.
    """
    result = means.copy()
    descending = np.argsort(-means, kind="stable")
    for before, after in pairwise(descending):
        if means[before] - means[after] <= _ROUNDING * size:
            result[after] = result[before]
    return result


# Distance from the median up to which a prompt's mean counts as equal to it. A server's own noise
# is as large, and probabilities of a judge that is always sure spread below it.
_EQUAL: Final = 1e-3
# Power of the ratio of spreads. Chosen by simulation (benchmarks/bounded_means.py): with 4 a judge
# that is nearly always sure is covered in 81 % instead of 95 %; normal values are not affected.
_STEEPNESS: Final = 8


@dataclass(frozen=True, slots=True)
class Shares:
    """P means with intervals; arrays of shape (P,), or of another where it is said.

    Attributes:
        values: Means; nan where nothing was counted.
        low: nan where there is no interval: fewer than two prompts.
        high: Likewise.
        n_prompts: Prompts that have at least one judgment.
        n_judgments: Judgments (or their weight).
    """

    values: Floats
    low: Floats
    high: Floats
    n_prompts: Ints
    n_judgments: Floats


def clustered_shares(sums: Floats, counts: Floats, confidence_level: float) -> Shares:
    """Mean over judgments of values in [0, 1], with an interval over prompts (`bounded_mean`).

    `sums` and `counts` of values per prompt have shape (n_prompts, P); 0 where the prompt has none.
    """
    level = checked_level(confidence_level)
    if sums.shape != counts.shape or sums.ndim != 2:
        raise StatisticsError(f"sums and counts need one shape (n, P), got {sums.shape}")
    n = (counts > 0).sum(axis=0)
    total = counts.sum(axis=0)
    safe_total = np.where(total > 0, total, 1.0)
    values = sums.sum(axis=0) / safe_total
    low, high = intervals(sums.T, counts.T, 1.0 - level)
    return Shares(
        np.where(total > 0, values, np.nan),
        np.where(n < 2, np.nan, low),
        np.where(n < 2, np.nan, high),
        n.astype(np.int64),
        total,
    )


def unseen_variance(sums: Floats, counts: Floats) -> float:
    """Variance of one mean of values in [0, 1], with a prompt not seen yet.

    A sample cannot show the exceptions that it has missed: twenty prompts on which a judge is sure
    seem to say that it always is. So one prompt that says half 0, half 1 is added to the variance,
    with the weight of `_unseen_weight`. `sums` and `counts` (numbers of values, or their weight)
    per prompt have shape (n_prompts,).
    """
    used = counts > 0
    sums, counts = sums[used], counts[used]
    n = max(sums.size, 1)
    weight = float(counts.sum()) / n or 1.0
    share = _unseen_weight(sums / counts)
    total = weight * (n + share)
    mean = (float(sums.sum()) + 0.5 * share * weight) / total
    squares = float(((sums - mean * counts) ** 2).sum())
    squares += share * weight**2 * 0.5 * (mean**2 + (1.0 - mean) ** 2)
    # With one prompt of weight 0 there is no variance, and no interval is given.
    variance = squares / total**2 * (n + share) / max(n + share - 1.0, 0.5)
    unlike = float(variance_factor(counts[:, None])[0]) * max(n - 1, 1) / n
    return variance * max(unlike, 1.0)


def _unseen_weight(means: Floats) -> float:
    """Weight in (0, 1] of the prompt that stands for exceptions not yet seen.

    It follows the tails of the prompts' means, measured by Geary's ratio (1935,
    doi:10.1093/biomet/27.3-4.310) of standard deviation to mean deviation from the median,
    relative to that of a normal distribution. Normal tails: the added prompt has the squared
    deviation of one more ordinary prompt, which changes nothing. Values that agree but for rare
    exceptions, or agree entirely: a whole prompt.
    """
    if not means.size:
        return 1.0
    centre, variance = float(means.mean()), float(means.var())
    deviation = float(np.maximum(np.abs(means - np.median(means)) - _EQUAL, 0.0).mean())
    if deviation <= 0.0:
        return 1.0
    ratio = math.sqrt(2.0 / math.pi) * math.sqrt(variance) / deviation
    whole = 0.5 * (centre**2 + (1.0 - centre) ** 2)
    return min(1.0, variance * min(ratio, 1e9) ** _STEEPNESS / whole)


def clustered_share(sums: Floats, counts: Floats, confidence_level: float) -> Estimate:
    """`clustered_shares` of one quantity: `sums` and `counts` have shape (n_prompts,)."""
    shares = clustered_shares(sums[:, None], counts[:, None], confidence_level)
    n = int(shares.n_prompts[0])
    interval = interval_or_none(float(shares.low[0]), float(shares.high[0]), confidence_level)
    undefined = None
    if n == 0:
        undefined = "no judgments"
    elif n == 1:
        undefined = "one prompt: no interval"
    return Estimate(float(shares.values[0]), interval, n, BOUNDED, undefined)


def share_over(
    values: Floats, prompts: Ints, confidence_level: float, weights: Floats | None = None
) -> Estimate:
    """`clustered_share` of points: the mean of values in [0, 1], with an interval over prompts.

    `values`, shape (n,), are nan where missing, which is left out; `prompts`, shape (n,), any whole
    numbers; `weights`, shape (n,), are 1 where not given.
    """
    weights = np.ones(values.size) if weights is None else weights
    codes, (kept, each), _ = complete_rows(prompts, (values, weights))
    if not codes.size:
        return Estimate(math.nan, None, 0, BOUNDED, "nothing to count")
    sums = np.bincount(codes, each * kept).astype(np.float64)
    return clustered_share(sums, np.bincount(codes, each).astype(np.float64), confidence_level)


_COCHRAN: Final = 25.0


def _doubt(totals: Floats, sizes: Floats) -> str:
    """`SKEWED` if Student's interval of a mean may not hold for values as skewed as these, or "".

    That is Cochran's rule (1977, Sampling Techniques, section 2.15): the normal approximation needs
    more than 25 G² prompts, where G is their skewness. `totals` and `sizes`, shape (P,), are the
    sum over each prompt, or cluster of them, and its points.
    """
    apart = totals - totals.sum() / sizes.sum() * sizes
    # Cubes of the greatest numbers there are would be infinite, of the least ones 0.
    apart = scaled(apart)[0]
    squares, cubes = float(np.square(apart).mean()), float((apart * np.square(apart)).mean())
    return SKEWED if _COCHRAN * cubes**2 > len(apart) * squares**3 else ""


def clustered_mean(
    values: Floats,
    prompts: Ints,
    confidence_level: float = 0.95,
    ends: tuple[float, float] | None = None,
) -> Estimate:
    """Mean over points, with an interval over prompts; what is missing is left out.

    Where the values have known ends, the interval is that of a bounded mean (`bounded_mean`).
    Without, it is Student's, an approximation, which says so where the values are too skewed for it
    (`Interval.doubt`): for a log-normal quantity it covers 87 % at 20 prompts and 92 % at 200 for a
    level of 95 %. `values` have shape (n,), nan where missing; an infinite one makes the mean
    infinite, without an interval. `prompts`, shape (n,), are any whole numbers; `ends` the least
    and greatest value there can be, None where not known.

    Raises:
        StatisticsError: If the shapes differ, or the level is not in (0, 1).
    """
    codes, (kept,), _ = complete_rows(prompts, (values,))
    if not codes.size:
        return Estimate(math.nan, None, 0, JACKKNIFE, "no values")
    n, exponent = int(codes.max()) + 1, 0
    if not np.isfinite(kept).all():
        with np.errstate(invalid="ignore"):
            return Estimate(float(kept.sum()), None, n, JACKKNIFE, "a value is infinite")
    if ends is None:
        # Sums and squares of the greatest numbers there are would be infinite, of the least ones 0.
        kept, exponent = scaled(kept)
    parts = sums_by_prompt(codes, (np.ones(codes.size), kept))
    found = jackknife_sums(parts, mean_of_sums)
    if ends is not None and n > 1:
        error = 1.0 - checked_level(confidence_level)
        least, most = interval_of_mean(parts[:, 1], parts[:, 0], ends, error)
        return Estimate(found.value, Interval(least, most, confidence_level), n, BOUNDED)
    one = found.estimate(JACKKNIFE, parts[:, 0], confidence_level)
    one = replace(one, value=float(np.ldexp(one.value, exponent)))
    if one.interval is None:
        return one
    with np.errstate(over="ignore"):
        low, high = (float(np.ldexp(end, exponent)) for end in one.ends)
    doubt = _doubt(parts[:, 1], parts[:, 0])
    return replace(one, interval=Interval(low, high, confidence_level, doubt))


METHOD: Final = f"{JACKKNIFE}: approximate, as the values have no known ends"
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
        totals: Shape (P,), summed differences of each prompt (or cluster of prompts); empty without
            known ends, where nothing needs them.
        sizes: Shape (P,), its points.
        n_points: Points with both values.
        n_missing: Points left out.
        ends: Least and greatest difference there can be; None where that is not known.
        doubt: Of the interval of differences without known ends (`Interval.doubt`); else empty.
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
    doubt: str = ""

    @property
    def n(self) -> int:
        """P, the prompts (or clusters of them) that it rests on."""
        return int(self.sizes.size)

    @property
    def method(self) -> str:
        """Name of the interval's method."""
        return METHOD if self.ends is None else BOUNDED

    def estimate(self, confidence_level: float) -> Estimate:
        """Return the difference with its interval.

        It is that of a bounded mean where the ends are known, else Student's, in doubt where the
        differences are too skewed for it.

        Raises:
            StatisticsError: If the level is not in (0, 1).
        """
        checked_level(confidence_level)
        found: Interval | str = "one prompt: no interval"
        if not self.n:
            found = "no points in common"
        elif self.ends is None:
            error = 0.0 if self._has_no_spread else self.standard_error
            found = student_interval(self.value, error, self.sizes, confidence_level)
            found = found if isinstance(found, str) else replace(found, doubt=self.doubt)
        elif self.n > 1:
            error = 1.0 - confidence_level
            bounds = interval_of_mean(self.totals, self.sizes, self.ends, error)
            found = Interval(*bounds, confidence_level)
        interval, why = (None, found) if isinstance(found, str) else (found, None)
        return Estimate(self.value, interval, self.n, self.method, why)

    def p_value(self) -> float:
        """Return the two-sided p-value of no difference.

        It is at most one minus a confidence level exactly where that interval excludes 0. It is nan
        where there is no interval at any level: for too few prompts, and for values without known
        ends that differ by the same on every prompt.
        """
        if self.ends is not None and self.n > 1:
            return p_value_of_zero(self.totals, self.sizes, self.ends)
        if self.estimate(0.5).interval is None:
            return 1.0 if self._has_no_spread and abs(self.value) <= self._nothing else math.nan
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

    All have shape (n,), nan where missing; `prompts` are the clusters of the points, any whole
    numbers. `ends` are the least and greatest difference there can be, None where not known.

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
    # Copies: a view would hold both.
    sizes, totals = parts[:, 0].copy(), parts[:, 1].copy()
    if not is_finite:
        value = means[1] - means[0]
        return PairedDifference(value, *means, math.nan, totals, sizes, codes.size, n_missing)
    found = jackknife_sums(parts, mean_of_sums)
    error = found.standard_error if len(parts) > 1 else math.nan
    doubt = ""
    if ends is None:
        doubt = _doubt(totals, sizes)
        totals = np.empty(0)
    return PairedDifference(
        found.value, *means, error, totals, sizes, codes.size, n_missing, ends, doubt
    )


class Decided(NamedTuple):
    """A difference that is decided together with others.

    Attributes:
        estimate: With the interval at `level`.
        p_value: Two-sided, of no difference; nan where there is none.
        adjusted_p: The same after Holm's adjustment.
        is_resolved: Whether that is at most one minus the confidence level.
        level: That at which the interval excludes 0 exactly where the difference is resolved; nan
            without a test.
    """

    estimate: Estimate
    p_value: float
    adjusted_p: float
    is_resolved: bool
    level: float


def decided_together(found: Sequence[PairedDifference], confidence_level: float) -> list[Decided]:
    """Decide differences so that all that are resolved are right at the confidence level."""
    p_values = np.array([one.p_value() for one in found], dtype=np.float64)
    together = adjusted(p_values, 1.0 - confidence_level)
    columns = (p_values, together.p_values, together.is_resolved, 1.0 - together.errors)
    return [
        # Without a test, any level gives the reason why there is no interval.
        Decided(one.estimate(0.5 if math.isnan(level) else level), p, adjusted_p, is_so, level)
        for one, p, adjusted_p, is_so, level in zip(
            found, *(column.tolist() for column in columns), strict=True
        )
    ]
