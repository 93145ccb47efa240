"""Means of quantities in [0, 1] over judgments that come in prompts."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.statistics.bounded_mean import METHOD as BOUNDED
from orchestrator.statistics.bounded_mean import intervals
from orchestrator.statistics.degrees import variance_factor
from orchestrator.statistics.results import Estimate, checked_level, interval_or_none

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Distance from the median up to which a prompt's mean counts as equal to it. A server's own noise
# is as large, and probabilities of a judge that is always sure spread below it.
_EQUAL: Final = 1e-3
# Power of the ratio of spreads. Chosen by simulation (benchmarks/bounded_means.py): with 4 a judge
# that is nearly always sure is covered in 81 % instead of 95 %; normal values are not affected.
_STEEPNESS: Final = 8


@dataclass(frozen=True, slots=True)
class Shares:
    """P means with intervals; arrays of shape (P,).

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

    Args:
        sums: Shape (n_prompts, P): sums of values per prompt.
        counts: Shape (n_prompts, P): numbers of values; 0 where the prompt has none.
        confidence_level: In (0, 1).
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
    with the weight of `_unseen_weights`.

    Args:
        sums: Shape (n_prompts,): sums of values per prompt.
        counts: Shape (n_prompts,): numbers of values, or their weight.
    """
    n = np.maximum((counts > 0).sum(keepdims=True), 1)
    return float(_variance(sums[:, None], counts[:, None], n)[1][0])


def _variance(sums: Floats, counts: Floats, n: Ints) -> tuple[Floats, Floats]:
    """Means and their variances with the prompt not seen yet, both of shape (P,)."""
    weight = counts.sum(axis=0) / n
    weight = np.where(weight > 0, weight, 1.0)
    share = _unseen_weights(sums, counts, n)
    unseen = share * weight
    total = weight * n + unseen
    mean = (sums.sum(axis=0) + 0.5 * unseen) / total
    squares = ((sums - mean * counts) ** 2).sum(axis=0)
    squares += share * weight**2 * 0.5 * (mean**2 + (1.0 - mean) ** 2)
    n_added = n + share
    # With one prompt of weight 0 there is no variance, and no interval is given.
    variance = squares / total**2 * n_added / np.maximum(n_added - 1.0, 0.5)
    unlike = variance_factor(counts) * np.maximum(n - 1, 1) / n
    return mean, variance * np.maximum(unlike, 1.0)


def _unseen_weights(sums: Floats, counts: Floats, n: Ints) -> Floats:
    """Weight in (0, 1], shape (P,), of the prompt that stands for exceptions not yet seen.

    It follows the tails of the prompts' means, measured by Geary's ratio (1935,
    doi:10.1093/biomet/27.3-4.310) of standard deviation to mean deviation from the median,
    relative to that of a normal distribution. Normal tails: the added prompt has the squared
    deviation of one more ordinary prompt, which changes nothing. Values that agree but for rare
    exceptions, or agree entirely: a whole prompt.
    """
    used = counts > 0
    means = np.where(used, sums / np.where(used, counts, 1.0), np.nan)
    apart = np.where(used, np.abs(means - _medians(means, n)), 0.0)
    centre = np.where(used, means, 0.0).sum(axis=0) / n
    variance = np.where(used, (means - centre) ** 2, 0.0).sum(axis=0) / n
    deviation = np.maximum(apart - _EQUAL, 0.0).sum(axis=0) / n
    ratio = np.full(n.shape, np.inf)
    np.divide(
        math.sqrt(2.0 / math.pi) * np.sqrt(variance), deviation, out=ratio, where=deviation > 0
    )
    whole = 0.5 * (centre**2 + (1.0 - centre) ** 2)
    # Where everything agrees the ratio is infinite and the variance may be 0.
    seen = np.where(np.isinf(ratio), np.inf, variance * np.minimum(ratio, 1e9) ** _STEEPNESS)
    result: Floats = np.minimum(1.0, seen / whole)
    return result


def _medians(means: Floats, n: Ints) -> Floats:
    """Medians of the columns of `means`, shape (P,), without what is nan; nan for no value."""
    in_order = np.sort(means, axis=0)
    if not len(in_order):
        return np.full(n.shape, np.nan)
    middle = np.stack([(n - 1) // 2, n // 2])
    result: Floats = np.take_along_axis(in_order, middle, axis=0).mean(axis=0)
    return result


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
