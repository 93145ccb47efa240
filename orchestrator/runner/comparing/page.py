"""A comparison as a file for a browser."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orchestrator.figures import Figure, Picture, key, point
from orchestrator.report.export.files import write_text
from orchestrator.tables import Measured, Table

_MOST_ROWS: Final = 60
_OF_DIFFERENCES: Final = ("B - A", "difference")


def write_page(
    to: Path, title: str, headline: Sequence[str], notes: Sequence[str], tables: Sequence[Table]
) -> Path:
    """Write a comparison to one HTML file, replaced as a whole; its path.

    Raises:
        UsageError: If the file can't be written.
    """
    parts = [_figure(table, f"{place}-{key(table.key)}") for place, table in enumerate(tables)]
    html = importlib.import_module("orchestrator.report.html.shell")  # only for a page
    write_text(to, html.render_comparison(title, headline, notes, parts))
    return to


def _figure(table: Table, name: str) -> Figure:
    """A table with a forest plot of its first column with intervals, if there is one."""
    place = next(
        (
            at
            for at, column in enumerate(table.columns)
            if column.form in {"signed", "rating"}
            and any(isinstance(row[at], Measured) for row in table.rows)
        ),
        None,
    )
    picture = None
    if place is not None and 0 < len(table.rows) <= _MOST_ROWS:
        column = table.columns[place]
        of_names = [at for at, one in enumerate(table.columns[:place]) if one.form == "text"]
        drawn = []
        for row in table.rows:
            cell = row[place]
            if isinstance(cell, Measured):
                drawn.append(point(" - ".join(str(row[at]) for at in of_names), cell, column))
        is_difference = column.name in _OF_DIFFERENCES
        options = {"zero": 0.0} if is_difference else {}
        shown = [one for one in drawn if one is not None]
        picture = Picture("intervals", shown, column.name, options=options) if shown else None
    return Figure(key(name), table.title, table.basis, "", table, picture)
