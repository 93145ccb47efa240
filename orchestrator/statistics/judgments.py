"""Judgments: mass on the labels, effect of the order shown, counts of traces, calibration."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy

from orchestrator.errors import StatisticsError
from orchestrator.records import Bools, Floats, Ints
from orchestrator.statistics.means import clustered_mean, share_over
from orchestrator.statistics.results import Estimate, Interval

LOW: Final = 0.5
"""Mass under which a judgment is unreliable."""


@dataclass(frozen=True, slots=True)
class CoverageSummary:
    """Label mass over n readings; nan where there are none.

    Attributes:
        mean: Mean mass on the labels, in [0, 1].
        percentile_5: 5th percentile.
        share_low: Share of readings with a mass below the threshold, one half by default.
        n: Readings with a known mass (each order of a pair is one).
        n_unknown: Readings whose mass is not known.
    """

    mean: float
    percentile_5: float
    share_low: float
    n: int
    n_unknown: int


def summarise_coverage(coverage: Floats, low: float = LOW) -> CoverageSummary:
    """Summary of label masses.

    Masses are in [0, 1], of any shape, nan unknown; one under `low` is a low reading.
    """
    values = coverage.reshape(-1)
    known = values[~np.isnan(values)]
    n_unknown = int(values.size - known.size)
    if not known.size:
        return CoverageSummary(np.nan, np.nan, np.nan, 0, n_unknown)
    return CoverageSummary(
        float(known.mean()),
        float(np.quantile(known, 0.05)),
        float((known < low).mean()),
        int(known.size),
        n_unknown,
    )


TIE: Final = 1e-9
"""Distance from one half up to which a preference decides for neither."""


@dataclass(frozen=True, slots=True)
class PositionEffects:
    """Effects of the order over judgments in both orders; the three shares add up to 1.

    Attributes:
        bias: Mean preference for the answer presented first, minus one half; in [-0.5, 0.5].
        flip_rate: Share of judgments whose winner is the other one in the other order. This and
            the next two are over pairs of answers that differ: equal answers have no winner that
            could flip.
        half_flip_rate: Share in which one order decides and the other is a tie.
        consistency: Share with the same decision (A, B or tie) in both orders.
    """

    bias: Estimate
    flip_rate: Estimate
    half_flip_rate: Estimate
    consistency: Estimate


def decisions(better: Floats, tie: Floats, worse: Floats) -> Floats:
    """The likeliest of three verdicts: 1, 0 or -1; a draw between better and worse is a tie.

    Not the sign of the mean preference: where a judge is sure of a tie, that sign is noise.
    """
    return np.where(
        (better > worse + TIE) & (better > tie),
        1.0,
        np.where((worse > better + TIE) & (worse > tie), -1.0, 0.0),
    )


def decided(values: Floats) -> Floats:
    """Signs, with 0 for what is within rounding of it; nan stays."""
    return np.where(np.abs(values) <= TIE, 0.0, np.sign(values))


def position_effects(
    prompts: Ints, preferred: Floats, decided: Floats, differ: Bools, confidence_level: float
) -> PositionEffects:
    """Position bias and flips of n judgments made in both orders, with intervals over prompts.

    Args:
        prompts: Shape (n,), any whole numbers.
        preferred: Shape (n, 2), P(A better) with A presented first and with B, a tie as half.
        decided: Shape (n, 2), 1 for A, -1 for B, 0 for a tie in these orders; see `decisions`.
        differ: Shape (n,), whether the two answers differ.
        confidence_level: In (0, 1).
    """
    one, two = decided.T

    def share(flags: Bools) -> Estimate:
        return share_over(np.where(differ, flags, np.nan), prompts, confidence_level)

    shown_first = 0.5 * (preferred[:, 0] + 1.0 - preferred[:, 1])
    first = share_over(shown_first, prompts, confidence_level)
    interval = first.interval
    if interval is not None:
        low, high = interval.low - 0.5, interval.high - 0.5
        interval = Interval(low, high, interval.confidence_level)
    return PositionEffects(
        bias=replace(first, value=first.value - 0.5, interval=interval),
        flip_rate=share(one * two < 0),
        half_flip_rate=share((one != two) & (one * two == 0)),
        consistency=share(one == two),
    )


_SPREAD: Final = 2.0
_REACH: Final = 10.0
_BOUNDS: Final = ((-6.0, 3.0), (-20.0, 20.0))
_NEWTON_STEPS: Final = 3
_DIFFERENCE: Final = 1e-4


def davidson(counts: Floats) -> tuple[Floats, float, float]:
    """Fit Davidson's model of ties to the verdicts of several traces on each of n pairs.

    Within pair k each trace is a draw of its own, by the log-odds d_k between its answers:

        P(better) : P(tie) : P(worse) = exp(d_k / 2) : nu : exp(-d_k / 2),   d_k ~ N(0, sigma^2)

    nu and sigma are of all pairs: the maximum of the likelihood with every d_k integrated out, and
    Rayleigh's density of scale 2 on sigma, which holds it finite and above 0. The model says how
    far to believe the margin of a pair's traces, at which its own likelihood is greatest.

    Source: Davidson 1970 (doi:10.1080/01621459.1970.10481082); over traces of a judge that thinks,
    with labels, Dadkhahi et al. 2025 (arXiv 2512.03019).

    Args:
        counts: Shape (n, 3): verdicts for the first answer, for neither, for the second.

    Returns:
        E[P(better) - P(worse)] of each pair, shape (n,), nu and sigma; of ties alone 0, inf and 0.

    Raises:
        StatisticsError: If the shape is another, a count is negative, or a pair has none.
    """
    if counts.ndim != 2 or counts.shape[1] != 3 or not len(counts):
        raise StatisticsError(f"counts of verdicts need shape (n, 3), got {counts.shape}")
    sizes = counts.sum(axis=1)
    if not np.isfinite(counts).all() or counts.min() < 0.0 or sizes.min() <= 0.0:
        raise StatisticsError(
            "counts must be finite and not negative, with a verdict for each pair"
        )
    n_ties, every = float(counts[:, 1].sum()), float(sizes.sum())
    if n_ties == every:
        return np.zeros(len(counts)), np.inf, 0.0
    # What the likelihood depends on, apart from the number of all ties.
    cases, of_case, weights = np.unique(
        np.column_stack((counts[:, 0] - counts[:, 2], sizes)),
        axis=0, return_inverse=True, return_counts=True,
    )  # fmt: skip

    def fitted(at: Floats) -> tuple[float, Floats, Floats]:
        """Return -log likelihood a pair, its derivatives, and E[P(better) - P(worse)] of cases."""
        sigma, log_nu = float(np.exp(at[0])), float(at[1]) if len(at) > 1 else -np.inf
        # The trapezoidal rule is exact to rounding where its steps are as fine as this.
        step = min(0.2, 0.5 * sigma, 1.0 / float(np.sqrt(sizes.max())))
        gaps = step * np.arange(-(n := int(_REACH * sigma / step)), n + 1.0)
        sides = 0.5 * np.abs(gaps) + np.log1p(np.exp(-np.abs(gaps)))
        total, squares = np.logaddexp(sides, log_nu), (gaps / sigma) ** 2
        logs = 0.5 * cases[:, :1] * gaps - cases[:, 1:] * total - 0.5 * squares
        chances = scipy.special.softmax(logs, axis=1)
        likelihood = weights @ (scipy.special.logsumexp(logs, axis=1) + np.log(step / sigma))
        likelihood += (n_ties * log_nu if n_ties else 0.0) + at[0] - 0.5 * (sigma / _SPREAD) ** 2
        by_sigma = weights @ (chances @ squares - 1.0) + 1.0 - (sigma / _SPREAD) ** 2
        by_nu = n_ties - weights @ (cases[:, 1] * (chances @ np.exp(log_nu - total)))
        slopes = np.array([by_sigma, by_nu])[: len(at)]
        preferred = chances @ (np.exp(sides - total) * np.tanh(0.5 * gaps))
        return float(-likelihood / len(counts)), -slopes / len(counts), preferred

    def loss(at: Floats) -> tuple[float, Floats]:
        return fitted(at)[:2]

    start: Floats = np.array([0.0, np.log(2.0 * n_ties / (every - n_ties))] if n_ties else [0.0])
    bounds = list(_BOUNDS[: len(start)])
    found: Floats = scipy.optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds
    ).x
    for _ in range(_NEWTON_STEPS):
        moved = found + _DIFFERENCE * np.eye(len(found)), found - _DIFFERENCE * np.eye(len(found))
        ahead, behind = (np.array([fitted(one)[1] for one in side]) for side in moved)
        step = np.linalg.solve((ahead - behind) / (2.0 * _DIFFERENCE), fitted(found)[1])
        found = found - np.clip(step, -0.1, 0.1)
    nu = float(np.exp(found[1])) if n_ties else 0.0
    return fitted(found)[2][of_case.reshape(-1)], nu, float(np.exp(found[0]))


# Calibration of stated probabilities.
#
# A judge that says 0.8 should be right in 80 of 100 such cases (Murphy and Winkler 1977,
# doi:10.2307/2346866). Between two answers the sides have no order, so each case is looked at from
# the side the judge prefers: its confidence lies in [0.5, 1].


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
    kept = prompts[known]
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
        accuracy = share_over(right[inside], kept[inside], confidence_level)
        bins.append(Bin((EDGES[i], EDGES[i + 1]), n, mean, accuracy))
    gaps = [one.n * abs(one.confidence - one.accuracy.value) for one in bins if one.n]
    return Calibration(
        tuple(bins),
        share_over(right, kept, confidence_level),
        clustered_mean(confidence - right, kept, confidence_level),
        share_over((p - truth) ** 2, kept, confidence_level),
        float(sum(gaps) / p.size) if p.size else float("nan"),
        int(p.size),
    )
