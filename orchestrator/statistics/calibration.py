"""Calibration of stated probabilities, and maps that improve it, cross-fitted.

A judge that says 0.8 should be right in 80 of 100 such cases (Murphy and Winkler 1977,
doi:10.2307/2346866). Between two answers the sides have no order, so each case is looked at from
the side the judge prefers: its confidence lies in [0.5, 1].
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics.means import clustered_mean, clustered_share
from orchestrator.statistics.resampling import N_FOLDS, folds_of
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
        accuracy = _share(right[inside], codes[inside], confidence_level)
        bins.append(Bin((EDGES[i], EDGES[i + 1]), n, mean, accuracy))
    gaps = [one.n * abs(one.confidence - one.accuracy.value) for one in bins if one.n]
    return Calibration(
        tuple(bins),
        _share(right, codes, confidence_level),
        clustered_mean(confidence - right, codes, confidence_level),
        _share((p - truth) ** 2, codes, confidence_level),
        float(sum(gaps) / p.size) if p.size else float("nan"),
        int(p.size),
    )


def _share(values: Floats, codes: Ints, level: float) -> Estimate:
    sums = np.bincount(codes, values).astype(np.float64)
    return clustered_share(sums, np.bincount(codes).astype(np.float64), level)


# Calibration applied: maps of a judge's probabilities to how often it is right, cross-fitted.
#
# Between two answers the sides have no order, so each map f keeps f(1 - p) = 1 - f(p). Temperature:
# Guo, Pleiss, Sun and Weinberger 2017 (arXiv 1706.04599); Platt: Platt 1999, with his targets;
# isotonic: Zadrozny and Elkan 2002 (doi:10.1145/775047.775151). No case is mapped by a fit that saw
# a case of its prompt.


Kind = Literal["isotonic", "temperature", "platt"]
Map = Callable[[Floats], Floats]

MIN_PROMPTS: Final = 10
"""Prompts with a known winner under which nothing is calibrated."""

LEAST: Final = 1e-6
"""Distance from 0 and 1 that probabilities keep in logarithms."""

_HOTTEST: Final = 20.0
_NO_INTERVAL: Final = "ECE of a sample is too large: no interval"
# Distance from one half up to which no side is preferred: rounding.


@dataclass(frozen=True, slots=True)
class Change:
    """A measure of calibration before and after, smaller is better.

    Attributes:
        before: Of the judge's own probabilities.
        after: Of the calibrated ones.
        difference: After minus before, on the same cases, over prompts.
    """

    before: float
    after: float
    difference: Estimate


def fit_map(kind: Kind, p: Floats, truth: Floats) -> Map:
    """Return the map of a kind that fits cases best.

    "temperature" has one parameter, "platt" two, "isotonic" is any rising map. `p`, shape (n,), are
    probabilities that the first answer is better; `truth`, shape (n,), is 1 where it is, else 0.

    Raises:
        StatisticsError: If the cases determine no temperature, or no slope and offset: no case
            prefers a side, or, for a temperature, every side preferred is the better one.
    """
    if kind == "temperature":
        return _temperature(p, truth)
    return _platt(p, truth) if kind == "platt" else _isotonic(p, truth)


def cross_fitted(
    kind: Kind,
    p: Floats,
    truth: Floats,
    prompts: Ints,
    rng: np.random.Generator,
    n_folds: int = N_FOLDS,
) -> Floats:
    """Return calibrated probabilities, shape (n,), each fitted without cases of its prompt.

    `p`, in [0, 1], `truth`, 1, 0 or nan where not known, and `prompts` have shape (n,); `rng`
    divides the prompts into `n_folds`, at least 2.

    Raises:
        StatisticsError: If there are too few prompts whose winner is known, or the map can't be
            fitted without some fold.
    """
    if not (p.shape == truth.shape == prompts.shape) or not np.all((p >= 0.0) & (p <= 1.0)):
        raise StatisticsError("calibration needs probabilities in [0, 1], truths and prompts (n,)")
    known = ~np.isnan(truth)
    labelled = np.unique(prompts[known])
    if len(labelled) < MIN_PROMPTS:
        raise StatisticsError(
            f"calibration needs {MIN_PROMPTS} prompts whose better answer is known, got "
            f"{len(labelled)}"
        )
    fold = folds_of(prompts, known, rng, n_folds)
    result = np.empty_like(p)
    for one in np.unique(fold):
        # Prompts without a known winner (-1) are mapped by a fit to all others.
        seen, mapped = known & (fold != one), fold == one
        result[mapped] = fit_map(kind, p[seen], truth[seen])(p[mapped])
    return result


def changes(
    before: Floats, after: Floats, truth: Floats, prompts: Ints, confidence_level: float
) -> dict[str, Change]:
    """Return what calibration does to "Brier score", "log loss" and "ECE".

    They are the mean squared difference of probability and truth; the mean -ln of the probability
    of the truth, probabilities kept `LEAST` from 0 and 1; and the expected calibration error, which
    is never negative, so that both values hold some noise. The first two have paired intervals. ECE
    has none: of a sample it is too large, the more so the better the calibration, so that
    resampling holds its true change too seldom (`benchmarks/recalibration.py`). All have shape
    (n,); `after` is as by `cross_fitted`, `truth` 1 or 0.
    """

    def change(loss: Callable[[Floats], Floats]) -> Change:
        one, two = loss(before), loss(after)
        difference = clustered_mean(two - one, prompts, confidence_level)
        return Change(float(one.mean()), float(two.mean()), difference)

    def log_loss(p: Floats) -> Floats:
        kept = np.clip(np.where(truth == 1.0, p, 1.0 - p), LEAST, 1.0)
        result: Floats = -np.log(kept)
        return result

    first, last = (
        calibration(p, truth, prompts, confidence_level).expected_error for p in (before, after)
    )
    n_prompts = np.unique(prompts).size
    unknown = Estimate(last - first, None, n_prompts, "none", _NO_INTERVAL)
    return {
        "Brier score": change(lambda p: (p - truth) ** 2),
        "log loss": change(log_loss),
        "ECE": Change(first, last, unknown),
    }


def _sided(p: Floats) -> NDArray[np.bool_]:
    """Return the cases in which a side is preferred."""
    return np.abs(p - 0.5) > _EVEN


def _log_odds(p: Floats) -> Floats:
    return scipy.special.logit(np.clip(p, LEAST, 1.0 - LEAST))


def _temperature(p: Floats, truth: Floats) -> Map:
    odds, side = _log_odds(p), 2.0 * truth - 1.0
    sided = _sided(p)
    if not np.any(sided & (side * odds < 0.0)):
        why = "no answer preferred is the worse one" if sided.any() else "no side is preferred"
        raise StatisticsError(f"no temperature fits: {why}; take isotonic")

    def loss(log_heat: float) -> float:
        return float(np.logaddexp(0.0, -side * odds * np.exp(-log_heat)).mean())

    bound = float(np.log(_HOTTEST))
    best = scipy.optimize.minimize_scalar(loss, bounds=(-bound, bound), method="bounded").x
    return lambda q: np.asarray(scipy.special.expit(_log_odds(q) * np.exp(-float(best))), float)


def _platt(p: Floats, truth: Floats) -> Map:
    """Fit P(right) = sigmoid(a x + b) to the log-odds x of the preferred side."""
    # A case without a preferred side says nothing of how often the preferred one is right.
    sided = _sided(p)
    if not sided.any():
        raise StatisticsError("no slope and offset fit: no side is preferred; take isotonic")
    odds = _log_odds(p[sided])
    right = (odds > 0) == (truth[sided] == 1.0)
    n_right = int(right.sum())
    n_wrong = len(odds) - n_right
    # Platt's targets: a judge that has always been right may still err.
    target = np.where(right, (n_right + 1.0) / (n_right + 2.0), 1.0 / (n_wrong + 2.0))
    design = np.stack([np.abs(odds), np.ones(len(odds))], axis=1)

    def loss(at: Floats) -> tuple[float, Floats]:
        score = design @ at
        slope = (scipy.special.expit(score) - target) @ design / len(odds)
        return float((np.logaddexp(0.0, score) - target * score).mean()), slope

    slope, offset = scipy.optimize.minimize(loss, np.array([1.0, 0.0]), jac=True).x

    def mapped(q: Floats) -> Floats:
        x = _log_odds(q)
        signed = np.sign(x) * (slope * np.abs(x) + offset)
        return np.asarray(scipy.special.expit(signed), float)

    return mapped


def _isotonic(p: Floats, truth: Floats) -> Map:
    """Pool adjacent violators; the map is linear between the pools.

    A right and a wrong case of full confidence are added, so that no probability becomes 0 or 1.
    """
    both = np.concatenate([p, 1.0 - p, [1.0, 1.0, 0.0, 0.0]])
    outcome = np.concatenate([truth, 1.0 - truth, [1.0, 0.0, 1.0, 0.0]])
    knots, place = np.unique(np.round(both, 12), return_inverse=True)
    counts = np.bincount(place.reshape(-1)).astype(np.float64)
    means = np.bincount(place.reshape(-1), outcome) / counts
    heights = scipy.optimize.isotonic_regression(means, weights=counts).x
    return lambda q: np.interp(q, knots, heights)
