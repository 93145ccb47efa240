"""Judgments summed per prompt and pair of models, and the win rates that follow.

A prompt is the unit that is sampled: all judgments of one prompt, over all pairs, judges and
repeats, stand or fall together.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics.means import Shares, clustered_shares

_DENSE_CELLS: Final = 2**21
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

    def sums(self, preference: Floats) -> "PromptSums":
        """Preferences for the first in [0, 1], shape (n,), summed by prompt and pair of models."""
        n_prompts = int(self.prompts.max()) + 1 if self.prompts.size else 0
        return sum_by_prompt(
            self.prompts,
            self.first,
            self.second,
            np.clip(preference, 0.0, 1.0),
            shape=(n_prompts, self.n_models),
        )


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
        size = self.n_prompts * self.n_models
        begin = self.prompt * self.n_models
        result = np.bincount(begin + self.first[self.pair], of_first, minlength=size)
        result += np.bincount(begin + self.second[self.pair], of_second, minlength=size)
        return result.reshape(self.n_prompts, self.n_models).astype(np.float64)

    def dense(self) -> tuple[Floats, Floats]:
        """Wins and counts with a column for each pair: (n_prompts, P), 0 where there is no cell."""
        return self._columns(0, self.n_pairs)

    def between(self, one: int, other: int) -> tuple[Floats, Floats]:
        """Wins of a model over another one, and their comparisons: shape (n_prompts,) both."""
        at = np.flatnonzero((self.first == min(one, other)) & (self.second == max(one, other)))
        if not at.size:
            return np.zeros(self.n_prompts), np.zeros(self.n_prompts)
        wins, counts = (column[:, 0] for column in self._columns(int(at[0]), int(at[0]) + 1))
        return (wins if one < other else counts - wins), counts

    def dense_blocks(self) -> Iterator[tuple[Floats, Floats]]:
        """The same in blocks of columns, in order, so that memory does not grow with P."""
        step = max(1, _DENSE_CELLS // max(self.n_prompts, 1))
        for begin in range(0, self.n_pairs, step):
            yield self._columns(begin, min(begin + step, self.n_pairs))

    def _columns(self, begin: int, end: int) -> tuple[Floats, Floats]:
        inside = (self.pair >= begin) & (self.pair < end)
        shape = (self.n_prompts, end - begin)
        wins, counts = np.zeros(shape), np.zeros(shape)
        at = (self.prompt[inside], self.pair[inside] - begin)
        wins[at], counts[at] = self.wins[inside], self.counts[inside]
        return wins, counts


def sum_by_prompt(
    prompts: Ints, first: Ints, second: Ints, preference: Floats, *, shape: tuple[int, int]
) -> PromptSums:
    """Sums judgments by prompt and pair.

    All have shape (n,): `prompts` in [0, shape[0]), models in [0, shape[1]), `preference`, P(first
    beats second), in [0, 1], a tie as 0.5.

    Raises:
        StatisticsError: If a preference is outside [0, 1] or nan, or a model meets itself.
    """
    if not np.all((preference >= 0.0) & (preference <= 1.0)):
        raise StatisticsError(
            "preferences must be in [0, 1]; drop failed judgments instead of filling them in"
        )
    if np.any(first == second):
        raise StatisticsError("a model was compared with itself")
    n_prompts, n_models = shape
    swap = first > second
    code = np.where(swap, second, first) * n_models
    code += np.where(swap, first, second)
    # The pairs of models that met, and which of them each judgment is of.
    pairs = np.flatnonzero(np.bincount(code, minlength=n_models * n_models))
    column = np.zeros(n_models * n_models, dtype=np.int32)
    column[pairs] = np.arange(len(pairs))
    pair = column[code]
    wins = np.where(swap, 1.0 - preference, preference)
    return PromptSums(
        pairs // n_models,
        pairs % n_models,
        *_cells(prompts, pair, wins, (n_prompts, len(pairs))),
        n_prompts=n_prompts,
        n_models=n_models,
    )


def _cells(
    prompts: Ints, pair: NDArray[np.int32], wins: Floats, table: tuple[int, int]
) -> tuple[Ints, Ints, Floats, Floats]:
    """Prompt, pair, wins and counts of each cell of a table that has judgments, row by row."""
    n_cells = table[0] * table[1]
    if n_cells <= _MOSTLY_FULL * len(wins):
        # In place, for the judgments of a large run are most of what an analysis holds.
        at = prompts * table[1]
        at += pair
        counts = np.bincount(at, minlength=n_cells)
        cells: Ints = np.flatnonzero(counts)
        won: Floats = np.bincount(at, wins, minlength=n_cells)[cells].astype(np.float64)
        row, column = np.divmod(cells, table[1])
        return row, column, won, counts[cells].astype(np.float64)
    # Going from coordinates to rows adds up what is in the same cell; zeros stay cells.
    summed = scipy.sparse.coo_array((wins, (prompts, pair)), shape=table).tocsr()
    counted = scipy.sparse.coo_array((np.ones(len(wins)), (prompts, pair)), shape=table).tocsr()
    rows = np.repeat(np.arange(table[0]), np.diff(counted.indptr))
    return rows, counted.indices.astype(np.int64), summed.data, counted.data


def win_rates(sums: PromptSums, confidence_level: float) -> Shares:
    """Mean preference for the row's model over the column's; arrays of shape (M, M).

    On the diagonal and where two were never compared they are nan, and counts 0.
    """
    parts = [clustered_shares(*block, confidence_level) for block in sums.dense_blocks()]
    if parts:
        columns = (field.name for field in fields(Shares))
        joined = {name: np.concatenate([getattr(one, name) for one in parts]) for name in columns}
        shares = Shares(**joined)
    else:
        shares = clustered_shares(*sums.dense(), confidence_level)
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
