"""The kind of file system that a store is on, and stores of other users read within bounds."""

import atexit
import ctypes
import os
import re
import shutil
import sqlite3
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from orchestrator.disk import files

# By the type that /proc/self/mountinfo gives. A type that begins with "fuse." is a program of the
# user's: most of these lead to other machines (SSHFS, S3, GlusterFS, JuiceFS, DAOS).
_NETWORK_TYPES: Final = frozenset((
    "nfs", "nfs4", "lustre", "gpfs", "wekafs", "panfs", "beegfs", "beegfs_nodev", "fhgfs",
    "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "afs", "auristorfs", "coda",
    "glusterfs", "orangefs", "pvfs2", "ocfs2", "gfs", "gfs2", "cvfs", "snfs", "dvs", "acfs",
    "scoutfs", "davfs", "vboxsf", "vmhgfs", "prl_fs", "fuse",
))  # fmt: skip
# Of programs that show a folder of this machine. "fuseblk" is a local disk.
_LOCAL_FUSE: Final = frozenset(("fuse.fuse-overlayfs", "fuse.mergerfs", "fuse.bindfs"))

# f_type of statfs(2), as in linux/magic.h and the vendors' headers: where there is no mountinfo, or
# a vendor calls its type otherwise.
_NETWORK: Final = {
    0x6969: "nfs", 0x0BD00BD0: "lustre", 0x47504653: "gpfs", 0x19830326: "beegfs",
    0xAAD7AAEA: "panfs", 0xFF534D42: "cifs", 0xFE534D42: "smb2", 0x517B: "smb", 0x01021997: "9p",
    0x00C36400: "ceph", 0x5346414F: "afs", 0x6B414653: "afs", 0x73757245: "coda",
    0x01161970: "gfs2", 0x7461636F: "ocfs2", 0x20030528: "orangefs", 0xBEEFDEAD: "snfs",
    0x61636673: "acfs", 0x7C7C6673: "prl_fs", 0xBACBACBC: "vmhgfs", 0x786F4256: "vboxsf",
}  # fmt: skip
_FUSE: Final = 0x65735546
# Larger than struct statfs anywhere.
_STATFS_BYTES: Final = 1024
_MOUNTS: Final = Path("/proc/self/mountinfo")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def network_fs(path: Path) -> str | None:
    """Name of the network file system that holds `path` (or will, once it exists), else None."""
    if not sys.platform.startswith("linux"):
        return None
    existing = path.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        mounts = ""
    kind = _type_of(existing.resolve(), mounts)
    is_fuse = kind is not None and kind.startswith("fuse.") and kind not in _LOCAL_FUSE
    if kind in _NETWORK_TYPES or is_fuse:
        return kind
    magic = _magic(existing)
    if magic == _FUSE and kind is None:
        return "fuse"
    return None if magic is None else _NETWORK.get(magic)


def is_network_fs(path: Path) -> bool:
    """Return True if `path` is on a file system shared between machines."""
    return network_fs(path) is not None


def _type_of(path: Path, mounts: str) -> str | None:
    found, depth = None, -1
    for line in mounts.split("\n"):
        # 36 35 98:0 /root /mount/point options [optional fields] - type source options
        fields, _, rest = line.partition(" - ")
        words = fields.split(" ")
        if len(words) < 5 or not rest:
            continue
        point = Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), words[4]))
        # Of two at one place the later one hides the earlier.
        if len(point.parts) >= depth and path.is_relative_to(point):
            found, depth = rest.split(" ", 1)[0], len(point.parts)
    return found


def _magic(path: Path) -> int | None:
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(path), buffer) != 0:
        return None
    # The first field, a long; the magic numbers are 32 bits wide.
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF


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
