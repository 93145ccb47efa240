"""Parquet and Arrow files, read by polars. A path is a path here.

polars itself takes `[ ] * ?` in a path for a pattern, `~` for the home folder, and a folder for the
files in it: it may read another file than the one that was named. So nothing else in this project
has polars open a path, which `tests/test_architecture.py` holds.
"""

import contextlib
import errno
import os
import resource
import stat
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import polars as pl
import psutil

from orchestrator.disk import parquet_sizes
from orchestrator.disk.paths import is_text
from orchestrator.errors import StoreError

UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""Exceptions of these functions, or of collecting their frames, for missing or damaged files."""

MEMORY_BYTES: Final = 4 << 30
"""Memory that a file may take; a large one may take more, in proportion to its size."""
# Texts of a run shrink to a fifth, and so do most datasets.
_RATIO: Final = 20
_TEXTS: Final = (pl.String, pl.Binary)


def read(path: Path | Sequence[Path], columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Read a Parquet file, or several with the same columns, whole or some columns of it.

    Raises:
        OSError: If a path is no regular file or can't be read.
        polars.exceptions.PolarsError: If it is not Parquet.
        StoreError: If it would take far more memory than its size allows for.
    """
    wanted = None if columns is None else [*columns]
    files = _files(path)
    groups = [_row_groups(file, columns) for file in files]
    _refuse_more_than_is_allowed(files, sum(map(sum, groups)))
    return _with_texts(files, pl.read_parquet(files, columns=wanted, glob=False))


def scan(path: Path | Sequence[Path]) -> pl.LazyFrame:
    """The same, lazily: only what is asked of it is read, a group of rows at a time.

    Fails as `read` does, if a single group of rows would take too much memory.
    """
    files = _files(path)
    _refuse_more_than_is_allowed(files, max(max(_row_groups(file), default=0) for file in files))
    return pl.scan_parquet(files, glob=False)


def slice_of(path: Path, columns: Sequence[str] | pl.Expr, begin: int, n_rows: int) -> pl.DataFrame:
    """So many rows of a Parquet file from a place on, counted from 0. Fails as `read` does."""
    return _with_texts([path], scan(path).select(columns).slice(begin, n_rows).collect())


def scan_arrow(path: Path) -> pl.LazyFrame:
    """An Arrow IPC file, lazily. Fails as `read` does."""
    return pl.scan_ipc(_files(path), glob=False)


def column_names(path: Path) -> list[str]:
    """Names of the columns of a Parquet file. Fails as `read` does."""
    return scan(path).collect_schema().names()


def _row_groups(file: Path, columns: Sequence[str] | None = None) -> tuple[int, ...]:
    """The most memory that each group of rows of a Parquet file takes, in bytes."""
    found = file.stat()
    # A file that changed is measured again.
    stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
    return _summed(file, stamp, None if columns is None else frozenset(columns))


@lru_cache(maxsize=256)
def _summed(file: Path, stamp: tuple[int, ...], columns: frozenset[str] | None) -> tuple[int, ...]:
    groups = _measured(file, stamp)
    if columns is None:
        return tuple(sum(group.values()) for group in groups)
    return tuple(sum(group.get(name, 0) for name in columns) for group in groups)


@lru_cache(maxsize=256)
def _measured(file: Path, stamp: tuple[int, ...]) -> tuple[dict[str, int], ...]:  # noqa: ARG001
    """The same by column: all at once, for the headers of a long file take long to read."""
    try:
        return tuple(parquet_sizes.row_groups(file))
    except parquet_sizes.MalformedError as error:
        raise pl.exceptions.ComputeError(f"not a Parquet file: {error}") from error


def _refuse_more_than_is_allowed(files: Sequence[Path], n_bytes: int) -> None:
    size = sum(file.stat().st_size for file in files)
    most = min(max(MEMORY_BYTES, _RATIO * size), _address_space_bytes() // 2)
    if n_bytes > most:
        raise StoreError(
            f"{files[0]}: {size:,} bytes of Parquet hold up to {n_bytes:,} bytes, and at most "
            f"{most:,} are read. Do not use the file unless you know where it is from; then "
            f"divide it into smaller ones"
        )


def _with_texts(files: Sequence[Path], frame: pl.DataFrame) -> pl.DataFrame:
    """The frame, unless its texts are too long together.

    A text that many rows share takes memory once here, but for each row where it is used.
    """
    _refuse_more_than_is_allowed(files, sum(map(_text_bytes, frame)))
    return frame


def _address_space_bytes() -> float:
    """Address space that is left to this process (`ulimit -v`)."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return float("inf")
    with contextlib.suppress(psutil.Error):
        taken: int = psutil.Process().memory_info().vms
        return max(most - taken, 0)
    return most


def _text_bytes(column: pl.Series) -> int:
    """Bytes of all texts of a column, one that several rows share counted for each."""
    match column.dtype:
        case pl.String():
            return int(column.str.len_bytes().cast(pl.Int64).sum())
        case pl.Binary():
            return int(column.bin.size().cast(pl.Int64).sum())
        case pl.Struct():
            return sum(_text_bytes(column.struct.field(name)) for name in column.struct.fields)
        case (pl.List() | pl.Array()) as kind if kind.inner.is_nested() or kind.inner in _TEXTS:
            return _text_bytes(column.explode())
    return 0


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
