"""The open units: a bounded window with a share for each model that units wait for.

A unit waits at a *gate*: the model it will ask as soon as it is opened. For an answer that is its
model; for a judgment its judge, because a judgment is opened only when the answers it needs have
ended. Units whose gate's share is full, or whose answers are not there yet, are set aside by number
and others are opened: so a slow or dead model holds up its own units only, and a judge never waits
while there is something to judge. Each step costs the same however many units are aside.
"""

import math
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property

from orchestrator.units import Plan

# Bounds the work of one call, so that looking for a unit never holds up those that run.
_SCANNED_AT_ONCE = 256
_END = -1
# Units for each request that a model's servers may have at a time: one is asked, one stands ready.
_PER_REQUEST = 2
# What an open unit takes beside its texts: its coroutine, its request and their places in queues.
_UNIT_BYTES = 2_000


class Window:
    """Chooses the next unit to open.

    Positions of an item come in order and together; None where none may be begun for now. Above
    `max_bytes` of open units no more are opened, but always one. `ended` is kept up to date by
    `end`. The window grows with `limit`, the requests that a model's servers may have at a time
    just now.

    Attributes:
        n_aside: Units set aside.
        exhausted: Whether every position was met.
        scanning: Whether the last call gave up looking because its work is bounded: call again.
        absent: Models that can't be asked in this wave; units that would ask them stay aside.
    """

    def __init__(
        self,
        plan: Plan,
        positions: Iterator[int | None],
        max_open: int,
        max_bytes: float = math.inf,
        ended: bytearray | None = None,
        limit: Callable[[str], int] | None = None,
    ) -> None:
        self._plan = plan
        self._limit = limit
        self._positions = positions
        self._max_open = max_open
        self._max_bytes = max_bytes
        # Every model gets an equal share; at least 1, else it could never be asked. Given answers
        # are there at once and hold no room.
        self._asked = tuple(name for name in plan.identities if name not in plan.given)
        self._share = max(1, max_open // max(1, len(self._asked)))
        self._ended = ended if ended is not None else bytearray(len(plan))
        self._ready: dict[str, deque[array[int]]] = {name: deque() for name in plan.identities}
        self._met = -1
        self.n_aside = 0
        self.exhausted = False
        self.scanning = False
        self.absent: Collection[str] = ()

    def next_position(
        self, n_open: int, waiting: Mapping[str, int], n_bytes: int = 0
    ) -> int | None:
        """The next unit to open, or None while there is no room or nothing left.

        `n_bytes` is the memory of the open units' texts.
        """
        self.scanning = False
        most_open = self._max_open
        if self._limit is not None:
            most_open = max(most_open, sum(map(self._room, self._asked)))
        is_heavy = n_open > 0 and n_bytes + _UNIT_BYTES * n_open >= self._max_bytes
        if n_open >= most_open or is_heavy:
            return None
        oldest = self._pop_oldest(waiting)
        return self._fresh(waiting) if oldest is None else oldest

    def end(self, position: int) -> None:
        """A unit has ended: those of its item that needed it may have become ready."""
        self._ended[position] = 1
        n_per_item = self._plan.n_per_item
        for other in self._plan.fed_by(position):
            # Items come in any order, but each as a whole.
            is_met = other <= self._met or other // n_per_item != self._met // n_per_item
            if is_met and not self._ended[other] and self._is_ready(other):
                self.put_back(other, self._plan.gate(other))
                self.n_aside -= 1

    def waits_for(self, model: str) -> bool:
        """Return True if units aside could ask a model now, or units not met yet may."""
        return bool(self._ready[model]) or (not self.exhausted and model in self._plan.free_gates)

    @property
    def empty(self) -> bool:
        """True if every position was handed out."""
        return self.exhausted and self.n_aside == 0

    def _room(self, model: str) -> int:
        if self._limit is None:
            return self._share
        return max(self._share, _PER_REQUEST * self._limit(model))

    def _pop_oldest(self, waiting: Mapping[str, int]) -> int | None:
        """The oldest of the units that are first in line at a gate with room."""
        oldest: deque[array[int]] | None = None
        for model, chunks in self._ready.items():
            has_room = chunks and waiting[model] < self._room(model) and model not in self.absent
            if has_room and (oldest is None or chunks[0][0] < oldest[0][0]):
                oldest = chunks
        if oldest is None:
            return None
        position = oldest[0].pop(0)
        if not oldest[0]:
            oldest.popleft()
        self.n_aside -= 1
        return position

    def _fresh(self, waiting: Mapping[str, int]) -> int | None:
        """A position not met yet, while a gate that could be fed has room and nobody in line."""
        for _ in range(_SCANNED_AT_ONCE):
            # Where models are absent, what they will be asked is looked for all the same.
            gates = self._plan.free_gates if self.absent else self._fed
            if not any(
                waiting[model] < self._room(model)
                and not self._ready[model]
                and model not in self.absent
                for model in gates
            ):
                return None
            position = next(self._positions, _END)
            if position is None:
                return None
            if position == _END:
                self.exhausted = True
                return None
            self._met = position
            gate = self._plan.gate(position)
            if not self._is_ready(position):
                # Not kept: the end of what it needs finds it again.
                self.n_aside += 1
            elif waiting[gate] < self._room(gate) and gate not in self.absent:
                return position
            else:
                self.put_back(position, gate)
        self.scanning = True
        return None

    def _is_ready(self, position: int) -> bool:
        return all(self._ended[needed] for needed in self._plan.needs(position))

    def put_back(self, position: int, model: str) -> None:
        """Keep a unit aside until a model is there, or has room."""
        chunks = self._ready[model]
        # Chunks of plain integers: eight bytes a unit, and popping at the left stays cheap.
        if not chunks or len(chunks[-1]) >= 4096:
            chunks.append(array("q"))
        chunks[-1].append(position)
        self.n_aside += 1

    @cached_property
    def _fed(self) -> Collection[str]:
        """Models for whose sake fresh units are looked for.

        An answer that is given asks nobody, so it is there for the models that wait for it: with
        those served, it would only be met far ahead of its use, and its item be read once more.
        """
        plan = self._plan
        asked = plan.free_gates - plan.given.keys()
        if asked == plan.free_gates:
            return asked
        waiting = {plan.gate(which) for which in range(plan.n_per_item)} - plan.free_gates
        return (asked | waiting) or plan.free_gates
