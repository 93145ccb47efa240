"""Servers that a run launches: started when first asked for, started again after a crash, ended.

A server that ends in mid-run is the server's fault, not that of the requests it had: they wait for
the next one. A server that ends again and again, or that does not come up again, is given up; one
that has answered nothing in this call is given up when it fails a second time for the same reason.
Then its models are dead for this call, and others go on.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from orchestrator import __version__
from orchestrator.ask import digest
from orchestrator.errors import LaunchError, NodeLostError, SchedulerError
from orchestrator.placement import Share
from orchestrator.recipe.schema import ModelSpec
from orchestrator.records import Failure
from orchestrator.runner.models.identity import launch_of
from orchestrator.runner.servers.health import (
    OUT_OF_REACH,
    SILENT,
    TOLD_TO_END,
    End,
    Restarts,
    end_of,
    start_failed,
)
from orchestrator.runner.servers.machine import wait_until_given_back
from orchestrator.runner.servers.registry import Keeping, KeptServer, ServerRegistry
from orchestrator.runner.servers.replicas import Listener
from orchestrator.serving import Carried, Carrier, LaunchKind, RunningServer, ServedModel

# A server on another machine that has accepted no connection for so long is started elsewhere.
_LOST_S: Final = 5.0
_CONNECT_S: Final = 2.0
# Between two questions to a cluster's scheduler that gave no answer.
_SILENT_S: Final = 5.0

_log = logging.getLogger(__name__)


CarrierOf = Callable[[tuple[str, ...]], Carrier]
"""Gives what brings a new server of these models to another machine."""


class PlacedServer(msgspec.Struct, frozen=True):
    """A server of a wave.

    Attributes:
        name: Of the server.
        models: That it serves.
        shares: Where its processes run.
        wanted: Processes that the recipe asks for.
    """

    name: str
    models: tuple[str, ...]
    shares: tuple[Share, ...]
    wanted: int = 1


class Launched:
    """One server process of a run, and what comes after it if it crashes.

    Attributes:
        models: That it serves.
        server: The process; None while there is none.
        keeping: How it is found again and kept; None where it is not.
        listener: Told when it is ready, or when its machine is out of reach.
        node: Name of the machine of a cluster that it is planned on, or of several with commas
            between them; empty for any.
        may_start: Set unless others have its room.
        no_room: Why no node that is left has room for it: it is given up if its next start fails.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        launch: LaunchKind,
        log_path: Path,
        restarts: Restarts | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.launch = launch
        self.models: tuple[ServedModel, ...] = ()
        self.server: RunningServer | None = None
        self.keeping: Keeping | None = None
        self.node = ""
        self._log_path = log_path
        self._restarts = restarts or Restarts()
        self._lock = asyncio.Lock()
        self._n_crashes = 0
        self._started_at = 0.0
        self._given_up: Failure | None = None
        self._lost_at: float | None = None
        self._last_end: End | None = None
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.no_room = ""
        self._is_silent = False
        self.listener = Listener()

    async def running(self) -> RunningServer | Failure:
        """The server; it is started if need be.

        Returns a failure once it is given up.

        Raises:
            LaunchError: If it does not become ready although it never was: most often the recipe or
                the machine is wrong. The next call tries once more.
        """
        async with self._lock:
            if self._given_up is not None:
                return self._given_up
            if self.keeping is not None and self.keeping.shelf.mode == "shared":
                self.server = await self.keeping.wait()
                return self.server
            if self.server is None and self._last_end is None:
                self.server = self._kept()
                if self.server is None:
                    try:
                        await self._start()
                    except LaunchError as error:
                        self._last_end = start_failed(error)
                        if self.no_room:
                            said = f"{self._last_end.said}; {self.no_room}"
                            raise LaunchError(said) from error
                        raise
            if (lost := await self._lost()) is not None:
                # What stands for it here may not know for minutes: Slurm asks its nodes rarely.
                await asyncio.to_thread(lost.kill)
            while self.server is None or self.server.exit_code() is not None:
                failure = await self._start_again()
                if failure is not None:
                    self._given_up = failure
                    return failure
            return self.server

    def move(self, share: Share, lost: str) -> None:
        """Plan it on another node of a cluster, or on none: then it is not started again.

        `lost` is the node that is out of reach.
        """
        self.node = share.node
        if not share.node:
            why = f"node {lost} is out of reach, and no other has room for the server {self.name!r}"
            self._given_up = Failure("dead_server", why, permanent=True)

    async def end(self) -> None:
        """End the server although it runs, as it hangs; who asks for it next starts it again."""
        async with self._lock:
            server = self.server
            is_shared = isinstance(server, KeptServer) and server.kept.job
            if server is not None and not is_shared and server.exit_code() is None:
                self._is_silent = True
                said = end_of(self.name, SILENT).said
                _log.warning("%s", said, extra={"log": str(self._log_path)})
                if self.keeping is not None:
                    await self.keeping.end(server)
                await server.stop()

    async def _lost(self) -> Carried | None:
        """Return the server if it is on another machine and has been out of reach for a while.

        This is asked while there is no connection to it.
        """
        server = self.server
        if server is None or not isinstance(server, Carried) or not server.node:
            return None
        if server.exit_code() is not None:
            return None
        if await _accepts_connections(server.base_url):
            self._lost_at = None
            return None
        now = asyncio.get_running_loop().time()
        if self._lost_at is None:
            self._lost_at = now
        return server if now - self._lost_at >= _LOST_S else None

    def known_by(
        self, shelf: ServerRegistry, identities: Mapping[str, bytes], number: int
    ) -> Keeping:
        """Return the record for finding it again: a hash of everything it was started with.

        `number` counts the servers of its models from 1.
        """
        names = tuple(model.name for model in self.models)
        served = [(name, identities[name]) for name in sorted(names)]
        settings = self.launch.config.model_dump_json()
        key = digest(__version__, self.kind, settings, served, number).hex()
        return Keeping(shelf, key, self.kind, names)

    def _kept(self) -> RunningServer | None:
        if self.keeping is None:
            return None
        found = self.keeping.shelf.find(self.keeping.key)
        if found is not None:
            self._started_at = asyncio.get_running_loop().time()
            _log.info(
                "using server %s, kept by an earlier run", self.name, extra={"pid": found.pid}
            )
        return found

    async def _start(self) -> None:
        while True:
            try:
                await self.may_start.wait()
                _log.info("starting server %s", self.name, extra={"log": str(self._log_path)})
                if self.launch.carrier is not None:
                    self.launch.carrier.prefer = self.node
                server = await self.launch.start(self.models, self._log_path)
            except NodeLostError as error:
                carrier = self.launch.carrier
                self._avoid(error.node, is_lost=True)
                if carrier is None or error.node not in carrier.lost:
                    raise
                if self._given_up is not None:
                    raise LaunchError(self._given_up.message) from error
                _log.warning("%s", error)
            else:
                self.server = server
                self._started_at = asyncio.get_running_loop().time()
                _log.info("server %s is ready", self.name, extra={"pid": server.pid})
                for model in self.models:
                    self.listener.restarted(model.name)
                return

    async def _start_again(self) -> Failure | None:
        """Start once more; return a failure where there were enough starts."""
        if self.server is not None:
            # See to it that nothing of the server that ended is left.
            server, self.server = self.server, None
            is_lost, self._lost_at = self._lost_at is not None, None
            code = None if isinstance(server, KeptServer) else server.exit_code()
            if asyncio.get_running_loop().time() - self._started_at >= self._restarts.steady_s:
                self._n_crashes, self._last_end = 0, None
            await server.stop()
            was_told = isinstance(server, Carried) and server.was_told
            if isinstance(server, Carried) and not was_told:
                is_lost = is_lost or server.was_lost
                self._avoid(server.node, is_lost=is_lost)
            if self._given_up is not None:
                return self._given_up
            await wait_until_given_back()
            if was_told:
                # No fault of its own, so it counts as no crash.
                self._last_end = end_of(self.name, TOLD_TO_END)
            else:
                was_silent, self._is_silent = self._is_silent, False
                how = SILENT if was_silent else OUT_OF_REACH if is_lost else code
                error = "" if was_silent or is_lost else server.first_error()
                given_up = self._count(end_of(self.name, how, error))
                if given_up is not None:
                    return given_up
        elif self._last_end is not None and not self._n_crashes:
            self._n_crashes = 1  # its first start failed
        wait_s = self._restarts.wait_s(self._n_crashes) or 0.0
        said = self._last_end.said if self._last_end is not None else ""
        how = "%s; restarting in %.1f s (restart %d of at most %d)"
        counts, log = (self._n_crashes, self._restarts.at_most), {"log": str(self._log_path)}
        _log.warning(how, said, wait_s, *counts, extra=log)
        await asyncio.sleep(wait_s)
        try:
            await self._start()
        except SchedulerError as error:
            # A scheduler that does not answer says nothing about the server.
            _log.warning("%s; asking again in %g s", error, _SILENT_S)
            await asyncio.sleep(_SILENT_S)
        except LaunchError as error:
            end = start_failed(error)
            if self._given_up is not None:
                return self._given_up
            if self.no_room:
                return Failure("dead_server", f"{end.said}; {self.no_room}", permanent=True)
            return self._count(end)
        return None

    def _avoid(self, node: str, *, is_lost: bool) -> None:
        """Start it on another machine next: this one may be what ended it."""
        if self.launch.carrier is None:
            return
        self.launch.carrier.avoid = node
        if is_lost:
            self.listener.lost(node)
            if node in self.node.split(","):
                self.node = ""

    def _count(self, end: End) -> Failure | None:
        """Count a failure more; a `Failure` where it was the last."""
        before = self._last_end
        has_answered = any(self.listener.has_answered(model.name) for model in self.models)
        repeats = before is not None and before.cause == end.cause and not has_answered
        self._last_end = end
        self._n_crashes += 1
        if not repeats and self._restarts.wait_s(self._n_crashes) is not None:
            return None
        why = (
            "twice for the same reason without answering any request"
            if repeats
            else f"{self._n_crashes} times"
        )
        return Failure(
            "dead_server", f"{end.said}. It failed {why}; see {self._log_path}", permanent=True
        )

    async def rest(self) -> None:
        """End it until it is needed again, kept or not: others need its room."""
        async with self._lock:
            if self.server is not None and self.keeping is not None:
                await self.keeping.end(self.server)
            await self._end()
            await wait_until_given_back()
            self.server = None
            self._n_crashes, self._last_end = 0, None

    async def stop(self) -> None:
        """End it, unless it is to be kept; it is not started again."""
        server = self.server
        if server is not None and self.keeping is not None and self.keeping.keep(server):
            _log.info("keeping server %s", self.name, extra={"pid": server.pid})
        else:
            await self._end()

    async def _end(self) -> None:
        if self.server is not None:
            _log.info("stopping server %s", self.name, extra={"pid": self.server.pid})
            await self.server.stop()


async def _accepts_connections(base_url: str) -> bool:
    parts = urlsplit(base_url)
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def grouped(
    specs: Sequence[ModelSpec], *, apart: Collection[str] = (), allow_code: bool
) -> list[tuple[str, ...]]:
    """Names of the models of each server; several where a kind can and their settings are equal.

    Models that are `apart` have a server of their own all the same.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for spec in specs:
        if spec.server is None:
            continue
        key: tuple[str, ...] = (spec.server.kind, spec.server.config.model_dump_json())
        if spec.name in apart or not launch_of(spec, allow_code=allow_code).multi_model:
            key = (*key, spec.name)
        found.setdefault(key, []).append(spec.name)
    return [tuple(names) for names in found.values()]


def launched_servers(
    specs: Sequence[ModelSpec],
    log_of: Callable[[str], Path],
    *,
    placed: Sequence[PlacedServer] = (),
    carrier_of: CarrierOf | None = None,
    allow_code: bool,
) -> Mapping[str, tuple[Launched, ...]]:
    """The servers of each model that is launched; several where it has replicas.

    Without `carrier_of` they stay on this machine.
    """
    by_name = {spec.name: spec for spec in specs}
    found: dict[str, tuple[Launched, ...]] = {}
    for one in placed:
        names = one.models
        served = tuple(ServedModel(name, by_name[name].weights or "") for name in names)
        copies = []
        for number, share in enumerate(one.shares, 1):
            name = names[0] if number == 1 else f"{names[0]}.{number}"
            spec = by_name[names[0]]
            launch = launch_of(spec, allow_code=allow_code)
            if share.gpus:
                launch = launch.placed(share.gpus, share.fraction)
            launch.carrier = None if carrier_of is None else carrier_of(names)
            kind = "" if spec.server is None else spec.server.kind
            server = Launched(name, kind, launch, log_of(name))
            server.models, server.node = served, share.node
            copies.append(server)
        found.update(dict.fromkeys(names, tuple(copies)))
    return found
