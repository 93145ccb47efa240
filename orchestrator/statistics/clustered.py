"""Means of quantities in [0, 1] over judgments that come in prompts."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.statistics.results import Estimate, checked_level, interval_or_none

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

METHOD: Final = "Wilson interval on the effective number of prompts, t quantile"


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
    """Mean over judgments of values in [0, 1], with an interval over prompts.

    The variance is that of a ratio of sums over prompts; the interval is Wilson's (1927,
    doi:10.1080/01621459.1927.10502953) for as many independent yes-or-no prompts as would have
    that variance, with Student's t for the normal quantile, as in surveys. It stays in [0, 1] and
    is never of zero width.

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
    t = scipy.special.stdtrit(np.maximum(n - 1, 1), 0.5 + 0.5 * level)
    low, high = _wilson(values, _effective_prompts(sums, counts, np.maximum(n, 1)), t)
    return Shares(
        np.where(total > 0, values, np.nan),
        np.where(n < 2, np.nan, low),
        np.where(n < 2, np.nan, high),
        n.astype(np.int64),
        total,
    )


def _effective_prompts(sums: Floats, counts: Floats, n: Ints) -> Floats:
    """How many yes-or-no prompts would give the mean its variance, shape (P,).

    One prompt of average weight is added that says half 0, half 1: a judge that is sure nearly
    always would otherwise seem to be sure always, until the one prompt comes on which it is not.
    """
    weight = counts.sum(axis=0) / n
    weight = np.where(weight > 0, weight, 1.0)
    total = weight * (n + 1)
    mean = (sums.sum(axis=0) + 0.5 * weight) / total
    squares = ((sums - mean * counts) ** 2).sum(axis=0)
    squares += weight**2 * 0.5 * (mean**2 + (1.0 - mean) ** 2)
    variance = squares / total**2 * (n + 1) / n
    result: Floats = mean * (1.0 - mean) / variance
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
    return Estimate(float(shares.values[0]), interval, n, METHOD, undefined)


def _wilson(values: Floats, n: Floats, quantile: Floats) -> tuple[Floats, Floats]:
    square = quantile**2
    centre = (values + square / (2 * n)) / (1 + square / n)
    half = quantile / (1 + square / n) * np.sqrt(values * (1 - values) / n + square / (4 * n**2))
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)
