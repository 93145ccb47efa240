"""Figures of tables that name columns to be drawn as curves."""

from typing import Any, Final

from orchestrator.report.html import figures
from orchestrator.report.html.figures import Figure, Picture
from orchestrator.report.html.material import Material
from orchestrator.tables import Cell, Curves, Measured, Table, cell_text

_MOST: Final = 8
"""Curves of a picture."""


def of_curves(material: Material) -> list[Figure]:
    """Return a figure for each such table with a value."""
    found = [_drawn(table, table.curves) for table in material.tables if table.curves is not None]
    return [one for one in found if one is not None]


def _drawn(table: Table, curves: Curves) -> Figure | None:
    at = {column.name: place for place, column in enumerate(table.columns)}
    shown: list[dict[str, Any]] = []
    for row in table.rows:
        x = _value(row[at[curves.x]])
        who = str(row[at[curves.each]]) if curves.each else ""
        for column in curves.y:
            cell = row[at[column]]
            value = _value(cell)
            if x is None or value is None:
                continue
            # The unit stands at the axis.
            what = column.partition(",")[0] if len(curves.y) > 1 else ""
            group = ", ".join(part for part in (who, what) if part)
            text = cell_text(table.columns[at[column]], cell)
            tip = f"{group}{': ' if group else ''}{text} at {x:,g} {curves.x}"
            bounds = cell if isinstance(cell, Measured) else Measured(value)
            shown.append(
                {
                    "x": x,
                    "value": value,
                    "low": figures.finite(bounds.low),
                    "high": figures.finite(bounds.high),
                    "group": group,
                    "tip": tip,
                }
            )
    if not shown:
        return None
    groups = [name for name in dict.fromkeys(row["group"] for row in shown) if name]
    says = f"{curves.title.capitalize()} over {curves.x}."
    if len(groups) > _MOST:
        says += f" The picture has the first {_MOST} of {len(groups)} curves."
        groups = groups[:_MOST]
        shown = [row for row in shown if row["group"] in groups]
    picture = Picture("lines", shown, curves.x, curves.title, groups, {"open": True})
    title = f"{table.title} ({table.source})" if table.source else table.title
    key = figures.key("curves", table.source, table.key)
    return figures.made_safe(Figure(key, title, table.basis, says, table, picture))


def _value(cell: Cell) -> float | None:
    value = cell.value if isinstance(cell, Measured) else cell
    return figures.finite(float(value)) if isinstance(value, int | float) else None
