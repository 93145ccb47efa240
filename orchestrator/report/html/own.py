"""Figures that summaries of methods make, each in a section of the method."""

from collections.abc import Iterator

import msgspec
import polars as pl

from orchestrator import contracts, plugins
from orchestrator.contracts.context import Source
from orchestrator.contracts.summary import Summary
from orchestrator.errors import OrchestratorError
from orchestrator.report.html.figures import Figure, as_table, key, made_safe
from orchestrator.report.html.material import Material
from orchestrator.settings import Settings


def drawing_summary(source: Source) -> type[Summary[Settings]] | None:
    """Return the summary of a method if it makes figures."""
    summary = contracts.summary(source.kind, type(source.method))
    return None if summary is None or summary.figures is Summary.figures else summary


def of_methods(material: Material) -> Iterator[tuple[str, str, list[Figure]]]:
    """Yield key, heading and figures of each section of methods."""
    sections: dict[str, tuple[str, list[Figure]]] = {}
    found = [(source, drawing_summary(source)) for source in material.context.sources]
    drawn = [(source, summary) for source, summary in found if summary is not None]
    for source, summary in sorted(drawn, key=lambda one: one[1].section_order):
        if source.frame not in material.frames:
            continue
        heading = summary.section or source.name
        place = plugins.label(source.kind) if summary.section else source.name
        _, figures = sections.setdefault(key(place), (heading, []))
        figures += _figures(material, source, summary)
    for place, (heading, figures) in sections.items():
        yield place, heading, figures


def _figures(material: Material, source: Source, summary: type[Summary[Settings]]) -> list[Figure]:
    context = material.context
    try:
        read = summary.reads if summary.figures_read is None else summary.figures_read
        rows = pl.DataFrame() if read == () else context.rows_of(source, read)
        context = msgspec.structs.replace(context, name=source.name, rows=rows)
        plugin = summary(source.method.config)
        with plugins.blaming():
            found = plugin.figures(context)
        return [made_safe(one) for one in contracts.listed(plugin, "figures", found, Figure)]
    except OrchestratorError as error:
        # What one method can't draw must not hide the rest of the page.
        title = f"{source.name}: no figures"
        return [Figure(key(title), title, "", str(error), as_table(key(title), title, (), ()))]
