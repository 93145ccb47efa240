"""Bradley-Terry ratings of human labels, made more precise by a judge's preferences: PPI++.

A few comparisons have a human label Y (1, 0.5 or 0 for the first model), all have the judge's
preference f in [0, 1]. With x the difference of the two models' unit vectors and s = sigmoid(x th),
the ratings th are the root of

    mean_n x (s - Y) + lambda (mean_N x (s - f) - mean_n x (s - f)) = 0

over n labelled and N other rows: PPI++ for logistic regression (Angelopoulos, Duchi and Zrnic 2023,
arXiv:2311.01453, section 3 and Algorithm 2). lambda minimises the trace of the covariance
(their equation 6) and is cut to [0, 1], so that the problem stays convex. What the ratings estimate
is the Bradley-Terry fit to the labels that people would give to all rows.

Departures: those of `prediction_powered.py`. Errors are sums over prompts, with
small-sample corrections and Student's t; rows chosen with known probabilities are weighted. lambda
is taken at the ratings of the labels alone (of lambda 1, then of the judge alone, where those are
not finite). The authors' package starts at lambda 1, which is far off if the judge is useless.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics.bradley_terry import ELO_MEAN, ELO_SCALE, grounded
from orchestrator.statistics.prediction_powered import Corrected, Labelled, Part
from orchestrator.statistics.resampling import MIN_PROMPTS
from orchestrator.statistics.results import Interval
from orchestrator.statistics.student import degrees_of_freedom, variance_factor

MIN_LABELLED: Final = 10
"""Labelled prompts of a model under which it has no interval: fewer are not simulated."""

_MAX_STEPS: Final = 100
_MAX_STEP: Final = 2.0
_SETTLED: Final = 1e-10
_FAR: Final = 20.0
"""Strength (natural log) beyond which there is taken to be no finite solution: 3,500 points."""
_NO_SPREAD: Final = 1e-24


@dataclass(frozen=True, slots=True)
class LabelledPairs:
    """Comparisons with the preference of a judge, some of which have a human label.

    Attributes:
        rows: Preferences, labels, prompts and probabilities; preferences and labels in [0, 1] are
            of the first model.
        first: Shape (n,), from 0 on.
        second: Shape (n,), likewise; never the first.
        n_models: M.

    Raises:
        StatisticsError: If the shapes differ, or a model is none of M or compared with itself.
    """

    rows: Labelled
    first: Ints
    second: Ints
    n_models: int

    def __post_init__(self) -> None:
        if not self.first.shape == self.second.shape == self.rows.scores.shape:
            raise StatisticsError("models and scores need one shape (n,)")
        if (self.first == self.second).any():
            raise StatisticsError("a model is compared with itself")
        both = np.concatenate([self.first, self.second])
        if both.size and not (both.min() >= 0 and both.max() < self.n_models):
            raise StatisticsError(f"models must be numbers from 0 to {self.n_models - 1}")

    def by_model(self, values: Floats, prompts: Ints, n_prompts: int) -> Floats:
        """Sums of a value times x by prompt, shape (n_prompts, M)."""
        found = np.zeros((n_prompts, self.n_models))
        np.add.at(found, (prompts, self.first), values)
        np.add.at(found, (prompts, self.second), -values)
        return found


@dataclass(frozen=True, slots=True)
class CorrectedRatings:
    """Ratings of M models on the Elo scale, mean 1000.

    Attributes:
        models: M estimates with their errors, to take intervals and differences of; values are nan
            where there is no finite solution.
        tuning: Lambda.
        n_labels: Labelled rows.
        prompts_of_models: Shape (M,), labelled prompts of each model.
    """

    models: tuple[Corrected, ...]
    tuning: float
    n_labels: int
    prompts_of_models: Ints


def corrected_ratings(data: LabelledPairs, *, tuning: float | None = None) -> CorrectedRatings:
    """Ratings that people's labels of all rows would give (see the module).

    `tuning` is lambda: 0 leaves the judge out, None is by the module's rule.
    """
    rows = data.rows
    chosen, other = rows.is_labelled, rows.is_other
    weights = rows.weights
    others = other / other.sum() if other.any() else np.zeros(other.size)
    n_labels, size = int(chosen.sum()), int(rows.prompts.max()) + 1 if rows.prompts.size else 0
    prompts_of_models = (_sizes(data, chosen, size) > 0).sum(axis=0).astype(np.int64)
    scores = np.where(np.isnan(rows.scores), 0.5, rows.scores)
    labels = np.where(chosen, rows.labels, 0.5)
    lam = _tuning(data, weights, scores, labels) if tuning is None else tuning
    counts = (1.0 - lam) * weights + lam * others
    wins = weights * (labels - lam * scores) + lam * others * scores
    strengths = _fit(data, counts, wins)
    if strengths is None or not n_labels:
        empty = Part(np.zeros(size), 0.0, 0)
        n_rows = int((~np.isnan(rows.scores)).sum())
        none = Corrected(math.nan, lam, n_labels, n_rows, empty, empty)
        return CorrectedRatings((none,) * data.n_models, lam, n_labels, prompts_of_models)
    expected = _expected(data, strengths)
    bread = _bread(data, counts, strengths)
    labelled = (labels - expected) - lam * (scores - expected)
    parts = [
        _errors(data, weights, np.where(chosen, labelled, 0.0), bread),
        _errors(data, lam * others, scores - expected, bread),
    ]
    is_tuned = tuning is None and lam > 0.0
    return CorrectedRatings(
        tuple(
            _of_model(data, model, strengths[model], lam, parts, tuned=is_tuned)
            for model in range(data.n_models)
        ),
        lam,
        n_labels,
        prompts_of_models,
    )


def _of_model(
    data: LabelledPairs,
    model: int,
    strength: float,
    tuning: float,
    parts: list[Floats],
    *,
    tuned: bool,
) -> Corrected:
    """One model's rating and errors on the Elo scale."""
    rows, size = data.rows, len(parts[0])
    found = []
    for errors, kept, lost in zip(
        parts, (rows.is_labelled, rows.is_other), (int(tuned), 0), strict=True
    ):
        every = np.bincount(rows.prompts, kept, minlength=size).astype(np.float64)[:, None]
        own = _sizes(data, kept, size)[:, model : model + 1]
        dof = float(degrees_of_freedom(own)[0])
        factor = float(variance_factor(every)[0])
        if lost:
            factor *= dof / max(dof - lost, 0.5)
        scaled = ELO_SCALE * math.sqrt(factor) * errors[:, model]
        found.append(Part(scaled, dof - lost, int((own > 0).sum())))
    n_rows = int((~np.isnan(rows.scores)).sum())
    value = ELO_MEAN + ELO_SCALE * strength
    return Corrected(value, tuning, int(rows.is_labelled.sum()), n_rows, found[0], found[1])


def _errors(data: LabelledPairs, weights: Floats, values: Floats, bread: Floats) -> Floats:
    """Return the contribution of each prompt to the error of each strength, shape (P, M)."""
    size = int(data.rows.prompts.max()) + 1
    prompts = data.rows.prompts
    total = weights.sum()
    sums = data.by_model(weights * values, prompts, size)
    share = np.bincount(prompts, weights, minlength=size).astype(np.float64)
    if total > 0.0:
        sums -= np.outer(share / total, sums.sum(axis=0))
    return sums @ bread


def _tuning(data: LabelledPairs, weights: Floats, scores: Floats, labels: Floats) -> float:
    """Lambda that makes the sum of the variances of the strengths least, in [0, 1]."""
    rows = data.rows
    chosen, other = rows.is_labelled, rows.is_other
    if np.unique(rows.prompts[chosen]).size <= MIN_PROMPTS:
        return 0.0
    if np.unique(rows.prompts[other]).size < MIN_PROMPTS:
        return 0.0
    every = (chosen | other).astype(np.float64)
    every /= every.sum()
    others = other / other.sum()
    starts = (
        (weights, weights * labels),
        (others, weights * (labels - scores) + others * scores),
        (every, every * scores),
    )
    fits = (_fit(data, counts, wins) for counts, wins in starts)
    strengths = next((found for found in fits if found is not None), None)
    if strengths is None:
        return 0.0
    expected = _expected(data, strengths)
    bread = _bread(data, every, strengths)
    moved = bread[data.first] - bread[data.second]
    by_score = (expected - scores)[:, None] * moved
    by_label = (expected - labels)[:, None] * moved
    of_labelled = by_score - weights @ by_score
    covariance = float(weights @ ((by_label - weights @ by_label) * of_labelled).sum(axis=1))
    variance = float(every @ ((by_score - every @ by_score) ** 2).sum(axis=1))
    if rows.probabilities is None:
        variance *= 1.0 + float(chosen.sum() / other.sum())
    return 0.0 if variance <= _NO_SPREAD else min(max(covariance / variance, 0.0), 1.0)


def _fit(data: LabelledPairs, counts: Floats, wins: Floats) -> Floats | None:
    """Strengths whose expected wins are those given, mean 0; None where they are not finite."""
    matrix = _compared(data, counts)
    totals = np.zeros(data.n_models)
    np.add.at(totals, data.first, wins)
    np.add.at(totals, data.second, counts - wins)
    theta, anchored = np.zeros(data.n_models), np.ones((1, data.n_models), dtype=np.bool_)
    for _ in range(_MAX_STEPS):
        expected = 1.0 / (1.0 + np.exp(theta[None, :] - theta[:, None]))
        gradient = totals - (matrix * expected).sum(axis=1)
        laplacian = _laplacian(matrix, expected)
        try:
            change = np.linalg.solve(grounded(laplacian[None], anchored)[0], gradient)
        except np.linalg.LinAlgError:
            return None
        largest = float(np.abs(change).max())
        theta += change * min(1.0, _MAX_STEP / max(largest, _MAX_STEP))
        theta -= theta.mean()
        if not np.isfinite(theta).all() or np.ptp(theta) > _FAR:
            return None
        if largest <= _SETTLED:
            return theta
    return None


def _compared(data: LabelledPairs, counts: Floats) -> Floats:
    matrix = np.zeros((data.n_models, data.n_models))
    np.add.at(matrix, (data.first, data.second), counts)
    return matrix + matrix.T


def _laplacian(matrix: Floats, expected: Floats) -> Floats:
    found: Floats = -matrix * expected * (1.0 - expected)
    np.fill_diagonal(found, 0.0)
    np.fill_diagonal(found, -found.sum(axis=1))
    return found


def _bread(data: LabelledPairs, counts: Floats, strengths: Floats) -> Floats:
    """Inverse of the information, of strengths with mean 0, shape (M, M)."""
    expected = 1.0 / (1.0 + np.exp(strengths[None, :] - strengths[:, None]))
    laplacian = _laplacian(_compared(data, counts), expected)
    inverse = np.linalg.pinv(laplacian, hermitian=True)
    return np.asarray(inverse, dtype=np.float64)


def _expected(data: LabelledPairs, strengths: Floats) -> Floats:
    gaps = strengths[data.second] - strengths[data.first]
    return 1.0 / (1.0 + np.exp(gaps))


def _sizes(data: LabelledPairs, kept: NDArray[np.bool_], n_prompts: int) -> Floats:
    """Rows of each prompt in which a model is compared, shape (P, M)."""
    found = np.zeros((n_prompts, data.n_models))
    for side in (data.first, data.second):
        np.add.at(found, (data.rows.prompts[kept], side[kept]), 1.0)
    return found


def rating_interval(
    found: CorrectedRatings, model: int, confidence_level: float = 0.95, *, minus: int | None = None
) -> Interval | str:
    """Return the interval of a rating, or of its difference to another, or why there is none.

    Raises:
        StatisticsError: If the level is not in (0, 1).
    """
    models = [model] if minus is None else [model, minus]
    if math.isnan(found.models[model].value):
        return "no finite rating fits these labels"
    least = int(found.prompts_of_models[models].min())
    if least < MIN_LABELLED:
        return f"{least} labelled prompts, fewer than {MIN_LABELLED}"
    of = found.models[model] if minus is None else found.models[model].minus(found.models[minus])
    return of.interval(confidence_level)
