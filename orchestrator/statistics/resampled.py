"""Percentile intervals of any statistic of numbers, by a bootstrap over clusters of prompts."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.bootstrap import prompt_weights
from orchestrator.statistics.jackknife import Resampling
from orchestrator.statistics.results import Estimate, Interval

Floats = NDArray[np.float64]
METHOD = "percentile bootstrap over prompts"


def bootstrapped(
    values: Floats,
    prompts: NDArray[np.int64],
    statistic: Callable[[Floats], float],
    resampling: Resampling,
) -> Estimate:
    """A statistic with its percentile interval; whole clusters of prompts are drawn.

    There is no interval for a single cluster, nor where the statistic of a resample is undefined.

    Args:
        values: Shape (n,), finite.
        prompts: Shape (n,), the cluster of each value: 0, 1, ... without gaps.
        statistic: Of values of shape (m,), m >= 1; nan where it is undefined.
        resampling: Resamples, level and source of the draws.
    """
    if not values.size:
        return Estimate(math.nan, None, 0, METHOD, "no values")
    value, n = float(statistic(values)), int(prompts.max()) + 1
    if math.isnan(value):
        return Estimate(math.nan, None, n, METHOD, "undefined for these values")
    if n < 2:
        return Estimate(value, None, n, METHOD, "one independent prompt: no interval")
    drawn = np.array(
        [
            statistic(np.repeat(values, row[prompts].astype(np.int64)))
            for weights in prompt_weights(n, resampling.n_resamples, resampling.rng)
            for row in weights
        ]
    )
    if np.isnan(drawn).any():
        return Estimate(value, None, n, METHOD, "undefined for some resamples: no interval")
    tail = 0.5 * (1.0 - resampling.confidence_level)
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return Estimate(
        value, Interval(float(low), float(high), resampling.confidence_level), n, METHOD
    )
