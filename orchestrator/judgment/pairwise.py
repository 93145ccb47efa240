"""Pairwise judgments in two presentation orders, on 2h+1 levels.

Index 0 of a distribution says that the answer presented first is much better, the middle index a
tie. Order 1 presents (A, B), order 2 presents (B, A). *Pre*-aggregation averages the two orders'
distributions and then takes the statistic; *post*-aggregation takes it per order and combines.
All results are in A's view: +1 is A, -1 is B.

Source: Wang, Zhang and Choi 2025, arXiv 2503.03064, and their released inference formulas.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

from orchestrator.errors import StatisticsError

MEAN_GUARD: Final = 1e-4
"""Spread at or below which the mean is a tie: the distribution is a spike on the middle level."""

MEDIAN_TOLERANCE: Final = 1e-12
"""Distance from one half within which a cumulative sum of float64 counts as one half."""

BINARY_RTOL: Final = 1e-5
BINARY_ATOL: Final = 1e-6
"""Two probabilities closer than this are a tie where the judge has only "A" and "B"."""


_JUDGED: Final = (
    "prefer_a_ab", "prefer_a_ba", "prefer_a", "mean_pre", "mean_post", "mode_pre", "mode_post",
    "median_pre", "median_post",
)  # fmt: skip


def judge_pair(p_ab: Sequence[float], p_ba: Sequence[float]) -> dict[str, float]:
    """The judgment of A against B, in both orders; nan throughout if a probability is nan.

    By name: "prefer_a_ab", P(A is better) + half of P(tie) with A presented first, in [0, 1];
    "prefer_a_ba", the same with B presented first; "prefer_a", the mean of both. "mean_pre", the
    scaled mean of the averaged distribution, in [-1, 1]; "mode_pre" and "median_pre", the signs of
    its mode and median: -1, 0 or 1. "mean_post", "mode_post" and "median_post", those of both
    orders combined, in [-1, 1].

    Plain Python, because numpy costs ten times as much for one. Each has 2h+1 probabilities; `p_ba`
    with B presented first, as the judge saw it (not reversed).

    Raises:
        StatisticsError: If the lengths differ or are even.
    """
    n_levels = len(p_ab)
    if n_levels != len(p_ba) or n_levels % 2 == 0:
        raise StatisticsError(
            f"a pairwise judgment needs two distributions over the same odd number of levels, got "
            f"{n_levels} and {len(p_ba)}"
        )
    if math.isnan(sum(p_ab) + sum(p_ba)):
        return dict.fromkeys(_JUDGED, math.nan)
    half = n_levels // 2
    symmetric = [0.5 * (a + b) for a, b in zip(p_ab, reversed(p_ba), strict=True)]
    prefer_ab = _prefer(p_ab, half)
    prefer_ba = 1.0 - _prefer(p_ba, half)

    def taken(statistic: Callable[[Sequence[float], int], float]) -> tuple[float, float]:
        """The sign of a statistic of both orders together, and those of each combined."""
        pre, one, two = (statistic(of, half) for of in (symmetric, p_ab, p_ba))
        size = abs(one) + abs(two)
        return (pre > 0) - (pre < 0) + 0.0, (one - two) / size if size else 0.0

    found = (
        prefer_ab,
        prefer_ba,
        0.5 * (prefer_ab + prefer_ba),
        _scaled_mean(symmetric, half),
        0.5 * (_scaled_mean(p_ab, half) - _scaled_mean(p_ba, half)),
        *taken(_mode),
        *taken(_median),
    )
    return dict(zip(_JUDGED, found, strict=True))


def expand_two(p_first: float, p_second: float) -> tuple[float, float, float]:
    """P(first better), P(tied), P(second better) of two labels' masses; nan where there is none."""
    if math.isnan(p_first + p_second) or p_first + p_second <= 0:
        return math.nan, math.nan, math.nan
    if abs(p_first - p_second) <= BINARY_ATOL + BINARY_RTOL * abs(p_second):
        return 0.0, 1.0, 0.0
    total = p_first + p_second
    return p_first / total, 0.0, p_second / total


def _prefer(probabilities: Sequence[float], half: int) -> float:
    gap = 0.0
    for i in range(half):
        gap += probabilities[i] - probabilities[-1 - i]
    return 0.5 + 0.5 * gap


def _scaled_mean(probabilities: Sequence[float], half: int) -> float:
    mean = size = square = 0.0
    for i in range(half):
        distance = half - i
        better, worse = probabilities[i], probabilities[-1 - i]
        mean += distance * (better - worse)
        weight = distance * (better + worse)
        size += weight
        square += distance * weight
    spread = size + math.sqrt(max(square - mean * mean, 0.0))
    return mean / spread if spread > MEAN_GUARD else 0.0


def _mode(probabilities: Sequence[float], half: int) -> float:
    top = max(probabilities)
    levels = [half - i for i, value in enumerate(probabilities) if value == top]
    return sum(levels) / len(levels)


def _median(probabilities: Sequence[float], half: int) -> float:
    threshold = 0.5 + MEDIAN_TOLERANCE
    return 0.5 * (half - _crossing(probabilities, threshold) - half) + 0.5 * _crossing(
        probabilities[::-1], threshold
    )


def _crossing(probabilities: Sequence[float], threshold: float) -> int:
    total = 0.0
    for i, value in enumerate(probabilities):
        total += value
        if total > threshold:
            return i
    return 0
