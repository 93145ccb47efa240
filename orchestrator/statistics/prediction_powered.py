"""Means and shares of human labels, made more precise by a judge: PPI++.

A few rows have a human label, all have a score of the judge. The judge's mean over all rows is
precise but may be biased; the labels say by how much. The estimate is unbiased whatever the judge
is, and at least as precise as the labels alone for many labels.

Source: Angelopoulos, Duchi and Zrnic 2023, PPI++: Efficient Prediction-Powered Inference
(arXiv:2311.01453). With n labelled rows (Y, f) and N rows with a score f alone,

    theta = mean_n(Y) + lambda (mean_N(f) - mean_n(f))
    lambda = Cov_n(Y, f) / ((1 + n/N) Var_{n+N}(f)), cut to [0, 1]

where the covariance is over labelled rows with divisor n and the variance over all rows with
divisor n + N - 1, as in the authors' package `ppi-python` (0.2.3).

The labelled rows must be a random choice: labels are missing completely at random.

Departures: prompts (or clusters of them) may have several rows, labelled or not, and all of a
prompt's rows enter its one error; variances have the small-sample corrections of
`orchestrator.statistics.student`, one degree of freedom less for lambda, and Student's t in place
of the normal quantile. lambda itself is by rows: clusters change its best value, never validity.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from orchestrator.errors import StatisticsError
from orchestrator.records import Bools, Floats, Ints
from orchestrator.statistics import student
from orchestrator.statistics.means import unseen_variance
from orchestrator.statistics.resampling import MIN_PROMPTS, codes_of
from orchestrator.statistics.results import Estimate, Interval, checked_level
from orchestrator.statistics.student import degrees_of_freedom, variance_factor

METHOD: Final = "PPI++, variance over prompts, t quantile"

_NO_SPREAD: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Labelled:
    """Rows with the scores of a judge, some of which have a human label.

    Attributes:
        scores: Shape (n,), the judge's, on the scale of the labels; nan where it gave none.
        labels: Shape (n,); nan where there is none.
        prompts: Shape (n,), prompt (or cluster of prompts) of each row, whole numbers from 0 on.

    Raises:
        StatisticsError: If the shapes differ.
    """

    scores: Floats
    labels: Floats
    prompts: Ints

    def __post_init__(self) -> None:
        columns = [self.scores, self.labels, self.prompts]
        if len({column.shape for column in columns}) != 1 or self.scores.ndim != 1:
            shapes = ", ".join(str(column.shape) for column in columns)
            raise StatisticsError(f"scores, labels and prompts need one shape (n,), got {shapes}")

    @property
    def is_labelled(self) -> Bools:
        """Shape (n,): rows with a label and a score."""
        return ~np.isnan(self.scores) & ~np.isnan(self.labels)

    @property
    def is_other(self) -> Bools:
        """Shape (n,): the other rows with a score."""
        return ~np.isnan(self.scores) & np.isnan(self.labels)


@dataclass(frozen=True, slots=True)
class Part:
    """One of the two means of an estimate, and what each prompt adds to its error.

    Attributes:
        errors: Shape (P,); the sum of their squares is the variance.
        dof: Degrees of freedom of that variance.
        n: Prompts that it rests on.
    """

    errors: Floats
    dof: float
    n: int

    @property
    def variance(self) -> float:
        """Of the mean."""
        return float(self.errors @ self.errors)

    def minus(self, other: "Part") -> "Part":
        """Return the estimate of the difference of two means over the same prompts."""
        errors = self.errors - other.errors
        return Part(errors, min(self.dof, other.dof), min(self.n, other.n))


@dataclass(frozen=True, slots=True)
class Corrected:
    """A mean of human labels with the help of a judge, or a difference of two.

    Attributes:
        value: nan without labels.
        tuning: Lambda, the weight of the judge in [0, 1]: 0 is the mean of the labels alone. nan
            for a difference.
        n_labels: Labelled rows.
        n_rows: Rows with a score.
        labelled: Mean over labelled rows of label minus lambda times score.
        other: Mean over the other rows of lambda times score.
        unseen: Variance of the labelled part if one more prompt said half 0, half 1; for values
            in [0, 1].
    """

    value: float
    tuning: float
    n_labels: int
    n_rows: int
    labelled: Part
    other: Part
    unseen: float = math.nan

    @property
    def variance(self) -> float:
        """Of the value, over prompts; a prompt with rows of both kinds enters once."""
        errors = self.labelled.errors + self.other.errors
        return float(errors @ errors)

    @property
    def dof(self) -> float:
        """Satterthwaite's degrees of freedom of the variance of the two parts."""
        parts = (self.labelled, self.other)
        used = [part for part in parts if part.variance > 0.0]
        if not used:
            return self.labelled.dof
        squares = sum(part.variance**2 / max(part.dof, 1.0) for part in used)
        return float(sum(part.variance for part in used) ** 2 / squares)

    def minus(self, other: "Corrected") -> "Corrected":
        """The difference of two means whose prompts have the same numbers."""
        return Corrected(
            self.value - other.value,
            math.nan,
            min(self.n_labels, other.n_labels),
            min(self.n_rows, other.n_rows),
            self.labelled.minus(other.labelled),
            self.other.minus(other.other),
        )

    def estimate(self, confidence_level: float = 0.95, *, is_share: bool = False) -> Estimate:
        """Return the value with Student's interval, or with one in [0, 1] of a share.

        That of labels and scores in [0, 1] is Wilson's for as many yes-or-no prompts as would have
        the variance, which counts a prompt not seen yet (`unseen_variance`).

        Raises:
            StatisticsError: If the level is not in (0, 1).
        """
        level, n = checked_level(confidence_level), self.labelled.n
        value = min(max(self.value, 0.0), 1.0) if is_share else self.value
        why = None
        if not self.n_labels:
            why = "no labels"
        elif n < MIN_PROMPTS or self.labelled.dof < 1.0:
            why = f"{n} labelled prompts, too few for an interval"
        elif not is_share and self.variance <= _NO_SPREAD**2:
            why = "no spread over labelled prompts: no interval"
        if why is not None:
            return Estimate(value, None, n, METHOD, why)
        reach = student.quantile(self.dof, level)
        if not is_share:
            half = reach * math.sqrt(self.variance)
            return Estimate(value, Interval(value - half, value + half, level), n, METHOD)
        variance = self.variance + max(self.unseen - self.labelled.variance, 0.0)
        inner = (n * value + 0.5) / (n + 1)
        effective = inner * (1.0 - inner) / variance
        shrink = 1.0 + reach**2 / effective
        centre = (value + reach**2 / (2.0 * effective)) / shrink
        spread = value * (1.0 - value) / effective + reach**2 / (4.0 * effective**2)
        half = reach / shrink * math.sqrt(spread)
        interval = Interval(max(centre - half, 0.0), min(centre + half, 1.0), level)
        return Estimate(value, interval, n, METHOD)


def power_tuning(data: Labelled) -> float:
    """Lambda of PPI++ for a mean, in [0, 1]; 0 where the judge can't help."""
    chosen, other = data.is_labelled, data.is_other
    if np.unique(data.prompts[chosen]).size <= MIN_PROMPTS:
        return 0.0
    if np.unique(data.prompts[other]).size < MIN_PROMPTS:
        return 0.0
    label, score = data.labels[chosen], data.scores[chosen]
    covariance = float(((label - label.mean()) * (score - score.mean())).mean())
    variance = float(np.var(data.scores[chosen | other], ddof=1))
    variance *= 1.0 + chosen.sum() / other.sum()
    size = float(np.abs(score).max())
    if variance <= (_NO_SPREAD * max(size, 1.0)) ** 2:
        return 0.0
    return float(min(max(covariance / variance, 0.0), 1.0))


def corrected_mean(
    data: Labelled, *, tuning: float | None = None, n_prompts: int | None = None
) -> Corrected:
    """Mean of the labels that all rows would have (see the module).

    `tuning` is lambda: 0 leaves the judge out, 1 is PPI without tuning, None is by `power_tuning`.
    `n_prompts` is the length of the arrays of errors, so that means over the same prompts have a
    difference; None is one more than the largest number of a prompt.
    """
    chosen, other = data.is_labelled, data.is_other
    size = n_prompts or (int(data.prompts.max()) + 1 if data.prompts.size else 0)
    weight = power_tuning(data) if tuning is None else tuning
    is_tuned = tuning is None and weight > 0.0
    if not chosen.any() or (weight and not other.any()):
        empty = Part(np.zeros(size), 0.0, 0)
        return Corrected(math.nan, weight, 0, int((~np.isnan(data.scores)).sum()), empty, empty)
    scores = np.where(np.isnan(data.scores), 0.0, data.scores)
    residuals = np.where(chosen, data.labels - weight * scores, 0.0)
    mean, labelled = _part(residuals, chosen / chosen.sum(), data.prompts, size, tuned=is_tuned)
    others = other / other.sum() if weight else np.zeros(other.size)
    shift, rest = _part(weight * scores, others, data.prompts, size)
    # The variance of the mean residual, which is in [-weight, 1], with a prompt not seen yet.
    width, codes = 1.0 + weight, codes_of(data.prompts[chosen])
    sums = np.bincount(codes, (residuals[chosen] + weight) / width).astype(np.float64)
    unseen = width**2 * unseen_variance(sums, np.bincount(codes).astype(np.float64))
    n_rows = int((~np.isnan(data.scores)).sum())
    return Corrected(mean + shift, weight, int(chosen.sum()), n_rows, labelled, rest, unseen)


def _part(
    values: Floats, weights: Floats, prompts: Ints, n_prompts: int, *, tuned: bool = False
) -> tuple[float, Part]:
    """A weighted mean, and each prompt's error of it; `tuned` costs one degree of freedom."""
    if not weights.any():
        return 0.0, Part(np.zeros(n_prompts), 0.0, 0)
    mean = float(weights @ values)
    sizes = np.bincount(prompts, weights, minlength=n_prompts).astype(np.float64)
    apart = weights * (values - mean)
    errors = np.bincount(prompts, apart, minlength=n_prompts).astype(np.float64)
    dof = float(degrees_of_freedom(sizes[:, None])[0])
    factor = float(variance_factor(sizes[:, None])[0])
    if tuned:
        factor *= dof / max(dof - 1.0, 0.5)
        dof -= 1.0
    return mean, Part(math.sqrt(factor) * errors, dof, int((sizes > 0).sum()))


def worth(corrected: Corrected, alone: Corrected) -> float:
    """Labels that alone would be as precise as these labels with the judge's help.

    It is their number times the ratio of the variances; nan where one has no spread.
    """
    if not (corrected.variance > 0.0 and alone.variance > 0.0):
        return math.nan
    return corrected.n_labels * alone.variance / corrected.variance


def hardly_correlates(data: Labelled) -> bool:
    """Return True if labels correlate so little with scores that PPI++ loses against labels alone.

    That is Pearson's correlation below 1 / sqrt(n - 2), for normal values and all scores known:
    Mani, Xu, Lipton and Oberst 2025 (arXiv:2505.20178). False where it is not known: without
    spread, or for fewer than 3 labels.
    """
    labels, scores = data.labels[data.is_labelled], data.scores[data.is_labelled]
    if labels.size < 3 or not (np.ptp(labels) > 0.0 and np.ptp(scores) > 0.0):
        return False
    return float(np.corrcoef(labels, scores)[0, 1]) < 1.0 / math.sqrt(labels.size - 2)
