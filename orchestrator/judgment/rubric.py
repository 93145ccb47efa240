"""Rubrics: distributions over the labels of several criteria, and of their weighted sum.

Every criterion is put on 0 (its worst label) to 100 (its best one), as LLM-as-a-Verifier puts score
tokens on 0 to 1 (Kwok et al. 2026, arXiv 2607.05391): R = sum over criteria of w_c E[S_c], with
weights that sum to 1. The expectation of the sum needs no assumption. Its spread does: within one
reply the criteria count as independent, and `std_high` holds whatever their dependence is.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from orchestrator.errors import StatisticsError
from orchestrator.judgment.distribution import LabelDistribution
from orchestrator.records import Floats, Row

HIGHEST: Final = 100
"""Points of the best label; those of the worst are 0."""

# Sums of labels that are held apart; more are put on a grid of as many places.
_MOST_SUMS: Final = 1001


class CriterionReading(NamedTuple):
    """The distribution over the labels of one criterion, and what it says in points.

    Attributes:
        probabilities: Of the labels, shape (K,).
        points: Of the labels, shape (K,), in [0, 100].
        low: Least expectation that the known bounds allow.
        high: Greatest one.
        distribution: Over the labels, as it was read.
    """

    probabilities: tuple[float, ...]
    points: tuple[float, ...]
    low: float
    high: float
    distribution: LabelDistribution

    @property
    def mean(self) -> float:
        """The expectation, in points."""
        return sum(p * x for p, x in zip(self.probabilities, self.points, strict=True))

    @property
    def variance(self) -> float:
        """Of the points."""
        mean = self.mean
        pairs = zip(self.probabilities, self.points, strict=True)
        return sum(p * (x - mean) ** 2 for p, x in pairs)


def points_of(values: Sequence[float]) -> tuple[float, ...]:
    """Return the points of labels with these values, from 0 for the least to 100.

    The values have shape (K,), not all equal.
    """
    least, most = min(values), max(values)
    return tuple(HIGHEST * (value - least) / (most - least) for value in values)


def read_criterion(
    distribution: LabelDistribution, values: Sequence[float]
) -> CriterionReading | None:
    """Return a distribution in points; None where it is undefined.

    `values` are the worth of each label, shape (K,).
    """
    if distribution.probabilities is None:
        return None
    points = points_of(values)
    low, high = distribution.mean_bounds(points)
    return CriterionReading(distribution.probabilities, points, low, high, distribution)


def score_rubric(
    replies: Sequence[Sequence[CriterionReading]],
    marginals: Sequence[CriterionReading],
    weights: Sequence[float],
) -> Row:
    """Return the weighted sum of criteria, in points.

    By name: "mean", its expectation; "mean_low" and "mean_high", the least and the greatest that
    the known bounds of the criteria allow; "std", criteria independent within a reply; "std_high",
    a bound of it that holds for any dependence between criteria: the sum of w_c sd_c; "p", the
    probabilities of 0, 1, ..., 100 points with the same mean, criteria independent within a reply.

    `replies` are the criteria as read in each of n independent replies, in their order: within a
    reply they count as independent, and what makes replies differ is in the spread. `marginals` are
    the criteria averaged over the replies; `weights` sum to 1.

    Raises:
        StatisticsError: If there is no reply, or lengths differ.
    """
    n = len(weights)
    if not replies or any(len(one) != n for one in (*replies, marginals)):
        raise StatisticsError(f"a rubric needs {n} criteria in each of its replies")
    mean = _weighted([one.mean for one in marginals], weights)
    within = between = 0.0
    for reply in replies:
        variances = [one.variance for one in reply]
        within += sum(w * w * v for w, v in zip(weights, variances, strict=True))
        between += (_weighted([one.mean for one in reply], weights) - mean) ** 2
    spreads = [math.sqrt(one.variance) for one in marginals]
    p = np.mean([_distribution(reply, weights) for reply in replies], axis=0)
    return {
        "mean": mean,
        "mean_low": _weighted([one.low for one in marginals], weights),
        "mean_high": _weighted([one.high for one in marginals], weights),
        "std": math.sqrt((within + between) / len(replies)),
        "std_high": _weighted(spreads, weights),
        "p": p.tolist(),
    }


def bounds_with_missing(
    readings: Sequence[CriterionReading | None], weights: Sequence[float]
) -> tuple[float, float]:
    """Return the least and greatest weighted sum, where a missing criterion may be anything.

    Weights sum to 1.
    """
    low = _weighted([0.0 if one is None else one.low for one in readings], weights)
    high = _weighted([float(HIGHEST) if one is None else one.high for one in readings], weights)
    return low, high


def _weighted(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(w * value for w, value in zip(weights, values, strict=True))


def _distribution(reply: Sequence[CriterionReading], weights: Sequence[float]) -> Floats:
    """Return the distribution of the sum over 0, 1, ..., 100, criteria independent.

    A sum between two places of the grid is divided between them, so that the mean stays.
    """
    sums, masses, top = np.zeros(1), np.ones(1), 0.0
    for one, weight in zip(reply, weights, strict=True):
        top += weight * HIGHEST
        sums = np.add.outer(sums, weight * np.array(one.points)).ravel()
        masses = np.multiply.outer(masses, np.array(one.probabilities)).ravel()
        if sums.size > _MOST_SUMS:
            masses = _on_grid(sums, masses, top, _MOST_SUMS)
            sums = np.linspace(0.0, top, _MOST_SUMS)
    return _on_grid(sums, masses, float(HIGHEST), HIGHEST + 1)


def _on_grid(values: Floats, masses: Floats, top: float, n_places: int) -> Floats:
    """Return masses of values in [0, top] divided between the nearest of n evenly spaced places."""
    at = np.clip(values * ((n_places - 1) / top), 0.0, n_places - 1)
    below = np.minimum(at.astype(np.int64), n_places - 2)
    above = at - below
    lower = np.bincount(below, masses * (1.0 - above), minlength=n_places)
    return (lower + np.bincount(below + 1, masses * above, minlength=n_places)).astype(
        np.float64, copy=False
    )
