"""Tables of plain values as cells of a page, with each interval drawn on its column's axis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator import numbers
from orchestrator.report.html.untrusted import safe_block
from orchestrator.tables import Cell, Measured, Table, cell_text

_WIDTH: Final = 72.0
_MAX_CELL: Final = 400
_FEWEST: Final = 2


@dataclass(frozen=True, slots=True)
class Interval:
    """A line from `low` to `high` with a point, in units of the picture; None is not drawn."""

    low: float
    high: float
    at: float | None


@dataclass(frozen=True, slots=True)
class Shown:
    """One cell.

    Attributes:
        text: The value.
        aside: What stands beside it in small: interval, n, why there is no value.
        number: Whether it stands on the right.
        order: What the column is sorted by.
        interval: The picture, where the column has intervals.
    """

    text: str
    aside: str
    number: bool
    order: str
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of a page.

    Attributes:
        key: Its anchor.
        title: Its heading.
        basis: The sample and the intervals.
        notes: Below it.
        columns: Each with its heading, and whether it holds numbers.
        bounded: Of each column, whether its numbers have something beside them: they are drawn in
            two cells, so that the numbers stand below each other.
        rows: One cell a column.
    """

    key: str
    title: str
    basis: str
    notes: Sequence[str]
    columns: Sequence[tuple[str, bool]]
    bounded: Sequence[bool]
    rows: Sequence[Sequence[Shown]]


def grid(table: Table, key: str) -> Grid:
    """A table as it is shown."""
    axes = [
        # Plain numbers of a table may be of many kinds, which no axis holds together.
        None if column.form == "number" else _axis([row[i] for row in table.rows])
        for i, column in enumerate(table.columns)
    ]
    rows = []
    for row in table.rows:
        cells = []
        for column, value, axis in zip(table.columns, row, axes, strict=True):
            text, aside = _split(safe_block(cell_text(column, value), _MAX_CELL))
            interval = _interval(value, axis) if isinstance(value, Measured) and axis else None
            number = value.value if isinstance(value, Measured) else value
            order = ""
            if isinstance(number, int | float) and not isinstance(number, bool):
                order = repr(float(number)) if math.isfinite(number) else ""
            cells.append(Shown(text, aside, column.form != "text", order, interval))
        rows.append(cells)
    columns = [(column.name, column.form != "text") for column in table.columns]
    bounded = [
        number and any(row[i].aside or row[i].interval for row in rows)
        for i, (_, number) in enumerate(columns)
    ]
    return Grid(key, table.title, table.basis, table.notes, columns, bounded, rows)


def _axis(cells: Sequence[Cell]) -> tuple[float, float] | None:
    """Return the range of a column's intervals; None if there are fewer than two."""
    ends = [
        value
        for cell in cells
        if isinstance(cell, Measured) and cell.low is not None and cell.high is not None
        for value in (cell.low, cell.high, cell.value)
        if value is not None and math.isfinite(value)
    ]
    if len(ends) < _FEWEST or min(ends) == max(ends):
        return None
    return min(ends), max(ends)


def _split(text: str) -> tuple[str, str]:
    marks = (" [", " (open", f"{numbers.UNDEFINED} (", " n=")
    found = [(text.find(mark), mark) for mark in marks if text.find(mark) >= 0]
    if not found:
        return text, ""
    at, mark = min(found)
    at += 1 if mark.startswith(numbers.UNDEFINED) else 0
    return text[:at], text[at:].strip()


def _interval(value: Measured, axis: tuple[float, float]) -> Interval | None:
    if value.low is None or value.high is None:
        return None
    low, high = axis

    def place(x: float) -> float:
        share = (min(max(x, low), high) - low) / (high - low)
        return round(4 + share * (_WIDTH - 8), 1)

    known = value.value is not None and math.isfinite(value.value)
    return Interval(
        place(value.low), place(value.high), place(value.value or 0.0) if known else None
    )
