"""Several clients of one run on this machine: started, watched, and their stores merged.

The parent launches the servers, leases blocks of items to the clients, and revokes a client that is
silent or has died; another one gets its items and reads what it recorded.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import psutil
import yaml

from orchestrator import numbers
from orchestrator.disk.paths import CLIENTS
from orchestrator.errors import (
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    LaunchError,
    OrchestratorError,
    UsageError,
)
from orchestrator.records import Failure
from orchestrator.report.combined import combined
from orchestrator.report.display import Display
from orchestrator.report.progress import Progress
from orchestrator.runner.interface.client import LEASES, RECIPE, SERVERS, Job
from orchestrator.runner.interface.merging import merge_into
from orchestrator.runner.logs import logged
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.results.frames import remember_schemas
from orchestrator.runner.servers.fleet import Fleet
from orchestrator.runner.servers.launched import Keep, Launched
from orchestrator.runner.servers.placement import find_places
from orchestrator.runner.servers.registry import Kept, ServerRegistry
from orchestrator.runner.session import remote_control as control
from orchestrator.runner.session.event_loop import Stop, run_to_end
from orchestrator.runner.session.execute import Ended, Opened, make_fleet, open_plan, unwrapped
from orchestrator.runner.session.leases import Leases
from orchestrator.runner.session.steering import Interrupts
from orchestrator.store import RunDirectory, Store, is_network_fs
from orchestrator.store.clock import wall_ms

_BLOCK: Final = 256
# Small runs are shared too: so many blocks for each client, at least.
_BLOCKS_EACH: Final = 4
_LOOK_S: Final = 0.2
_TELL_S: Final = 1.0
# A client beats each second; one that was silent for so long has died, or hangs.
_SILENT_S: Final = 30.0
# Before its first beat it reads the recipe and the dataset.
_STARTS_S: Final = 1800.0
# Clients that replace others, for each that was asked for.
_REPLACED: Final = 3
_TAIL_BYTES: Final = 4000


def check(prepared: Prepared, n: int, where: Path, on: str) -> None:
    """See that a run can be shared by clients.

    Args:
        prepared: The recipe.
        n: Clients.
        where: The run directory.
        on: Machines that launched servers run on.

    Raises:
        UsageError: If it can't.
    """
    recipe, why = prepared.recipe, ""
    if n < 1:
        why = "at least 1 is needed"
    elif recipe.statistics.stop_when is not None:
        why = "`statistics.stop_when` needs the rows of all items in their order; remove it"
    elif any(value is not None for value in recipe.budget.model_dump().values()):
        why = "a `budget` bounds all clients together, which is not supported; remove it"
    elif is_network_fs(where):
        why = f"{where} is on a network file system, where processes cannot share a store"
    elif recipe.reuse:
        why = "outcomes of other runs are not copied by several clients; remove `reuse`"
    elif on != "local":
        why = f"servers are launched on this machine only, not with --on {on}"
    elif find_places(prepared).turns() is not None:
        why = "its servers do not fit on this machine together"
    else:
        for name in prepared.identities:
            spec = prepared.models[name]
            most = spec.max_in_flight * (len(spec.base_urls) or 1)
            if not spec.is_adaptive and most < n:
                why = (
                    f"model {name!r} takes {numbers.counted(most, 'request')} at a time, and each "
                    "client needs one; raise `limits.max_in_flight`"
                )
    if why:
        raise UsageError(f"--clients {n}: {why}, or use --clients 1")


def merge_left(directory: RunDirectory) -> None:
    """Merge what clients of an earlier call left, if it was cut off.

    Raises:
        StoreError: If it is damaged.
    """
    folder = directory.path / CLIENTS
    if folder.exists():
        _merge(directory, folder)


def share(
    prepared: Prepared, directory: RunDirectory, shown: Display, n: int, *, accept: bool, stop: Stop
) -> Ended | None:
    """Evaluate the units of a run by several clients; None where there is nothing to do.

    Args:
        prepared: The recipe.
        directory: Held for writing.
        shown: Display of the progress.
        n: Clients.
        accept: Continue even if the server has changed.
        stop: Asked from another thread to stop the run.

    Raises:
        OrchestratorError: If the run can't continue.
    """
    folder = directory.path / CLIENTS
    with (
        logged(directory.log_path, shown),
        Store.open(directory.store_path, check_owned=directory.check_owned) as store,
    ):
        opened = open_plan(prepared, directory, store)
        remember_schemas(prepared.plan, store)
        if not opened.done.count(0):
            return None
        folder.mkdir(mode=0o700)
        blocks = list(_blocks(opened.done, prepared.plan.n_per_item, n))
        leases = Leases.create(folder / LEASES, blocks)
        store.flush()
        shown.start(f"{prepared.recipe.name} → {directory.path}", len(prepared.plan))
        try:
            ended = run_to_end(
                lambda asked: _supervise(
                    _Clients(prepared, opened, directory, store, leases, shown),
                    min(n, len(blocks)), accept=accept, stop=asked,
                ),
                stop,
            )  # fmt: skip
        finally:
            shown.stop()
    _merge(directory, folder)
    return ended


def _merge(directory: RunDirectory, folder: Path) -> None:
    found = [path for path in folder.iterdir() if path.name.isdecimal()]
    # One that was killed while it made its store has nothing.
    runs = [path for path in sorted(found, key=lambda path: int(path.name)) if _has_store(path)]
    if runs:
        merge_into(directory, runs, accept_change=True)
    shutil.rmtree(folder)


def _has_store(run: Path) -> bool:
    path = RunDirectory(run).store_path
    return (run / "run.json").exists() and path.exists() and path.stat().st_size > 0


def _blocks(done: bytearray, n_per_item: int, n: int) -> Iterator[tuple[int, int]]:
    """Neighbouring items that have something to do, in blocks."""
    n_items = len(done) // n_per_item
    size = max(1, min(_BLOCK, n_items // (_BLOCKS_EACH * n)))
    for first in range(0, n_items, size):
        last = min(n_items, first + size)
        if done.find(b"\0", first * n_per_item, last * n_per_item) >= 0:
            yield first, last


class _Clients:
    """The clients of a call."""

    def __init__(
        self,
        prepared: Prepared,
        opened: Opened,
        directory: RunDirectory,
        store: Store,
        leases: Leases,
        shown: Display,
    ) -> None:
        self.prepared = prepared
        self.opened = opened
        self.directory = directory
        self.store = store
        self.leases = leases
        self.stopping = ""
        self.folder = directory.path / CLIENTS
        self.n = 0
        self._shown = shown
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._seen: dict[int, tuple[int, float]] = {}
        self._n_started = 0
        self._told_at = 0.0
        self._began = time.monotonic()
        self._error: OrchestratorError | None = None

    def write_job(self, fleet: Fleet, *, accept: bool) -> None:
        """Write down what the clients do."""
        text = yaml.safe_dump(self.prepared.recipe.resolved(), sort_keys=False)
        (self.folder / RECIPE).write_text(text, encoding="utf-8")
        places = find_places(self.prepared).places
        job = Job(
            run_dir=str(self.directory.path.absolute()),
            plan=self.prepared.plan.hash().hex(),
            parent=os.getpid(),
            allow_code=self.prepared.allow_code,
            accept_change=accept,
            n_servers={one.models[0].name: 0 for one in fleet.launched},
            apart=sorted(places.apart),
        )
        for one in fleet.launched:
            job.n_servers[one.models[0].name] += 1
        (self.folder / "job.json").write_bytes(msgspec.json.encode(job))

    def start(self) -> None:
        """Start one more client."""
        self._n_started += 1
        number = self._n_started
        self.leases.add(number)
        self._seen[number] = (0, time.monotonic())
        module = "orchestrator.runner.interface.client"
        command = [sys.executable, "-m", module, str(self.folder / "job.json"), str(number)]
        with (self.folder / f"{number}.err").open("wb") as errors:
            # A session of its own: the terminal's Ctrl-C comes once, from here.
            self._running[number] = subprocess.Popen(  # noqa: S603 (this program)
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def stop(self, why: str) -> None:
        """Have all clients stop sending; what is in flight is still recorded."""
        if not self.stopping:
            self.stopping = why
        for process in self._running.values():
            process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End all clients at once."""
        for process in self._running.values():
            process.kill()
            process.wait()
        self._running.clear()

    async def run(self) -> None:
        """Until all items are done, or it is stopped.

        Raises:
            OrchestratorError: If a client can't continue.
        """
        for _ in range(self.n):
            self.start()
        while self._running:
            self._look()
            if time.monotonic() - self._told_at >= _TELL_S:
                self.tell()
            await asyncio.sleep(_LOOK_S)
        if self._error is not None:
            raise self._error

    def _look(self) -> None:
        """Take items from clients that died or are silent, and give them to others."""
        beats, now = self.leases.beats(), time.monotonic()
        for number, process in list(self._running.items()):
            code = process.poll()
            n_beats = beats.get(number, 0)
            if self._seen[number][0] != n_beats:
                self._seen[number] = (n_beats, now)
            is_silent = now - self._seen[number][1] > (_SILENT_S if n_beats else _STARTS_S)
            if code is None and not is_silent:
                continue
            self.leases.revoke(number)
            if code is None:
                process.kill()
                process.wait()
            del self._running[number]
            self._ended(number, code)
        while (
            not self.stopping
            and len(self._running) < self.n
            and self.leases.n_free
            and self._n_started < (1 + _REPLACED) * self.n
        ):
            self.start()

    def _ended(self, number: int, code: int | None) -> None:
        if code is None or code < 0:
            how = "was silent for too long" if code is None else f"was ended by signal {-code}"
            self._shown.note(f"client {number} {how}: its items go to others")
        elif code not in {0, EXIT_INTERRUPTED} and self._error is None:
            text = (self.folder / f"{number}.err").read_bytes()[-_TAIL_BYTES:]
            said = text.decode("utf-8", "replace").strip() or f"client {number} ended with {code}"
            self._error = (UsageError if code == EXIT_USAGE else OrchestratorError)(said)
            self.stop("a client failed")

    # -- progress ----------------------------------------------------------------------------------

    def tell(self) -> Progress:
        """Bring displays and status.json up to date."""
        self._told_at = time.monotonic()
        progress = self._progress()
        self._shown.update(progress)
        self.directory.write_status(
            msgspec.to_builtins(progress), last_outcome=self.store.last_outcome
        )
        return progress

    def _progress(self) -> Progress:
        found = []
        for number in range(1, self._n_started + 1):
            status = RunDirectory(self.folder / str(number)).read_status()
            try:
                if status is not None:
                    found.append(msgspec.convert(status.values, Progress))
            except msgspec.ValidationError:
                continue
        return combined(
            found,
            run_dir=str(self.directory.path),
            elapsed_s=time.monotonic() - self._began,
            units_total=len(self.prepared.plan),
            units_stored=self.opened.done.count(1),
            stopping=self.stopping,
        )


# -- servers -----------------------------------------------------------------------------------


async def _supervise(clients: _Clients, n: int, *, accept: bool, stop: Stop) -> Ended:
    """Launch the servers, and then run clients until all is done."""
    prepared, directory = clients.prepared, clients.directory
    registry = ServerRegistry(clients.folder / SERVERS)
    registry.prepare()
    keep = Keep(registry, prepared.plan.identities, wanted=False, among_clients=True)
    fleet = make_fleet(
        prepared, directory, clients.store, find_places(prepared).places, keep, accept_change=accept
    )
    fleet.warn_of_missing_keys()
    interrupts = Interrupts(clients, stop)
    with interrupts.handled():
        try:
            await _connect(fleet, prepared)
            clients.store.flush()
            clients.n = n
            clients.write_job(fleet, accept=accept)
            shelved: dict[Launched, Kept] = {}
            _publish(fleet, registry, shelved)
            async with asyncio.TaskGroup() as group:
                watch = _watch(clients, fleet, registry, shelved, interrupts)
                watching = group.create_task(watch)
                interrupts.task = group.create_task(clients.run())
                await interrupts.wait()
                watching.cancel()
        except BaseExceptionGroup as errors:
            raise unwrapped(errors) from None
        finally:
            clients.kill()
            await fleet.stop()
    return Ended(clients.tell(), clients.stopping, interrupts.count > 0)


async def _connect(fleet: Fleet, prepared: Prepared) -> None:
    """Start all servers and probe each, so that no client has to.

    Raises:
        OrchestratorError: If one does not become ready, or is another one than before.
    """
    names = [name for name in prepared.identities if name not in prepared.plan.given]

    async def connect(name: str) -> None:
        # One that is out of reach is left to the clients.
        found = await fleet.connect(name)
        if not isinstance(found, Failure):
            await found.close()

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(connect(name))


def _publish(fleet: Fleet, registry: ServerRegistry, shelved: dict[Launched, Kept]) -> None:
    """Let clients find the servers that run."""
    for one in fleet.launched:
        server, before = one.server, shelved.get(one)
        if server is None or one.keeping is None or server.exit_code() is not None:
            continue
        if before is not None and before.pid == server.pid:
            continue
        if before is not None:
            registry.forget(before)
        try:
            started = psutil.Process(server.pid).create_time()
        except psutil.Error:
            continue
        kept = Kept(
            name=f"{one.name}-{server.pid}", key=one.keeping.key, kind=one.kind,
            models=one.keeping.models, base_url=server.base_url, pid=server.pid,
            watchdog=server.pid, started=started, host=socket.gethostname(),
            log=str(server.log_path.absolute()), kept_ms=wall_ms(),
        )  # fmt: skip
        registry.put(kept, server.api_key)
        shelved[one] = kept


async def _watch(
    clients: _Clients,
    fleet: Fleet,
    registry: ServerRegistry,
    shelved: dict[Launched, Kept],
    interrupts: Interrupts,
) -> None:
    """Start servers again that ended, and carry out what other terminals say."""

    def carry_out(command: control.Command) -> control.Answer:
        if command.action != "stop":
            said = f"{command.action} is not supported with --clients; use stop"
            return control.Answer(said, refused=True)
        interrupts.once("stopped by a command")
        return control.Answer("stopping; resume with the same command")

    inbox = control.CommandInbox(clients.directory.control, carry_out)
    inbox.open()
    while True:
        await asyncio.sleep(control.LOOK_S)
        inbox.look()
        interrupts.look()
        for one in fleet.launched:
            if one.server is not None and one.server.exit_code() is not None:
                # One that is given up is a failure: the clients end when it does not come back.
                with suppress(LaunchError):
                    await one.running()
        _publish(fleet, registry, shelved)
