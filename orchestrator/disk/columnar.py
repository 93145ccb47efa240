"""Parquet and Arrow files, read by polars within the memory that there is.

polars itself takes `[ ] * ?` in a path for a pattern, `~` for the home folder, and a folder for the
files in it: it may read another file than the one that was named. So nothing else in this project
has polars open a path, which `tests/test_architecture.py` holds.
"""

import contextlib
import ctypes
import errno
import io
import os
import resource
import stat
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final

import polars as pl
import psutil

from orchestrator.disk.paths import is_text
from orchestrator.errors import StoreError

# The memory that a Parquet file takes once it is read, found from its headers alone.
#
# A page of some bytes can hold 2^31 equal values, or inflate to 2 GB, so the size of a file bounds
# nothing. How many values a page has and how long it is inflated stand in its header, which is not
# compressed; a reader decodes no more than that. The format is
# https://parquet.apache.org/docs/file-format/, its headers are in Thrift's compact protocol.


MAGIC: Final = b"PAR1"
_FOOTER_BYTES: Final = 64 << 20
_HEADER_BYTES: Final = 64 << 10
_MOST_DEPTH: Final = 24
# Some 300 MB of Python's objects; 15,000 parts of columns are described by half a million.
_MOST_VALUES: Final = 4_000_000
# Of a value in memory: a number, or where a text begins and ends; and of each list around it.
_VALUE_BYTES: Final = 16
_LIST_BYTES: Final = 8
_FIXED_LENGTH: Final = 7  # Type.FIXED_LEN_BYTE_ARRAY
_DELTA_BYTE_ARRAY: Final = 7  # Encoding.DELTA_BYTE_ARRAY
_DATA_PAGE: Final = 0
_DATA_PAGE_V2: Final = 3
# Fields of the headers by their numbers in parquet.thrift.
_SCHEMA, _N_ROWS, _GROUPS = 2, 3, 4
_COLUMNS, _GROUP_ROWS = 1, 3
_COLUMN = 3
_TYPE, _PATH, _N_VALUES, _BYTES, _DATA_AT, _DICTIONARY_AT = 1, 3, 5, 7, 9, 11
_PAGE_TYPE, _INFLATED, _COMPRESSED, _V1, _V2 = 1, 2, 3, 5, 8
_PAGE_VALUES, _ENCODING_V1, _ENCODING_V2 = 1, 2, 4


def _malformed(said: str) -> Exception:
    """The error for a file whose headers are not those of Parquet."""
    return pl.exceptions.ComputeError(f"not a Parquet file: {said}")


def row_groups(path: Path) -> Iterator[dict[str, int]]:
    """Yield for each group of rows the most bytes of memory that each column takes, decoded.

    A text that a dictionary holds once is counted once. Values that are made of the ones before
    them (DELTA_BYTE_ARRAY) are counted as long as they could be: as their page.

    Raises:
        OSError: If the file can't be read.
        polars.exceptions.ComputeError: If it is not Parquet.
    """
    with path.open("rb") as file:
        try:
            end = file.seek(0, io.SEEK_END)
            file.seek(max(0, end - 8))
            tail = file.read(8)
            length = int.from_bytes(tail[:4], "little")
            if tail[4:] != MAGIC or not 0 < length <= min(end - 8, _FOOTER_BYTES):
                raise _malformed("it does not end as Parquet files do")
            file.seek(end - 8 - length)
            footer = _Reader(file.read(length)).struct()
            lengths: dict[str, int] = {}
            for element in footer[_SCHEMA]:
                # Several leaves may have one name ("element"): the longest counts for each.
                name = str(element.get(4))
                lengths[name] = max(lengths.get(name, 0), element.get(2, 0))
            groups = footer[_GROUPS]
            # What the file as a whole says counts too where its groups say less.
            missing = footer[_N_ROWS] - sum(group[_GROUP_ROWS] for group in groups)
            for place, group in enumerate(groups):
                n_rows = group[_GROUP_ROWS] + (max(missing, 0) if place == 0 else 0)
                sizes: dict[str, int] = {}
                for chunk in group[_COLUMNS]:
                    column = chunk[_COLUMN]
                    name = column[_PATH][0]
                    size = _column_bytes(file, column, n_rows, lengths)
                    sizes[name] = sizes.get(name, 0) + size
                yield sizes
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise _malformed("its headers are damaged") from error


def _column_bytes(
    file: IO[bytes], column: dict[int, Any], n_rows: int, lengths: dict[str, int]
) -> int:
    """Bytes of a column in a group of rows."""
    path = column[_PATH]
    width = _VALUE_BYTES + _LIST_BYTES * (len(path) - 1)
    if column[_TYPE] == _FIXED_LENGTH:
        width += lengths.get(path[-1], 0)
    n_values, n_bytes = 0, 0
    there: int = max(column[_N_VALUES], n_rows)
    for page in _pages(file, column):
        n_bytes += page[_INFLATED]
        if header := _values_header(page):
            n_values += header[_PAGE_VALUES]
            encoding = header[_ENCODING_V1 if page[_PAGE_TYPE] == _DATA_PAGE else _ENCODING_V2]
            if encoding == _DELTA_BYTE_ARRAY:
                n_bytes += header[_PAGE_VALUES] * page[_INFLATED]
    return n_bytes + width * max(n_values, there)


def _pages(file: IO[bytes], column: dict[int, Any]) -> Iterator[dict[int, Any]]:
    """Headers of the pages of a column in a group of rows, as far as a reader would read them."""
    at = column.get(_DICTIONARY_AT) or column[_DATA_AT]
    end = at + column[_BYTES]
    left = column[_N_VALUES]
    while at < end and left:
        file.seek(at)
        reader = _Reader(file.read(min(_HEADER_BYTES, end - at)))
        page = reader.struct()
        header = _values_header(page)
        n_values = header[_PAGE_VALUES] if header else 0
        if min(page[_INFLATED], page[_COMPRESSED], n_values) < 0:
            raise _malformed("a page has a negative size")
        yield page
        left -= n_values
        at += reader.at + page[_COMPRESSED]


def _values_header(page: dict[int, Any]) -> dict[int, Any] | None:
    """The part of a page's header that says how many values it has; None for dictionaries."""
    if page[_PAGE_TYPE] not in {_DATA_PAGE, _DATA_PAGE_V2}:
        return None
    header: dict[int, Any] = page[_V1 if page[_PAGE_TYPE] == _DATA_PAGE else _V2]
    return header


class _Reader:
    """Values in Thrift's compact protocol, structures as mappings from the numbers of fields.

    Attributes:
        at: Bytes that were read.
    """

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data
        self._left = _MOST_VALUES

    def struct(self, depth: int = 0) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            self._left -= 1
            # True and false are kinds of fields.
            fields[number] = kind == 1 if kind <= 2 else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> object:
        if depth > _MOST_DEPTH or self._left < 0:
            raise _malformed("its headers are nested too deep or too long")
        match kind:
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._integer()
            case 7:
                return self._take(8)
            case 8:
                return self._take(self._natural()).decode(errors="replace")
            case 9 | 10:
                head = self._byte()
                n = head >> 4
                return self._list(head & 15, self._natural() if n == 15 else n, depth)
            case 12:
                return self.struct(depth + 1)
            case _:
                raise _malformed(f"a header has a field of the unknown kind {kind}")

    def _list(self, kind: int, n: int, depth: int) -> list[object]:
        if n > len(self._data) - self.at:
            raise _malformed("a header has a list longer than itself")
        self._left -= n
        return [self._value(kind, depth + 1) for _ in range(n)]

    def _byte(self) -> int:
        value = self._data[self.at]
        self.at += 1
        return value

    def _natural(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise _malformed("a header has a number of more than 64 bits")

    def _integer(self) -> int:
        value = self._natural()
        return (value >> 1) ^ -(value & 1)

    def _take(self, n: int) -> bytes:
        taken = self._data[self.at : self.at + n]
        if len(taken) < n:
            raise _malformed("a header ends too early")
        self.at += n
        return taken


UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""Exceptions of these functions, or of collecting their frames, for missing or damaged files."""

MEMORY_BYTES: Final = 4 << 30
"""Memory that a file may take; a large one may take more, in proportion to its size."""
# Texts of a run shrink to a fifth, and so do most datasets.
_RATIO: Final = 20
_TEXTS: Final = (pl.String, pl.Binary)


def read(path: Path | Sequence[Path], columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Read a Parquet file, or several, whole or some columns; of two types the wider counts.

    Raises:
        OSError: If a path is no regular file or can't be read.
        polars.exceptions.PolarsError: If it is not Parquet.
        StoreError: If it would take far more memory than its size allows for.
    """
    wanted = None if columns is None else [*columns]
    files = _files(path)
    groups = [_row_groups(file, columns) for file in files]
    _refuse_more_than_is_allowed(files, sum(map(sum, groups)))
    frames = [pl.read_parquet(file, columns=wanted, glob=False) for file in files]
    return _with_texts(files, pl.concat(frames, how="diagonal_relaxed"))


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


def give_back() -> None:
    """Return freed memory to the system: glibc keeps half of what a long report takes."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def scan_arrow(path: Path) -> pl.LazyFrame:
    """An Arrow IPC file, lazily. Fails as `read` does."""
    return pl.scan_ipc(_files(path), glob=False)


def _row_groups(file: Path, columns: Sequence[str] | None = None) -> list[int]:
    """The most memory that each group of rows of a Parquet file takes, in bytes."""
    found = file.stat()
    # A file that changed is measured again.
    groups, wholes = _measured(file, (found.st_ino, found.st_mtime_ns, found.st_size))
    if columns is None:
        return wholes
    names = set(columns)
    return [sum(group.get(name, 0) for name in names) for group in groups]


@lru_cache(maxsize=256)
def _measured(file: Path, stamp: object) -> tuple[list[dict[str, int]], list[int]]:  # noqa: ARG001
    """The same by column, and whole: at once, for the headers of a long file take long to read."""
    groups = [*row_groups(file)]
    return groups, [sum(group.values()) for group in groups]


def _refuse_more_than_is_allowed(files: Sequence[Path], n_bytes: int) -> None:
    size = sum(file.stat().st_size for file in files)
    most = max(MEMORY_BYTES, _RATIO * size)
    bound, _ = resource.getrlimit(resource.RLIMIT_AS)  # `ulimit -v`
    if bound != resource.RLIM_INFINITY:
        with contextlib.suppress(psutil.Error):
            bound = max(bound - psutil.Process().memory_info().vms, 0)
        most = min(most, bound // 2)
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
    _refuse_more_than_is_allowed(files, sum(map(bytes_of, frame)))
    return frame


def bytes_of(column: pl.Series) -> int:
    """Bytes of all texts of a column, one that several rows share counted for each."""
    match column.dtype:
        case pl.String():
            return int(column.str.len_bytes().cast(pl.Int64).sum())
        case pl.Binary():
            return int(column.bin.size().cast(pl.Int64).sum())
        case pl.Struct():
            return sum(bytes_of(column.struct.field(name)) for name in column.struct.fields)
        case (pl.List() | pl.Array()) as kind if kind.inner.is_nested() or kind.inner in _TEXTS:
            return bytes_of(column.explode())
    return 0


def _files(paths: Path | Sequence[Path]) -> list[Path]:
    """The paths so that polars expands nothing in them."""
    files = [paths] if isinstance(paths, Path) else paths
    for path in files:
        if not is_text(path.absolute()):
            # polars holds paths as UTF-8.
            raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ), str(path))
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            # A folder would be read as the files in it; a named pipe would be waited for.
            code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(code, os.strerror(code), str(path))
    return [path.absolute() for path in files]
