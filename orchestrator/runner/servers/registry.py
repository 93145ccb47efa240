"""Servers that are kept between runs: remembered in files, found again, ended by command.

A folder of the user's own (0700) holds a file for each, and its key in another (0600). A server is
found by what it serves and how: kind, settings, identities of its models, version of this program.
Those of a cluster are kept by a job, which writes their files anew every few seconds.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec
import psutil

from orchestrator.disk import files
from orchestrator.errors import UsageError
from orchestrator.serving import Keepable, RunningServer
from orchestrator.store.owner import Owner

FOLDER_VARIABLE: Final = "ORCHESTRATOR_STATE"
# A server is given as long as its watchdog gives it, and then no more.
_STOP_S: Final = 30.0
_GONE: Final = 1
_OWNER_ONLY: Final = 0o600
# A server of a cluster of which nothing was written for so long has ended with the job that keeps
# it. Clocks of nodes may differ by less.
_LAST_SAID_S: Final = 120.0
_WAIT_S: Final = 2.0
# Between two looks whether a server has ended that another program keeps.
_LOOK_S: Final = 0.2


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A server that outlives runs.

    Attributes:
        name: The model it is named after, and the process id of its watchdog.
        key: What it serves and how, as a digest.
        kind: Launch kind.
        models: Names that it answers to.
        base_url: Where it is reached.
        pid: Of the server.
        watchdog: Process that ends it on SIGTERM.
        started: When the watchdog started, seconds since 1970.
        host: Machine that it runs on.
        log: Its log file.
        job: Of Slurm, or `ray`, that keeps it on a cluster; then `watchdog` and `host` are those of
            the program in it, and `started` is when it last said so. Empty for no cluster.
    """

    name: str
    key: str
    kind: str
    models: tuple[str, ...]
    base_url: str
    pid: int
    watchdog: int
    started: float
    host: str
    log: str
    job: str = ""

    @property
    def keeper(self) -> Owner:
        """The process `watchdog`; homes may be shared, and its number be another's by now."""
        return Owner(self.host, self.watchdog, self.started)

    @property
    def is_alive(self) -> bool:
        """True if it runs, on this machine or on a cluster."""
        if self.job:
            now = datetime.now(UTC).timestamp()
            return now - self.started < _LAST_SAID_S
        return self.keeper.is_alive


class KeptServer:
    """A kept server that a run found again; a `RunningServer` that the run does not end."""

    def __init__(self, kept: Kept, api_key: str) -> None:
        self.kept = kept
        self.base_url = kept.base_url
        self.api_key = api_key
        self.pid = kept.pid
        self.log_path = Path(kept.log)

    def __repr__(self) -> str:
        return f"KeptServer({self.base_url!r}, pid={self.pid})"

    def exit_code(self) -> int | None:
        """None while it runs; with which code it ended is not known.

        One of a cluster is looked for anew each time that it is needed.
        """
        return None if self.kept.job or self.kept.is_alive else _GONE

    def first_error(self) -> str:
        """Empty: what of its log is of this run is not known."""
        return ""

    async def stop(self) -> None:
        """Nothing: it is kept."""


class ServerRegistry:
    """The folder of kept servers.

    It is made when something is put there; the user's own where None.

    Attributes:
        mode: The servers of a run are `ended` or `kept` when it ends, or they are those `shared` on
            a cluster, which `servers start` keeps, and none is started.
    """

    def __init__(
        self, folder: Path | None = None, mode: Literal["ended", "kept", "shared"] = "ended"
    ) -> None:
        self._folder = folder or state_folder()
        self.mode = mode

    def find(self, key: str, *, shared: bool = False) -> KeptServer | None:
        """A server of this key that runs, here or shared on a cluster: that last heard of."""
        for kept in sorted(self.all(), key=lambda kept: kept.started, reverse=True):
            if kept.key == key and bool(kept.job) == shared and kept.is_alive:
                with contextlib.suppress(OSError):
                    return KeptServer(kept, self._file(kept, "key").read_text(encoding="ascii"))
        return None

    def all(self) -> Iterator[Kept]:
        """Every server that is remembered, by name; those that ended here are forgotten."""
        if not self._folder.is_dir():
            return
        self._check()
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                kept = msgspec.json.decode(path.read_bytes(), type=Kept)
                if (kept.keeper.is_here or kept.job) and not kept.is_alive:
                    self.forget(kept)
                    continue
                yield kept

    def prepare(self) -> None:
        """Make the folder.

        Raises:
            UsageError: If others could read it.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check()

    def put(self, kept: Kept, api_key: str) -> None:
        """Remember a server.

        Raises:
            UsageError: If others could read the folder.
        """
        self.prepare()
        files.write(self._file(kept, "key"), api_key.encode("ascii"), mode=_OWNER_ONLY)
        files.write(self._file(kept, "json"), msgspec.json.encode(kept), mode=_OWNER_ONLY)

    def forget(self, kept: Kept) -> None:
        """Remember a server no longer."""
        self._file(kept, "json").unlink(missing_ok=True)
        self._file(kept, "key").unlink(missing_ok=True)

    def stop(self, kept: Kept) -> None:
        """End a server and all its children, and forget it.

        Raises:
            UsageError: If it runs on another machine, or the program that keeps it on a cluster
                does not end it.
        """
        if kept.job:
            self._tell(kept)
            return
        if not kept.keeper.is_here:
            raise UsageError(f"{kept.name} runs on {kept.host}; stop it there")
        if kept.is_alive:
            with contextlib.suppress(psutil.Error):
                watchdog = psutil.Process(kept.watchdog)
                watchdog.send_signal(signal.SIGTERM)
                with contextlib.suppress(psutil.TimeoutExpired):
                    watchdog.wait(_STOP_S)
                # The kernel ends the server with its watchdog.
                watchdog.kill()
                watchdog.wait(_STOP_S)
        self.forget(kept)

    def _tell(self, kept: Kept) -> None:
        """Have the program that keeps a server, on whichever machine, end all that it keeps."""
        if not self._file(kept, "json").exists():
            return  # with another that the same program kept
        mark, until = self._file(kept, "stop"), time.monotonic() + 2 * _STOP_S
        files.write(mark, str(kept.watchdog).encode(), mode=_OWNER_ONLY)
        while mark.exists():
            if time.monotonic() > until:
                mark.unlink(missing_ok=True)
                said = f"{kept.keeper} has not ended it; stop that one (Ctrl-C)"
                raise UsageError(f"{kept.name}: {said}")
            time.sleep(_LOOK_S)

    def interrupted(self, kept: Kept) -> bool:
        """Return True if this program, which keeps a server, is to end."""
        with contextlib.suppress(OSError):
            return self._file(kept, "stop").read_text(encoding="ascii") == str(os.getpid())
        return False

    def stopped(self, kept: Kept) -> None:
        """Tell who had a server stopped that it has ended."""
        self._file(kept, "stop").unlink(missing_ok=True)

    def _check(self) -> None:
        found = self._folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise UsageError(
                f"{self._folder} must be accessible only to you (chmod 700); it holds the keys "
                "of servers"
            )

    def _file(self, kept: Kept, suffix: str) -> Path:
        return self._folder / f"{kept.name}.{suffix}"


def state_folder() -> Path:
    """Return the folder with the records of this user's kept servers."""
    own = os.environ.get(FOLDER_VARIABLE)
    if own:
        return Path(own) / "servers"
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "orchestrator" / "servers"


_log = logging.getLogger(__name__)


class Keeping(msgspec.Struct):
    """The record by which one server is found again and kept.

    Attributes:
        shelf: Where it is remembered.
        key: What it serves and how.
        kind: Of the launch module.
        models: Names that it answers to.
    """

    shelf: ServerRegistry
    key: str
    kind: str
    models: tuple[str, ...]

    async def wait(self) -> KeptServer:
        """The server that is kept on a cluster, once it is there."""
        has_said = False
        while (found := self.shelf.find(self.key, shared=True)) is None:
            if not has_said:
                said = "waiting for the server of %s: `orchestrator servers start` starts it"
                _log.warning(said, ", ".join(self.models))
            has_said = True
            await asyncio.sleep(_WAIT_S)
        return found

    def share(self, server: RunningServer, name: str, job: str) -> bool:
        """Say that a server runs on a cluster, kept there by this program in this job.

        Returns:
            True if `servers stop` wants this program to end its servers.
        """
        now = datetime.now(UTC).timestamp()
        kept = self._record(server, f"{name}-{job}", os.getpid(), now)
        kept = msgspec.structs.replace(kept, job=job)
        self.shelf.put(kept, server.api_key)
        return self.shelf.interrupted(kept)

    def _record(self, server: RunningServer, name: str, watchdog: int, started: float) -> Kept:
        return Kept(
            name=name,
            key=self.key,
            kind=self.kind,
            models=self.models,
            base_url=server.base_url,
            pid=server.pid,
            watchdog=watchdog,
            started=started,
            host=socket.gethostname(),
            log=str(server.log_path.absolute()),
        )

    def keep(self, server: RunningServer) -> bool:
        """Keep a server when the run ends; return False if it ends with the run."""
        if isinstance(server, KeptServer):
            return server.exit_code() is None
        if self.shelf.mode != "kept" or not isinstance(server, Keepable):
            return False
        if server.exit_code() is not None:
            return False
        watchdog = server.keep()
        try:
            started = psutil.Process(watchdog).create_time()
        except psutil.Error:
            return False
        kept = self._record(server, f"{self.models[0]}-{watchdog}", watchdog, started)
        try:
            self.shelf.put(kept, server.api_key)
        except OSError as error:
            # What nobody would find again must not stay.
            _log.warning("cannot keep the server %r: %s", kept.name, error)
            self.shelf.stop(kept)
        return True

    async def end(self, server: RunningServer) -> None:
        """End a server although it is kept, unless others ask it too."""
        if isinstance(server, KeptServer) and not server.kept.job:
            await asyncio.to_thread(self.shelf.stop, server.kept)
