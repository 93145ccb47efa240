"""Pointwise judgments: score distributions of single answers, and what two of them say.

Scores 1..K are put on the support 0..1. Comparisons are in [-1, 1]; positive: answer 1 is better.

Source: Wang, Zhang and Choi 2025, arXiv 2503.03064, and their released inference formulas.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats

SPREAD_GUARD: Final = 1e-3
"""Denominator at or below which two certain, equal scores are called a tie."""

QUANTILE_TOLERANCE: Final = 1e-12


def summarise_scores(probabilities: ArrayLike, scores: ArrayLike) -> dict[str, Floats]:
    """Location and spread of n score distributions, on the scale of the scores; shape (n,).

    By the names of `describe_scores`: "mode", "mean", "median", "variance", "lower_semideviation"
    and "entropy".

    `probabilities` have shape (n, K), rows that sum to 1; one with nan gives nan. `scores` are
    ascending, shape (K,).

    Raises:
        StatisticsError: If the shapes do not fit.
    """
    p, values = np.asarray(probabilities, np.float64), np.asarray(scores, np.float64)
    if p.ndim != 2 or values.shape != p.shape[1:] or not values.size:
        raise StatisticsError(f"score distributions need (n, K) and (K,), got {p.shape}")
    missing = np.isnan(p).any(axis=1)
    mean = p @ values
    deviation = values - mean[:, None]
    entropy = -np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0).sum(axis=1)
    top = p == p.max(axis=1, keepdims=True)
    columns = {
        "mode": (top @ values) / np.maximum(top.sum(axis=1), 1),
        "mean": mean,
        "median": _quantile(p, values, 0.5),
        "variance": (p * deviation**2).sum(axis=1),
        "lower_semideviation": np.sqrt((p * np.minimum(deviation, 0.0) ** 2).sum(axis=1)),
        "entropy": entropy,
    }
    return {name: np.where(missing, np.nan, column) for name, column in columns.items()}


def describe_scores(p: Sequence[float], scores: Sequence[int]) -> dict[str, float]:
    """`summarise_scores` of one distribution, in plain Python: numpy costs ten times as much.

    By name, on the scale of the scores: "mean"; "mode", the mean of all most likely scores;
    "rounded_mean", to a whole step of the scale, half to even; "median" and "first_percentile", the
    first score whose cumulative probability exceeds 0.5 and 0.01; "std"; "lower_semideviation", the
    root of E[max(0, mean - X)^2]; "entropy", -sum p ln p.

    Args:
        p: K probabilities that sum to 1.
        scores: K whole numbers, one after the other.

    Raises:
        StatisticsError: If the lengths differ or there are none.
    """
    if not scores or len(p) != len(scores):
        raise StatisticsError(f"{len(p)} probabilities for {len(scores)} scores")
    top = max(p)
    modes = [score for score, share in zip(scores, p, strict=True) if share == top]
    mean = sum(share * score for share, score in zip(p, scores, strict=True))
    above = below = 0.0
    for share, score in zip(p, scores, strict=True):
        square = share * (score - mean) ** 2
        if score < mean:
            below += square
        else:
            above += square
    return {
        "mean": mean,
        "mode": sum(modes) / len(modes),
        "rounded_mean": float(scores[0] + round(mean - scores[0])),
        "median": float(_first_above(p, scores, 0.5)),
        "first_percentile": float(_first_above(p, scores, 0.01)),
        "std": math.sqrt(above + below),
        "lower_semideviation": math.sqrt(below),
        "entropy": -math.fsum(share * math.log(share) for share in p if share > 0),
    }


def compare_scores(p_1: ArrayLike, p_2: ArrayLike) -> dict[str, Floats]:
    """Compares two answers' score distributions as independent draws, by eight statistics.

    Each has shape (n,), in [-1, 1], nan for nan input: "mode", the sign of the difference of modes
    (ties within a mode are averaged); "rounded_mean", "median" and "first_percentile" (the worst
    case) likewise, of means rounded to whole scores, half to even; "mean", E(X1-X2) / (E|X1-X2| +
    std(X1-X2)); "ram", the same with each mean lowered by its lower semideviation (risk-averse
    mean); "quantile", the integral over u of the sign of Q1(u) - Q2(u); "superiority",
    P(X1 > X2) - P(X1 < X2).

    Both have shape (n, K), scores ascending.

    Raises:
        StatisticsError: If the shapes differ, are not two-dimensional or have fewer than 2 scores.
    """
    one, two = np.asarray(p_1, np.float64), np.asarray(p_2, np.float64)
    if one.ndim != 2 or one.shape != two.shape or one.shape[1] < 2:
        raise StatisticsError(
            f"comparing scores needs two (n, K >= 2) arrays, got {one.shape} and {two.shape}"
        )
    n_scores = one.shape[1]
    # Whole scores are added up without rounding, so that equal modes and medians are ties.
    whole = np.arange(float(n_scores))
    at_1, at_2 = summarise_scores(one, whole), summarise_scores(two, whole)
    support = whole / (n_scores - 1)
    first, second = summarise_scores(one, support), summarise_scores(two, support)
    joint = one[:, :, None] * two[:, None, :]
    gaps = support[:, None] - support[None, :]
    std = np.sqrt(first["variance"] + second["variance"])
    raw = first["mean"] - second["mean"]
    risk = first["lower_semideviation"] - second["lower_semideviation"]
    shifted = np.abs(gaps - risk[:, None, None])
    worst = _quantile(one, support, 0.01) - _quantile(two, support, 0.01)
    found = {
        "mode": np.sign(at_1["mode"] - at_2["mode"]),
        "rounded_mean": np.sign(np.rint(at_1["mean"]) - np.rint(at_2["mean"])),
        "median": np.sign(at_1["median"] - at_2["median"]),
        "first_percentile": np.sign(worst),
        "mean": _scaled(raw, (joint * np.abs(gaps)).sum(axis=(1, 2)) + std),
        "ram": _scaled(raw - risk, (joint * shifted).sum(axis=(1, 2)) + std),
        "quantile": _quantile_dominance(one, two),
        "superiority": (joint * np.sign(gaps)).sum(axis=(1, 2)),
    }
    missing = np.isnan(one).any(axis=1) | np.isnan(two).any(axis=1)
    return {name: np.where(missing, np.nan, values) for name, values in found.items()}


def _quantile(p: Floats, values: Floats, level: float) -> Floats:
    """The first value whose cumulative probability exceeds `level`, shape (n,)."""
    above = np.cumsum(p, axis=1) > level + QUANTILE_TOLERANCE
    result: Floats = values[above.argmax(axis=1)]
    return result


def _first_above(p: Sequence[float], scores: Sequence[int], level: float) -> int:
    total = 0.0
    for share, score in zip(p, scores, strict=True):
        total += share
        if total > level + QUANTILE_TOLERANCE:
            return score
    return scores[-1]


def _scaled(difference: Floats, spread: Floats) -> Floats:
    small = spread <= SPREAD_GUARD
    return np.where(small, 0.0, difference / np.where(small, 1.0, spread))


def _quantile_dominance(one: Floats, two: Floats) -> Floats:
    """Integral of sign(Q1 - Q2): both quantile functions are constant between the steps."""
    steps_1 = np.minimum(np.cumsum(one, axis=1), 1.0)
    steps_2 = np.minimum(np.cumsum(two, axis=1), 1.0)
    edges = np.sort(np.concatenate([np.zeros((len(one), 1)), steps_1, steps_2], axis=1), axis=1)
    widths = np.diff(edges, axis=1)
    middles = 0.5 * (edges[:, 1:] + edges[:, :-1])
    rank_1 = (steps_1[:, None, :] <= middles[:, :, None]).sum(axis=2)
    rank_2 = (steps_2[:, None, :] <= middles[:, :, None]).sum(axis=2)
    result: Floats = (widths * np.sign(rank_1 - rank_2)).sum(axis=1)
    return result
