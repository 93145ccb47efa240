"""Sequential stopping: the units of a run block by block, and which of them are still needed.

Items come in blocks, which take whole clusters of items that depend on each other. A block may be
begun when all before the last one have ended; which pairs of models it asks about was decided by
then (`statistics.sequential.LAG`), so what is needed of a block follows from the rows of earlier
blocks alone, and is the same however often the run was cut off. Rows that were not needed (of an
earlier recipe, say) are never looked at.

Where a unit failed for the moment its block is not finished: later blocks go on with what was
decided before, and the next call, which asks again, decides what this one could not.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from orchestrator.records import DONE, FAILED
from orchestrator.statistics.sequential import LAG, OrderTest, PairOrder, pair_orders

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


class Ranking(msgspec.Struct, frozen=True):
    """Models that one judge of one method compares: its orders are declared together.

    Attributes:
        method: Its name, in the column `method` of its rows.
        judge: Who judges.
        frame: Of its rows.
        models: That are compared.
        column: Index of the value in a row.
        low: Least value there can be.
        high: Largest.
        of_pairs: Whether a row is of two models, with the value for the first; else of one.
    """

    method: str
    judge: str
    frame: str
    models: tuple[str, ...]
    column: int
    low: float
    high: float
    of_pairs: bool


class Slot(msgspec.Struct, frozen=True):
    """The destination of a combination's value: a ranking, and a pair or a model in it.

    Attributes:
        ranking: Index of the ranking.
        index: Of a pair or a model.
        is_reversed: Whether the pair's second model stands first.
    """

    ranking: int
    index: int
    is_reversed: bool = False


class StoppingRule(msgspec.Struct, frozen=True):
    """The rule by which a run stops asking about a pair of models.

    Attributes:
        n_items: Items of the plan, in their seeded order.
        block: Items of a block, at least; it ends with a cluster.
        error: Chance of any wrong order in a ranking.
        population: Items the orders are about, where they are about exactly these.
        top: Only who is among the best so many is asked for.
        rankings: Whose orders are declared.
        slots: By combination; None where it decides nothing.
        feeds: By combination: the others that it is asked for alone; empty where it is not to be
            left out.
        sizes: Items of each cluster, in their order; empty where each item stands alone, or where
            the orders are about exactly these items.
    """

    n_items: int
    block: int
    error: float
    population: int | None
    top: int | None
    rankings: tuple[Ranking, ...]
    slots: tuple[Slot | None, ...]
    feeds: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...] = ()

    def layout(self) -> "Layout":
        """Return the bounds of the blocks."""
        if not self.sizes:
            return Layout([*range(0, self.n_items, self.block), self.n_items], [], ())
        bounds, firsts, n = [0], [0], 0
        for cluster, size in enumerate(self.sizes, start=1):
            n += size
            if n - bounds[-1] >= self.block or n == self.n_items:
                bounds.append(n)
                firsts.append(cluster)
        return Layout(bounds, firsts, self.sizes)

    def new_tests(self) -> list[OrderTest]:
        """A test for each ranking."""
        return [
            OrderTest(
                len(ranking.models),
                error=self.error,
                population=self.population,
                top=self.top,
                largest=max(self.sizes, default=1),
            )
            for ranking in self.rankings
        ]

    def fewest_items(self) -> int:
        """Items that are asked about whatever the values are: as if the first model always won."""
        layout, blocks = self.layout(), []
        for test in self.new_tests():
            while test.n_blocks < layout.n_blocks and test.is_open(test.n_blocks + LAG - 1).any():
                block = test.n_blocks
                n = layout.bounds[block + 1] - layout.bounds[block]
                test.look(np.ones((n, len(test.pairs))), layout.sizes_of(block, block + 1))
            blocks.append(min(test.n_blocks + LAG - 1, layout.n_blocks))
        return layout.bounds[min(blocks)]


class Layout(NamedTuple):
    """Blocks of items.

    Attributes:
        bounds: The first item of each block, and the number of items.
        firsts: The same of clusters; empty without clusters.
        sizes: Items of each cluster; empty without clusters.
    """

    bounds: list[int]
    firsts: list[int]
    sizes: tuple[int, ...]

    @property
    def n_blocks(self) -> int:
        """Blocks there are."""
        return len(self.bounds) - 1

    def block_of(self, item: int) -> int:
        """The block that an item is in."""
        return bisect_right(self.bounds, item) - 1

    def sizes_of(self, first: int, last: int) -> tuple[int, ...] | None:
        """Items of the clusters in the blocks from first up to last; None without clusters."""
        if not self.sizes:
            return None
        return self.sizes[self.firsts[first] : self.firsts[last]]


class Blocks:
    """The units of a plan that are still needed.

    `ended` has one byte a position, 1 where its unit is done; units that are not needed are marked
    too as soon as that is known.

    Attributes:
        tests: One a ranking.
        n_open: Blocks that may be begun.
        not_needed: Shape (units of one item,), how many of each have no row and need none.
        layout: Where blocks begin.
    """

    def __init__(self, rule: StoppingRule, ended: bytearray) -> None:
        self.rule = rule
        self.ended = ended
        self.tests = rule.new_tests()
        self.n_open = 0
        self.layout = rule.layout()
        self.not_needed = np.zeros(len(rule.slots), dtype=np.int64)
        self._units = np.frombuffer(ended, np.uint8).reshape(rule.n_items, len(rule.slots))
        # On each item one value a pair, or one a model.
        n_values = [math.comb(len(one.models), 2 if one.of_pairs else 1) for one in rule.rankings]
        self._values = [np.full((rule.n_items, n), np.nan) for n in n_values]
        self._deciding = np.array([slot is not None for slot in rule.slots])
        self._n_left: list[int] = []
        self._n_ended = 0
        # The first block with a unit that is to be asked again.
        self._unfinished = self.layout.n_blocks

    @property
    def n_not_needed(self) -> int:
        """Units that have no row and need none."""
        return int(self.not_needed.sum())

    def put(self, position: int, status: int, rows: Sequence[Sequence[Any]]) -> None:
        """Take the rows of a unit, those of earlier calls before `start`."""
        item, which = divmod(position, len(self.rule.slots))
        slot = self.rule.slots[which]
        if slot is None:
            return
        if status > FAILED:
            self._unfinished = min(self._unfinished, self.layout.block_of(item))
        elif status == DONE:
            ranking = self.rule.rankings[slot.ranking]
            # Mean of all turns; nan where one has no number.
            cells = [row[ranking.column] for row in rows]
            numbers = [math.nan if cell is None else float(cell) for cell in cells]
            value = math.fsum(numbers) / len(numbers) if numbers else math.nan
            turned = ranking.low + ranking.high - value
            self._values[slot.ranking][item, slot.index] = turned if slot.is_reversed else value

    def end(self, position: int, status: int, rows: Sequence[Sequence[Any]]) -> None:
        """A unit has ended, and `ended` says so."""
        item, which = divmod(position, len(self.rule.slots))
        if self.rule.slots[which] is None:
            return
        self.put(position, status, rows)
        self._n_left[self.layout.block_of(item)] -= 1
        self.start()

    def positions(self) -> Iterator[int | None]:
        """Positions to be done in order; None as long as the next block may not begin."""
        n = len(self.rule.slots)
        for block in range(self.layout.n_blocks):
            while block >= self.n_open:
                yield None
            for position in range(self._first(block) * n, self._first(block + 1) * n):
                if not self.ended[position]:
                    yield position

    def needed(self, block: int) -> Bools:
        """Combinations that are needed in a block as far as is known, shape (combinations,)."""
        open_pairs = [test.is_open(block) for test in self.tests]
        return np.array(
            [self._is_needed(which, open_pairs) for which in range(len(self.rule.slots))], np.bool_
        )

    @property
    def n_items_open(self) -> int:
        """Items of the blocks that may be begun."""
        return self._first(self.n_open)

    def orders(self) -> list[list[PairOrder]]:
        """Return the state of each pair, by ranking."""
        rule = self.rule
        found = []
        for number, test in enumerate(self.tests):
            last = self._first(test.n_blocks)
            found.append(
                pair_orders(
                    test,
                    self._differences(number, 0, last),
                    self.layout.bounds[: test.n_blocks],
                    error=rule.error,
                    population=rule.population,
                    sizes=self.layout.sizes_of(0, test.n_blocks),
                )
            )
        return found

    # -- inside ------------------------------------------------------------------------------------

    def _first(self, block: int) -> int:
        return self.layout.bounds[min(block, self.layout.n_blocks)]

    def start(self) -> None:
        """Go on from where the rows that have come lead."""
        while True:
            while self.n_open < min(self._n_ended + LAG, self.layout.n_blocks):
                first, last = self._first(self.n_open), self._first(self.n_open + 1)
                self._n_left.append(int((self._units[first:last, self._deciding] == 0).sum()))
                self.n_open += 1
            if self._n_ended >= self.n_open or self._n_left[self._n_ended]:
                return
            if self._n_ended < self._unfinished:
                self._look(self._n_ended)
            self._n_ended += 1

    def _look(self, block: int) -> None:
        before = self.needed(self.n_open)
        first, last = self._first(block), self._first(block + 1)
        sizes = self.layout.sizes_of(block, block + 1)
        for number, test in enumerate(self.tests):
            test.look(self._differences(number, first, last), sizes)
        # What is closed stays closed, so that all later blocks are known to be without it.
        dropped = before & ~self.needed(self.n_open)
        if dropped.any():
            units = self._units[self._first(self.n_open) :]
            self.not_needed[dropped] += (units[:, dropped] == 0).sum(axis=0)
            units[:, dropped] = 1

    def _differences(self, number: int, first: int, last: int) -> Floats:
        """First model minus second, shape (prompts, pairs), in [-1, 1]."""
        ranking, test = self.rule.rankings[number], self.tests[number]
        x = (self._values[number][first:last] - ranking.low) / (ranking.high - ranking.low)
        if ranking.of_pairs:
            return 2 * x - 1
        a, b = np.array(test.pairs).T
        return x[:, a] - x[:, b]

    def _is_needed(self, which: int, open_pairs: Sequence[Bools]) -> bool:
        fed = self.rule.feeds[which]
        if fed:
            return any(self._is_needed(other, open_pairs) for other in fed)
        slot = self.rule.slots[which]
        if slot is None:
            return True
        pairs = open_pairs[slot.ranking]
        if self.rule.rankings[slot.ranking].of_pairs:
            return bool(pairs[slot.index])
        test = self.tests[slot.ranking]
        return any(pairs[n] and slot.index in pair for n, pair in enumerate(test.pairs))
