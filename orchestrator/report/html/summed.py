"""Figures of methods that have no drawing of their own: what their first table says by model."""

from typing import Final

from orchestrator.contracts.method import is_judging
from orchestrator.report.html import figures
from orchestrator.report.html.figures import Figure, Picture
from orchestrator.report.html.material import Material
from orchestrator.report.html.own import drawing_summary
from orchestrator.tables import Measured

_FORMATS: Final = {"rating": ",.0f"}


def of_summaries(material: Material) -> list[Figure]:
    """The first measure with intervals of each such method, one row a model."""
    # Other methods have figures by their columns, or by their summary.
    drawn = {
        source.name
        for source in material.context.sources
        if not is_judging(source.method) and drawing_summary(source) is None
    }
    found: dict[str, Figure] = {}
    for table in material.tables:
        if table.source not in drawn or table.source in found:
            continue
        with_intervals = {
            place
            for row in table.rows
            for place, cell in enumerate(row)
            if isinstance(cell, Measured) and cell.low is not None
        }
        models = {row[0] for row in table.rows}
        # Several rows a model are about several things, which one axis does not hold.
        if not with_intervals or table.columns[0].name != "model" or len(models) < len(table.rows):
            continue
        place = min(with_intervals)
        column = table.columns[place]
        shown = figures.points(table, 0, place)
        options = {"percent": column.form == "percent", "format": _FORMATS.get(column.form, "")}
        found[table.source] = Figure(
            figures.key("summary", table.source),
            f"{table.title}: {column.name} ({table.source})",
            f"n = {table.basis or f'{len(models)} models; prompts as in the table'}",
            f"{column.name} by model, with intervals over prompts.",
            table,
            Picture("intervals", shown, column.name, options=options),
        )
    return list(found.values())
