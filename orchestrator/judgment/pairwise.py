"""Pairwise judgments in two presentation orders, on 2h+1 levels.

Index 0 of a distribution says that the answer presented first is much better, the middle index a
tie. Order 1 presents (A, B), order 2 presents (B, A). *Pre*-aggregation averages the two orders'
distributions and then takes the statistic; *post*-aggregation takes it per order and combines.
All results are in A's view: +1 is A, -1 is B.

Source: Wang, Zhang and Choi 2025, arXiv 2503.03064, and their released inference formulas.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from orchestrator.errors import StatisticsError

Floats = NDArray[np.float64]

MEAN_GUARD: Final = 1e-4
"""Spread at or below which the mean is a tie: the distribution is a spike on the middle level."""

MEDIAN_TOLERANCE: Final = 1e-12
"""Distance from one half within which a cumulative sum of float64 counts as one half."""

BINARY_RTOL: Final = 1e-5
BINARY_ATOL: Final = 1e-6
"""Two probabilities closer than this are a tie where the judge has only "A" and "B"."""


class PairJudgment(msgspec.Struct, frozen=True, gc=False):
    """A against B, judged in both orders; nan throughout if a probability is nan.

    Attributes:
        prefer_ab: P(A is better) + half of P(tie) with A presented first, in [0, 1].
        prefer_ba: The same with B presented first.
        prefer: Mean of both.
        mean_pre: Scaled mean of the averaged distribution, in [-1, 1].
        mean_post: Average of the two orders' scaled means, in [-1, 1].
        mode_pre: Sign of the averaged distribution's mode: -1, 0 or 1.
        mode_post: The two orders' modes combined, in [-1, 1].
        median_pre: Sign of the averaged distribution's median: -1, 0 or 1.
        median_post: The two orders' medians combined, in [-1, 1].
    """

    prefer_ab: float
    prefer_ba: float
    prefer: float
    mean_pre: float
    mean_post: float
    mode_pre: float
    mode_post: float
    median_pre: float
    median_post: float


@dataclass(frozen=True, slots=True)
class PairJudgments:
    """`PairJudgment` of n pairs at once: arrays of shape (n,), float64."""

    prefer_ab: Floats
    prefer_ba: Floats
    prefer: Floats
    mean_pre: Floats
    mean_post: Floats
    mode_pre: Floats
    mode_post: Floats
    median_pre: Floats
    median_post: Floats


def judge_pair(p_ab: Sequence[float], p_ba: Sequence[float]) -> PairJudgment:
    """The judgment of one pair; plain Python, because numpy costs ten times as much for one.

    Args:
        p_ab: 2h+1 probabilities with A presented first.
        p_ba: 2h+1 probabilities with B presented first, as the judge saw it (not reversed).

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
        nan = math.nan
        return PairJudgment(nan, nan, nan, nan, nan, nan, nan, nan, nan)
    half = n_levels // 2
    symmetric = [0.5 * (a + b) for a, b in zip(p_ab, reversed(p_ba), strict=True)]
    prefer_ab = _prefer(p_ab, half)
    prefer_ba = 1.0 - _prefer(p_ba, half)
    return PairJudgment(
        prefer_ab,
        prefer_ba,
        0.5 * (prefer_ab + prefer_ba),
        _scaled_mean(symmetric, half),
        0.5 * (_scaled_mean(p_ab, half) - _scaled_mean(p_ba, half)),
        _sign(_mode(symmetric, half)),
        _combine(_mode(p_ab, half), _mode(p_ba, half)),
        _sign(_median(symmetric, half)),
        _combine(_median(p_ab, half), _median(p_ba, half)),
    )


def judge_pairs(p_ab: ArrayLike, p_ba: ArrayLike) -> PairJudgments:
    """The judgments of n pairs.

    Args:
        p_ab: Shape (n, 2h+1), with A presented first.
        p_ba: Shape (n, 2h+1), with B presented first, as the judge saw it (not reversed).

    Shapes that differ, are not two-dimensional or have an even length raise a `StatisticsError`.
    """
    first, second = _checked(p_ab, p_ba)
    symmetric = symmetrised(first, second)
    missing = np.isnan(symmetric).any(axis=1)
    prefer_ab = prefer_first(first)
    prefer_ba = 1.0 - prefer_first(second)
    columns = (
        prefer_ab,
        prefer_ba,
        0.5 * (prefer_ab + prefer_ba),
        scaled_means(symmetric),
        0.5 * (scaled_means(first) - scaled_means(second)),
        np.sign(modes(symmetric)),
        _combined(modes(first), modes(second)),
        np.sign(medians(symmetric)),
        _combined(medians(first), medians(second)),
    )
    return PairJudgments(*(np.where(missing, np.nan, column) for column in columns))


def symmetrised(p_ab: ArrayLike, p_ba: ArrayLike) -> Floats:
    """Both orders' distributions averaged in A's view, shape (n, 2h+1)."""
    first, second = _checked(p_ab, p_ba)
    averaged: Floats = 0.5 * (first + second[:, ::-1])
    return averaged


def prefer_first(probabilities: Floats) -> Floats:
    """P(first presented is better) + half of P(tie), shape (n,), of an (n, 2h+1) array."""
    half = probabilities.shape[1] // 2
    gap = probabilities[:, :half] - probabilities[:, :half:-1]
    result: Floats = 0.5 + 0.5 * gap.sum(axis=1)
    return result


def scaled_means(probabilities: Floats) -> Floats:
    """Scaled mean mu / (E|X| + std), in [-1, 1], shape (n,); 0 where that sum is at most 1e-4."""
    half = probabilities.shape[1] // 2
    distance = np.arange(half, 0, -1, dtype=np.float64)
    better, worse = probabilities[:, :half], probabilities[:, :half:-1]
    mean = (better - worse) @ distance
    variance = (better + worse) @ distance**2 - mean**2
    spread = (better + worse) @ distance + np.sqrt(np.maximum(variance, 0.0))
    small = spread <= MEAN_GUARD
    result: Floats = np.where(small, 0.0, mean / np.where(small, 1.0, spread))
    return result


def modes(probabilities: Floats) -> Floats:
    """Average of all most likely levels (+h first), shape (n,); exact equality decides ties."""
    top = probabilities == probabilities.max(axis=1, keepdims=True)
    result: Floats = (top @ _levels(probabilities)) / np.maximum(top.sum(axis=1), 1)
    return result


def medians(probabilities: Floats) -> Floats:
    """Median level, shape (n,); midway between two where exactly one half lies on either side."""
    half = probabilities.shape[1] // 2
    from_top = np.cumsum(probabilities, axis=1)
    from_bottom = np.cumsum(probabilities[:, ::-1], axis=1)
    # Summed from both ends, so that swapping A and B mirrors the result to the last bit.
    upper = (from_top > 0.5 + MEDIAN_TOLERANCE).argmax(axis=1)
    lower = (from_bottom > 0.5 + MEDIAN_TOLERANCE).argmax(axis=1)
    result: Floats = 0.5 * ((half - upper) + (lower - half)).astype(np.float64)
    return result


def expand_binary(p_first: ArrayLike, p_second: ArrayLike) -> Floats:
    """Three levels (first, tie, second), shape (n, 3), of a judge that answers "A" or "B".

    Equal probabilities (within 1e-6 + 1e-5 of the second) become a certain tie. Unlike the
    reference code, which makes nan a tie too, nan stays nan.
    """
    first, second = np.asarray(p_first, np.float64), np.asarray(p_second, np.float64)
    tie = np.abs(first - second) <= BINARY_ATOL + BINARY_RTOL * np.abs(second)
    total = first + second
    empty = total <= 0
    scale = np.where(empty, np.nan, total)
    expanded = np.stack([first / scale, np.zeros_like(first) * scale, second / scale], axis=-1)
    certain_tie = (tie & ~empty)[..., None]
    result: Floats = np.where(certain_tie, np.array([0.0, 1.0, 0.0]), expanded)
    return result


def expand_two(p_first: float, p_second: float) -> tuple[float, float, float]:
    """`expand_binary` of one pair of probabilities, in plain Python."""
    if math.isnan(p_first + p_second) or p_first + p_second <= 0:
        return math.nan, math.nan, math.nan
    if abs(p_first - p_second) <= BINARY_ATOL + BINARY_RTOL * abs(p_second):
        return 0.0, 1.0, 0.0
    total = p_first + p_second
    return p_first / total, 0.0, p_second / total


def scoring_levels(first: ArrayLike, second: ArrayLike) -> Floats:
    """Levels of one order, shape (n, 2K-1), from the K-point scores of both answers.

    The second score is written after the first, so it is conditional on it: the first is taken as
    its most likely value. nan stays nan (the reference code makes it a tie).

    Args:
        first: Shape (n, K), scores in ascending order, of the answer presented first.
        second: Shape (n, K), of the answer presented second.
    """
    one, two = np.asarray(first, np.float64), np.asarray(second, np.float64)
    n, n_scores = two.shape
    levels = np.zeros((n, 2 * n_scores - 1))
    chosen = np.where(np.isnan(one), -1.0, one).argmax(axis=1)
    columns = n_scores - 1 - chosen[:, None] + np.arange(n_scores)
    levels[np.arange(n)[:, None], columns] = two
    levels[np.isnan(one).any(axis=1) | np.isnan(two).any(axis=1)] = np.nan
    return levels


def mean_scores(p_ab: ArrayLike, p_ba: ArrayLike, scores: ArrayLike) -> tuple[Floats, Floats]:
    """Each answer's mean score over both orders: A's and B's, shape (n,) each.

    Args:
        p_ab: Shape (n, 2, K): the scores of A (presented first) and B.
        p_ba: Shape (n, 2, K): the scores of B (presented first) and A.
        scores: Shape (K,).
    """
    values = np.asarray(scores, np.float64)
    one = np.asarray(p_ab, np.float64) @ values
    two = np.asarray(p_ba, np.float64) @ values
    return 0.5 * (one[:, 0] + two[:, 1]), 0.5 * (one[:, 1] + two[:, 0])


def _checked(p_ab: ArrayLike, p_ba: ArrayLike) -> tuple[Floats, Floats]:
    first, second = np.asarray(p_ab, np.float64), np.asarray(p_ba, np.float64)
    if first.ndim != 2 or first.shape != second.shape or first.shape[1] % 2 == 0:
        raise StatisticsError(
            f"pairwise judgments need two arrays of shape (n, 2h+1), got {first.shape} and "
            f"{second.shape}"
        )
    return first, second


def _levels(probabilities: Floats) -> Floats:
    half = probabilities.shape[1] // 2
    return np.arange(half, -half - 1, -1, dtype=np.float64)


def _combined(one: Floats, two: Floats) -> Floats:
    size = np.abs(one) + np.abs(two)
    result: Floats = np.where(size > 0, (one - two) / np.where(size > 0, size, 1.0), 0.0)
    return result


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


def _combine(one: float, two: float) -> float:
    size = abs(one) + abs(two)
    return (one - two) / size if size else 0.0


def _sign(value: float) -> float:
    return (value > 0) - (value < 0) + 0.0
