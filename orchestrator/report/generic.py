"""Tables of plain values (`orchestrator.tables`) for a terminal, as Markdown and as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from rich.console import RenderableType

from orchestrator.report.aligned import aligned
from orchestrator.report.markdown import escaped
from orchestrator.report.page import BAD, FAINT, HEADING, Page, paged
from orchestrator.report.structured import plain
from orchestrator.report.words import UNTRUSTED
from orchestrator.tables import Cell, Table, cell_text
from orchestrator.tables import Column as TableColumn

FORMAT: Final = 1


@paged
def generic_table(page: Page, table: Table) -> Iterator[RenderableType]:
    """For a terminal.

    Where it is too wide, names are cut, then intervals stand under their values; where that is too
    wide still, the columns go on below, each time beside what names the rows.
    """
    yield page.heading(*_heading(table))
    if table.warning:
        yield page.prose(table.warning, f"{HEADING} {BAD}")
    if table.rows:
        yield from aligned(page, table)
    else:
        yield page.words("nothing to show", FAINT)
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
        "comparisons": plain(msgspec.to_builtins(table.comparisons)),
    }


def _heading(table: Table) -> tuple[str, str]:
    title = table.title
    if table.source and table.source not in table.key.split("."):
        title = f"{title} ({table.source})"
    return f"{title} {UNTRUSTED}" if table.warning else title, table.basis


def _texts(columns: Sequence[TableColumn], row: Sequence[Cell]) -> list[str]:
    return [cell_text(column, cell) for column, cell in zip(columns, row, strict=True)]
