"""Calibration of stated probabilities, and maps that improve it, cross-fitted.

A judge that says 0.8 should be right in 80 of 100 such cases (Murphy and Winkler 1977,
doi:10.2307/2346866). Between two answers the sides have no order, so each case is looked at from
the side the judge prefers: its confidence lies in [0.5, 1].
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics.means import clustered_mean, share_over
from orchestrator.statistics.results import Estimate

EDGES: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Bounds of the bins of confidence; each holds its lower bound, the last one both."""

_EVEN: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Bin:
    """Cases whose confidence lies between two bounds.

    Attributes:
        bounds: The lower and the upper one.
        n: Cases.
        confidence: Their mean confidence; nan for none.
        accuracy: Share of them that are right, over prompts.
    """

    bounds: tuple[float, float]
    n: int
    confidence: float
    accuracy: Estimate


@dataclass(frozen=True, slots=True)
class Calibration:
    """A judge's probabilities against the truth.

    Attributes:
        bins: By rising confidence; empty ones too.
        accuracy: Share of right verdicts, over prompts; a tied verdict counts half.
        overconfidence: Mean confidence minus accuracy; above 0: it is too sure.
        brier: Mean squared difference of probability and truth, in [0, 1]; 0.25 is a coin's.
        expected_error: Expected calibration error: mean over cases of |confidence - accuracy| of
            their bin. Never negative, so some of it is noise: about 0.4 / sqrt(n) for n cases a
            bin where all is well. nan without cases.
        n: Cases.
    """

    bins: tuple[Bin, ...]
    accuracy: Estimate
    overconfidence: Estimate
    brier: Estimate
    expected_error: float
    n: int


def calibration(
    probabilities: Floats, first_is_right: Floats, prompts: Ints, confidence_level: float
) -> Calibration:
    """Calibration of probabilities that the first of two answers is the better one.

    All have shape (n,): probabilities in [0, 1], nan where not judged, which is left out;
    `first_is_right` 1 or 0; `prompts` any whole numbers, cases of one prompt depending on each
    other.

    Raises:
        StatisticsError: If the shapes differ, a probability is outside [0, 1], or a truth is
            neither 0 nor 1.
    """
    if not (probabilities.shape == first_is_right.shape == prompts.shape):
        raise StatisticsError("probabilities, truths and prompts need one shape (n,)")
    known = ~np.isnan(probabilities)
    p, truth = probabilities[known], first_is_right[known]
    if not (np.all((p >= 0.0) & (p <= 1.0)) and np.isin(truth, (0.0, 1.0)).all()):
        raise StatisticsError("probabilities must be in [0, 1], and truths 0 or 1")
    codes = np.unique(prompts[known], return_inverse=True)[1].reshape(-1).astype(np.int64)
    confidence = np.maximum(p, 1.0 - p)
    # An even probability prefers neither side: half right, as a coin.
    is_even = np.abs(p - 0.5) <= _EVEN
    right = np.where(is_even, 0.5, (p > 0.5) == (truth == 1.0)).astype(np.float64)
    which = np.clip(np.searchsorted(EDGES, confidence, side="right") - 1, 0, len(EDGES) - 2)
    bins = []
    for i in range(len(EDGES) - 1):
        inside = which == i
        n = int(inside.sum())
        mean = float(confidence[inside].mean()) if n else float("nan")
        accuracy = share_over(right[inside], codes[inside], confidence_level)
        bins.append(Bin((EDGES[i], EDGES[i + 1]), n, mean, accuracy))
    gaps = [one.n * abs(one.confidence - one.accuracy.value) for one in bins if one.n]
    return Calibration(
        tuple(bins),
        share_over(right, codes, confidence_level),
        clustered_mean(confidence - right, codes, confidence_level),
        share_over((p - truth) ** 2, codes, confidence_level),
        float(sum(gaps) / p.size) if p.size else float("nan"),
        int(p.size),
    )
