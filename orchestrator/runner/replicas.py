"""Several servers of one model, spoken to as one.

Requests of one item share their prompts' beginning, so they go to the server that had the first of
them, as long as that has no more than 1.25 times the mean load; then another takes its share of the
item too. What is new goes to the least loaded.
A server that can't be reached is left out, its requests go to the others at once, and it is asked
for again from time to time. Only when none is left the model counts as out of reach.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import msgspec

from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Asked, Backend, Provenance, ServerLoad
from orchestrator.records import Choice, Failure, Generation, Scored

T = TypeVar("T")

_FIRST_WAIT_S: Final = 0.5
_MAX_WAIT_S: Final = 30.0
# What a server may have of the mean load before an item that it knows goes to another one too.
_MOST_LOAD: Final = 1.25
# Items whose servers are remembered; far more than are under way.
_ITEMS: Final = 4096

_log = logging.getLogger(__name__)


class _Copy(msgspec.Struct, eq=False):
    """One of the servers; `backend` is None while it can't be reached."""

    number: int
    backend: Backend | None
    in_flight: int = 0


def _load(copy: _Copy) -> int:
    return copy.in_flight


def _total(counts: Sequence[int | None]) -> int | None:
    """The sum; None where somebody does not say, since a part is no sum."""
    return None if None in counts else sum(count or 0 for count in counts)


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
        self._known: dict[int, list[_Copy]] = {}
        for copy in self._copies:
            if copy.backend is None:
                self._seek(copy)

    def for_group(self, group: int) -> Asked:
        """See `orchestrator.backend.SharesOut`."""
        return _ForGroup(self, group)

    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """See `orchestrator.backend.Asked`."""
        return await self.send(lambda backend: backend.generate(ask, seed))

    async def score(self, ask: ScoreAsk) -> Scored | Failure:
        """See `orchestrator.backend.Asked`."""
        return await self.send(lambda backend: backend.score(ask))

    async def choose(self, ask: ChooseAsk) -> Choice | Failure:
        """See `orchestrator.backend.Asked`."""
        return await self.send(lambda backend: backend.choose(ask))

    async def provenance(self) -> Provenance | Failure:
        """What one of them says; they were compared when they were connected."""
        return await self.send(lambda backend: backend.provenance())

    async def load(self) -> ServerLoad | None:
        """The sum over those that publish any."""
        found = [await copy.backend.load() for copy in self._copies if copy.backend is not None]
        known = [load for load in found if load is not None]
        if not known:
            return None
        return ServerLoad(
            running=_total([load.running for load in known]),
            waiting=_total([load.waiting for load in known]),
            n_extra=sum(load.n_extra for load in known),
        )

    async def close(self) -> None:
        """Close all connections; nothing is sought any more."""
        self._is_closed = True
        for copy in self._copies:
            if copy.backend is not None:
                await copy.backend.close()

    async def send(
        self, call: Callable[[Backend], Awaitable[T | Failure]], group: int | None = None
    ) -> T | Failure:
        """The outcome from one of the servers; one that refuses to talk is passed over.

        Args:
            call: Asks a server.
            group: Of the request; None for one that belongs to none.
        """
        failure = Failure("refused", f"no server of {self._model} can be reached")
        while (copy := self._choose(group)) is not None and copy.backend is not None:
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

    def _choose(self, group: int | None) -> _Copy | None:
        there = [copy for copy in self._copies if copy.backend is not None]
        if group is None or not there:
            return min(there, key=_load, default=None)
        known = self._known.pop(group, [])
        # What is used is put at the end, so that the first is the one to be forgotten.
        self._known[group] = known
        if len(self._known) > _ITEMS:
            del self._known[next(iter(self._known))]
        mean = (sum(map(_load, there)) + 1) / len(there)
        warm = min((copy for copy in known if copy in there), key=_load, default=None)
        if warm is not None and warm.in_flight + 1 <= max(_MOST_LOAD * mean, 1):
            return warm
        least = min(there, key=_load)
        if least not in known:
            known.append(least)
        return least

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


class _ForGroup(msgspec.Struct, frozen=True, gc=False):
    """Who answers the requests of one group."""

    replicas: Replicas
    group: int

    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """See `orchestrator.backend.Asked`."""
        return await self.replicas.send(lambda backend: backend.generate(ask, seed), self.group)

    async def score(self, ask: ScoreAsk) -> Scored | Failure:
        """See `orchestrator.backend.Asked`."""
        return await self.replicas.send(lambda backend: backend.score(ask), self.group)

    async def choose(self, ask: ChooseAsk) -> Choice | Failure:
        """See `orchestrator.backend.Asked`."""
        return await self.replicas.send(lambda backend: backend.choose(ask), self.group)
