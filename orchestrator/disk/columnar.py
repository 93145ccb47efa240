"""Parquet and Arrow files, read by polars by their path, whatever stands in it.

polars itself takes `[ ] * ?` in a path for a pattern, `~` for the home folder, and a folder for the
files in it: it may read another file than the one that was named. So nothing else in this project
has polars open a path, which `tests/test_architecture.py` holds.
"""

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from orchestrator.disk.paths import is_text

UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""Exceptions of these functions, or of collecting their frames, for missing or damaged files."""


def read(path: Path | Sequence[Path], columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Read a Parquet file, or several with the same columns, whole or some columns of it.

    Raises:
        OSError: If a path is no regular file or can't be read.
        polars.exceptions.PolarsError: If it is not Parquet.
    """
    wanted = None if columns is None else [*columns]
    return pl.read_parquet(_files(path), columns=wanted, glob=False)


def scan(path: Path | Sequence[Path]) -> pl.LazyFrame:
    """The same, lazily: only what is asked of it is read. Fails as `read` does."""
    return pl.scan_parquet(_files(path), glob=False)


def slice_of(path: Path, columns: Sequence[str] | pl.Expr, begin: int, n_rows: int) -> pl.DataFrame:
    """So many rows of a Parquet file from a place on, counted from 0. Fails as `read` does."""
    return scan(path).select(columns).slice(begin, n_rows).collect()


def give_back() -> None:
    """Return freed memory to the system: glibc keeps half of what a long report takes."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def scan_arrow(path: Path) -> pl.LazyFrame:
    """An Arrow IPC file, lazily. Fails as `read` does."""
    return pl.scan_ipc(_files(path), glob=False)


def _files(paths: Path | Sequence[Path]) -> list[Path]:
    return [_file(path) for path in ([paths] if isinstance(paths, Path) else paths)]


def _file(path: Path) -> Path:
    """The path so that polars expands nothing in it."""
    if not is_text(path.absolute()):
        # polars holds paths as UTF-8.
        raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ), str(path))
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        # A folder would be read as the files in it; a named pipe would be waited for.
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, os.strerror(code), str(path))
    return path.absolute()
