"""The kind of file system that a path is on: some break SQLite's shared memory and `flock`."""

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

# f_type of statfs(2), as in linux/magic.h and the vendors' headers.
_NETWORK: Final = {
    0x6969: "nfs",
    0x0BD00BD0: "lustre",
    0x47504653: "gpfs",
    0x19830326: "beegfs",
    0xFF534D42: "cifs",
    0xFE534D42: "smb2",
    0x517B: "smb",
    0x01021997: "9p",
    0x00C36400: "ceph",
    0x5346414F: "afs",
}
# Larger than struct statfs anywhere.
_STATFS_BYTES: Final = 1024


def network_fs(path: Path) -> str | None:
    """Name of the network file system that holds `path` (or will, once it exists), else None."""
    magic = _magic(path)
    return None if magic is None else _NETWORK.get(magic)


def is_network_fs(path: Path) -> bool:
    """Return True if `path` is on a file system shared between machines."""
    return network_fs(path) is not None


def _magic(path: Path) -> int | None:
    if not sys.platform.startswith("linux"):
        return None
    existing = path.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(existing), buffer) != 0:
        return None
    # The first field, a long; the magic numbers are 32 bits wide.
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF
