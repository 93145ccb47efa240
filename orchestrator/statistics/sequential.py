"""Sequential test of the better of two models, prompt by prompt, with early stopping.

Every pair of models has a difference in [-1, 1] on each prompt. Two capitals bet on each pair, one
against "a is not better than b" and one against the reverse (`betting`). After each block of
prompts Holm's procedure goes over both directions of all pairs: the chance that any declared order
is wrong is at most `error`, however the differences depend on each other and however often one
looks, because each p-value holds at all times.

Where prompts come in clusters (questions on one passage), clusters are the independent draws: what
is bet on is a cluster's total over the size of the largest cluster, and the null stays that of the
mean over prompts. It is assumed that no cluster of the source is larger than the largest one here.
On exactly these prompts (`population`) clusters play no part: the order in which prompts are drawn
is all that is random, and it is drawn prompt by prompt.

Holm goes over directions, not over pairs: that one of two directions is declared leaves the other
one a true null, so thresholds rise more slowly, and a wrong *direction* is an error too
(`docs/design/0011-sequential-stopping.md`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.statistics.betting import Capital, confidence_sequence
from orchestrator.statistics.multiple import holm

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LAG: Final = 2
"""Blocks between knowledge and its use: block b decides what is asked from block b + LAG on,
so that the blocks between keep the servers busy while a block ends."""


class OrderTest:
    """The orders of all pairs of models, tested block by block.

    Args:
        n_models: At least 2; pairs are (0, 1), (0, 2), …, (1, 2), ….
        error: Chance of any wrong order, in (0, 1).
        population: Prompts there are, where the question is the order on exactly these; None
            where they are a sample.
        top: Only who is among the best so many is asked for; None for every order.
        largest: Prompts of the largest cluster; 1 where each prompt stands alone.

    Attributes:
        pairs: Indices of the models of each pair.
        settled: 1 where the first model of a pair is better, -1 where the second is, else 0.
        settled_at: Prompts of the order after which each pair was settled; 0 where it is not.
        n_prompts: Prompts of the order that were looked at.
        largest_cluster: As given.
    """

    def __init__(
        self,
        n_models: int,
        *,
        error: float,
        population: int | None = None,
        top: int | None = None,
        largest: int = 1,
    ) -> None:
        if n_models < 2 or not 0.0 < error < 1.0:
            raise StatisticsError(
                "a ranking needs at least 2 models and an error between 0 and 1, "
                f"got {n_models} and {error}"
            )
        self._n_models = n_models
        self._error = error
        self._top = top
        self.largest_cluster = largest
        self.pairs: list[tuple[int, int]] = list(combinations(range(n_models), 2))
        n = len(self.pairs)
        self._capitals = [Capital(n, population=population) for _ in range(2)]
        self._largest = np.zeros((2, n))
        self._closed = [np.zeros(n, np.bool_)]
        self.settled = np.zeros(n, np.int8)
        self.settled_at = np.zeros(n, np.int64)
        self.n_prompts = 0

    def is_open(self, block: int) -> Bools:
        """Pairs that are still asked in a block, shape (pairs,).

        Args:
            block: From 0, at most one more than `LAG` allows for.
        """
        decided = max(0, block - LAG + 1)
        return ~self._closed[min(decided, len(self._closed) - 1)]

    @property
    def n_blocks(self) -> int:
        """Blocks that were looked at."""
        return len(self._closed) - 1

    @property
    def matters(self) -> Bools:
        """Pairs whose order could still say who is among the best `top`, shape (pairs,)."""
        if self._top is None:
            return np.ones(len(self.pairs), np.bool_)
        below = np.zeros(self._n_models, np.int64)
        above = np.zeros(self._n_models, np.int64)
        for (a, b), sign in zip(self.pairs, self.settled, strict=True):
            better, worse = (a, b) if sign > 0 else (b, a)
            below[better] += abs(sign)
            above[worse] += abs(sign)
        known = (below >= self._n_models - self._top) | (above >= self._top)
        return np.array([not (known[a] and known[b]) for a, b in self.pairs])

    def look(self, differences: Floats, sizes: Sequence[int] | None = None) -> None:
        """Take the next block.

        Args:
            differences: Shape (prompts, pairs), first model minus second, in the order of the
                prompts, nan where there is none; pairs that are not open are not looked at.
            sizes: Prompts of each cluster, in their order; None where each stands alone.

        Raises:
            StatisticsError: If the clusters are not exactly these prompts, or one is too large.
        """
        active = self.is_open(self.n_blocks)
        self.n_prompts += len(differences)
        values, shares = cluster_totals(differences, sizes, self.largest_cluster)
        for side, sign in enumerate((1.0, -1.0)):
            path = self._capitals[side].add(sign * values, active, sizes=shares)
            if len(path):
                self._largest[side, active] = np.maximum(
                    self._largest[side, active], path.max(axis=0)
                )
        declared = self.adjusted_p() <= self._error
        for pair in np.flatnonzero(declared.any(axis=0) & (self.settled == 0)):
            self.settled[pair] = 1 if self._largest[0, pair] >= self._largest[1, pair] else -1
            self.settled_at[pair] = self.n_prompts
        self._closed.append((self.settled != 0) | ~self.matters)

    def adjusted_p(self) -> Floats:
        """Holm-adjusted p-values of both directions, shape (2, pairs)."""
        p = np.exp(-self._largest)
        return holm(p.ravel()).reshape(p.shape)


def cluster_totals(
    differences: Floats, sizes: Sequence[int] | None, largest: int
) -> tuple[Floats, Floats | None]:
    """Differences as independent draws: totals and sizes of clusters, over the largest size.

    Args:
        differences: Shape (prompts, pairs), nan where there is none.
        sizes: Prompts of each of C clusters, in their order; None where each stands alone.
        largest: Prompts of the largest cluster there can be.

    Returns:
        Totals of the prompts with a difference, shape (C, pairs), nan where a cluster has none, and
        how many these are, in [0, 1]; the differences and None without clusters.

    Raises:
        StatisticsError: If the clusters are not exactly these prompts, or one is too large.
    """
    if sizes is None:
        return differences, None
    counts = np.asarray(sizes, np.int64)
    if counts.sum() != len(differences) or np.any(counts < 1) or np.any(counts > largest):
        raise StatisticsError(f"cluster sizes {counts} do not fit {len(differences)} prompts")
    if not counts.size:
        return differences, np.zeros(differences.shape)
    starts = np.cumsum(counts) - counts
    totals = np.add.reduceat(np.nan_to_num(differences), starts, axis=0)
    present = np.add.reduceat((~np.isnan(differences)).astype(np.float64), starts, axis=0)
    return np.where(present > 0, totals / largest, np.nan), present / largest


@dataclass(frozen=True, slots=True)
class PairOrder:
    """State of the test of two models at the end.

    Attributes:
        first: Index of a model.
        second: Index of the other.
        better: 1 for the first, -1 for the second, 0 where their order is not settled.
        settled_at: Prompts after which it was; 0 where it is not.
        matters: Whether it could say who is among the best; else it was dropped unsettled.
        difference: Mean over the prompts that were asked and have one; nan without any.
        low: Of a confidence sequence; all of a test hold together, at every look.
        high: Likewise.
        n: Prompts with a difference.
        n_missing: Prompts that were asked and have none.
        p: Holm-adjusted, of the direction that is likelier.
    """

    first: int
    second: int
    better: int
    settled_at: int
    matters: bool
    difference: float
    low: float
    high: float
    n: int
    n_missing: int
    p: float


def pair_orders(
    test: OrderTest,
    differences: Floats,
    starts: Sequence[int],
    *,
    error: float,
    population: int | None,
    sizes: Sequence[int] | None = None,
) -> list[PairOrder]:
    """Return the result of a test for each pair, with a confidence sequence.

    Args:
        test: That has looked at all of `differences`.
        differences: Shape (prompts, pairs), as they were looked at.
        starts: The first prompt of each block.
        error: As of the test.
        population: As of the test.
        sizes: Prompts of each cluster, in their order; None where each stands alone.
    """
    n_pairs = len(test.pairs)
    p = test.adjusted_p().min(axis=0)
    open_in = np.array([test.is_open(number) for number in range(len(starts))]).reshape(-1, n_pairs)
    n_asked = np.append(np.asarray(starts, np.int64), len(differences))[open_in.sum(axis=0)]
    ends = None if sizes is None else np.cumsum(sizes)
    matters = test.matters
    found = []
    for pair, (a, b) in enumerate(test.pairs):
        # A pair is closed once and for all: what was asked of it comes first.
        x = differences[: n_asked[pair], pair]
        good = x[~np.isnan(x)]
        asked = None if ends is None or sizes is None else sizes[: int((ends <= len(x)).sum())]
        values, shares = cluster_totals(x[:, None], asked, test.largest_cluster)
        bounds = confidence_sequence(
            values, error=error / (2 * n_pairs), population=population, sizes=shares
        )
        low, high = float(bounds[0][0]), float(bounds[1][0])
        if population is not None:
            # Of a sum, as a mean over the prompts with a difference, however many there will be.
            most, least = population - (len(x) - len(good)), max(len(good), 1)
            low, high = low * population, high * population
            low = max(-1.0, low / (most if low > 0 else least))
            high = min(1.0, high / (most if high < 0 else least))
        found.append(
            PairOrder(
                a,
                b,
                int(test.settled[pair]),
                int(test.settled_at[pair]),
                bool(matters[pair]),
                float(good.mean()) if good.size else float("nan"),
                low,
                high,
                len(good),
                len(x) - len(good),
                float(p[pair]),
            )
        )
    return found
