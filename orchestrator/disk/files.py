"""Files that are read and written as wholes, whatever stands where they should be.

A run directory may come from elsewhere: in the place of a file may be a link, a named pipe or a
folder. Nothing here follows a link, waits for a pipe, or reads more than a bound.
"""

import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import resource
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

from orchestrator.errors import on_disk_error

MOST_BYTES: Final = 16 << 20
"""More than any small file of a run has."""

_TEMPORARY: Final = "orchestrator-lent-"
_LOCK: Final = ".lock"
# Longer than it takes to lock a folder that was just made.
_STALE_S: Final = 60.0

# Not on every system; there a link in the last part of a path is followed.
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
_STREAMS: Final = ("/dev", "/dev/fd", "/proc/self/fd")
_PLAIN: Final = _NO_LINK | getattr(os, "O_NONBLOCK", 0) | os.O_CLOEXEC


def few_files() -> str:
    """Return how many files this process may open, and how to let it open more."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"this process may open {soft} files at a time: raise the limit (`ulimit -n 4096`)"


def read(path: Path, most_bytes: int = MOST_BYTES, *, own: bool = False) -> bytes:
    """Read a file.

    Args:
        path: Of the file.
        most_bytes: Its greatest length.
        own: Read only what belongs to this user.

    Raises:
        OSError: If it can't be read, is no regular file (also a link), is longer, or is another
            user's.
    """
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        if own and os.fstat(file.fileno()).st_uid != os.geteuid():
            raise OSError(errno.EPERM, "belongs to another user", str(path))
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"longer than {most_bytes:,} bytes", str(path))
    return content


def open_plain(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a file by `os.open`'s flags, and return its descriptor.

    Raises:
        OSError: If it is no regular file, a link or, where it is opened for writing, has a second
            name; or can't be opened.
    """
    try:
        descriptor = os.open(path, flags | _PLAIN, mode)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EMLINK} and path.is_symlink():
            raise _irregular(path, path.lstat()) from error
        raise
    found = os.fstat(descriptor)
    writes = flags & os.O_ACCMODE != os.O_RDONLY
    if stat.S_ISREG(found.st_mode) and not (writes and found.st_nlink > 1):
        return descriptor
    os.close(descriptor)
    raise _irregular(path, found)


def check_plain(path: Path) -> None:
    """See that there is a regular file or nothing, for those who open it by its name.

    Raises:
        OSError: If there is something else, also a link.
    """
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise _irregular(path, found)


def _irregular(path: Path, found: os.stat_result) -> OSError:
    """The error for what is no file of one name."""
    if stat.S_ISLNK(found.st_mode):
        return OSError(errno.ELOOP, "is a link, which is not followed", str(path))
    if stat.S_ISDIR(found.st_mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    what = "has a second name elsewhere" if stat.S_ISREG(found.st_mode) else "is no regular file"
    return OSError(errno.EINVAL, what, str(path))


def write(
    path: Path, content: bytes, *, durable: bool = False, own: bool = False, mode: int = 0o666
) -> None:
    """Write a file as `replacing` does."""
    with replacing(path, durable=durable, own=own, mode=mode) as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write a text to a file that a user asked for, replaced as a whole; its folder is made.

    Raises:
        UsageError: If the file can't be written.
    """
    with on_disk_error(f"{path} cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Lone surrogates, which UTF-8 can't hold, are written out.
        content = text.encode(errors="backslashreplace")
        if not (is_stream(path) or path.is_fifo()):
            write(path, content)
            return
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as file:
            file.write(content)


def is_stream(path: Path) -> bool:
    """Return True for a device, and for a name such as /dev/stdout: nothing may replace it."""
    kinds = (path.is_char_device, path.is_block_device)
    return str(path.absolute().parent) in _STREAMS or any(is_one() for is_one in kinds)


@contextlib.contextmanager
def replacing(
    path: Path, *, durable: bool = False, own: bool = False, mode: int = 0o666
) -> Iterator[BinaryIO]:
    """Open a new file that takes the name `path` when the block ends without an error.

    Who reads the name sees the old or the new content. A link of that name is replaced, and what it
    leads to stays as it is.

    Args:
        path: Its folder exists.
        durable: Make content and name outlast a power cut.
        own: The name is this program's: a folder that has it is set aside.
        mode: Its permissions, less those of the umask.

    Raises:
        OSError: If it can't be written.
    """
    with renaming(path, own=own) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, mode)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
    if durable:
        sync_folder(path.parent)


@contextlib.contextmanager
def renaming(path: Path, *, own: bool = False) -> Iterator[Path]:
    """Give a name for a new file, which becomes `path` when the block ends without an error.

    Args:
        path: Its folder exists.
        own: As in `replacing`.

    Raises:
        OSError: If it can't be renamed.
    """
    if is_stream(path):
        raise OSError(errno.EINVAL, "is no regular file, and is not replaced", str(path))
    # Of this process alone; what a killed process of the same number left is removed.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    try:
        yield temporary
        if own and path.is_dir() and not path.is_symlink():
            set_aside(path)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def link_or_copy(original: Path, path: Path) -> None:
    """Give a file another name, or copy it where another file system has no such names.

    Raises:
        OSError: If it can't be copied.
    """
    try:
        path.hardlink_to(original)
    except OSError:
        shutil.copyfile(original, path, follow_symlinks=False)


def set_aside(path: Path) -> Path:
    """Give a file or folder another name beside its own, and return it.

    Raises:
        OSError: If that can't be done.
    """
    numbered = (path.with_name(f"{path.name}.damaged-{number}") for number in itertools.count(1))
    aside = next(name for name in numbered if not os.path.lexists(name))
    return path.rename(aside)


def tail(path: Path, n_bytes: int, secrets: Sequence[str], begin: int = 0) -> str:
    """Return the last bytes of a file as text, with `***` for each secret.

    A secret in which the last bytes begin is left out whole.

    Args:
        path: The file.
        n_bytes: At most so many are returned.
        secrets: Not to be returned.
        begin: Bytes of the file that are not read.

    Raises:
        OSError: If it can't be read.
    """
    hidden = blots(secrets)
    with path.open("rb") as file:
        cut = max(begin, file.seek(0, os.SEEK_END) - n_bytes)
        before = min(cut - begin, max(map(len, hidden), default=1) - 1)
        file.seek(cut - before)
        content = file.read(before + n_bytes)
    for secret in hidden:
        at = content.find(secret, max(0, before - len(secret) + 1), before + len(secret) - 1)
        if at >= 0:
            before = at + len(secret)
    return blot(content[before:], hidden).decode(errors="replace")


def blots(secrets: Iterable[str]) -> list[bytes]:
    """Return secrets in the order in which `blot` takes them: a longer one may hold a shorter."""
    return sorted({secret.encode() for secret in secrets if secret}, key=len, reverse=True)


def blot(content: bytes, secrets: Sequence[bytes]) -> bytes:
    """Return a text with `***` for each secret."""
    for secret in secrets:
        content = content.replace(secret, b"***")
    return content


def checksum(path: Path) -> str:
    """Return length and CRC-32 of a file: damage changes them.

    Raises:
        OSError: If it can't be read, or is no regular file.
    """
    found = n_bytes = 0
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        while part := file.read(1 << 20):
            found = crc32(part, found)
            n_bytes += len(part)
    return f"{n_bytes}-{found:08x}"


def has_checksum(path: Path, expected: str) -> bool:
    """Return whether a file has a checksum; one of another length is not read.

    Raises:
        OSError: As `checksum`.
    """
    check_plain(path)
    return expected.startswith(f"{path.stat().st_size}-") and checksum(path) == expected


def real_folder(path: Path) -> None:
    """Make a folder where there is none.

    Raises:
        OSError: If something else has its place, also a link to a folder.
    """
    path.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        raise OSError(errno.ELOOP, "is a link, which is not followed", str(path))


def entries(folder: Path) -> list[Path]:
    """Return what is in a folder; nothing where there is none."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def sync_folder(path: Path) -> None:
    """Make the names of new files in a folder outlast a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        # Some network file systems can't do it for a folder.
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def temporary_folder(inside: Path | None = None) -> Iterator[Path]:
    """A new folder of this user alone, which goes at the end.

    Folders that killed processes of this user left are removed: the lock in them is free.

    Args:
        inside: The folder in which it is made; that of the system where left out.

    Raises:
        OSError: If it can't be made.
    """
    # Hidden, for people look into the folders of runs.
    prefix = _TEMPORARY if inside is None else f".{_TEMPORARY}"
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=inside))
    before = folder.stat().st_mtime - _STALE_S
    with contextlib.suppress(OSError), os.scandir(folder.parent) as found:
        for entry in found:
            if entry.name.startswith(prefix):
                _remove_if_stale(folder.parent / entry.name, before)
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_if_stale(folder: Path, before: float) -> None:
    try:
        found = folder.lstat()
        is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if not is_own or found.st_mtime > before:
            return
        lock = open_plain(folder / _LOCK, os.O_RDWR)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        pass  # its process lives
    finally:
        os.close(lock)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, lower-case hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
