"""Requests of a plan's items, counted by driving units against a store; nothing is sent.

Driving a million units takes minutes, so of many items some are drawn and stand for all of them.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from orchestrator.driver import Driver
from orchestrator.records import Failure, Outcome
from orchestrator.scheduler.blocks import Blocks
from orchestrator.units import Plan

Ints = NDArray[np.int64]
Lookup = Callable[[bytes], Outcome | Failure | None]
Asked = Counter[tuple[str, str, str]]
"""Requests by the method that asks first, kind of ask, and model."""


class Tally(msgspec.Struct):
    """Requests of some items.

    Attributes:
        n_items: Items.
        n_turns: Their turns.
        held: Asks that the store answers, each key once.
        missing: Asks that it does not, likewise.
        skipped: Items whose unit is not needed, by combination.
        skipped_turns: Their turns.
    """

    n_items: int = 0
    n_turns: int = 0
    held: Asked = msgspec.field(default_factory=Counter)
    missing: Asked = msgspec.field(default_factory=Counter)
    skipped: Counter[int] = msgspec.field(default_factory=Counter)
    skipped_turns: Counter[int] = msgspec.field(default_factory=Counter)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.n_items + other.n_items,
            self.n_turns + other.n_turns,
            self.held + other.held,
            self.missing + other.missing,
            self.skipped + other.skipped,
            self.skipped_turns + other.skipped_turns,
        )


class Group(msgspec.Struct, frozen=True):
    """Items that are alike, and those of them that are driven.

    Attributes:
        items: Indexes of all of them.
        driven: Indexes of those on which the numbers rest, each standing for as many items.
    """

    items: Sequence[int]
    driven: Sequence[int]

    @property
    def is_sample(self) -> bool:
        """Whether the numbers are estimates."""
        return len(self.driven) < len(self.items)


def drawn(items: Ints, n_units: int, n_per_item: int, rng: np.random.Generator) -> Group:
    """Draw items to drive.

    Args:
        items: Indexes, shape (items,).
        n_units: Most units to drive, but of one item at least.
        n_per_item: Units of an item.
        rng: Of the draw.
    """
    n_items = min(len(items), max(1, n_units // n_per_item))
    driven = np.sort(rng.choice(items, n_items, replace=False)) if n_items else items
    return Group(items.tolist(), driven.tolist())


def by_end(done: bytearray, n_per_item: int) -> tuple[Ints, Ints]:
    """Return indexes of the items whose units have all ended, and of the others.

    Args:
        done: One byte a position, 1 where the unit has ended.
        n_per_item: Units of an item.
    """
    if not done:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ended = np.frombuffer(done, np.bool_).reshape(-1, n_per_item).all(axis=1)
    return np.flatnonzero(ended), np.flatnonzero(~ended)


def count(
    plan: Plan,
    group: Group,
    lookup: Lookup,
    systems: Mapping[str, str],
    blocks: Blocks | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Tally:
    """Count the requests of a group of items by driving those that were drawn.

    Args:
        plan: The units.
        group: The items.
        lookup: The store.
        systems: System prompts by model.
        blocks: What of the plan is needed, where it has a stopping rule.
        advance: Called with the number of items that are counted now.
    """
    tally = Tally()
    for index in group.driven:
        _drive_item(plan, index, lookup, systems, blocks, tally)
        advance(1)
    return _scaled(tally, group) if group.is_sample else tally


def _scaled(tally: Tally, group: Group) -> Tally:
    """Return what the driven items stand for."""
    times = len(group.items) / len(group.driven)

    def grown(counts: Counter[Any]) -> Counter[Any]:
        return Counter({key: round(number * times) for key, number in counts.items()})

    return Tally(
        len(group.items),
        round(tally.n_turns * times),
        grown(tally.held),
        grown(tally.missing),
        grown(tally.skipped),
        grown(tally.skipped_turns),
    )


def _drive_item(
    plan: Plan,
    index: int,
    lookup: Lookup,
    systems: Mapping[str, str],
    blocks: Blocks | None,
    tally: Tally,
) -> None:
    """Drive the units of an item against the store.

    Keys are shared within an item only, so each item has a driver of its own and memory stays flat.
    """
    first = index * plan.n_per_item
    n_turns = 1 + len(plan.items.item(index).followups)
    tally.n_items += 1
    tally.n_turns += n_turns
    found: dict[bytes, Outcome | Failure | None] = {}
    seen: set[bytes] = set()
    which = 0

    def remember(key: bytes) -> Outcome | Failure | None:
        if key not in found:
            found[key] = lookup(key)
        return found[key]

    def held(key: bytes, kind: str, model: str) -> None:
        if key not in seen:
            seen.add(key)
            tally.held[plan.part(which).name, kind, model] += 1

    driver = Driver(plan, remember, systems, watch=held)
    needed = None if blocks is None else blocks.needed(blocks.layout.block_of(index))
    for which in range(plan.n_per_item):
        if needed is None or needed[which]:
            driver.open(first + which)
        else:
            tally.skipped[which] += 1
            tally.skipped_turns[which] += n_turns
    tally.missing.update(
        (plan.part(request.position).name, request.kind, request.ask.model)
        for request in driver.outbox
    )
    driver.close()
