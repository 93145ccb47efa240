"""What servers publish of their own load, looked at now and then for displays."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final

from orchestrator.backend import Backend, ServerLoad

# How often servers are asked, seconds: /metrics of a busy one costs it milliseconds.
_EVERY_S: Final = 5.0
# A server that is too busy to say how busy it is must not hold up the looking.
_FIGURES_S: Final = 5.0


async def figures(backend: Backend) -> ServerLoad | None:
    """The load figures of a server; None where it publishes none, or not in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FIGURES_S):
            return await backend.load()
    return None


class Loads:
    """Asks each connected server for its load, every few seconds.

    Args:
        models: To look at.
        backend: Gives the connection to a model, None while there is none.
    """

    def __init__(self, models: Iterable[str], backend: Callable[[str], Backend | None]) -> None:
        self._models = tuple(models)
        self._backend = backend
        self._last: dict[str, ServerLoad] = {}
        self._first: dict[str, ServerLoad] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            for model in self._models:
                backend = self._backend(model)
                load = await figures(backend) if backend is not None else None
                self._note(model, load)
            await asyncio.sleep(_EVERY_S)

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

    def _note(self, model: str, load: ServerLoad | None) -> None:
        if load is None:
            self._last.pop(model, None)
            return
        self._last[model] = load
        first = self._first.get(model)
        # A server that was started anew counts from zero.
        if first is None or (load.prefix_queries or 0) < (first.prefix_queries or 0):
            self._first[model] = load
