"""Several servers of one model, spoken to as one: each request goes to the least loaded.

A server that can't be reached is left out, its requests go to the others at once, and it is asked
for again from time to time. Only when none is left the model counts as out of reach.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import msgspec

from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Backend, Provenance, ServerLoad
from orchestrator.records import Choice, Failure, Generation, Scored

T = TypeVar("T")

_FIRST_WAIT_S: Final = 0.5
_MAX_WAIT_S: Final = 30.0

_log = logging.getLogger(__name__)


class _Copy(msgspec.Struct, eq=False):
    """One of the servers; `backend` is None while it can't be reached."""

    number: int
    backend: Backend | None
    in_flight: int = 0


class Replicas:
    """A back-end over several servers of one model.

    Args:
        model: For messages.
        backends: In the order of the servers; None for those that can't be reached now.
        lost: Called when a server was lost, with a coroutine function that brings it back; it is to
            be run somewhere, and may be cancelled.
        connect: Connects to a server by its number.
    """

    def __init__(
        self,
        model: str,
        backends: Sequence[Backend | None],
        lost: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
        connect: Callable[[int], Awaitable[Backend | Failure]],
    ) -> None:
        self._model = model
        self._copies = [_Copy(number, backend) for number, backend in enumerate(backends)]
        self._lost = lost
        self._connect = connect
        self._is_closed = False
        for copy in self._copies:
            if copy.backend is None:
                self._seek(copy)

    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """See `orchestrator.backend.Backend`."""
        return await self._send(lambda backend: backend.generate(ask, seed))

    async def score(self, ask: ScoreAsk) -> Scored | Failure:
        """See `orchestrator.backend.Backend`."""
        return await self._send(lambda backend: backend.score(ask))

    async def choose(self, ask: ChooseAsk) -> Choice | Failure:
        """See `orchestrator.backend.Backend`."""
        return await self._send(lambda backend: backend.choose(ask))

    async def provenance(self) -> Provenance | Failure:
        """What one of them says; they were compared when they were connected."""
        return await self._send(lambda backend: backend.provenance())

    async def load(self) -> ServerLoad | None:
        """The sum over those that publish any."""
        found = [await copy.backend.load() for copy in self._copies if copy.backend is not None]
        known = [load for load in found if load is not None]
        if not known:
            return None
        return ServerLoad(
            running=sum(load.running or 0 for load in known),
            waiting=sum(load.waiting or 0 for load in known),
        )

    async def close(self) -> None:
        """Close all connections; nothing is sought any more."""
        self._is_closed = True
        for copy in self._copies:
            if copy.backend is not None:
                await copy.backend.close()

    async def _send(self, call: Callable[[Backend], Awaitable[T | Failure]]) -> T | Failure:
        """The outcome from the least loaded; a server that refuses to talk is passed over."""
        failure = Failure("refused", f"no server of {self._model} can be reached")
        while (copy := self._least_loaded()) is not None and copy.backend is not None:
            backend = copy.backend
            copy.in_flight += 1
            try:
                outcome = await call(backend)
            finally:
                copy.in_flight -= 1
            # A connection that broke may have been broken by the request: that is not sent on to
            # the other servers but is an attempt of its own.
            if not isinstance(outcome, Failure) or outcome.cause != "refused":
                return outcome
            failure = outcome
            await self._lose(copy, backend)
        return failure

    def _least_loaded(self) -> _Copy | None:
        there = [copy for copy in self._copies if copy.backend is not None]
        return min(there, key=lambda copy: copy.in_flight, default=None)

    async def _lose(self, copy: _Copy, backend: Backend) -> None:
        if copy.backend is not backend:
            return  # another request has noticed
        copy.backend = None
        _log.warning("%s: server %d can't be reached", self._model, copy.number + 1)
        if any(other.backend is not None for other in self._copies):
            self._seek(copy)
        await backend.close()

    def _seek(self, copy: _Copy) -> None:
        self._lost(lambda: self._bring_back(copy))

    async def _bring_back(self, copy: _Copy) -> None:
        wait_s = _FIRST_WAIT_S
        while not self._is_closed and copy.backend is None:
            await asyncio.sleep(wait_s)
            if self._is_closed:
                return
            found = await self._connect(copy.number)
            if not isinstance(found, Failure):
                await self._welcome(copy, found)
                return
            if found.permanent:
                _log.warning("%s: %s", self._model, found.message)
                return
            wait_s = min(2 * wait_s, _MAX_WAIT_S)

    async def _welcome(self, copy: _Copy, backend: Backend) -> None:
        if self._is_closed:
            await backend.close()
            return
        copy.backend = backend
        _log.info("%s: server %d answers again", self._model, copy.number + 1)
