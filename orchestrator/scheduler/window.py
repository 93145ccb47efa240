"""Which units may be open: a bounded window with a share for each model that units wait for.

Positions come in plan order. A unit that might ask a model whose share is full is set aside by its
number and met again when there is room; meanwhile others are opened. So a slow or dead model holds
up its own units only.
"""

import math
from array import array
from collections import deque
from collections.abc import Iterator, Mapping

from orchestrator.plan import Plan


class Window:
    """Chooses the next unit to open.

    Args:
        plan: Gives the models each position may ask.
        positions: Positions still to be done, in order.
        max_open: Units that may be open at a time.
        max_bytes: Memory of their texts above which no more are opened, but always one.
    """

    def __init__(
        self, plan: Plan, positions: Iterator[int], max_open: int, max_bytes: float = math.inf
    ) -> None:
        self._plan = plan
        self._positions = positions
        self._max_open = max_open
        self._max_bytes = max_bytes
        # Every model gets an equal share; at least 1, else it could never be asked.
        self._share = max(1, max_open // max(1, len(plan.identities)))
        self._aside: dict[str, deque[array[int]]] = {name: deque() for name in plan.identities}
        self.n_aside = 0
        self.exhausted = False

    def next_position(
        self, n_open: int, waiting: Mapping[str, int], n_bytes: int = 0
    ) -> int | None:
        """The next unit to open, or None while there is no room or nothing left.

        Args:
            n_open: Units open now.
            waiting: Open units that wait for each model.
            n_bytes: Memory of the open units' texts.
        """
        if n_open >= self._max_open or (n_open and n_bytes >= self._max_bytes):
            return None
        again = self._from_aside(waiting)
        if again is not None:
            return again
        # Every item has the same combinations: if none of them may be opened, going on would only
        # set the whole plan aside.
        if not self._any_openable(waiting):
            return None
        for position in self._positions:
            full = self._full(position, waiting)
            if full is None:
                return position
            self._set_aside(full, position)
        self.exhausted = True
        return None

    def _any_openable(self, waiting: Mapping[str, int]) -> bool:
        busy = {name for name, count in waiting.items() if count >= self._share}
        return not busy or any(busy.isdisjoint(models) for models in self._plan.model_sets)

    @property
    def empty(self) -> bool:
        """Whether every position was handed out."""
        return self.exhausted and self.n_aside == 0

    def _full(self, position: int, waiting: Mapping[str, int]) -> str | None:
        """A model that the unit may ask and whose share is full."""
        fullest = max(self._plan.models_at(position), key=waiting.__getitem__, default=None)
        if fullest is None or waiting[fullest] < self._share:
            return None
        return fullest

    def _set_aside(self, model: str, position: int) -> None:
        chunks = self._aside[model]
        # Chunks of plain integers: eight bytes a unit, and popping at the left stays cheap.
        if not chunks or len(chunks[-1]) >= 4096:
            chunks.append(array("q"))
        chunks[-1].append(position)
        self.n_aside += 1

    def _from_aside(self, waiting: Mapping[str, int]) -> int | None:
        """The oldest unit set aside for a model that has room again."""
        for model, chunks in self._aside.items():
            while chunks and waiting[model] < self._share:
                position = chunks[0].pop(0)
                if not chunks[0]:
                    chunks.popleft()
                self.n_aside -= 1
                full = self._full(position, waiting)
                if full is None:
                    return position
                # It waits for another model as well: it moves to that one's list.
                self._set_aside(full, position)
        return None
