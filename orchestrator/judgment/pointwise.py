"""Pointwise judgments: score distributions of single answers, and what two of them say.

Comparisons take K scores as 0..K-1 and are in [-1, 1]; positive: answer 1 is better.

Source: Wang, Zhang and Choi 2025, arXiv 2503.03064, and their released inference formulas.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints

SPREAD_GUARD: Final = 1e-3
"""Denominator, with K scores on 0..1, at or below which two certain, equal ones are a tie."""

QUANTILE_TOLERANCE: Final = 1e-12


def describe_scores(p: Sequence[float], scores: Sequence[int]) -> dict[str, float]:
    """Statistics of one score distribution, in plain Python: numpy costs ten times as much.

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
        "median": float(_first_of_one(p, scores, 0.5)),
        "first_percentile": float(_first_of_one(p, scores, 0.01)),
        "std": math.sqrt(above + below),
        "lower_semideviation": math.sqrt(below),
        "entropy": -math.fsum(share * math.log(share) for share in p if share > 0),
    }


def score_table(probabilities: ArrayLike) -> dict[str, Floats]:
    """Return what comparisons of n distributions over K scores 0, 1, ... need, by name.

    "scores", shape (K,); "below", P(X <= k) for k from -R - 1 to K - 1, where no two lower
    semideviations differ by more than R, shape (n, R + 1 + K); and of shape (n,), by the names of
    `describe_scores`, "mode", "mean", "median", "first_percentile", "lower_semideviation" and
    "variance". `probabilities` have shape (n, K >= 2), scores ascending, perhaps with nan.

    Raises:
        StatisticsError: If the shape is another one.
    """
    p = np.asarray(probabilities, np.float64)
    if p.ndim != 2 or p.shape[1] < 2:
        raise StatisticsError(f"comparing scores needs (n, K >= 2), got {p.shape}")
    n_scores = p.shape[1]
    # Whole scores are added up without rounding, so that equal modes and medians are ties.
    scores = np.arange(float(n_scores))
    top = p == p.max(axis=1, keepdims=True)
    # Not by BLAS, whose threads cost more than they save here.
    mean = np.einsum("nk,k->n", p, scores)
    deviation = scores - mean[:, None]
    square = deviation**2
    variance = np.einsum("nk,nk->n", p, square)
    np.minimum(deviation, 0.0, out=deviation)
    lower = np.sqrt(np.einsum("nk,nk,nk->n", p, deviation, deviation))
    known = lower[~np.isnan(lower)]
    reach = math.ceil(np.ptp(known)) if known.size else 0
    below = np.zeros((len(p), reach + 1 + n_scores))
    own = np.cumsum(p, axis=1, out=below[:, -n_scores:])
    return {
        "scores": scores,
        "below": below,
        "mode": np.einsum("nk,k->n", top, scores) / np.maximum(top.sum(axis=1), 1),
        "mean": mean,
        "median": _first_above(own, 0.5),
        "first_percentile": _first_above(own, 0.01),
        "lower_semideviation": lower,
        "variance": variance,
    }


def compare_scores(table: Mapping[str, Floats], first: Ints, second: Ints) -> dict[str, Floats]:
    """Compares two answers' score distributions as independent draws, by eight statistics.

    `first` and `second` are their places in the table, shape (n,). Each has shape (n,), in [-1, 1],
    nan for nan input: "mode", the sign of the difference of modes (ties within a mode are
    averaged); "rounded_mean", "median" and "first_percentile" (the worst case) likewise, of means
    rounded to whole scores, half to even; "mean", E(X1-X2) / (E|X1-X2| + std(X1-X2)); "ram", the
    same with each mean lowered by its lower semideviation (risk-averse mean); "quantile", the
    integral over u of the sign of Q1(u) - Q2(u); "superiority", P(X1 > X2) - P(X1 < X2).

    All take time proportional to K.
    """

    def less(column: Floats) -> Floats:
        result: Floats = column[first] - column[second]
        return result

    n_scores = len(table["scores"])
    raw, risk = less(table["mean"]), less(table["lower_semideviation"])
    std = np.sqrt(table["variance"][first] + table["variance"][second])
    # As a and b, a with the larger lower semideviation; `sign` turns back what that order changes.
    sign = np.where(risk < 0, -1.0, 1.0)
    a, b = np.where(risk < 0, second, first), np.where(risk < 0, first, second)
    ahead, risk = sign * raw, np.abs(risk)
    below_a, below_b = (table["below"][at, -n_scores:] for at in (a, b))
    above_a = 1.0 - below_a
    # E|A - B - t| = 2 E max(0, A - B - t) - E(A - B - t), linear between two whole t.
    whole = np.floor(np.nan_to_num(risk))
    windows = sliding_window_view(table["below"], n_scores + 1, axis=1)
    moved = windows[b, windows.shape[1] - 1 - whole.astype(np.int64)]
    spread = 2.0 * _dot(below_b, above_a) - ahead
    low = 2.0 * _dot(moved[:, 1:], above_a) - ahead + whole
    high = 2.0 * _dot(moved[:, :-1], above_a) - ahead + whole + 1.0
    lowered = low + (risk - whole) * (high - low)
    found = {
        "mode": np.sign(less(table["mode"])),
        "rounded_mean": np.sign(less(np.rint(table["mean"]))),
        "median": np.sign(less(table["median"])),
        "first_percentile": np.sign(less(table["first_percentile"])),
        "mean": _scaled(raw, spread + std, n_scores - 1),
        "ram": sign * _scaled(ahead - risk, lowered + std, n_scores - 1),
        "quantile": sign * _higher_quantiles(below_a, below_b),
        "superiority": sign
        * (_dot(below_a[:, 1:], below_b[:, :-1]) - _dot(below_a[:, :-1], below_b[:, 1:])),
    }
    missing = np.isnan(raw)
    return {name: np.where(missing, np.nan, values) for name, values in found.items()}


def _dot(one: Floats, two: Floats) -> Floats:
    result: Floats = np.einsum("nk,nk->n", one, two)
    return result


def _first_above(below: Floats, level: float) -> Floats:
    """The first score whose cumulative probability exceeds `level`, shape (n,)."""
    result: Floats = (below > level + QUANTILE_TOLERANCE).argmax(axis=1).astype(np.float64)
    return result


def _first_of_one(p: Sequence[float], scores: Sequence[int], level: float) -> int:
    total = 0.0
    for share, score in zip(p, scores, strict=True):
        total += share
        if total > level + QUANTILE_TOLERANCE:
            return score
    return scores[-1]


def _scaled(difference: Floats, spread: Floats, support: int) -> Floats:
    """Their ratio, of numbers on the scale of the scores; 0 for two certain scores."""
    small = spread <= SPREAD_GUARD * support
    return np.where(small, 0.0, difference / np.where(small, 1.0, spread))


def _higher_quantiles(below: Floats, other: Floats) -> Floats:
    """Share of u at which the first quantile function is above the other, less that at which below.

    Both are given by P(X <= k), shape (n, K). Where the other is k, which it is from P(X < k) on to
    P(X <= k), the first is above it for u over its own P(X <= k).
    """
    both = np.minimum(below, other)[:, 1:]
    begins = np.maximum(both, below[:, :-1]) - np.maximum(both, other[:, :-1])
    result: Floats = np.einsum("nk->n", other - below) + np.einsum("nk->n", begins)
    return result
