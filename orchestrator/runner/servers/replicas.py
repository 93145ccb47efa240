"""Several servers of one model, spoken to as one.

Asking begins when some are ready, and the others are welcomed when they are. A server that can't be
reached is left out, its requests go to the others at once, and it is asked for again from time to
time. Only when none is left the model counts as out of reach. Which of them is asked, and which is
suspect because it alone fails or is silent, stands in `orchestrator.scheduler.copies`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from orchestrator.ask import Request
from orchestrator.backend import Asked, Backend, Provenance, ServerLoad, spell
from orchestrator.errors import LaunchError, OrchestratorError
from orchestrator.records import Failure
from orchestrator.runner.event_loop import Errand
from orchestrator.runner.servers.failover import Failover, ForRequest, Listener
from orchestrator.scheduler.copies import SILENT_AFTER_S, Copy

_FIRST_WAIT_S: Final = 0.5
_MAX_WAIT_S: Final = 30.0

_log = logging.getLogger(__name__)


def _total(counts: Sequence[int | None]) -> int | None:
    """The sum; None if any server does not report, since a partial sum would mislead."""
    return None if None in counts else sum(count or 0 for count in counts)


class Replicas(Failover):
    """A back-end over several servers of one model.

    Back-ends that are not connected yet are connected by `begin`, and `connect` does so by number.
    The rest is as of `Failover`.
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
        super().__init__(model, backends, errand, listener, silent_after_s)
        self._connect = connect
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
        """See `orchestrator.backend.SharesOut`."""
        return ForRequest(self, request)

    async def spell(self, ids: Sequence[int]) -> Mapping[int, bytes] | Failure:
        """See `orchestrator.backend.SpellsTokens`."""
        return await self.send(lambda backend: spell(backend, ids))

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
        """See `Failover.lose`."""
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

    async def watch(self) -> None:
        """See `Failover.watch`."""
        with self._cancelled_at_close():
            await super().watch()

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
        self.copies.come(copy, backend)
        _log.info(
            "%s: server %d answers (%d of %d)",
            self._model,
            copy.number + 1,
            self.copies.n_there,
            len(self.copies.all),
        )
        if self._has_begun:
            self._count()
        self.change()
