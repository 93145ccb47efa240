"""Tables of plain values (`orchestrator.tables`) for a terminal, as Markdown and as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from orchestrator import numbers
from orchestrator.report.markdown import escaped
from orchestrator.report.page import BAD, FAINT, HEADING, Column, Page, paged
from orchestrator.report.structured import plain
from orchestrator.report.text import safe_line
from orchestrator.report.words import UNTRUSTED
from orchestrator.tables import Cell, Table, cell_text
from orchestrator.tables import Column as TableColumn

FORMAT: Final = 1
_MAX_NAME: Final = 40
_MAX_CELL: Final = 48
_GAP: Final = 2


@paged
def generic_table(page: Page, table: Table) -> Iterator[RenderableType]:
    """For a terminal.

    Where it is too wide, intervals stand under their values; where that is too wide still, the
    columns go on below, each time beside the first one.
    """
    yield page.heading(*_heading(table))
    if table.warning:
        yield page.prose(table.warning, f"{HEADING} {BAD}")
    widths = _widths(table, under=False)
    if not table.rows:
        yield page.words("nothing to show", FAINT)
    elif sum(widths) + _GAP * (len(widths) - 1) <= page.width:
        yield page.table(*_laid_out(table, page, under=False))
    else:
        for part in _parts(table, page.width):
            yield page.table(*_laid_out(part, page, under=True))
    for note in table.notes:
        yield page.prose(note, FAINT, bullet=True)
    yield page.words("")


def generic_markdown(table: Table) -> str:
    """As Markdown."""
    title, basis = _heading(table)
    lines = [f"## {escaped(title)}", ""]
    if table.warning:
        lines += [f"**{escaped(table.warning)}**", ""]
    if basis:
        lines += [escaped(basis), ""]
    lines.append(f"| {' | '.join(escaped(column.name) for column in table.columns)} |")
    sides = [":---" if column.form == "text" else "---:" for column in table.columns]
    lines.append(f"| {' | '.join(sides)} |")
    for row in table.rows:
        cells = [escaped(text) for text in _texts(table.columns, row)]
        lines.append(f"| {' | '.join(cells)} |")
    if table.notes:
        lines += ["", *(f"- {escaped(note)}" for note in table.notes)]
    return "\n".join(lines)


def generic_json(table: Table) -> dict[str, Any]:
    """As plain values; undefined is null."""
    names = [column.name for column in table.columns]
    rows = [
        {name: plain(msgspec.to_builtins(cell)) for name, cell in zip(names, row, strict=True)}
        for row in table.rows
    ]
    return {
        "format": FORMAT,
        "warning": table.warning,
        "table": table.key,
        "source": table.source,
        "title": table.title,
        "basis": table.basis,
        "columns": names,
        "rows": rows,
        "notes": list(table.notes),
    }


def _cell(page: Page, lines: Sequence[str]) -> Text:
    shown = [page.cell(line, FAINT if line == numbers.UNDEFINED else "") for line in lines]
    if len(shown) > 1:
        shown[1].stylize(FAINT)
    return Text("\n").join(shown)


def _heading(table: Table) -> tuple[str, str]:
    title = table.title
    if table.source and table.source not in table.key.split("."):
        title = f"{title} ({table.source})"
    return f"{title} {UNTRUSTED}" if table.warning else title, table.basis


def _texts(columns: Sequence[TableColumn], row: Sequence[Cell]) -> list[str]:
    return [cell_text(column, cell) for column, cell in zip(columns, row, strict=True)]


def _parts(table: Table, width: int) -> Iterator[Table]:
    """The table cut between columns, so that each part fits; each begins with the first column."""
    widths = _widths(table, under=True)
    chosen, used = [0], widths[0]
    for index in range(1, len(widths)):
        if len(chosen) > 1 and used + _GAP + widths[index] > width:
            yield _only(table, chosen)
            chosen, used = [0], widths[0]
        chosen.append(index)
        used += _GAP + widths[index]
    yield _only(table, chosen)


def _only(table: Table, chosen: Sequence[int]) -> Table:
    return msgspec.structs.replace(
        table,
        columns=tuple(table.columns[index] for index in chosen),
        rows=tuple(tuple(row[index] for index in chosen) for row in table.rows),
    )


def _widths(table: Table, *, under: bool) -> list[int]:
    widths = []
    for index, column in enumerate(table.columns):
        lines = [safe_line(column.name)]
        for row in table.rows:
            text = cell_text(column, row[index])
            lines += _split(text) if under and column.form != "text" else [text]
        most = _MAX_NAME if column.form == "text" else _MAX_CELL
        widths.append(min(most, max(map(cell_len, lines))))
    return widths


def _split(text: str) -> list[str]:
    """The value, and what stands beside it: its interval, its n, why there is none."""
    at = min((place for mark in (" [", " (", " n=") if (place := text.find(mark)) > 0), default=0)
    return [text[:at], text[at + 1 :]] if at else [text]


def _laid_out(
    table: Table, page: Page, *, under: bool
) -> tuple[list[Column], list[list[RenderableType]]]:
    left = [column.form == "text" for column in table.columns]
    columns = [
        Column(safe_line(column.name), "left" if is_left else "right")
        for column, is_left in zip(table.columns, left, strict=True)
    ]
    # Names of one column, of which no two are cut to the same.
    shown = [_texts(table.columns, row) for row in table.rows]
    called = [
        page.names(of_column, _MAX_NAME) if is_left else {}
        for of_column, is_left in zip(zip(*shown, strict=True), left, strict=True)
    ]
    rows: list[list[RenderableType]] = [
        [
            page.cell(called[index][text], HEADING if index == 0 else "")
            if is_left
            else _cell(page, _split(text) if under else [text])
            for index, (text, is_left) in enumerate(zip(texts, left, strict=True))
        ]
        for texts in shown
    ]
    return columns, rows
