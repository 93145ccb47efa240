"""Rows to polars frames and Parquet, with the schema that the method declares."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from orchestrator.errors import StoreError
from orchestrator.records import Row

_DTYPES: dict[str, pl.DataType] = {
    "str": pl.String(),
    "f64": pl.Float64(),
    "i64": pl.Int64(),
    "bool": pl.Boolean(),
    "list[f64]": pl.List(pl.Float64()),
    "list[str]": pl.List(pl.String()),
}
# Rows held at a time while a frame is written: bounds the memory of an export of any size.
_CHUNK_ROWS = 10_000


def polars_schema(columns: Mapping[str, str]) -> dict[str, pl.DataType]:
    """Column types of a method's `SCHEMA`."""
    return {name: _DTYPES[kind] for name, kind in columns.items()}


def pack_row(columns: Mapping[str, str], row: Row) -> tuple[Any, ...]:
    """The values of a row in the order of the schema; what a failed row lacks is None."""
    return tuple(row.get(name) for name in columns)


def make_frame(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> pl.DataFrame:
    """A frame of packed rows."""
    return pl.DataFrame(rows, schema=polars_schema(columns), orient="row")


def write_parquet(
    columns: Mapping[str, str], rows: Iterable[Sequence[Any]], path: Path
) -> pl.LazyFrame:
    """Write packed rows to one Parquet file, replaced as a whole when all are there.

    Raises:
        StoreError: If the file can't be written.
    """
    parts: list[Path] = []
    temporary = path.with_suffix(".part.parquet")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for number, chunk in enumerate(_chunks(rows)):
            part = path.with_suffix(f".{number}.part.parquet")
            parts.append(part)
            make_frame(columns, chunk).write_parquet(part)
        if len(parts) == 1:
            parts.pop().replace(temporary)
        else:
            pl.scan_parquet(parts).sink_parquet(temporary)
        temporary.replace(path)
    except OSError as error:
        raise StoreError(f"can't write {path}: {error}") from error
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
    return pl.scan_parquet(path)


def _chunks(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    iterator = iter(rows)
    yield list(islice(iterator, _CHUNK_ROWS))
    while chunk := list(islice(iterator, _CHUNK_ROWS)):
        yield chunk
