"""Several servers of one model, spoken to as one.

Asking begins when some are ready, and the others are welcomed when they are. A server that can't be
reached is left out, its requests go to the others at once, and it is asked for again from time to
time. Only when none is left the model counts as out of reach. Where one fails the next is asked,
and where one is silent another. Which of them is asked, and which is suspect because it alone fails
or is silent, stands in `orchestrator.scheduler.copies`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

import msgspec

from orchestrator.ask import Request
from orchestrator.backend import Asked, Backend, Call, Client, Provenance, ServerLoad, T, answered
from orchestrator.errors import LaunchError, OrchestratorError
from orchestrator.records import UNREACHED, Failure
from orchestrator.runner.event_loop import Errand
from orchestrator.scheduler.copies import SILENT_AFTER_S, Copies, Copy, Tried

# How often it is looked whether a server has gone silent.
_LOOK_S: Final = 1.0
# Servers whose connection may break on the same request in one attempt.
_MOST_BROKEN: Final = 2
_ALONE: Final = "fails what others answer, so they get its requests, and it one from time to time"
_FIRST_WAIT_S: Final = 0.5
_MAX_WAIT_S: Final = 30.0

_log = logging.getLogger(__name__)


class Listener:
    """The run that a fleet serves, told of what happens to servers; by itself it does nothing."""

    def counted(self, model: str, n_there: int) -> None:
        """Take down how many servers of a model that has several are there; it has changed."""

    def asked_again(self) -> None:
        """Count a request sent once more: to another server, or to the same in another way."""

    def restarted(self, model: str) -> None:
        """Note that the server of a model was started."""

    def lost(self, node: str) -> None:
        """Plan anew what was to run on a node of a cluster that is out of reach."""

    def has_answered(self, model: str) -> bool:  # noqa: ARG002 (nothing was asked)
        """Return whether a request to a model was answered in this call."""
        return False

    def doubted(self, model: str) -> None:
        """Have a model compared: its replies name another one, or a connection broke."""

    def quiet_s(self, model: str) -> float:  # noqa: ARG002 (nothing was asked)
        """Return for how long a model has ended none of the requests that it has."""
        return 0.0


def _total(counts: Sequence[int | None]) -> int | None:
    """The sum; None if any server does not report, since a partial sum would mislead."""
    return None if None in counts else sum(count or 0 for count in counts)


class Replicas(Client, Backend):
    """A back-end over several servers of one model.

    `backends` are the connections to them, None for those that are not connected yet: `begin` does
    that, and `connect` by number. `errand` runs a coroutine function somewhere; it may cancel it.

    Attributes:
        copies: The servers.
        broken: Numbers of servers with a connection that broke; who looks after them clears it.
        refused: Numbers of servers that are others than before: their answers are nobody's.
        is_closed: Nothing is asked any more.
    """

    def __init__(
        self,
        model: str,
        backends: Sequence[Backend | None],
        errand: Callable[[Errand], None],
        connect: Callable[[int], Awaitable[Backend | Failure]],
        listener: Listener,
        silent_after_s: float = SILENT_AFTER_S,
    ) -> None:
        self.copies = Copies(len(backends), silent_after_s)
        for copy, backend in zip(self.copies.all, backends, strict=True):
            copy.backend = backend
        self.broken: set[int] = set()
        self.refused: set[int] = set()
        self.is_closed = False
        self._model = model
        self._errand = errand
        self._connect = connect
        self._listener = listener
        # Why the last server that was lost was.
        self._lost = Failure("refused", f"no server of {model} is reachable")
        self._open: set[_Open] = set()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._failures: dict[int, Failure] = {}
        self._has_begun = None not in backends
        self._n_trying = 0
        self._error: OrchestratorError | None = None
        self._launch_error: LaunchError | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- beginning -------------------------------------------------------------------------------

    async def begin(self, n: int | None) -> Failure | None:
        """Connect to all servers, and return as soon as `n` are there.

        It also returns when each has been tried and at least one is there. Those that are missing
        are welcomed later. Without `n`, when each has been tried. Returns why none is there; then
        this is closed.

        Raises:
            LaunchError: If none is there, and one that we launch did not become ready.
            OrchestratorError: Of `connect`: whatever makes it impossible to go on.
        """
        missing = [copy for copy in self.copies.all if not copy.is_there]
        try:
            if n is None:
                async with asyncio.TaskGroup() as group:
                    for copy in missing:
                        group.create_task(self._first(copy))
            else:
                self._n_trying = len(missing)
                for copy in missing:
                    self._errand(partial(self._first, copy))
                while self.copies.n_there < n and self._n_trying and self._error is None:
                    await self.changed()
            self._has_begun = True
            failure = self._failure()
        except BaseException:
            await self.close()
            raise
        if failure is not None:
            await self.close()
            return failure
        self._count()
        for number, one in self._failures.items():
            self._miss(self.copies.all[number], one)
        self._errand(self.watch)
        return None

    def _failure(self) -> Failure | None:
        """The reason why nothing can be asked; None if something can."""
        if self._error is not None:
            raise self._error
        if self.copies.n_there:
            return None
        if self._launch_error is not None:
            raise self._launch_error
        failures = [one for _, one in sorted(self._failures.items())]
        return next((one for one in failures if not one.permanent), failures[0])

    async def _first(self, copy: Copy) -> None:
        with self._cancelled_at_close():
            try:
                found = await self._connect(copy.number)
            except LaunchError as error:
                self._launch_error = self._launch_error or error
                found = Failure("dead_server", str(error))
            except OrchestratorError as error:
                if self._has_begun:
                    raise
                self._error = self._error or error
                found = Failure("dead_server", str(error))
            finally:
                self._n_trying -= 1
                self.change()
            if not isinstance(found, Failure):
                await self._welcome(copy, found)
            elif self._has_begun:
                self._miss(copy, found)
            else:
                self._failures[copy.number] = found

    def _miss(self, copy: Copy, failure: Failure) -> None:
        self._say(copy, f"is unreachable; using the others: {failure.message}")
        if not failure.permanent:
            self._errand(partial(self._bring_back, copy))

    @contextmanager
    def _cancelled_at_close(self) -> Iterator[None]:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("runs outside of a task")
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    # -- asking ----------------------------------------------------------------------------------

    def for_request(self, request: Request) -> Asked:
        """See `orchestrator.backend.Backend`."""
        return ForRequest(self, request)

    async def spell(self, ids: Sequence[int]) -> Mapping[int, bytes] | Failure:
        """See `orchestrator.backend.Backend`."""
        return await self.send(lambda backend: backend.spell(ids))

    async def provenance(self) -> Provenance | Failure:
        """Return that of one of them; they were compared when they were connected."""
        return await self.send(lambda backend: backend.provenance())

    async def load(self) -> ServerLoad | None:
        """Return the sum over those that publish any."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(copy.backend.load())
                for copy in self.copies.all
                if copy.backend is not None
            ]
        known = [load for task in tasks if (load := task.result()) is not None]
        if not known:
            return None
        return ServerLoad(
            running=_total([load.running for load in known]),
            waiting=_total([load.waiting for load in known]),
            n_extra=sum(load.n_extra for load in known),
        )

    async def close(self) -> None:
        """Close all connections; no server is started or sought any more."""
        self.is_closed = True
        self.change()
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        for copy in self.copies.all:
            if copy.backend is not None:
                await copy.backend.close()

    async def send(self, call: Call[T], request: Request | None = None) -> T | Failure:
        """Return the outcome from one of the servers; who can't be reached or fails is passed over.

        Questions that are not the run's have no request.
        """
        tried: Tried = {} if request is None else request.tried
        self.copies.begin(tried)
        found = await self._send(call, request, tried)
        if found is not None:
            return found
        return self.copies.verdict(tried) or self._lost

    async def _send(
        self, call: Call[T], request: Request | None, tried: Tried
    ) -> T | Failure | None:
        """Ask one server after the other; None where all that are there have failed it."""
        owing: list[Copy] = []
        n_broken = 0
        # Only those of a run are requests of its plan.
        is_again, group = bool(tried), None if request is None else request.group
        try:
            while not self.is_closed:
                copy = self.copies.choose(tried, group, self._loop.time())
                backend = None if copy is None else copy.backend
                if copy is None or backend is None:
                    if not any(
                        copy.is_held and copy.is_there and copy.number not in tried
                        for copy in self.copies.all
                    ):
                        return None
                    await self.changed()
                    continue
                if is_again and request is not None:
                    self._listener.asked_again()
                is_again = True
                outcome = await self._ask(copy, backend, call, request, tried)
                if copy.number in self.refused:
                    return Failure("connection", "a different server answers at this address")
                if not isinstance(outcome, Failure):
                    return outcome
                is_lost = outcome.cause in UNREACHED
                # Else another request has noticed.
                if is_lost and copy.backend is backend:
                    self._lost = outcome
                    await self.lose(copy.number, outcome)
                # Or closed under it, because the server was given up meanwhile.
                if is_lost or (outcome.cause == "connection" and copy.backend is not backend):
                    continue
                self.copies.failed(copy, tried, outcome, self._loop.time())
                if outcome.cause == "connection":
                    self.broken.add(copy.number)
                    n_broken += 1
                    if n_broken == _MOST_BROKEN:
                        # The request may break them: it is not sent to further servers at once.
                        return outcome
                    # Its answer comes from elsewhere, and says nothing of who comes back here.
                    self._listener.doubted(self._model)
                copy.n_owed += 1
                owing.append(copy)
            return None
        finally:
            for copy in owing:
                copy.n_owed -= 1

    async def _ask(
        self, copy: Copy, backend: Backend, call: Call[T], request: Request | None, tried: Tried
    ) -> T | Failure:
        """Ask one server; if it is silent, take the answer of another one that is there first."""
        began = self._loop.time()
        one = _Open(copy, call, request, tried)
        self._open.add(one)
        self.copies.sent(copy, began)
        try:
            async with asyncio.timeout(None) as one.until:
                outcome = await answered(call(backend))
                if isinstance(outcome, Failure) and one.elsewhere is not None:
                    await asyncio.wait([one.elsewhere])
        except TimeoutError:
            if one.answer is None:
                raise
            return cast("T", one.answer)
        finally:
            self._open.discard(one)
            self.copies.left(copy)
            if one.elsewhere is not None:
                one.elsewhere.cancel()
        if not isinstance(outcome, Failure):
            self._has_answered(copy, tried, began)
        return outcome

    def _has_answered(self, copy: Copy, tried: Tried, began: float) -> None:
        now, was_suspect = self._loop.time(), copy.is_suspect
        tried.pop(copy.number, None)
        suspects = self.copies.answered(copy, tried, now - began, now)
        if was_suspect:
            self._say(copy, "answers again", logging.INFO)
        for other in suspects:
            self._say(other, f"{_ALONE}: {tried[other.number].message}")
        if suspects or was_suspect:
            self._count()

    def quiet_s(self, number: int) -> float:
        """Return for how long a server has ended none of its requests; 0 while it has none."""
        copy = self.copies.all[number]
        return self._loop.time() - copy.quiet_since if copy.in_flight else 0.0

    # -- servers that are suspect ------------------------------------------------------------------

    def _say(self, copy: Copy, words: str, level: int = logging.WARNING) -> None:
        number, n = copy.number + 1, len(self.copies.all)
        _log.log(level, "%s: server %d of %d %s", self._model, number, n, words)

    async def watch(self) -> None:
        """Look for servers that have gone silent until closed; others are asked what they have."""
        with self._cancelled_at_close():
            while not self.is_closed:
                await asyncio.sleep(_LOOK_S)
                known = [copy for copy in self.copies.all if copy.is_suspect]
                for copy, quiet_s in self.copies.silent(self._loop.time()):
                    failure = Failure("timeout", f"silent for {quiet_s:.0f} s while others answer")
                    if copy not in known:
                        self._say(copy, f"{_ALONE}: {failure.message}")
                        self._count()
                    for one in self._open:
                        if one.copy is copy and copy.number not in one.tried:
                            one.tried[copy.number] = failure
                            self._errand(partial(self._elsewhere, one))

    async def _elsewhere(self, one: "_Open") -> None:
        """Ask other servers what a silent one has; the first answer counts."""
        if one not in self._open or one.until is None:
            return
        one.elsewhere = asyncio.current_task()
        found = await self._send(one.call, one.request, one.tried)
        if found is not None and not isinstance(found, Failure):
            one.answer = found
            one.until.reschedule(self._loop.time())

    def _count(self) -> None:
        """Tell how many are in use: one came or went."""
        self._listener.counted(self._model, self.copies.n_used)

    def change(self) -> None:
        """Wake who waits for a server that comes, goes or is released."""
        self._changed.set()

    async def changed(self) -> None:
        """Wait until a server comes, goes or is released."""
        self._changed.clear()
        await self._changed.wait()

    # -- servers that break, go and come ---------------------------------------------------------

    def hold(self, number: int, on: bool) -> None:  # noqa: FBT001 (on or off)
        """Send a server nothing more, until this is called again; the others go on."""
        self.copies.all[number].is_held = on
        self.change()

    async def refuse(self, number: int) -> None:
        """Take no answer of a server any more: it is another one than before."""
        copy = self.copies.all[number]
        backend, copy.backend = copy.backend, None
        self.refused.add(number)
        self.change()
        if backend is not None:
            await backend.close()

    async def lose(self, number: int, failure: Failure) -> None:
        """Leave a server out until it answers again, for a reason."""
        copy = self.copies.all[number]
        backend, copy.backend = copy.backend, None
        if backend is None:
            return
        _log.warning("%s: server %d is unreachable: %s", self._model, number + 1, failure.message)
        if self.copies.n_there:
            self._count()
            self._errand(partial(self._bring_back, copy))
        self.change()
        await backend.close()

    async def _bring_back(self, copy: Copy) -> None:
        with self._cancelled_at_close():
            wait_s = _FIRST_WAIT_S
            while not self.is_closed and not copy.is_there:
                await asyncio.sleep(wait_s)
                if self.is_closed:
                    return
                try:
                    found = await self._connect(copy.number)
                except LaunchError as error:
                    _log.warning("%s: %s", self._model, error)
                    found = Failure("dead_server", str(error))
                if not isinstance(found, Failure):
                    await self._welcome(copy, found)
                    return
                if found.permanent:
                    _log.warning("%s: %s", self._model, found.message)
                    return
                wait_s = min(2 * wait_s, _MAX_WAIT_S)

    async def _welcome(self, copy: Copy, backend: Backend) -> None:
        if self.is_closed:
            await backend.close()
            return
        self.copies.connected(copy, backend)
        how, there = "%s: server %d answers (%d of %d)", (self.copies.n_there, len(self.copies.all))
        _log.info(how, self._model, copy.number + 1, *there)
        if self._has_begun:
            self._count()
        self.change()


class _Open(msgspec.Struct, eq=False):
    """A request that a server has.

    Attributes:
        copy: The server.
        call: Asks one.
        request: Of the run; None for other questions.
        tried: What servers said to it.
        until: Ends the wait for the server when another one has answered.
        elsewhere: Asks others, where the server is silent.
        answer: Of another one.
    """

    copy: Copy
    call: Callable[[Backend], Awaitable[Any]]
    request: Request | None
    tried: Tried
    until: asyncio.Timeout | None = None
    elsewhere: asyncio.Task[Any] | None = None
    answer: Any = None


class ForRequest(Client):
    """Client for one request of a run."""

    __slots__ = ("_asking", "_request")

    def __init__(self, asking: Replicas, request: Request) -> None:
        self._asking = asking
        self._request = request

    async def send(self, call: Call[T]) -> T | Failure:
        """See `Replicas.send`."""
        return await self._asking.send(call, self._request)
