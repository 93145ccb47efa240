"""Requests of a plan's items, counted by driving units against a store; nothing is sent.

Driving a million units takes minutes, so of many items some are drawn and stand for all of them.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from orchestrator.ask import AnyAsk
from orchestrator.driver import Driver, Lookup
from orchestrator.records import Failure, Outcome
from orchestrator.scheduler.blocks import Blocks
from orchestrator.units import Plan

Ints = NDArray[np.int64]
Mark = tuple[str, str, str]
"""Name, model and draw of a stage: stages that are alike in them are one."""


class Tally(msgspec.Struct):
    """Requests of some items.

    Attributes:
        n_items: Items.
        n_turns: Their turns.
        held: Asks that the store answers by stage of the plan, each key once.
        held_open: Those of `held` in items where a unit that has the stage waits for an answer.
        open_items: Such items, by stage.
        open_turns: Their turns.
        missing: Asks that the store does not answer, by kind and model, each key once. What is
            asked only after one of them is answered is not among them.
        beyond: Asks by kind and model that no stage of the plan counts: a method sends more than
            it says.
        fault: What a method did wrong in a unit that was driven; empty for nothing.
        skipped: Items whose unit is not needed, by combination.
        skipped_turns: Their turns.
    """

    n_items: int = 0
    n_turns: int = 0
    held: Counter[Mark] = msgspec.field(default_factory=Counter)
    held_open: Counter[Mark] = msgspec.field(default_factory=Counter)
    open_items: Counter[Mark] = msgspec.field(default_factory=Counter)
    open_turns: Counter[Mark] = msgspec.field(default_factory=Counter)
    missing: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    skipped: Counter[int] = msgspec.field(default_factory=Counter)
    skipped_turns: Counter[int] = msgspec.field(default_factory=Counter)
    beyond: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    fault: str = ""

    def add(self, other: "Tally") -> "Tally":
        """Return the sums of both, and the first fault."""
        counts = (name for name in self.__struct_fields__ if name != "fault")
        sums = {name: getattr(self, name) + getattr(other, name) for name in counts}
        return Tally(**sums, fault=self.fault or other.fault)


class Group(msgspec.Struct, frozen=True):
    """Items that are alike, and those of them that are driven.

    Attributes:
        items: Indexes of all of them.
        driven: Indexes of those on which the numbers rest, each standing for as many items.
        units: Which units of an item are driven, each with how many it stands for; None for all.
    """

    items: Sequence[int]
    driven: Sequence[int]
    units: Mapping[int, float] | None = None

    @property
    def is_sample(self) -> bool:
        """True if the numbers are estimates."""
        return len(self.driven) < len(self.items)


def drawn(items: Ints, n_units: int, n_per_item: int, rng: np.random.Generator) -> Group:
    """Draw items to drive.

    `n_units` is the most to drive, but of one item at least.
    """
    n_items = min(len(items), max(1, n_units // n_per_item))
    driven = np.sort(rng.choice(items, n_items, replace=False)) if n_items else items
    return Group(items.tolist(), driven.tolist())


def drawn_units(plan: Plan, n_units: int, rng: np.random.Generator) -> dict[int, float]:
    """Draw units to drive of each item: those that feed others, and some of each method's others.

    `n_units` is the most to drive of a method that feeds no others. Returns the units in their
    order, each with how many it stands for.
    """
    by_method: dict[str, list[int]] = {}
    times: dict[int, float] = {}
    for which, (part, _) in enumerate(plan.combinations):
        if part.method.feeds_others:
            times[which] = 1.0
        else:
            by_method.setdefault(part.name, []).append(which)
    for units in by_method.values():
        chosen = rng.choice(units, min(n_units, len(units)), replace=False)
        times.update(dict.fromkeys(chosen.tolist(), len(units) / len(chosen)))
    return dict(sorted(times.items()))


def by_end(done: bytearray, n_per_item: int) -> tuple[Ints, Ints]:
    """Return indexes of the items whose units have all ended, and of the others.

    `done` has one byte a position, 1 where the unit has ended.
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

    `advance` is called with the number of items that are counted now.
    """
    tally = Tally()
    driving = _Driving(plan, lookup, systems, blocks, group.units)
    for index in group.driven:
        driving.drive(index, tally)
        advance(1)
    if not group.is_sample:
        return tally
    # What the driven items stand for.
    times = len(group.items) / len(group.driven)
    grown: dict[str, Any] = {
        name: Counter({key: round(number * times) for key, number in counts.items()})
        for name, counts in msgspec.structs.asdict(tally).items()
        if isinstance(counts, Counter) and name != "beyond"
    }
    n_turns = round(tally.n_turns * times)
    return msgspec.structs.replace(tally, n_items=len(group.items), n_turns=n_turns, **grown)


class _Driving:
    """Drives the units of items, and says which stage of the plan a request belongs to.

    `units` are those of an item that are driven, each with how many it stands for; None for all.
    """

    def __init__(
        self,
        plan: Plan,
        lookup: Lookup,
        systems: Mapping[str, str],
        blocks: Blocks | None,
        units: Mapping[int, float] | None,
    ) -> None:
        self._plan, self._lookup, self._systems = plan, lookup, systems
        self._blocks = blocks
        self._times = dict.fromkeys(range(plan.n_per_item), 1.0) if units is None else units
        self._planned = {stage.mark: stage for _, stage in plan.stages()}
        self._of_unit: dict[int, list[Mark]] = {}

    def of_unit(self, which: int) -> list[Mark]:
        """Return the stages of a unit, among those of its item."""
        found = self._of_unit.get(which)
        if found is None:
            part, combination = self._plan.combinations[which]
            own = [stage.mark for stage in part.stages(combination.models)]
            # A method may name stages of a unit that are none of its own.
            is_planned = all(mark in self._planned for mark in own)
            found = own if is_planned else [stage.mark for stage in part.stages()]
            self._of_unit[which] = found
        return found

    def place(
        self, which: int, kind: str, model: str, n_turns: int, taken: Mapping[Mark, float]
    ) -> Mark | None:
        """Return the stage of a request: the first of its unit that still lacks one.

        Another method's where the unit has none, as answers are a stage of the method that draws
        them alone; None where no stage lacks one.
        """
        for mark in chain(self.of_unit(which), self._planned):
            stage = self._planned[mark]
            if (stage.ask, stage.model) == (kind, model):
                n_times = n_turns if stage.per_turn else 1
                if taken.get(mark, 0) < stage.per_item * n_times:
                    return mark
        return None

    def drive(self, index: int, tally: Tally) -> None:
        """Drive the units of an item against the store.

        Keys are shared within an item only: each has a driver of its own, and memory stays flat.
        """
        first = index * self._plan.n_per_item
        n_turns = 1 + len(self._plan.items.item(index).followups)
        tally.n_items += 1
        tally.n_turns += n_turns
        seen: set[bytes] = set()
        held: dict[Mark, float] = {}
        missing: dict[tuple[str, str], float] = {}
        beyond: dict[tuple[str, str], float] = {}

        def trace(key: bytes, ask: AnyAsk, position: int, _: Outcome | Failure) -> None:
            if key and key not in seen:
                seen.add(key)
                which, asked = position - first, (ask.kind, ask.model)
                mark = self.place(which, *asked, n_turns, held)
                if mark is not None:
                    held[mark] = held.get(mark, 0) + self._times[which]
                elif ask.kind != "score":
                    # Scores that no stage counts are observations of answers.
                    beyond[asked] = beyond.get(asked, 0) + self._times[which]

        driver = Driver(self._plan, cache(self._lookup), self._systems, trace=trace)
        blocks = self._blocks
        needed = None if blocks is None else blocks.needed(blocks.layout.block_of(index))
        for which in self._times:
            if needed is None or needed[which]:
                driver.open(first + which)
            else:
                tally.skipped[which] += 1
                tally.skipped_turns[which] += n_turns
        faults = (end.fault.said for end in driver.finished if end.fault is not None)
        tally.fault = tally.fault or next(faults, "")
        waiting = {
            unit.position - first for request in driver.outbox for unit, _ in request.waiters
        }
        tally.held.update({mark: round(n) for mark, n in held.items()})
        for mark in {mark for unit in waiting for mark in self.of_unit(unit)}:
            tally.open_items[mark] += 1
            tally.open_turns[mark] += n_turns
            tally.held_open[mark] += round(held.get(mark, 0))
        for request in driver.outbox:
            asked = request.ask.kind, request.ask.model
            of_unit = min(unit.position - first for unit, _ in request.waiters)
            missing[asked] = missing.get(asked, 0) + self._times[of_unit]
        tally.missing.update({asked: round(n) for asked, n in missing.items()})
        tally.beyond.update({asked: round(n) for asked, n in beyond.items()})
        driver.close()
