"""Rows to polars frames and Parquet, with the schema that the method declares."""

import hashlib
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from orchestrator.columns import RowRoles, is_name
from orchestrator.disk import columnar, files
from orchestrator.errors import StoreError, on_disk_error

_DTYPES: dict[str, pl.DataType] = {
    "str": pl.String(),
    "f64": pl.Float64(),
    "i64": pl.Int64(),
    "bool": pl.Boolean(),
    "list[f64]": pl.List(pl.Float64()),
    "list[str]": pl.List(pl.String()),
}
CATEGORIES = (
    pl.selectors.string().cast(pl.Categorical),
    pl.selectors.by_dtype(pl.List(pl.String)).cast(pl.List(pl.Categorical)),
)
"""Texts as categories."""
# What is held at a time while a frame is written, which bounds the memory of an export of any size:
# rows as Python's objects, which take several times their values, and their number; then rows as
# columns, which go to a file of their own.
_CHUNK_ROWS = 1_000
_CHUNK_BYTES = 1_000_000
PART_ROWS = 10_000
_PART_BYTES = 1_000_000
# A Python float with the pointer to it.
_CELL_BYTES = 32


def polars_schema(columns: Mapping[str, str]) -> dict[str, pl.DataType]:
    """Column types of a method."""
    return {name: _DTYPES[kind] for name, kind in columns.items()}


def make_frame(columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> pl.DataFrame:
    """A frame of packed rows."""
    schema = polars_schema(columns)
    if not rows:
        return pl.DataFrame(schema=schema)
    values = zip(*rows, strict=True)
    return pl.DataFrame(
        [_column(name, cells, schema[name]) for name, cells in zip(columns, values, strict=True)]
    )


def _column(name: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    try:
        if not isinstance(dtype, pl.List):
            return pl.Series(name, values, dtype=dtype)
        widths = {len(one) for one in values if one is not None}
        if len(widths) != 1 or 0 in widths:
            return pl.Series(name, values, dtype=dtype)
        # By way of one long list where all are equally long: 60 times faster.
        (width,) = widths
        cells = [cell for one in values for cell in ((None,) * width if one is None else one)]
        inner = pl.Series(name, cells, dtype=dtype.inner)
        found = inner.reshape((len(values), width)).cast(dtype)
        if None not in values:
            return found
        known = pl.Series([one is not None for one in values])
        return pl.select(pl.when(known).then(found).alias(name)).to_series()
    except TypeError:
        # Such as 2.0 among whole numbers: rows are converted where columns are refused.
        rows = [(value,) for value in values]
        return pl.DataFrame(rows, schema={name: dtype}, orient="row").to_series()


def write_parquet(
    columns: Mapping[str, str], rows: Iterable[Sequence[object]], path: Path
) -> Generator[None]:
    """Write packed rows to one Parquet file, replaced as a whole when all are there.

    It goes on by steps of some milliseconds; closed before its end it changes nothing.

    Raises:
        StoreError: If the file can't be written.
    """
    parts: list[Path] = []
    n_rows = 1
    with on_disk_error(f"can't write {path}", StoreError):
        files.real_folder(path.parent)
        with files.temporary_folder(path.parent) as folder:
            last: pl.DataFrame | None = None
            for frame in _frames(columns, rows):
                if frame is not None:
                    if last is not None:
                        parts.append(write_part(last, folder / str(len(parts))))
                    last, n_rows = frame, max(n_rows, len(frame))
                yield
            # Durable: the mark that says it is written may outlast a power cut.
            with files.replacing(path, durable=True, own=True) as file:
                if last is not None and not parts:
                    last.write_parquet(file)
                elif last is not None:
                    parts.append(write_part(last, folder / str(len(parts))))
                    # A group of rows is held until it is full; the default of 122,880 rows may be
                    # anything.
                    columnar.scan(parts).sink_parquet(file, row_group_size=n_rows)


def write_part(frame: pl.DataFrame, part: Path) -> Path:
    """A part of a frame, which is soon read again: compressing it would cost more than it saves."""
    frame.write_parquet(part, compression="uncompressed", statistics=False)
    return part


class FrameFiles(Mapping[str, pl.DataFrame]):
    """The Parquet files of a folder by the name of their frame, read anew at each use.

    Most questions are about a column or some rows: nothing of a large run is held.

    Args:
        folder: Where they are.
        also: Further files, elsewhere.
        roles: As the attribute.
        beside: As the attribute; where the files are, if left out.

    Attributes:
        folder: Where they are.
        paths: The file of each frame.
        beside: Folder of what is computed of them and kept.
        roles: Of the columns of each frame; None where the run does not say.
    """

    def __init__(
        self,
        folder: Path,
        also: Iterable[Path] = (),
        roles: Mapping[str, RowRoles] | None = None,
        beside: Path | None = None,
    ) -> None:
        self.folder = folder
        self.beside = folder if beside is None else beside
        self.roles = roles
        self._digests: dict[str, tuple[tuple[int, ...], bytes]] = {}
        self.paths = {
            path.stem: path
            for path in (*sorted(folder.glob("*.parquet")), *also)
            # What a link leads to is no part of a run.
            if is_name(path.stem) and not path.is_symlink()
        }

    def __getitem__(self, name: str) -> pl.DataFrame:
        return columnar.read(self.paths[name])

    def __contains__(self, name: object) -> bool:
        # The one of `Mapping` would read the frame.
        return name in self.paths

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def digest(self, name: str) -> bytes:
        """A digest of the bytes of a frame's file, which is read anew only where it changed."""
        with os.fdopen(files.open_plain(self.paths[name], os.O_RDONLY), "rb") as file:
            found = os.fstat(file.fileno())
            mark = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if self._digests.get(name, ((), b""))[0] != mark:
                self._digests[name] = mark, hashlib.file_digest(file, "blake2b").digest()
            return self._digests[name][1]

    def scan(self, name: str) -> pl.LazyFrame:
        """A frame that is read as far as what is asked of it needs."""
        return columnar.scan(self.paths[name])


def names_of(frames: Mapping[str, pl.DataFrame], name: str) -> list[str]:
    """Names of the columns of a frame; none where there is no such frame."""
    return lazy_of(frames, name).collect_schema().names() if name in frames else []


def lazy_of(frames: Mapping[str, pl.DataFrame], name: str) -> pl.LazyFrame:
    """Return a frame for a query; of a file only the columns that the query needs are read."""
    return frames.scan(name) if isinstance(frames, FrameFiles) else frames[name].lazy()


def columns_of(
    frames: Mapping[str, pl.DataFrame], name: str, wanted: Sequence[str]
) -> pl.DataFrame:
    """Return those of the wanted columns that a frame has; of files only these are read."""
    there = names_of(frames, name)
    found = [column for column in wanted if column in there]
    if found and isinstance(frames, FrameFiles):
        return columnar.read(frames.paths[name], found)
    return frames[name].select(found) if found else pl.DataFrame()


def slices_of(
    frames: Mapping[str, pl.DataFrame], name: str, wanted: Sequence[str], n_rows: int
) -> Iterator[pl.DataFrame]:
    """Yield the rows of `columns_of`, so many at a time; of files only these are held.

    A frame without rows has one slice; one that is not there has none.
    """
    if not (there := names_of(frames, name)):
        return
    found = [column for column in wanted if column in there]
    n_all = lazy_of(frames, name).select(pl.len()).collect().item()
    for begin in range(0, max(n_all, 1), n_rows):
        if isinstance(frames, FrameFiles):
            yield columnar.slice_of(frames.paths[name], found, begin, n_rows)
        else:
            yield frames[name].select(found).slice(begin, n_rows)


def counted_by(
    frames: Mapping[str, pl.DataFrame], name: str, columns: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield each combination of values of some columns, in order of first appearance, with `len`.

    One query for all rows costs a tenth of going through them in slices, and the streaming engine
    holds a part of them at a time.
    """
    rows = lazy_of(frames, name).group_by(columns, maintain_order=True).len()
    return rows.collect(engine="streaming").iter_rows(named=True)


def row_of(frames: Mapping[str, pl.DataFrame], name: str, place: int) -> dict[str, object]:
    """The row at a place of a frame, counted from 0, by column; of a file only it is read."""
    if isinstance(frames, FrameFiles):
        return columnar.slice_of(frames.paths[name], pl.all(), place, 1).row(0, named=True)
    return frames[name].row(place, named=True)


def _frames(
    columns: Mapping[str, str], rows: Iterable[Sequence[object]]
) -> Iterator[pl.DataFrame | None]:
    """The rows as frames of a bounded size, one without rows where there are none.

    None comes while one is being filled.
    """
    held: list[pl.DataFrame] = []
    n_rows, n_bytes = 0, 0.0
    for chunk in _chunks(rows):
        held.append(make_frame(columns, chunk))
        n_rows += len(chunk)
        n_bytes += held[-1].estimated_size()
        if n_rows >= PART_ROWS or n_bytes >= _PART_BYTES:
            yield pl.concat(held)
            held, n_rows, n_bytes = [], 0, 0.0
        else:
            yield None
    if held:
        yield pl.concat(held)


def _chunks(rows: Iterable[Sequence[object]]) -> Iterator[list[Sequence[object]]]:
    chunk: list[Sequence[Any]] = []
    n_bytes = 0
    n_chunks = 0
    for row in rows:
        chunk.append(row)
        # Texts and lists, roughly; the texts of a list count as numbers.
        for value in row:
            if isinstance(value, str):
                n_bytes += len(value)
            elif isinstance(value, list):
                n_bytes += _CELL_BYTES * len(value)
        if len(chunk) >= _CHUNK_ROWS or n_bytes >= _CHUNK_BYTES:
            yield chunk
            chunk, n_bytes = [], 0
            n_chunks += 1
    # No rows at all still make a frame.
    if chunk or not n_chunks:
        yield chunk
