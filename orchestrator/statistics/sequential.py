"""Sequential tests that hold at every look, by betting: of a mean, of the better of two models.

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
from orchestrator.records import Bools, Floats
from orchestrator.statistics.multiple import holm

# Tests and confidence sequences of a bounded mean that hold at every look (testing by betting).
#
# Somebody who does not believe that a mean is at most `null` bets on each value before it is known.
# If the mean is at most `null`, no way of betting makes the capital grow in expectation, so it ever
# reaches 1/p with probability at most p (Ville's inequality): looking after each prompt, and
# stopping whenever one likes, is allowed for. What the capital has not refuted is a confidence
# sequence.
#
# Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B
# 86(1), 2024 (arXiv 2010.09686): the capital process, "diversified Kelly" betting (the mean of the
# capitals of fixed fractions) and the process without replacement, whose conditional mean under the
# null is what the values not seen yet would have to make up for.
#
# Departures: values are in [-1, 1]; the two sides are two processes, each with a level of its own.
# Values that come in clusters are bet on cluster by cluster: the total of a cluster over the size
# of the largest one, against `null` times its own size over that. The expected total is at most
# `null` times the expected size exactly where the mean over items is at most `null`, however unlike
# the sizes and however the items of a cluster depend on each other.


FRACTIONS: Final = np.array([0.03, 0.06, 0.12, 0.2, 0.3, 0.42, 0.56, 0.72, 0.88, 0.97])
"""Shares of the capital that may be lost at one value; each holds a tenth of it at the start."""

_STEPS: Final = 40
# Sums of values are exact to far less than this; a certainty must not rest on rounding.
_ROUNDING: Final = 1e-9


class Capital:
    """Capital against "the mean is at most `null`" of several series side by side.

    With a `population` the question is the mean of so many values, of which those seen are drawn
    without replacement; a missing one then counts as 0 in their sum, which leaves the sign of the
    sum as it is. Without it the values are independent draws, and a missing one is no draw; they
    may be totals of clusters (see above). `null` has shape () or (n_series,), in [-1, 1].

    Attributes:
        n: Values each series has had, missing ones included; shape (n_series,).
    """

    def __init__(
        self, n_series: int, *, null: Floats | float = 0.0, population: int | None = None
    ) -> None:
        self._null = np.broadcast_to(np.asarray(null, np.float64), (n_series,))
        self._population = population
        self._log = np.zeros((n_series, FRACTIONS.size))
        self._sum = np.zeros(n_series)
        self.n = np.zeros(n_series, np.int64)

    def add(
        self, values: Floats, which: NDArray[np.bool_] | None = None, *, sizes: Floats | None = None
    ) -> Floats:
        """Bet on more values.

        `values` have shape (n, n_series), in [-1, 1] or nan for missing, in the order of the draws;
        `which`, shape (n_series,), says which series go on. `sizes` have shape (n, n_series), of
        independent draws that are clusters: how many items each has of the most that there can be,
        in [0, 1]; the value is in [-size, size]. Returns the log capital after each value, shape
        (n, series gone on with); inf where the null has become impossible.

        Raises:
            StatisticsError: If a value is outside [-1, 1], there are more than the population, or
                clusters are drawn from one.
        """
        at = np.arange(self._sum.size) if which is None else np.flatnonzero(which)
        x = np.asarray(values, np.float64)[:, at]
        if np.any(np.abs(x) > 1.0 + _ROUNDING):
            raise StatisticsError("values to bet on must be in [-1, 1]")
        start = self._sum[at]
        sums = np.vstack([start, start + np.cumsum(np.nan_to_num(x), axis=0)])
        certain = np.zeros(x.shape, np.bool_)
        if self._population is None:
            shares = None if sizes is None else sizes[:, at]
            steps = _log_growth(x, np.broadcast_to(self._null[at], x.shape), shares)
            steps = np.where(np.isnan(x)[..., None], 0.0, steps)
        elif sizes is not None:
            raise StatisticsError(
                "cluster sizes need an infinite population; of a finite one, items are drawn singly"
            )
        else:
            left = self._population - self.n[at] - np.arange(len(x) + 1)[:, None]
            if np.any(left < 0):
                raise StatisticsError(f"more values than the population has ({self._population})")
            total = self._population * self._null[at]
            steps = _log_growth(np.nan_to_num(x), (total - sums[:-1]) / np.maximum(left[:-1], 1))
            # Not even -1 for each value that is left would bring the sum down to the null.
            certain = sums[1:] - left[1:] > total + _ROUNDING
        logs = self._log[at] + np.cumsum(steps, axis=0)
        if len(x):
            self._log[at], self._sum[at] = logs[-1], sums[-1]
            self.n[at] += len(x)
        top = logs.max(axis=2, keepdims=True)
        path: Floats = np.log(np.mean(np.exp(logs - top), axis=2)) + top[..., 0]
        return np.where(certain, np.inf, path)


def _log_growth(x: Floats, mean: Floats, size: Floats | None = None) -> Floats:
    """Log growth by fraction f: 1 + f (x - mean) / (1 + mean), at least 1 - f; 0 for mean <= -1.

    With a size, of a cluster, it is 1 + f (x - size mean) / (1 + mean), at least 1 - f size.
    """
    room = 1.0 + mean
    possible = room > _ROUNDING
    expected = mean if size is None else size * mean
    relative = np.where(possible, (x - expected) / np.where(possible, room, 1.0), 0.0)
    grown: Floats = np.log1p(FRACTIONS * relative[..., None])
    return grown


def confidence_sequence(
    values: Floats, *, error: float, population: int | None = None, sizes: Floats | None = None
) -> tuple[Floats, Floats]:
    """Bounds of the means after all values, which hold although one looked after each.

    `values` have shape (n, n_series), in [-1, 1] or nan, in the order of the draws; `error`, in (0,
    1), is of each of the two sides. The mean is over all of a `population`, with 0 for missing
    values; with `sizes`, as for `Capital.add`, it is over items. Returns lower and upper bounds in
    [-1, 1], each of shape (n_series,).
    """
    low = _lower_bound(values, error, population, sizes)
    return low, -_lower_bound(-values, error, population, sizes)


def _lower_bound(
    values: Floats, error: float, population: int | None, sizes: Floats | None
) -> Floats:
    """The lowest mean never refuted; bisected, since capital falls as the null grows."""
    n_series = values.shape[1]
    refuted, kept = np.full(n_series, -1.0), np.full(n_series, 1.0)
    if not len(values):
        return refuted
    for _ in range(_STEPS):
        middle = (refuted + kept) / 2
        path = Capital(n_series, null=middle, population=population).add(values, sizes=sizes)
        is_refuted = path.max(axis=0) >= -np.log(error)
        refuted = np.where(is_refuted, middle, refuted)
        kept = np.where(is_refuted, kept, middle)
    return refuted


LAG: Final = 2
"""Blocks between knowledge and its use: block b decides what is asked from block b + LAG on,
so that the blocks between keep the servers busy while a block ends."""


class OrderTest:
    """The orders of all pairs of models, tested block by block.

    Pairs are (0, 1), (0, 2), …, (1, 2), …; `error` is the chance of any wrong order, in (0, 1).
    With a `population` the order is that on exactly these prompts, with `top` only who is among the
    best so many. `largest` is the number of prompts of the largest cluster.

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

        `block` counts from 0, to at most one more than `LAG` allows for.
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

        `differences` have shape (prompts, pairs), first model minus second, in the order of the
        prompts, nan where there is none; pairs that are not open are not looked at. `sizes` are the
        prompts of each cluster, in their order; None where each stands alone.

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

    `differences` have shape (prompts, pairs), nan where there is none; `sizes` are the prompts of
    each of C clusters, in their order, `largest` those of the largest there can be. Returns totals
    of the prompts with a difference, shape (C, pairs), nan where a cluster has none, and how many
    these are, in [0, 1]; the differences and None without clusters.

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

    The test has looked at all of `differences`, shape (prompts, pairs); `starts` are the first
    prompts of the blocks. The rest is as of the test.
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
