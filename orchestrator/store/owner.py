"""The writer of a run, and the locks that keep it to one.

On a local disk that is `flock`, which the kernel drops with the process, whatever ends it. On a
network file system it is a file that its owner touches every few seconds: another machine can't
ask whether a process lives. An owner that was silent for long, because it was suspended or cut off
from the file server, may have lost the run when it continues. So it looks at its file before
each write, and writes nothing more once the file is another's.
"""

import contextlib
import fcntl
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import psutil

from orchestrator.disk import files
from orchestrator.errors import RunDirectoryError, RunInUseError, StoreError

_HEARTBEAT_S: Final = 10.0
# An owner on another machine that did not touch its file for so long is gone, seconds.
_STALE_S: Final = 120.0
# Start times are read from the clock of the machine, which may be set between two readings.
_START_TOLERANCE_S: Final = 2.0
# A file that is missing may be on its way back: who takes over a stale one by mistake returns it.
_MISSING_S: Final = 1.0
_MISSING_LOOK_S: Final = 0.05

Check = Callable[[], None]
"""Raises `StoreError` if another process has taken over the run; else does nothing."""


class Owner(msgspec.Struct, frozen=True):
    """A process that writes a run.

    Attributes:
        host: Name of the machine.
        pid: Process id there.
        started_s: When the process began, seconds since 1970.
        token: Unlike that of any other owner.
        machine: The running system it is on; empty where that is not known. Names of machines are
            not always unique, and process ids mean nothing in another container.
    """

    host: str
    pid: int
    started_s: float
    token: str = ""
    machine: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def is_here(self) -> bool:
        """True if it runs on this machine."""
        is_other = self.machine and self.machine != _this_machine()
        return self.host == socket.gethostname() and not is_other

    def is_alive(self) -> bool:
        """Return True if the process still runs; only this machine's can be asked."""
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started_s) < _START_TOLERANCE_S
            return self.is_here and is_same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def this_process() -> Owner:
    """This process as an owner."""
    pid = os.getpid()
    return Owner(
        socket.gethostname(),
        pid,
        psutil.Process(pid).create_time(),
        uuid.uuid4().hex,
        _this_machine(),
    )


def _this_machine() -> str:
    """Return the boot and the namespace of process ids; empty where the system does not tell."""
    try:
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    boot = this_boot()
    return f"{boot} {namespace}" if boot else ""


def this_boot() -> str:
    """Return a name of the time since this machine was started; empty where nothing tells it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def read_owner(path: Path) -> Owner | None:
    """The owner that a file names; None where it names none."""
    try:
        return msgspec.json.decode(files.read(path), type=Owner)
    except (OSError, msgspec.MsgspecError):
        return None


@contextlib.contextmanager
def held_by_flock(path: Path, owner: Owner) -> Iterator[Check]:
    """Hold the lock file for as long as the block lasts; it can't be lost meanwhile.

    Raises:
        RunDirectoryError: If another process holds it.
    """
    try:
        descriptor = files.open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        raise RunDirectoryError(f"{path}: {error.strerror or error}: remove it") from error
    with os.fdopen(descriptor, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _is_held(path, read_owner(path)) from error
        file.truncate(0)
        file.write(msgspec.json.encode(owner))
        file.flush()
        try:
            yield lambda: None
        finally:
            # The file stays: a process that waits on a removed one would share nothing with us.
            file.truncate(0)


@contextlib.contextmanager
def held_by_file(path: Path, owner: Owner, *, stale_s: float = _STALE_S) -> Iterator[Check]:
    """Own a file for as long as the block lasts, and touch it meanwhile.

    The value is to be called before each write.

    Raises:
        RunDirectoryError: If another process owns it.
    """
    _take(path, owner, stale_s)
    ended = threading.Event()
    beat = threading.Thread(
        target=_beat, args=(path, owner, ended), name="run-directory-owner", daemon=True
    )
    beat.start()
    try:
        yield lambda: _check(path, owner)
    finally:
        ended.set()
        beat.join()
        if read_owner(path) == owner:
            path.unlink(missing_ok=True)


def _take(path: Path, owner: Owner, stale_s: float) -> None:
    mine = path.with_name(f"{path.name}.{owner.token}")
    mine.write_bytes(msgspec.json.encode(owner))
    try:
        for _ in range(2):
            try:
                # A link fails where the name is taken, also on NFS, where O_EXCL may not.
                path.hardlink_to(mine)
            except FileExistsError:
                _remove_stale(path, mine, stale_s)
            else:
                return
        raise _is_held(path, read_owner(path))
    finally:
        mine.unlink(missing_ok=True)


def _remove_stale(path: Path, mine: Path, stale_s: float) -> None:
    found = read_owner(path)
    if found is not None and found.is_here:
        is_gone = not found.is_alive()
    else:
        # Both times are the file server's, so that clocks need not agree.
        is_gone = _mtime(mine) - _mtime(path) > stale_s
    if not is_gone:
        raise _is_held(path, found)
    aside = mine.with_suffix(".stale")
    with contextlib.suppress(FileNotFoundError):
        path.rename(aside)
        if read_owner(aside) != found:
            # Another process was faster and this is its file.
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(aside)
        aside.unlink()


def _beat(path: Path, owner: Owner, ended: threading.Event) -> None:
    while not ended.wait(_HEARTBEAT_S):
        if read_owner(path) == owner:
            with contextlib.suppress(OSError):
                path.touch()


def _check(path: Path, owner: Owner) -> None:
    found = read_owner(path)
    if found == owner:
        return
    end = time.monotonic() + _MISSING_S
    while found is None and time.monotonic() < end:
        time.sleep(_MISSING_LOOK_S)
        found = read_owner(path)
    if found != owner:
        who = f"its file {path.name} is gone" if found is None else f"{found} has taken it over"
        raise StoreError(
            f"{path.parent} does not belong to this process any more: {who}, after this process "
            "was suspended or cut off from the file system. This process writes nothing more; what "
            "it recorded before is kept"
        )


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("-inf")


def _is_held(path: Path, owner: Owner | None) -> RunInUseError:
    who = "another process" if owner is None else str(owner)
    return RunInUseError(
        f"{path.parent} is in use by {who}: wait for it, stop it, or start another run with --fresh"
    )
