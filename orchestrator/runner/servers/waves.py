"""Waves: which models can be asked now, where not all servers run at the same time.

The plan of waves is `orchestrator.placement`'s. Here is where a run stands in it: the next wave is
the next one in turn with something to do, and servers of the wave before stay where there is room
for them, so that nothing is loaded again that need not be. Pure: nothing is started or ended here.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec

from orchestrator.placement import Inventory, Share, fits


class PlacedServer(msgspec.Struct, frozen=True):
    """A server of a wave.

    Attributes:
        name: Of the server.
        models: That it serves.
        shares: Where its processes run.
        wanted: Processes that the recipe asks for.
    """

    name: str
    models: tuple[str, ...]
    shares: tuple[Share, ...]
    wanted: int = 1


class Waves:
    """The place of a run among its waves.

    Args:
        waves: As they were placed; at least two.
        inventory: They were placed on.

    Attributes:
        absent: Models that can't be asked now.
    """

    def __init__(self, waves: Sequence[Sequence[PlacedServer]], inventory: Inventory) -> None:
        self._waves = [list(wave) for wave in waves]
        self._inventory = inventory
        self._now = -1
        self._present: list[PlacedServer] = []
        self._everybody = frozenset(
            model for wave in waves for server in wave for model in server.models
        )
        self.absent = self._everybody

    @property
    def number(self) -> int:
        """Of the current wave, from 1; 0 before the first."""
        return self._now + 1

    def __len__(self) -> int:
        return len(self._waves)

    @property
    def present(self) -> tuple[str, ...]:
        """Names of the servers that may run now."""
        return tuple(server.name for server in self._present)

    def turn(
        self, waits_for: Callable[[str], bool], dead: Collection[str] = ()
    ) -> tuple[str, ...] | None:
        """Go to the next wave that has something to do.

        Args:
            waits_for: Whether units wait for a model.
            dead: Models that were given up: what they are asked fails at once, in any wave.

        Returns:
            The models that were there and are not any more; None where no wave has anything to do.
        """
        n_waves = len(self._waves)
        for step in range(1, n_waves + 1):
            number = (self._now + step) % n_waves
            served = [model for server in self._waves[number] for model in server.models]
            if any(waits_for(model) for model in served if model not in dead):
                return self._enter(number, dead)
        return self._enter(max(0, self._now), dead) if any(map(waits_for, dead)) else None

    def _enter(self, number: int, dead: Collection[str]) -> tuple[str, ...]:
        before = self._present
        present = list(self._waves[number])
        for server in before:
            shares = [share for one in (*present, server) for share in one.shares]
            if server not in present and fits(shares, self._inventory):
                present.append(server)
        self._now, self._present = number, present
        there = {model for server in present for model in server.models} | set(dead)
        self.absent = self._everybody - there
        staying = {server.name for server in present}
        gone = [server for server in before if server.name not in staying]
        return tuple(model for server in gone for model in server.models)
