"""Load that servers publish of themselves: one reading, for displays and for limits."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable
from typing import Final

from orchestrator.backend import Backend, ServerLoad, answered
from orchestrator.records import Failure

# How often servers are asked, seconds: /metrics of a busy one costs it milliseconds.
_EVERY_S: Final = 5.0
# A server that is too busy to say how busy it is must not hold up the looking.
_FIGURES_S: Final = 5.0


async def _figures(backend: Backend) -> ServerLoad | None:
    """The load figures of a server; None where it publishes none, or not in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FIGURES_S):
            load = await answered(backend.load())
            return None if isinstance(load, Failure) else load
    return None


class Loads:
    """Asks each connected server for its load: when `look` is called, else every few seconds.

    Args:
        models: To look at.
        backend: Gives the connection to a model, None while there is none.
    """

    def __init__(self, models: Iterable[str], backend: Callable[[str], Backend | None]) -> None:
        self._models = tuple(models)
        self._backend = backend
        self._last: dict[str, ServerLoad] = {}
        self._first: dict[str, ServerLoad] = {}
        self._asked_s = dict.fromkeys(self._models, -math.inf)
        self._clock = asyncio.get_running_loop().time

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            for model in self._models:
                # Who finds limits looks more often, and a server is asked once for both.
                if self._clock() - self._asked_s[model] >= _EVERY_S:
                    await self.look(model)
            await asyncio.sleep(_EVERY_S)

    async def look(self, model: str) -> ServerLoad | None:
        """Ask now, and keep what was said; None without a server that says it in time."""
        self._asked_s[model] = self._clock()
        backend = self._backend(model)
        load = await _figures(backend) if backend is not None else None
        if load is None:
            self._last.pop(model, None)
            return None
        self._last[model] = load
        first = self._first.get(model)
        # A server that was started anew counts from zero.
        if first is None or (load.prefix_queries or 0) < (first.prefix_queries or 0):
            self._first[model] = load
        return load

    def waiting(self, model: str) -> int | None:
        """Requests that stand in the server's own queue; None where it does not say."""
        load = self._last.get(model)
        return load.waiting if load is not None else None

    def cache_hits(self, model: str) -> float | None:
        """Share of this call's prompt tokens that its prefix cache had; None if unknown."""
        last, first = self._last.get(model), self._first.get(model)
        if last is None or first is None:
            return None
        now = (last.prefix_queries, last.prefix_hits)
        then = (first.prefix_queries, first.prefix_hits)
        if None in now or None in then:
            return None
        queries, hits = ((b or 0) - (a or 0) for a, b in zip(then, now, strict=True))
        return hits / queries if queries > 0 and 0 <= hits <= queries else None
