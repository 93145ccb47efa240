"""The asyncio shell around the admission core: workers, connections, timers. It decides nothing.

Each model has workers up to its limit, made when they are first needed; a worker takes a request
from the core, sends it, and reports its end. Ends are handled by a plain function call, so that a
unit goes on in the same turn of the event loop in which its answer came.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

import msgspec
from asyncio_throttle.throttler import Throttler

from orchestrator.ask import ChooseAsk, GenerateAsk, Request, RewardAsk, ScoreAsk
from orchestrator.backend import Asked, Backend, answered
from orchestrator.errors import OrchestratorError
from orchestrator.records import Failure, Outcome
from orchestrator.scheduler.core import Core, ModelState, Settled
from orchestrator.scheduler.ready import Admission


class Link(msgspec.Struct, eq=False):
    """The connection to one model and the workers that use it."""

    model: str
    throttle: Throttler | None
    connecting: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    pacing: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    backend: Backend | None = None
    failure: Failure | None = None
    n_refused: int = 0
    n_workers: int = 0
    idle: deque[asyncio.Future[None]] = msgspec.field(default_factory=deque)
    timer: asyncio.Handle | None = None
    due: float = 0.0


async def send(backend: Asked, request: Request) -> Outcome | Failure:
    """One attempt: the call of the back-end that fits the ask."""
    ask = request.ask
    if isinstance(ask, ChooseAsk):
        return await backend.choose(ask)
    if isinstance(ask, GenerateAsk):
        return await backend.generate(ask, request.seed)
    if isinstance(ask, ScoreAsk):
        return await backend.score(ask)
    if isinstance(ask, RewardAsk):
        return await backend.reward(ask)
    return await backend.similarity(ask)


def throttler(per_minute: float | None) -> Throttler | None:
    """Spread over seconds: a minute's worth at once would be a burst that the endpoint refuses."""
    if per_minute is None:
        return None
    at_once = max(1, int(per_minute / 60))
    return Throttler(rate_limit=at_once, period=at_once * 60 / per_minute)


Connect = Callable[[str], Awaitable[Backend | Failure]]
Leave = Callable[[str, Backend], Awaitable[None]]
T = TypeVar("T")

# What an event loop's timer may come too early.
_RESOLUTION_S = 1e-3

_log = logging.getLogger(__name__)


class Ends(Protocol):
    """Listener for the ends of requests; called on the event loop, must not wait."""

    def settled(self, request: Request, outcome: Outcome | Failure, latency_s: float) -> None:
        """A request has ended for good."""
        ...

    def retried(self, request: Request, failure: Failure, wait_s: float) -> None:
        """An attempt failed; the request is tried again."""
        ...

    def may_send(self, request: Request) -> Admission:
        """Asked before each attempt."""
        ...

    def left(self, request: Request) -> None:
        """A run that stops has left a request where it is; its next call asks for the answer."""
        ...

    def attempted(self, request: Request) -> None:
        """An attempt that might be sent has ended, in whatever way."""
        ...


class Scheduler:
    """Sends requests to models.

    `connect` launches a model's server where needed; it is called at the first request, and again
    for each trial of a server that is out of reach. `leave` is awaited with a model and its
    connection before that is closed, except after an error.
    """

    def __init__(
        self,
        core: Core,
        connect: Connect,
        ends: Ends,
        per_minute: dict[str, float] | None = None,
        leave: Leave | None = None,
    ) -> None:
        self._core = core
        self._connect = connect
        self._ends = ends
        self._leave = leave
        rates = per_minute or {}
        self._links = {model: Link(model, throttler(rates.get(model))) for model in core.models}
        self._group: asyncio.TaskGroup | None = None
        self._stopping = False
        # Requests whose answers a run that stops does not wait for.
        self.n_deferred = 0
        self._loop = asyncio.get_running_loop()
        self._drained = asyncio.Event()
        self._ended: deque[Settled] = deque()
        self._waits: set[asyncio.Timeout] = set()
        self._error: Exception | None = None

    async def run(self, start: Callable[[], None]) -> None:
        """Serve until `stop` was called and nothing is in flight.

        `start` is called once workers may be made, and submits the first requests.

        Raises:
            OrchestratorError: Of `connect` or what `fail` was given, when what is in flight has
                ended or this is cancelled; of who is told about ends, at once.
        """
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            async with asyncio.TaskGroup() as group:
                self._group = group
                start()
                self._check_drained()
                try:
                    await self._drained.wait()
                finally:
                    if self._error is not None:
                        raise self._error
                for link in self._links.values():
                    for waiter in link.idle:
                        if not waiter.done():
                            waiter.set_result(None)

    async def _close(self) -> None:
        self._group = None
        async with contextlib.AsyncExitStack() as stack:
            for link in self._links.values():
                if link.timer is not None:
                    link.timer.cancel()
                if link.backend is not None:
                    stack.push_async_callback(self._close_one, link.model, link.backend)

    async def _close_one(self, model: str, backend: Backend) -> None:
        try:
            if self._leave is not None and self._error is None:
                await self._leave(model, backend)
        finally:
            await backend.close()

    def submit(self, request: Request) -> None:
        """Queue a request and see to it that a worker is awake."""
        ended = self._core.submit(request, self._loop.time())
        if ended is None:
            self._wake(self._links[request.ask.model])
            return
        # Not in this call: the unit that asks is still being advanced.
        self._ended.append(ended)
        if len(self._ended) == 1:
            self.soon(self._tell_ended)

    def soon(self, call: Callable[[], None], delay_s: float = 0.0) -> None:
        """Call something on the event loop; what it raises ends the run."""
        if delay_s:
            self._loop.call_later(delay_s, self._guarded, call)
        else:
            self._loop.call_soon(self._guarded, call)

    def change(
        self, leaving: Iterable[str], work: Callable[[], Awaitable[None]], then: Callable[[], None]
    ) -> None:
        """Take models out of use: their connections are closed, then `work` and `then` are called.

        Nothing of these models may be queued or in flight. What `work` raises ends the run.
        """
        if self._group is not None:
            self._group.create_task(
                self._change([self._links[name] for name in leaving], work, then)
            )

    async def _change(
        self, links: list[Link], work: Callable[[], Awaitable[None]], then: Callable[[], None]
    ) -> None:
        for link in links:
            async with link.connecting:
                backend, link.backend = link.backend, None
                if backend is not None:
                    await self._close_one(link.model, backend)
        await work()
        self._guarded(then)

    def pause(self) -> None:
        """Send nothing more until `resume`; what is in flight ends as ever."""
        self._core.paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        self._core.paused = False
        for link in self._links.values():
            self._fill(link)

    def hold(self, model: str, on: bool) -> None:  # noqa: FBT001 (on or off)
        """Send a model nothing more, until this is called again; what is in flight ends as ever."""
        self._core.models[model].is_held = on
        if not on:
            self._fill(self._links[model])

    def withdraw(self, then: Callable[[], None]) -> None:
        """Send nothing, cancel what comes hours later; call `then` when what is there has come."""
        self.pause()
        if self._group is not None:
            self._group.create_task(self._withdraw(then))

    async def _withdraw(self, then: Callable[[], None]) -> None:
        for link in self._links.values():
            if link.backend is not None:
                await link.backend.withdraw()
        self._guarded(then)

    def set_limit(self, model: str, n: int) -> int:
        """Change how many requests a model may have at a time; how many it was before.

        Those in flight beyond it end as ever.
        """
        before, state = self._core.limit(model), self._core.models[model]
        state.limits = msgspec.structs.replace(state.limits, max_in_flight=n)
        self._fill(self._links[model])
        return before

    def backend(self, model: str) -> Backend | None:
        """The connection to a model; None while there is none."""
        return self._links[model].backend

    def _fill(self, link: Link) -> None:
        """Wake or make as many workers as there is work for: no end of a request will do it."""
        state = self._core.models[link.model]
        for _ in range(min(state.n_queued, state.most_in_flight - state.in_flight)):
            self._wake(link)

    def stop(self) -> None:
        """Send nothing more; `run` returns when what is in flight has ended.

        Who waits for a connection or for the rate cap gives up at once.
        """
        self._stopping = True
        for wait in self._waits:
            wait.reschedule(self._loop.time())
        self._waits.clear()
        self._check_drained()

    def fail(self, error: Exception) -> None:
        """Stop, and have `run` raise this: what other servers were paid for is recorded first.

        Models that are held are not waited for, and what they still answer is not recorded: by
        whom they are answered is what is not known.
        """
        if self._error is None:
            self._error = error
            if any(link.backend is not None for link in self._links.values()):
                _log.warning("ending after requests in flight: %s", error)
        self.stop()

    def _guarded(self, call: Callable[[], None]) -> None:
        if self._group is None:
            return
        try:
            call()
        # The event loop would only log it, and the run wait for ever; `run` raises it.
        except Exception as error:  # noqa: BLE001
            self._error = error
            self._drained.set()

    def _tell_ended(self) -> None:
        ended, self._ended = self._ended, deque()
        for end in ended:
            self._ends.settled(end.request, end.outcome, 0.0)
        self._check_drained()

    def _check_drained(self) -> None:
        if not self._stopping or self._ended:
            return
        waited_for = (m for m in self._core.models.values() if not self._is_given_up(m))
        if not any(model.in_flight for model in waited_for):
            self._drained.set()

    def _is_given_up(self, model: ModelState) -> bool:
        return self._error is not None and model.is_held

    def _wake(self, link: Link) -> None:
        state = self._core.models[link.model]
        if state.in_flight >= state.most_in_flight:
            return  # who ends one of them takes the next
        while link.idle:
            waiter = link.idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        limit = state.most_in_flight
        if self._group is not None and link.n_workers < limit and not self._stopping:
            link.n_workers += 1
            self._group.create_task(self._work(link))

    async def _work(self, link: Link) -> None:
        while not self._stopping:
            request = self._core.take(link.model, self._loop.time())
            if request is None:
                self._set_timer(link)
                waiter: asyncio.Future[None] = self._loop.create_future()
                link.idle.append(waiter)
                await waiter
                continue
            if link.idle and self._core.n_ready(link.model):
                # After an outage nobody else would wake the others.
                self._wake(link)
            await self._serve(link, request)
            self._check_drained()
        link.n_workers -= 1

    async def _serve(self, link: Link, request: Request) -> None:
        latency_s = 0.0
        failure = await self._link_up(link)
        if failure is None and link.throttle is not None:
            # The rate cap; one worker at a time, because the throttler polls.
            async with link.pacing:
                await self._until_stop(link.throttle.acquire)
        if failure is not None:
            now = self._loop.time()
            ends = self._core.not_connected(request, failure, now)
        elif link.backend is None or not self._is_admitted(request):
            self._core.put_back(request, self._loop.time())
            return
        else:
            started = self._loop.time()
            outcome = await self._attempt(link.backend, request)
            now = self._loop.time()
            latency_s = now - started
            if outcome is None:
                self._ends.left(request)
            if outcome is None or self._is_given_up(self._core.models[link.model]):
                self._core.put_back(request, now)
                return
            ends = self._core.done(request, outcome, now)
        for end in ends:
            if isinstance(end, Settled):
                self._ends.settled(end.request, end.outcome, latency_s)
            else:
                self._ends.retried(end.request, end.failure, end.at - now)
                self._set_timer(self._links[end.request.ask.model])
        if self._core.is_full:
            # Requests waited for one to end.
            self._core.is_full = False
            for other in self._links.values():
                self._fill(other)

    async def _attempt(self, backend: Backend, request: Request) -> Outcome | Failure | None:
        """Ask once; None where the answer comes so late that a run which stops does not wait."""
        asked = backend.for_request(request)
        self.n_deferred += backend.defers
        try:
            if backend.defers:
                return await self._until_stop(lambda: answered(send(asked, request)))
            return await answered(send(asked, request))
        finally:
            self.n_deferred -= backend.defers
            self._ends.attempted(request)

    def _is_admitted(self, request: Request) -> bool:
        admission = Admission.STOP if self._stopping else self._ends.may_send(request)
        if admission is Admission.STOP:
            self.stop()
        elif admission is Admission.WAIT:
            self._core.is_full = True
        return admission is Admission.SEND

    def _set_timer(self, link: Link) -> None:
        at = self._core.wake_at(link.model)
        if at is None or (link.timer is not None and link.due <= at):
            return
        if link.timer is not None:
            link.timer.cancel()
        link.due = at
        # What is due already gets no `TimerHandle` of uvloop, but a handle that knows no time.
        link.timer = self._loop.call_at(at + _RESOLUTION_S, self._on_timer, link)

    def _on_timer(self, link: Link) -> None:
        link.timer = None
        for _ in range(min(len(link.idle), self._core.models[link.model].n_queued) or 1):
            self._wake(link)

    async def _link_up(self, link: Link) -> Failure | None:
        """See to it that there is a connection; None where there is one, or the run stops.

        A server that was out of reach may come back as another one, or be gone for good, so each
        trial connects anew. Then the trial is all that is in flight, and nobody else uses the old
        connection.
        """
        if link.backend is not None and not self._core.models[link.model].must_connect:
            return None
        n_refused = link.n_refused
        async with link.connecting:
            if link.n_refused != n_refused:
                # Somebody tried while this worker stood in line; the answer would be the same.
                return link.failure
            if link.backend is not None:
                if not self._core.models[link.model].must_connect:
                    return None
                await link.backend.close()
                link.backend = None
            try:
                found = await self._until_stop(lambda: self._connect(link.model))
            except OrchestratorError as error:
                self.fail(error)
                return None
            if isinstance(found, Failure):
                link.failure = found
                link.n_refused += 1
                return found
            if found is not None:
                link.backend = found
                self._core.models[link.model].was_there = True
            return None

    async def _until_stop(self, wait: Callable[[], Awaitable[T]]) -> T | None:
        """Await `wait()`; if the run stops meanwhile, cancel it and return None."""
        if self._stopping:
            return None
        deadline = asyncio.timeout(None)
        try:
            async with deadline:
                self._waits.add(deadline)
                return await wait()
        except TimeoutError:
            if not deadline.expired():
                raise
            return None
        finally:
            self._waits.discard(deadline)
