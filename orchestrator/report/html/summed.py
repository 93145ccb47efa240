"""Figures of methods that have no drawing of their own: what their first table says by model."""

from typing import Final

from orchestrator.contracts.context import Source
from orchestrator.contracts.method import is_judging
from orchestrator.report.html import figures
from orchestrator.report.html.figures import Figure, Picture
from orchestrator.report.html.material import Material
from orchestrator.report.html.own import drawing_summary
from orchestrator.tables import Measured, Table

_FORMATS: Final = {"rating": ",.0f"}


def of_summaries(material: Material) -> list[Figure]:
    """The first measure with intervals of each such method, one row a model."""
    drawn = {source.name for source in material.context.sources if not _has_figures(source)}
    found: dict[str, Figure] = {}
    for table in material.tables:
        if table.source in drawn and table.source not in found:
            figure = _figure(table)
            if figure is not None:
                found[table.source] = figure
    return list(found.values())


def _has_figures(source: Source) -> bool:
    """Return True if a method has figures by its columns, or its summary makes some."""
    return is_judging(source.method) or drawing_summary(source) is not None


def _figure(table: Table) -> Figure | None:
    place = next((i for i in range(len(table.columns)) if _has_intervals(table, i)), None)
    models = [row[0] for row in table.rows]
    # Several rows a model are about several things, which one axis does not hold.
    if place is None or table.columns[0].name != "model" or len(set(models)) < len(models):
        return None
    column = table.columns[place]
    options = {"percent": column.form == "percent", "format": _FORMATS.get(column.form, "")}
    picture = Picture("intervals", figures.points(table, 0, place), column.name, options=options)
    basis = table.basis or f"{len(models)} models; prompts as in the table"
    says = f"{column.name} by model, with intervals over prompts."
    title = f"{table.title}: {column.name} ({table.source})"
    return Figure(figures.key("summary", table.source), title, f"n = {basis}", says, table, picture)


def _has_intervals(table: Table, place: int) -> bool:
    cells = [row[place] for row in table.rows]
    return any(isinstance(cell, Measured) and cell.low is not None for cell in cells)
