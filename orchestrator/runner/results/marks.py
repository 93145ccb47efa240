"""Marks beside exported frames: what they were made from, and their checksums."""

from collections.abc import Iterable
from pathlib import Path

from orchestrator.disk import files
from orchestrator.errors import StoreError


def read_mark(path: Path) -> str | None:
    """A mark; None where there is none, or what is there says nothing: it is written anew."""
    try:
        return files.read(path).decode()
    except (OSError, UnicodeDecodeError):
        return None


def _marked(mark: str, paths: Iterable[Path]) -> str | None:
    """Return the mark of files as they are now; None if one is missing."""
    try:
        return " ".join([mark, *map(files.checksum, paths)])
    except OSError:
        return None


def is_marked(path: Path, mark: str, paths: Iterable[Path]) -> bool:
    """Return whether a mark says this of files, and they are as they were written."""
    said = read_mark(path)
    return said is not None and said == _marked(mark, paths)


def write_mark(path: Path, mark: str, paths: Iterable[Path]) -> None:
    """Write down that files are what a mark says, with their checksums.

    Raises:
        StoreError: If it can't be written.
    """
    try:
        files.write(path, (_marked(mark, paths) or "").encode(), own=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
