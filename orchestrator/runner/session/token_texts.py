"""Asks servers for the texts of the token ids that a run meets, and writes each down once.

Outcomes hold ids. The texts are asked for while the server is there, a few hundred at a time beside
the requests of the run, so that its tokens can be read on any machine and at any time afterwards.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.backend import Backend, answered
from orchestrator.records import Choice, Failure, Outcome
from orchestrator.store import Store
from orchestrator.store.interning import ids_of

# How often servers are asked, and how many texts in one request.
_EVERY_S: Final = 2.0
_AT_ONCE: Final = 256
# Longest time to wait for texts: for those of one request, and when a connection is closed.
_LAST_S: Final = 5.0
_FIRST_SIZE: Final = 1 << 16
_MOST_IDS: Final = 1 << 22

_log = logging.getLogger(__name__)


class _Met:
    """Ids that a server has named: a mask of those that were met, and those to be asked for."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.seen = np.zeros(_FIRST_SIZE, np.bool_)
        self.left: list[NDArray[np.int32]] = []
        self.gives_none = False

    def grow(self, largest: int) -> None:
        """Make room for an id."""
        if largest >= len(self.seen):
            room = np.zeros(largest + 1 - len(self.seen), np.bool_)
            self.seen = np.concatenate((self.seen, room))


class TokenTexts:
    """The texts of the ids in a run's outcomes."""

    def __init__(
        self, store: Store, server_ids: Mapping[str, int], backend: Callable[[str], Backend | None]
    ) -> None:
        self._store = store
        self._server_ids = server_ids
        self._backend = backend
        self._met: dict[int, _Met] = {}
        self._asking = asyncio.Lock()

    def note(self, model: str, outcome: Outcome | Failure) -> None:
        """Take down the ids of an outcome that are new. Called for each: it must be quick."""
        if isinstance(outcome, Choice | Failure) or not (server := self._server_ids.get(model, 0)):
            return
        met = self._met.get(server) or self._first(server, model)
        if met.gives_none or (ids := ids_of(outcome)) is None:
            return
        if (largest := int(ids.max())) < 0:
            # Tokens without ids, which the run numbers itself.
            return
        if largest >= len(met.seen):
            ids = ids[ids < _MOST_IDS]
            met.grow(int(ids.max(initial=0)))
        # Below 0 are no ids.
        new = ids[(ids >= 0) & ~met.seen[np.maximum(ids, 0)]]
        if new.size:
            new = np.unique(new)
            met.seen[new] = True
            met.left.append(new)

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            for server, met in list(self._met.items()):
                backend = self._backend(met.model)
                if backend is not None and self._server_ids.get(met.model) == server:
                    await self._ask(server, backend)

    async def leave(self, model: str, backend: Backend) -> None:
        """Ask for what is left before a connection is closed, for some seconds at most."""
        server = self._server_ids.get(model, 0)
        if server in self._met:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_S):
                    await self._ask(server, backend)

    def _first(self, server: int, model: str) -> _Met:
        met = self._met[server] = _Met(model)
        known = np.fromiter(self._store.vocabulary.known(server), np.int32)
        met.grow(int(known.max(initial=0)))
        met.seen[known] = True
        return met

    async def _ask(self, server: int, backend: Backend) -> None:
        """Ask for all that is left; what fails for the moment is left for the next time."""
        met = self._met[server]
        async with self._asking:
            while met.left and not met.gives_none:
                ids = np.concatenate(met.left)
                met.left = [ids]
                found: Mapping[int, bytes] | Failure
                try:
                    async with asyncio.timeout(_LAST_S):
                        found = await answered(backend.spell(ids[:_AT_ONCE].tolist()))
                except TimeoutError:
                    found = Failure("timeout", f"no answer within {_LAST_S:g} s")
                if isinstance(found, Failure):
                    met.gives_none = not found.retriable
                    _log.debug("%s: no texts of tokens: %s", met.model, found.message)
                    return
                self._store.vocabulary.put(server, found)
                met.left[0] = ids[_AT_ONCE:]
                met.left = [some for some in met.left if some.size]
