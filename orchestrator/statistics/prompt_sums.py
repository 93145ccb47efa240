"""Judgments summed per prompt and pair of models, and the win rates that follow.

A prompt is the unit that is sampled: all judgments of one prompt, over all pairs, judges and
repeats, stand or fall together.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics.means import Shares, clustered_shares

_DENSE_CELLS: Final = 2**21
_CHUNK_CELLS: Final = 2**17
# Cells for each judgment up to which all of them are counted, with or without a judgment.
_MOSTLY_FULL: Final = 4


@dataclass(frozen=True, slots=True)
class Pairs:
    """n comparisons of two of M models each.

    Attributes:
        prompts: Shape (n,), prompt or cluster of prompts of each, from 0 on.
        first: Shape (n,), index of one model.
        second: Shape (n,), index of the other.
        n_models: M.
    """

    prompts: Ints
    first: Ints
    second: Ints
    n_models: int

    def summing(self) -> "Callable[[Floats], PromptSums]":
        """Return what sums by prompt and pair, whose cells are found once.

        The function takes P(first beats second), shape (n,) in [0, 1], a tie as 0.5.

        Raises:
            StatisticsError: If a preference is outside [0, 1] or nan, or a model meets itself.
        """
        prompts, first, second, n_models = self.prompts, self.first, self.second, self.n_models
        n_prompts, is_swapped = int(prompts.max(initial=-1)) + 1, first > second
        if np.any(first == second):
            raise StatisticsError("a model was compared with itself")
        code = np.minimum(first, second).astype(np.int32)
        code *= n_models
        code += np.maximum(first, second)
        # The pairs of models that met, and which of them each judgment is of.
        pairs = np.flatnonzero(np.bincount(code, minlength=n_models * n_models))
        column = np.zeros(n_models * n_models, dtype=np.int32)
        column[pairs] = np.arange(len(pairs))
        n_cells = n_prompts * len(pairs)
        kind: type[np.signedinteger[Any]] = np.int32 if n_cells < 2**31 else np.int64
        # In place, for the judgments of a large run are most of what an analysis holds.
        at: Ints = prompts.astype(kind)
        at *= len(pairs)
        at += column[code]
        del code
        if n_cells <= _MOSTLY_FULL * len(at):
            counts = np.bincount(at, minlength=n_cells)
            cells: Ints = np.flatnonzero(counts).astype(kind)
            at, counts = (np.cumsum(counts > 0, dtype=kind) - kind(1))[at], counts[cells]
        else:
            cells, at, counts = np.unique(at, return_inverse=True, return_counts=True)
            at = at.reshape(-1)
        ends, row = np.divmod(pairs, n_models), np.divmod(cells, max(len(pairs), 1))
        n_judged = counts.astype(np.float64)

        def summed(preference: Floats) -> PromptSums:
            if preference.size and not (preference.min() >= 0.0 and preference.max() <= 1.0):
                said = "preferences must be in [0, 1]; drop failed judgments"
                raise StatisticsError(f"{said} instead of filling them in")
            if is_swapped.any():
                preference = np.where(is_swapped, 1.0 - preference, preference)
            added = np.bincount(at, preference, minlength=len(n_judged))
            wins: Floats = added.astype(np.float64, copy=False)
            return PromptSums(*ends, *row, wins, n_judged, n_prompts, n_models)

        return summed


@dataclass(frozen=True)
class PromptSums:
    """Soft wins per prompt for P compared pairs of M models, in C cells: those with a judgment.

    Attributes:
        first: Shape (P,), index of one model of each pair, below `second`.
        second: Shape (P,).
        prompt: Shape (C,), prompt of each cell, ascending.
        pair: Shape (C,), in [0, P).
        wins: Shape (C,), sum of P(first beats second), ties as half.
        counts: Shape (C,), number of comparisons, at least 1.
        n_prompts: Prompts, whether or not they have a comparison.
        n_models: M; models without any comparison are counted.
    """

    first: Ints
    second: Ints
    prompt: Ints
    pair: Ints
    wins: Floats
    counts: Floats
    n_prompts: int
    n_models: int

    @property
    def n_pairs(self) -> int:
        """P."""
        return len(self.first)

    @cached_property
    def win_matrix(self) -> Floats:
        """Shape (M, M): summed wins of the row's model over the column's."""
        wins, counts = self.by_pair(self.wins), self.by_pair(self.counts)
        result = np.zeros((self.n_models, self.n_models))
        result[self.first, self.second] = wins
        result[self.second, self.first] = counts - wins
        return result

    @cached_property
    def model_counts(self) -> Floats:
        """Shape (n_prompts, M): comparisons that each model has on each prompt."""
        return self.by_model(self.counts, self.counts)

    def by_pair(self, values: Floats) -> Floats:
        """Values of cells, shape (C,), added up over prompts: shape (P,)."""
        return np.bincount(self.pair, values, minlength=self.n_pairs).astype(np.float64)

    def by_model(self, of_first: Floats, of_second: Floats) -> Floats:
        """Values of cells for each side, (C,) both, added up by model: shape (n_prompts, M)."""
        result = np.zeros((self.n_prompts, self.n_models))
        # Some thousand prompts at a time, whose cells follow on each other: places of all cells
        # would take more memory than the result.
        step = max(1, _CHUNK_CELLS // max(self.n_models, 1))
        begins = np.arange(0, self.n_prompts + step, step, dtype=self.prompt.dtype)
        at_of = np.searchsorted(self.prompt, begins)
        for begin, first, last in zip(begins, at_of, at_of[1:], strict=False):
            part, block = slice(first, last), result[begin : begin + step]
            starts = (self.prompt[part] - begin) * self.n_models
            for ends, values in ((self.first, of_first), (self.second, of_second)):
                at = starts + ends[self.pair[part]]
                block += np.bincount(at, values[part], minlength=block.size).reshape(block.shape)
        return result

    def between(self, one: int, other: int) -> tuple[Floats, Floats]:
        """Wins of a model over another one, and their comparisons: shape (n_prompts,) both."""
        at = np.flatnonzero((self.first == min(one, other)) & (self.second == max(one, other)))
        if not at.size:
            return np.zeros(self.n_prompts), np.zeros(self.n_prompts)
        wins, counts = (column[:, 0] for column in self._columns(int(at[0]), int(at[0]) + 1))
        return (wins if one < other else counts - wins), counts

    def dense_blocks(self) -> Iterator[tuple[Floats, Floats]]:
        """Wins and counts with a column for each pair: (n_prompts, P), 0 where there is no cell.

        They come in blocks of columns, in order, so that memory does not grow with P.
        """
        step = max(1, _DENSE_CELLS // max(self.n_prompts, 1))
        for begin in range(0, max(self.n_pairs, 1), step):
            yield self._columns(begin, min(begin + step, self.n_pairs))

    def _columns(self, begin: int, end: int) -> tuple[Floats, Floats]:
        inside = (self.pair >= begin) & (self.pair < end)
        shape = (self.n_prompts, end - begin)
        wins, counts = np.zeros(shape), np.zeros(shape)
        at = (self.prompt[inside], self.pair[inside] - begin)
        wins[at], counts[at] = self.wins[inside], self.counts[inside]
        return wins, counts


def win_rates(sums: PromptSums, confidence_level: float) -> Shares:
    """Mean preference for the row's model over the column's; arrays of shape (M, M).

    On the diagonal and where two were never compared they are nan, and counts 0.
    """
    parts = [clustered_shares(*block, confidence_level) for block in sums.dense_blocks()]
    columns = (field.name for field in fields(Shares))
    shares = Shares(**{n: np.concatenate([getattr(one, n) for one in parts]) for n in columns})
    n_judgments = np.rint(shares.n_judgments)
    return Shares(
        _mirrored(sums, shares.values, 1.0 - shares.values, np.nan),
        _mirrored(sums, shares.low, 1.0 - shares.high, np.nan),
        _mirrored(sums, shares.high, 1.0 - shares.low, np.nan),
        _mirrored(sums, shares.n_prompts, shares.n_prompts, 0.0).astype(np.int64),
        _mirrored(sums, n_judgments, n_judgments, 0.0),
    )


def mean_preferences(sums: PromptSums, confidence_level: float) -> Shares:
    """Each model's mean preference over all its comparisons, arrays of shape (M,).

    It depends on whom a model was compared with; ratings do not, where the model holds.
    """
    wins = sums.by_model(sums.wins, sums.counts - sums.wins)
    return clustered_shares(wins, sums.model_counts, confidence_level)


def _mirrored(
    sums: PromptSums, upper: NDArray[np.generic], lower: NDArray[np.generic], fill: float
) -> Floats:
    result = np.full((sums.n_models, sums.n_models), fill)
    result[sums.first, sums.second] = upper
    result[sums.second, sums.first] = lower
    return result
