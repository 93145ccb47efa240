"""Tables of several runs as one; as frames, and as HTML pages that load and run nothing."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from statistics import mean
from typing import Final

import msgspec
import polars as pl

from orchestrator import numbers
from orchestrator.errors import UsageError, nearest
from orchestrator.report.html.shell import MAX_CHARACTERS, grid, template
from orchestrator.tables import (
    GROUP,
    Cell,
    Column,
    Form,
    Measured,
    Table,
    cell_text,
    make_table,
    number_of,
)

_FIELDS: Final[dict[str, pl.DataType]] = {
    "low": pl.Float64(),
    "high": pl.Float64(),
    "n": pl.Int64(),
    "n_clusters": pl.Int64(),
    "why": pl.String(),
}


def beside(
    tables: Mapping[str, Table],
    wanted: Sequence[str] = (),
    where: Mapping[str, str] = {},
    across: str = "",
    *,
    average: bool = False,
) -> Table:
    """Return tables of several runs as one, with scores named as papers print them.

    Args:
        tables: By run, which is the text of the column `run` where there are several.
        wanted: Headings of the columns that are kept, in this order; all for none.
        where: Rows that are kept, by heading and text.
        across: Heading whose every text gets columns of its own, without intervals; "" for none.
        average: Whether the mean over the first of each of these columns stands behind them.

    Raises:
        UsageError: If there is no such column; names the nearest.
    """
    # Imported here: no run needs it.
    from orchestrator.judgment.glass_box import PRINTED  # noqa: PLC0415

    first, *_ = every = [*tables.values()]
    heads = {"run": Column("run")} | {one.name: one for table in every for one in table.columns}
    wanted = wanted or [*heads][len(tables) == 1 :]
    for name in (*wanted, *where, across or "run"):
        if name not in heads:
            raise UsageError(f"no column {name!r} in this table{nearest(name, heads)}")
    rows: list[dict[str, Cell]] = []
    for run, table in tables.items():
        for cells in table.rows:
            known = {one.name: cell for one, cell in zip(table.columns, cells, strict=True)}
            row: dict[str, Cell] = dict.fromkeys(heads) | known | {"run": run}
            if all(cell_text(heads[name], row[name]) == text for name, text in where.items()):
                rows.append({name: PRINTED.get(str(cell), cell) for name, cell in row.items()})
    columns = [heads[name] for name in wanted if name != across]
    lines: list[list[Cell]] = [[row[column.name] for column in columns] for row in rows]
    if across:
        columns, lines = _wide(columns, rows, heads[across], average=average)
    basis = first.basis if len({table.basis for table in every}) == 1 else ""
    warnings = dict.fromkeys(table.warning for table in every if table.warning)
    made = make_table(first.key, first.title, columns, lines, basis=basis)
    return msgspec.structs.replace(made, notes=first.notes, warning=" ".join(warnings))


def _wide(
    columns: Sequence[Column], rows: Sequence[dict[str, Cell]], across: Column, *, average: bool
) -> tuple[list[Column], list[list[Cell]]]:
    """The columns and lines of a table with a group of columns for each text of one."""
    wide = [column for column in columns if column.is_text]
    values = [column for column in columns if not column.is_text]
    found: dict[tuple[Cell, ...], dict[str, dict[str, Cell]]] = {}
    for row in rows:
        parts = found.setdefault(tuple(row[column.name] for column in wide), {})
        if (group := cell_text(across, row[across.name])) in parts:
            raise UsageError(f"several rows for {across.name} {group!r}: choose some with --where")
        parts[group] = row
    lines = [list(names) for names in found]
    for group, column in product(dict.fromkeys(chain(*found.values())), values):
        name = f"{group}{GROUP}{column.name}" if len(values) > 1 else group
        wide.append(msgspec.structs.replace(column, name=name))
        for line, parts in zip(lines, found.values(), strict=True):
            line.append(number_of(parts.get(group, {}).get(column.name)))
    if average and values:
        wide.append(msgspec.structs.replace(values[0], name="Average"))
        for names, line in zip(found, lines, strict=True):
            of = [number_of(cell) for cell in line[len(names) :: len(values)]]
            known = [value for value in of if value is not None]
            line.append(mean(known) if len(known) == len(of) else None)
    return wide, lines


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
    if column.is_text or words:
        yield column.name, pl.Series([_as_text(cell) for cell in cells], dtype=pl.String)
        return
    values = [number_of(cell) for cell in cells]
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
