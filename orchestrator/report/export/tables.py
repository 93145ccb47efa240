"""Tables as frames for programs, and as HTML pages of their own that load and run nothing."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from orchestrator import numbers
from orchestrator.report.html.shell import MAX_CHARACTERS, grid, template
from orchestrator.tables import Cell, Column, Form, Measured, Table

_FIELDS: Final[dict[str, pl.DataType]] = {
    "low": pl.Float64(),
    "high": pl.Float64(),
    "n": pl.Int64(),
    "n_clusters": pl.Int64(),
    "why": pl.String(),
}


def frame_of(table: Table) -> pl.DataFrame:
    """Return a table as a frame.

    A column with intervals becomes several: `rating`, `rating.low`, `rating.high`, and where any
    cell has them `rating.n`, `rating.n_clusters` and `rating.why`. Ends that are open are infinite;
    what is undefined is null. Shares are in [0, 1].
    """
    found: dict[str, pl.Series] = {}
    for place, column in enumerate(table.columns):
        for name, values in _split(column, [row[place] for row in table.rows]):
            free = name
            while free in found:
                free += "_"
            found[free] = values.alias(free)
    return pl.DataFrame(list(found.values()))


def table_of(name: str, frame: pl.DataFrame) -> Table:
    """Return a frame as a table, to typeset it.

    Args:
        name: Of the frame.
        frame: Its rows; lists are written out.
    """
    columns, cells = [], []
    for series in frame.iter_columns():
        form: Form = "count" if series.dtype.is_integer() else "number"
        is_number = series.dtype.is_numeric()
        columns.append(Column(series.name, form if is_number else "text", 4))
        cells.append([_plain(value, is_number=is_number) for value in series])
    rows = tuple(zip(*cells, strict=True)) if cells else ()
    return Table(name, name, tuple(columns), rows, basis=numbers.counted(frame.height, "row"))


def _plain(value: object, *, is_number: bool) -> Cell:
    if value is None:
        return None if is_number else ""
    if is_number and isinstance(value, int | float):
        return value
    return str(value.to_list()) if isinstance(value, pl.Series) else str(value)


def _split(column: Column, cells: Sequence[Cell]) -> Iterator[tuple[str, pl.Series]]:
    """Yield the columns of a frame that hold one column of a table."""
    words = [cell for cell in cells if isinstance(cell, str) and cell != numbers.UNDEFINED]
    if column.form == "text" or words:
        yield column.name, pl.Series([_as_text(cell) for cell in cells], dtype=pl.String)
        return
    values = [_value(cell) for cell in cells]
    if column.form == "count" and all(value is None or value.is_integer() for value in values):
        counts = [None if value is None else int(value) for value in values]
        yield column.name, pl.Series(counts, dtype=pl.Int64)
    else:
        yield column.name, pl.Series(values, dtype=pl.Float64)
    measured = [cell if isinstance(cell, Measured) else Measured(None) for cell in cells]
    for field, dtype in _FIELDS.items():
        found = [getattr(cell, field) for cell in measured]
        known = [None if value == "" else value for value in found]
        if any(value is not None for value in known):
            yield f"{column.name}.{field}", pl.Series(known, dtype=dtype)


def _value(cell: Cell) -> float | None:
    value = cell.value if isinstance(cell, Measured) else cell
    if value is None or isinstance(value, str) or math.isnan(value):
        return None
    return float(value)


def _as_text(cell: Cell) -> str | None:
    if isinstance(cell, Measured):
        cell = cell.value
    return None if cell is None else str(cell)


def html(table: Table, *, name: str) -> str:
    """Return a table as one HTML file with caption and notes.

    Args:
        table: The table.
        name: Of the table in its run; the `id` of the table.
    """
    made = template("table.html.j2").render(
        table=table, name=name, grid=grid(table, name, MAX_CHARACTERS)
    )
    return f"{made.rstrip()}\n"
