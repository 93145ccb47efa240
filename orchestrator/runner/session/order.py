"""In which order a run goes on: where requests are new first, then where the store answers.

After a change that leaves the requests but not the rows, such as a method's name, every unit is
evaluated anew from the store. The few whose outcomes are not there yet are begun first, so that no
server waits for that. The order decides nothing else.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from orchestrator.store import Store

# So many units are evaluated from the store in a moment.
_FEW_UNITS: Final = 2_000


def unfinished_before(
    store: Store, before: int | None, done: bytearray, n_per_item: int
) -> tuple[int, ...]:
    """Items with units that the plan before had not ended, as far as they stand where they stood.

    Args:
        store: Of the run.
        before: Number of the plan that was the current one; None where there was none.
        done: One byte a position of the plan now.
        n_per_item: Its units of one item.

    Returns:
        Indexes in order; none where so little is left to do that the order makes no difference.
    """
    if before is None or done.count(0) <= _FEW_UNITS:
        return ()
    ended = store.done_bitmap(before, len(done))
    units = np.frombuffer(ended, np.bool_).reshape(-1, n_per_item)
    return tuple(np.flatnonzero(~units.all(axis=1)).tolist())


def positions_left(done: bytearray, first: Sequence[int], n_per_item: int) -> Iterator[int]:
    """Positions that are not done: those of some items first, then the others in their order."""
    for item in first:
        yield from _left(done, item * n_per_item, (item + 1) * n_per_item)
    begin = 0
    for item in first:
        yield from _left(done, begin, item * n_per_item)
        begin = (item + 1) * n_per_item
    yield from _left(done, begin, len(done))


def _left(done: bytearray, begin: int, end: int) -> Iterator[int]:
    """Positions of a span that are not done."""
    position = done.find(0, begin, end)
    while position >= 0:
        yield position
        position = done.find(0, position + 1, end)
