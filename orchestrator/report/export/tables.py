"""Tables as frames for programs, and as HTML pages of their own that load and run nothing."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

import polars as pl

from orchestrator import numbers
from orchestrator.report.html.shell import safe_block
from orchestrator.tables import Cell, Column, Form, Measured, Table, cell_parts

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


_MAX_CELL: Final = 2400
_STYLE: Final = (
    "body{font:16px/1.4 system-ui,sans-serif;margin:2rem;color:#1b1f24;background:#fff}"
    "table{border-collapse:collapse;border-block:2px solid}caption{text-align:start;margin:.5em 0}"
    "th,td{padding:.2em .8em .2em 0;text-align:start;vertical-align:top}"
    "thead{border-bottom:1px solid}"
    ".n{text-align:end;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".i{color:#5b6470}@media(prefers-color-scheme:dark){body{color:#e6e9ed;background:#14171a}"
    ".i{color:#a4adb8}}"
)


def html(table: Table, *, name: str) -> str:
    """Return a table as one HTML file with caption and notes.

    Args:
        table: The table.
        name: Of the table in its run; the `id` of the table.
    """
    title = _text(table.title)
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">",
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f'<table id="{_text(name)}">',
        f"<caption><strong>{title}</strong> {_text(table.basis)}</caption>",
        f"<thead><tr>{''.join(map(_heading, table.columns))}</tr></thead>",
        "<tbody>",
        *(_row(table.columns, row) for row in table.rows),
        "</tbody></table>",
    ]
    if table.warning:
        lines.append(f"<p><strong>{_text(table.warning)}</strong></p>")
    if table.notes:
        lines.append(f"<ul>{''.join(f'<li>{_text(note)}</li>' for note in table.notes)}</ul>")
    return "\n".join([*lines, "</body></html>"]) + "\n"


def _text(text: str) -> str:
    return escape(safe_block(text, _MAX_CELL))


def _heading(column: Column) -> str:
    kind = "" if column.form == "text" else ' class="n"'
    return f'<th scope="col"{kind}>{_text(column.name)}</th>'


def _row(columns: Sequence[Column], row: Sequence[Cell]) -> str:
    cells = []
    for column, cell in zip(columns, row, strict=True):
        parts = cell_parts(column, cell)
        if column.form == "text":
            cells.append(f"<td>{_text(parts.value)}</td>")
            continue
        aside = " ".join(part for part in (parts.interval, parts.n, parts.why) if part)
        more = f' <span class="i">{_text(aside)}</span>' if aside else ""
        cells.append(f'<td class="n">{_text(parts.value)}{more}</td>')
    return f"<tr>{''.join(cells)}</tr>"
