"""Keeps two kinds of requests to one server apart, at little cost.

vLLM's V1 runner spoils the alternatives of ordinary requests that share an engine step with one
that asks for given ids (`logprob_token_ids`). So requests that read alternatives are let in
together, and those that ask for ids wait for a moment when none of the former is under way, then go
all at once. Requests that read no alternatives need no gate.
"""

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

SHARE: Final = 0.02
"""Share of the time that may be lost to requests for ids while others wait."""
LINGER_S: Final = 0.002
"""Seconds without a reader after which requests for ids go in: replies come in batches, and
a client that gets one asks again at once."""
MOST_WAIT_S: Final = 10.0
"""Longest wait in seconds of requests for ids before others are held up for them."""

_gates: Final[weakref.WeakValueDictionary[tuple[int, str], "Gate"]] = weakref.WeakValueDictionary()


def gate_of(base_url: str) -> "Gate":
    """The gate of a server, shared by all that speak to it from the running event loop."""
    key = (id(asyncio.get_running_loop()), base_url)
    found = _gates.get(key)
    if found is None:
        found = _gates[key] = Gate()
    return found


class _Side:
    """Those let in of one kind, and those that wait."""

    __slots__ = ("inside", "waiting")

    def __init__(self) -> None:
        self.inside = 0
        self.waiting: deque[asyncio.Future[None]] = deque()

    def admit(self) -> None:
        """Let in all that wait."""
        while self.waiting:
            future = self.waiting.popleft()
            if not future.done():
                self.inside += 1
                future.set_result(None)


class Gate:
    """Lets in either readers of alternatives or requests for ids, never both.

    Attributes:
        lost_s: How long readers waited, from the first that did, all phases added.
        n_phases: How often requests for ids were let in.
    """

    def __init__(self) -> None:
        self._readers = _Side()
        self._exact = _Side()
        self._closed = False
        self._is_phase = False
        self._held_since: float | None = None
        self._not_before = 0.0
        self._idle_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.lost_s = 0.0
        self.n_phases = 0

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Around a request that reads alternatives."""
        if self._closed:
            if self._held_since is None:
                self._held_since = asyncio.get_running_loop().time()
            await self._wait(self._readers)
        else:
            self._readers.inside += 1
        try:
            yield
        finally:
            self._leave(self._readers)

    @contextlib.asynccontextmanager
    async def exact(self) -> AsyncIterator[None]:
        """Around a request for given ids."""
        await self._wait(self._exact)
        try:
            yield
        finally:
            self._leave(self._exact)

    async def _wait(self, side: _Side) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        side.waiting.append(future)
        self._turn()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._leave(side)
            with contextlib.suppress(ValueError):
                side.waiting.remove(future)
            self._turn()
            raise

    def _leave(self, side: _Side) -> None:
        side.inside -= 1
        if not side.inside:
            self._idle_since = asyncio.get_running_loop().time()
        self._turn()

    def _turn(self) -> None:
        """See who may go in now."""
        now = asyncio.get_running_loop().time()
        if self._exact.inside:
            if not self._readers.waiting:
                self._exact.admit()
            return
        if self._is_phase or not self._exact.waiting:
            # Readers that were held up go before requests for ids that came in the meantime.
            self._is_phase = False
            self._open(now)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._exact.waiting:
            return
        due = self._not_before
        if not self._readers.inside:
            due = now if self._closed else min(due, self._idle_since + LINGER_S)
        if now < due:
            self._timer = asyncio.get_running_loop().call_at(due, self._turn)
            return
        self._closed = True
        if not self._readers.inside:
            self._is_phase = True
            self.n_phases += 1
            self._exact.admit()

    def _open(self, now: float) -> None:
        if not self._closed:
            return
        self._closed = False
        if self._held_since is not None:
            lost = now - self._held_since
            self.lost_s += lost
            self._not_before = now + min(lost * (1 / SHARE - 1), MOST_WAIT_S)
            self._held_since = None
        self._readers.admit()
