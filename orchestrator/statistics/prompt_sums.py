"""Judgments summed per prompt and pair of models: all that ratings and their intervals need.

A prompt is the unit that is sampled: all judgments of one prompt, over all pairs, judges and
repeats, stand or fall together.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PromptSums:
    """Soft wins per prompt for P compared pairs of M models.

    Attributes:
        first: Shape (P,), index of one model of each pair, below `second`.
        second: Shape (P,).
        wins: Shape (n_prompts, P), sum of P(first beats second), ties as half.
        counts: Shape (n_prompts, P), number (or weight) of comparisons.
        n_models: M; models without any comparison are counted.
    """

    first: Ints
    second: Ints
    wins: Floats
    counts: Floats
    n_models: int

    @property
    def n_prompts(self) -> int:
        """Prompts, whether or not they have a comparison."""
        return int(self.wins.shape[0])

    @cached_property
    def win_matrix(self) -> Floats:
        """Shape (M, M): summed wins of the row's model over the column's."""
        result: Floats = self.matrices(
            self.wins.sum(axis=0, keepdims=True), self.counts.sum(axis=0, keepdims=True)
        )[0]
        return result

    @cached_property
    def model_counts(self) -> Floats:
        """Shape (n_prompts, M): comparisons that each model has on each prompt."""
        return self.by_model(self.counts, self.counts)

    def matrices(self, wins: Floats, counts: Floats) -> Floats:
        """Win matrices, shape (B, M, M), from B rows of pair sums, each of shape (B, P)."""
        result = np.zeros((len(wins), self.n_models, self.n_models))
        result[:, self.first, self.second] = wins
        result[:, self.second, self.first] = counts - wins
        return result

    def by_model(self, of_first: Floats, of_second: Floats) -> Floats:
        """Pair columns added up by model: (n, P) for each side -> (n, M)."""
        result = np.zeros((self.n_models, len(of_first)))
        np.add.at(result, self.first, of_first.T)
        np.add.at(result, self.second, of_second.T)
        return np.ascontiguousarray(result.T)


def sum_by_prompt(
    prompts: Ints, first: Ints, second: Ints, preference: Floats, *, shape: tuple[int, int]
) -> PromptSums:
    """Sums judgments by prompt and pair.

    Args:
        prompts: Shape (n,), prompt of each judgment, in [0, shape[0]).
        first: Shape (n,), model of each judgment, in [0, shape[1]).
        second: Shape (n,), the model it is compared with.
        preference: Shape (n,), P(first beats second) in [0, 1], a tie as 0.5.
        shape: Numbers of prompts and of models.

    Raises:
        StatisticsError: If a preference is outside [0, 1] or nan, or a model meets itself.
    """
    if not np.all((preference >= 0.0) & (preference <= 1.0)):
        raise StatisticsError("preferences must be in [0, 1]; drop failed judgments, do not fill")
    if np.any(first == second):
        raise StatisticsError("a model was compared with itself")
    n_prompts, n_models = shape
    swap = first > second
    low, high = np.where(swap, second, first), np.where(swap, first, second)
    wins = np.where(swap, 1.0 - preference, preference)
    pairs, column = np.unique(low * n_models + high, return_inverse=True)
    cell = prompts * len(pairs) + column.reshape(-1)
    size = n_prompts * len(pairs)
    summed: Floats = np.bincount(cell, wins, minlength=size).astype(np.float64)
    counted: Floats = np.bincount(cell, minlength=size).astype(np.float64)
    table = (n_prompts, len(pairs))
    return PromptSums(
        pairs // n_models, pairs % n_models, summed.reshape(table), counted.reshape(table), n_models
    )
