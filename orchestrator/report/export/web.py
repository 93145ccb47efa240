"""Tables as HTML pages of their own, which load and run nothing."""

from collections.abc import Sequence
from html import escape
from typing import Final

from orchestrator.report.html.untrusted import safe_block
from orchestrator.tables import Cell, Column, Table, cell_parts

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
