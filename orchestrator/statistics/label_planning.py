"""Planning: how much more human labels would tell; units that tell a difference from none."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Final

import numpy as np

from orchestrator.statistics import student
from orchestrator.statistics.prediction_powered import Corrected, Labelled, corrected_mean
from orchestrator.statistics.resampling import MIN_PROMPTS
from orchestrator.statistics.results import checked_level

# Expected width of intervals by number of human labels, from the labels there are.
#
# With M rows and n labels the variance of PPI++ is R D(n) / n + S: R that of label minus slope
# times score, S that of slope times the mean score over all rows, both measured over prompts.
#
#     D(n) = 1 + rho (n - 1) / (M - 1) * sum_p m_p (m_p - 1) / M
#
# is the design effect of n labels spread at random over the M rows of prompts with m_p rows each
# (Kish 1965, *Survey Sampling*): more labels are more often of the same prompt. rho, the
# correlation of rows of a prompt, is that of the judge's scores, since few labels share a prompt.


def expected_reach(
    data: Labelled, numbers: Sequence[int], confidence_level: float = 0.95
) -> list[tuple[float, float]]:
    """Half widths of Student's intervals for other numbers of labels of the same rows.

    Numbers of labels are above 2. Returns for each half of the expected width, in units of the
    label: with the judge's help, and of the labels alone; nan if unknown.
    """
    level = checked_level(confidence_level)
    found, alone = corrected_mean(data), corrected_mean(data, tuning=0.0)
    if alone.labelled.n <= MIN_PROMPTS:
        return [(math.nan, math.nan)] * len(numbers)
    n, total = alone.n_labels, alone.n_rows
    # The weight of the mean over all rows that is the same estimate as lambda's over the others.
    slope = found.tuning * total / max(total - n, 1)
    apart = corrected_mean(replace(data, labels=data.labels - slope * data.scores), tuning=0.0)
    every = corrected_mean(Labelled(data.scores, slope * data.scores, data.prompts), tuning=0.0)

    rho = _within_prompts(data)

    def reach(labelled: Corrected, number: int, rest: float, lost: int) -> float:
        # Degrees of freedom grow with the labels as they are spread over prompts.
        dof = max(labelled.labelled.dof * number / n - lost, 1.0)
        factor = dof / (dof - 1.0) if lost and dof > 1.0 else 1.0
        shared = (1.0 + (number - 1) * rho) / (1.0 + (n - 1) * rho)
        variance = factor * shared * labelled.variance * n / number + rest
        if variance <= 0.0:
            return math.nan
        return student.quantile(dof, level) * math.sqrt(variance)

    return [
        (
            reach(apart, number, every.variance, int(found.tuning > 0)),
            reach(alone, number, 0.0, 0),
        )
        for number in numbers
    ]


def _within_prompts(data: Labelled) -> float:
    """Return what each further label adds to the design effect; at least 0."""
    known = ~np.isnan(data.scores)
    total = int(known.sum())
    apart = data.scores[known] - data.scores[known].mean()
    prompts = np.unique(data.prompts[known], return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(prompts).astype(np.float64)
    pairs, squares = float(sizes @ (sizes - 1.0)), float(apart @ apart)
    if total < 2 or pairs <= 0.0 or squares <= 0.0:
        return 0.0
    sums = np.bincount(prompts, apart)
    rho = (float(sums @ sums) - squares) / pairs / (squares / total)
    return max(rho, 0.0) * pairs / total / (total - 1)


def worth(corrected: Corrected, alone: Corrected) -> float:
    """Labels that alone would be as precise as these labels with the judge's help.

    It is their number times the ratio of the variances; nan where one has no spread.
    """
    if not (corrected.variance > 0.0 and alone.variance > 0.0):
        return math.nan
    return corrected.n_labels * alone.variance / corrected.variance


def least_correlation(n_labels: int) -> float:
    """Correlation of labels and scores below which PPI++ loses against the labels alone.

    1 / sqrt(n - 2) for normal values and all scores known: Mani, Xu, Lipton and Oberst 2025
    (arXiv:2505.20178). nan for fewer than 3 labels.
    """
    return 1.0 / math.sqrt(n_labels - 2) if n_labels > 2 else math.nan


def label_correlation(data: Labelled) -> float:
    """Pearson's correlation of labels and scores over labelled rows; nan without spread."""
    labels, scores = data.labels[data.is_labelled], data.scores[data.is_labelled]
    if labels.size < 3 or not (np.ptp(labels) > 0.0 and np.ptp(scores) > 0.0):
        return math.nan
    return float(np.corrcoef(labels, scores)[0, 1])


MOST: Final = 100_000
"""Beyond this a number of units is no plan: a difference so small is not told from none."""


def units_needed(difference: float, end: float, n: int, level: float, power: float = 0.8) -> int:
    """Units of which a share `power` of samples would tell a mean difference like this one from 0.

    By the normal approximation (Cohen 1988, section 2.4): an interval's end is z standard errors
    away, which shrink with the root of the number of units, and a sample's difference falls below
    the true one by more than its quantile at `power` in all but that share. A difference that
    was seen in few units is itself uncertain, and so is the number; `MOST` + 1 for more.

    Args:
        difference: As it was seen, not 0.
        end: End of its interval that is nearer to 0 or beyond.
        n: Independent units that it was seen in.
        level: Confidence level of the interval.
        power: Share of samples, in (0, 1).
    """
    z = NormalDist().inv_cdf(0.5 + 0.5 * level)
    error = abs(difference - end) / z
    shrink = (z + NormalDist().inv_cdf(power)) * error
    if shrink > abs(difference) * math.sqrt(MOST / n):
        return MOST + 1
    return math.ceil(n * (shrink / difference) ** 2)
