"""Marks beside exported frames: what they were made from, and their checksums."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.disk import files
from orchestrator.errors import StoreError


def read_mark(path: Path) -> str | None:
    """A mark; None where there is none, or what is there says nothing: it is written anew."""
    try:
        return files.read(path).decode()
    except (OSError, UnicodeDecodeError):
        return None


def is_marked(path: Path, mark: str, paths: Sequence[Path]) -> bool:
    """Return whether a mark says this of files, and they are as they were written."""
    said, *sums = (read_mark(path) or "").split(" ")
    if said != mark or len(sums) != len(paths):
        return False
    try:
        return all(map(files.has_checksum, paths, sums))
    except OSError:
        return False


def write_mark(path: Path, mark: str, paths: Iterable[Path]) -> None:
    """Write down that files are what a mark says, with their checksums.

    Raises:
        StoreError: If it can't be written.
    """
    try:
        files.write(path, " ".join([mark, *map(files.checksum, paths)]).encode(), own=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
