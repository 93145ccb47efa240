"""The asyncio shell around the admission core: workers, connections, timers. It decides nothing.

Each model has workers up to its limit, made when they are first needed; a worker takes a request
from the core, sends it, and reports its end. Ends are handled by a plain function call, so that a
unit goes on in the same turn of the event loop in which its answer came.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from asyncio_throttle.throttler import Throttler

from orchestrator.ask import ChooseAsk, GenerateAsk, Request, ScoreAsk
from orchestrator.backend import Backend
from orchestrator.records import Failure, Outcome
from orchestrator.scheduler.core import Core, Retried, Settled

Connect = Callable[[str], Awaitable[Backend | Failure]]


class Ends(Protocol):
    """Who is told about ends; called on the event loop, must not wait."""

    def settled(self, request: Request, outcome: Outcome | Failure, latency_s: float) -> None:
        """A request has ended for good."""
        ...

    def retried(self, request: Request, failure: Failure, wait_s: float) -> None:
        """An attempt failed; the request is tried again."""
        ...

    def may_send(self, request: Request) -> bool:
        """Asked before each attempt; False stops the scheduler (a budget is used up)."""
        ...


class _Link(msgspec.Struct, eq=False):
    """The connection to one model and the workers that use it."""

    model: str
    lock: asyncio.Lock
    throttle: Throttler | None
    backend: Backend | None = None
    n_workers: int = 0
    idle: deque[asyncio.Future[None]] = msgspec.field(default_factory=deque)
    timer: asyncio.TimerHandle | None = None
    timer_at: float = 0.0


class Scheduler:
    """Sends requests to models.

    Args:
        core: Queues and limits.
        connect: Gives the back-end of a model, launching its server where needed; called at the
            first request, and again after it gave a failure.
        ends: Told about every end.
        per_minute: Bound on requests a minute, for the models that have one.
    """

    def __init__(
        self, core: Core, connect: Connect, ends: Ends, per_minute: dict[str, float] | None = None
    ) -> None:
        self._core = core
        self._connect = connect
        self._ends = ends
        rates = per_minute or {}
        self._links = {
            model: _Link(model, asyncio.Lock(), _throttler(rates.get(model)))
            for model in core.models
        }
        self._group: asyncio.TaskGroup | None = None
        self._stopping = False
        self._loop = asyncio.get_running_loop()
        self._drained = asyncio.Event()

    async def run(self, start: Callable[[], None]) -> None:
        """Serve until `stop` was called and nothing is in flight.

        Args:
            start: Called once workers may be made; submits the first requests.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                start()
                self._check_drained()
                await self._drained.wait()
                self._wake_all()
        finally:
            self._group = None
            for link in self._links.values():
                if link.timer is not None:
                    link.timer.cancel()
                if link.backend is not None:
                    await link.backend.close()

    def submit(self, request: Request) -> None:
        """Queue a request and see to it that a worker is awake."""
        ended = self._core.submit(request)
        if ended is not None:
            # Not in this call: the unit that asks is still being advanced.
            self._loop.call_soon(self._ends.settled, ended.request, ended.outcome, 0.0)
            return
        self._wake(self._links[request.ask.model])

    def stop(self) -> None:
        """Send nothing more; `run` returns when what is in flight has ended."""
        self._stopping = True
        self._check_drained()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    def _check_drained(self) -> None:
        if self._stopping and not self._core.in_flight():
            self._drained.set()

    def _wake(self, link: _Link) -> None:
        while link.idle:
            waiter = link.idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        limit = self._core.models[link.model].limits.max_in_flight
        if self._group is not None and link.n_workers < limit and not self._stopping:
            link.n_workers += 1
            self._group.create_task(self._work(link))

    def _wake_all(self) -> None:
        for link in self._links.values():
            for waiter in link.idle:
                if not waiter.done():
                    waiter.set_result(None)

    async def _work(self, link: _Link) -> None:
        while not self._stopping:
            request = self._core.take(link.model, self._loop.time())
            if request is None:
                await self._idle(link)
                continue
            started = self._loop.time()
            outcome = await self._attempt(link, request)
            if outcome is None:
                self._core.put_back(request)
                self.stop()
                continue
            now = self._loop.time()
            for end in self._core.done(request, outcome, now):
                self._report(end, now - started, now)
            self._check_drained()
        link.n_workers -= 1

    async def _idle(self, link: _Link) -> None:
        self._set_timer(link)
        waiter: asyncio.Future[None] = self._loop.create_future()
        link.idle.append(waiter)
        await waiter

    def _set_timer(self, link: _Link) -> None:
        at = self._core.wake_at(link.model)
        if at is None or (link.timer is not None and link.timer_at <= at):
            return
        if link.timer is not None:
            link.timer.cancel()
        link.timer_at = at
        link.timer = self._loop.call_at(at, self._on_timer, link)

    def _on_timer(self, link: _Link) -> None:
        link.timer = None
        for _ in range(min(len(link.idle), self._core.models[link.model].n_queued) or 1):
            self._wake(link)

    def _report(self, end: Settled | Retried, latency_s: float, now: float) -> None:
        if isinstance(end, Settled):
            self._ends.settled(end.request, end.outcome, latency_s)
        else:
            self._ends.retried(end.request, end.failure, end.at - now)
            self._set_timer(self._links[end.request.ask.model])

    async def _attempt(self, link: _Link, request: Request) -> Outcome | Failure | None:
        """The end of one attempt; None where it was not made, because the run stops."""
        if link.backend is None:
            failure = await self._link_up(link)
            if failure is not None:
                return failure
        if link.throttle is not None:
            # The lock lets one worker at a time reach the throttler, which polls.
            async with link.lock, link.throttle:
                pass
        if self._stopping or link.backend is None or not self._ends.may_send(request):
            return None
        return await send(link.backend, request)

    def _give_up(self, link: _Link, why: Failure) -> None:
        now = self._loop.time()
        for end in self._core.kill(link.model, why):
            self._loop.call_soon(self._report, end, 0.0, now)

    async def _link_up(self, link: _Link) -> Failure | None:
        async with link.lock:
            if link.backend is not None:
                return None
            found = await self._connect(link.model)
            if isinstance(found, Failure):
                if found.permanent:
                    # It is the server that is wrong, not the request: nothing of this may be kept
                    # as the request's outcome.
                    self._give_up(link, found)
                return found
            link.backend = found
            return None


async def send(backend: Backend, request: Request) -> Outcome | Failure:
    """One attempt: the call of the back-end that fits the ask."""
    ask = request.ask
    if isinstance(ask, ChooseAsk):
        return await backend.choose(ask)
    if isinstance(ask, GenerateAsk):
        return await backend.generate(ask, request.seed)
    if isinstance(ask, ScoreAsk):
        return await backend.score(ask)
    return Failure("unsupported", f"no back-end computes {type(ask).__name__}", permanent=True)


def _throttler(per_minute: float | None) -> Throttler | None:
    """Spread over seconds: a minute's worth at once would be a burst that the endpoint refuses."""
    if per_minute is None:
        return None
    at_once = max(1, int(per_minute / 60))
    return Throttler(rate_limit=at_once, period=at_once * 60 / per_minute)
