"""Tests of a given order of models by their means over prompts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.statistics.bootstrap import prompt_weights
from orchestrator.statistics.jackknife import jackknife_sums, student_interval
from orchestrator.statistics.results import checked_level

Floats = NDArray[np.float64]

METHOD: Final = "jackknife over prompts, t quantile, Bonferroni over pairs"

Verdict = Literal["right", "wrong", "open"]


@dataclass(frozen=True, slots=True)
class Ordering:
    """The order that a score gives to M models, against the true one.

    Attributes:
        order: Indices of the models, best first; those without a value are left out.
        means: Shape (M,); nan where a model has no value.
        share_right: Share of resamples of the prompts with exactly the true order; None where a
            model has no value.
        verdicts: For each pair (i, j), i truly better: whether the score says so with an interval
            that leaves out 0.
        n_prompts: Prompts.
    """

    order: tuple[int, ...]
    means: Floats
    share_right: float | None
    verdicts: dict[tuple[int, int], Verdict]
    n_prompts: int

    def count(self, verdict: Verdict) -> int:
        """Pairs with that verdict."""
        return sum(found == verdict for found in self.verdicts.values())


def ordering(
    sums: Floats,
    counts: Floats,
    truth: Sequence[int],
    *,
    confidence_level: float,
    n_resamples: int,
    rng: np.random.Generator,
) -> Ordering:
    """Compare the order of models by their mean score with the true order.

    Args:
        sums: Shape (P, M), sums of the score over a prompt's judgments; more is better.
        counts: Shape (P, M), how many these were.
        truth: Indices of the models, best first.
        confidence_level: Of all pairs together, in (0, 1).
        n_resamples: Of the prompts, each with all its judgments.
        rng: Source of the resamples.

    Raises:
        StatisticsError: If the shapes differ, or `truth` is no order of the models.
    """
    checked_level(confidence_level)
    n_models = sums.shape[1]
    if sums.shape != counts.shape or sorted(truth) != list(range(n_models)):
        raise StatisticsError("sums, counts and the true order must be of the same models")
    means = _means(sums.sum(axis=0), counts.sum(axis=0))
    known = np.flatnonzero(np.isfinite(means))
    pairs = list(combinations(truth, 2))
    level = 1.0 - (1.0 - confidence_level) / max(1, len(pairs))
    verdicts = {(i, j): _verdict(sums, counts, i, j, level) for i, j in pairs}
    share = None
    if len(known) == n_models and len(sums):
        right = 0
        for weights in prompt_weights(len(sums), n_resamples, rng):
            drawn = _means(weights @ sums, weights @ counts)[:, list(truth)]
            # A tie is not the true order.
            right += int(np.all(drawn[:, :-1] > drawn[:, 1:], axis=1).sum())
        share = right / n_resamples
    order = tuple(int(i) for i in known[np.argsort(-means[known], kind="stable")])
    return Ordering(order, means, share, verdicts, len(sums))


def _means(sums: Floats, counts: Floats) -> Floats:
    result: Floats = np.where(counts > 0, sums / np.where(counts > 0, counts, 1.0), np.nan)
    return result


def _verdict(sums: Floats, counts: Floats, better: int, worse: int, level: float) -> Verdict:
    parts = np.stack(
        (sums[:, better], counts[:, better], sums[:, worse], counts[:, worse]), axis=-1
    )
    parts = parts[(parts[:, 1] > 0) | (parts[:, 3] > 0)]
    if not len(parts):
        return "open"

    def gap(total: Floats) -> Floats:
        return _means(total[:, 0], total[:, 1]) - _means(total[:, 2], total[:, 3])

    found = jackknife_sums(parts, gap)
    if math.isnan(found.value):
        return "open"
    sizes = parts[:, 1] + parts[:, 3]
    interval = student_interval(found.value, found.standard_error, len(parts), level, sizes=sizes)
    if isinstance(interval, str) or interval.contains(0.0):
        return "open"
    return "right" if found.value > 0 else "wrong"
