"""The writer of a run, the locks that keep it to one, and the file system that the run is on.

On a local disk that is `flock`, which the kernel drops with the process, whatever ends it. On a
network file system it is a file that its owner touches every few seconds: another machine can't
ask whether a process lives. An owner that was silent for long, because it was suspended or cut off
from the file server, may have lost the run when it continues. So it looks at its file before
each write, and writes nothing more once the file is another's.

Stores of other users are read within bounds.
"""

import atexit
import contextlib
import fcntl
import os
import shutil
import socket
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

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

    @property
    def is_alive(self) -> bool:
        """True if the process still runs; only this machine's can be asked."""
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
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
    return f"{boot} {namespace}" if boot else ""


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
def held_by_file(path: Path, owner: Owner) -> Iterator[Check]:
    """Own a file for as long as the block lasts, and touch it meanwhile.

    The value is to be called before each write.

    Raises:
        RunDirectoryError: If another process owns it.
    """
    _take(path, owner)
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


def _take(path: Path, owner: Owner) -> None:
    mine = path.with_name(f"{path.name}.{owner.token}")
    mine.write_bytes(msgspec.json.encode(owner))
    try:
        for _ in range(2):
            try:
                # A link fails where the name is taken, also on NFS, where O_EXCL may not.
                path.hardlink_to(mine)
            except FileExistsError:
                _remove_if_stale(path, mine)
            else:
                return
        raise _is_held(path, read_owner(path))
    finally:
        mine.unlink(missing_ok=True)


def _remove_if_stale(path: Path, mine: Path) -> None:
    found = read_owner(path)
    if found is not None and found.is_here:
        is_gone = not found.is_alive
    else:
        # Both times are the file server's, so that clocks need not agree.
        is_gone = _mtime(mine) - _mtime(path) > _STALE_S
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


# By the type that the list of mounts gives. A type that begins with "fuse." is a program of the
# user's: most of these lead to other machines (SSHFS, S3, GlusterFS, JuiceFS, DAOS).
_NETWORK_TYPES: Final = frozenset((
    "nfs", "nfs4", "lustre", "gpfs", "wekafs", "panfs", "beegfs", "beegfs_nodev", "fhgfs",
    "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "afs", "auristorfs", "coda",
    "glusterfs", "orangefs", "pvfs2", "ocfs2", "gfs", "gfs2", "cvfs", "snfs", "dvs", "acfs",
    "scoutfs", "davfs", "vboxsf", "vmhgfs", "prl_fs", "fuse",
))  # fmt: skip
# Of programs that show a folder of this machine. "fuseblk" is a local disk.
_LOCAL_FUSE: Final = frozenset(("fuse.fuse-overlayfs", "fuse.mergerfs", "fuse.bindfs"))


def is_network_fs(path: Path) -> bool:
    """Return True if `path` is (or will be) on a file system shared between machines."""
    existing = path.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    existing = existing.resolve()
    kind, depth = "", 0
    with contextlib.suppress(OSError):
        for mount in psutil.disk_partitions(all=True):
            point = Path(mount.mountpoint)
            # Of two at one place the later one hides the earlier.
            if len(point.parts) >= depth and existing.is_relative_to(point):
                kind, depth = mount.fstype, len(point.parts)
    is_fuse = kind.startswith("fuse.") and kind not in _LOCAL_FUSE
    return kind in _NETWORK_TYPES or is_fuse


_STATEMENT_S: Final = 60.0
# A slow disk reads so many, and checking what was read takes less.
_BYTES_PER_S: Final = 1 << 20
# SQLite's own steps between two looks at the clock: some milliseconds.
_STEPS: Final = 100_000
# Longer than any stored value, which is compressed, can be.
_MOST_VALUE_BYTES: Final = 256 << 20

_held: Final = ExitStack()
atexit.register(_held.close)
_copies: dict[tuple[tuple[Path, int, int], ...], Path] = {}


def copy_of(store: Path, log: Path) -> Path:
    """Return a copy of a store and its log, made once, that goes when this process ends.

    What a killed process left goes when the next one makes a copy.

    Raises:
        OSError: If it can't be made.
    """
    stamp = tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in (store, log))
    found = _copies.get(stamp)
    if found is None:
        found = _copies[stamp] = _held.enter_context(files.temporary_folder())
        for path in (store, log):
            shutil.copyfile(path, found / path.name, follow_symlinks=False)
    return found / store.name


class BoundedConnection(sqlite3.Connection):
    """A connection whose statements end with an error after some time, and whose values are short.

    A file can be made, or damaged, so that a statement never ends.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 (those of sqlite3)
        super().__init__(*arguments, **options)
        self._began = time.monotonic()
        self._most_s = _STATEMENT_S
        self._is_interrupted = False
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE_BYTES)
        self.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self.set_progress_handler(self._is_late, _STEPS)

    def execute(self, *arguments: Any) -> sqlite3.Cursor:  # noqa: ANN401 (those of sqlite3)
        """Execute a statement within the bound."""
        self._began = time.monotonic()
        try:
            return super().execute(*arguments)
        except sqlite3.OperationalError:
            if self._is_interrupted:
                raise KeyboardInterrupt from None
            raise

    def allow(self, n_bytes: int) -> None:
        """Let a statement take a minute, and the time that reading so many bytes takes."""
        self._most_s = _STATEMENT_S + n_bytes / _BYTES_PER_S

    def _is_late(self) -> bool:
        # SQLite ends the statement, and knows nothing of the error.
        try:
            return time.monotonic() - self._began > self._most_s
        except KeyboardInterrupt:
            self._is_interrupted = True
            return True
