"""Pairwise judgments of n pairs at once, with numpy: a second, independent way to them."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orchestrator.errors import StatisticsError
from orchestrator.judgment.pairwise import BINARY_ATOL, BINARY_RTOL, MEAN_GUARD, MEDIAN_TOLERANCE

Floats = NDArray[np.float64]


def judge_pairs(p_ab: ArrayLike, p_ba: ArrayLike) -> dict[str, Floats]:
    """The judgments of n pairs, by the names of `judge_pair`: arrays of shape (n,), float64.

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
    columns = {
        "prefer_a_ab": prefer_ab,
        "prefer_a_ba": prefer_ba,
        "prefer_a": 0.5 * (prefer_ab + prefer_ba),
        "mean_pre": scaled_means(symmetric),
        "mean_post": 0.5 * (scaled_means(first) - scaled_means(second)),
        "mode_pre": np.sign(modes(symmetric)),
        "mode_post": _combined(modes(first), modes(second)),
        "median_pre": np.sign(medians(symmetric)),
        "median_post": _combined(medians(first), medians(second)),
    }
    return {name: np.where(missing, np.nan, column) for name, column in columns.items()}


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
