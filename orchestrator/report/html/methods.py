"""Figures of methods: what summaries make, curves, first tables, and figures across methods."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from orchestrator import contracts, figures, plugins
from orchestrator.columns import score_words
from orchestrator.contracts.context import Source
from orchestrator.contracts.method import Summary, is_judging
from orchestrator.errors import OrchestratorError
from orchestrator.figures import Figure, Picture, key
from orchestrator.numbers import finite
from orchestrator.plugins.base import Settings
from orchestrator.ranking.cells import given
from orchestrator.ranking.scores import Aligned, align, basis_of
from orchestrator.report.html.figures import Material, made_safe
from orchestrator.tables import (
    Column,
    Curves,
    Measured,
    Table,
    cell_text,
    make_table,
    measured,
    number_of,
)

Floats = NDArray[np.float64]

_MOST: Final = 8
"""Curves of a picture."""


def curves(material: Material) -> list[Figure]:
    """Return a figure for each such table with a value."""
    found = [curved(table, table.curves) for table in material.tables if table.curves is not None]
    return [one for one in found if one is not None]


def curved(table: Table, curves: Curves) -> Figure | None:
    """Return a table with curves of its columns; None where it has no point."""
    at = {column.name: place for place, column in enumerate(table.columns)}
    shown: list[dict[str, Any]] = []
    for row in table.rows:
        x = finite(number_of(row[at[curves.x]]))
        who = str(row[at[curves.each]]) if curves.each else ""
        for column in curves.y:
            cell = row[at[column]]
            value = finite(number_of(cell))
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
                    "low": finite(bounds.low),
                    "high": finite(bounds.high),
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
    return Figure(key, title, table.basis, says, table, picture)


def drawing_summary(source: Source) -> type[Summary[Settings]] | None:
    """Return the summary of a method if it makes figures."""
    summary = contracts.summary(source.kind, type(source.method))
    return None if summary is None or summary.figures is Summary.figures else summary


def sections(material: Material) -> Iterator[tuple[str, str, list[Figure]]]:
    """Yield key, heading and figures of each section of methods."""
    sections: dict[str, tuple[str, list[Figure]]] = {}
    for source in material.context.sources:
        summary = drawing_summary(source)
        if summary is None or source.frame not in material.frames:
            continue
        heading = summary.section or source.name
        place = plugins.label(source.kind) if summary.section else source.name
        _, figures = sections.setdefault(key(place), (heading, []))
        figures += _drawn(material, source, summary)
    for place, (heading, figures) in sections.items():
        yield place, heading, figures


def _drawn(material: Material, source: Source, summary: type[Summary[Settings]]) -> list[Figure]:
    context = material.context
    try:
        rows = given(context, source, summary.reads)
        if rows.width and rows.is_empty():
            return []
        context = msgspec.structs.replace(context, name=source.name, rows=rows)
        plugin = summary(source.method.config)
        with plugins.blaming():
            found = plugin.figures(context)
        return [made_safe(one) for one in contracts.listed(plugin, "figures", found, Figure)]
    except OrchestratorError as error:
        # What one method can't draw must not hide the rest of the page.
        title = f"{source.name}: no figures"
        return [Figure(key(title), title, "", str(error), make_table(key(title), title, (), ()))]


_FORMATS: Final = {"rating": ",.0f"}


def summaries(material: Material) -> list[Figure]:
    """The measure that the first screen draws of each such method, one row a model."""
    # Other methods have figures by their columns, or by their summary.
    drawn = {
        source.name
        for source in material.context.sources
        if not is_judging(source.method) and drawing_summary(source) is None
    }
    of_tables = {
        (table.source, column.name): (table, place)
        for table in reversed(material.tables)
        for place, column in enumerate(table.columns)
    }
    found: dict[str, Figure] = {}
    for one in material.brief.questions:
        if one.is_drawn and one.source in drawn:
            table, place = of_tables[one.source, one.measure]
            form, name = table.columns[place].form, one.measure
            options = {"percent": one.is_percent, "format": _FORMATS.get(form, "")}
            found[one.source] = Figure(
                figures.key("summary", one.source),
                f"{table.title}: {name} ({one.source})",
                f"n = {table.basis or 'as in the table'}",
                f"{name[:1].upper()}{name[1:]} by model, with intervals over prompts.",
                table,
                Picture("intervals", figures.points(table, 0, place), name, options=options),
            )
    return list(found.values())


_RHO: Final = Column("Spearman", "signed", 2)


def agreement(material: Material) -> list[Figure]:
    """Agreement of the methods on answers, and effects of length."""
    aligned = align(material.context)
    if aligned is None:
        return []
    level = material.context.confidence_level
    compared = [_matrix(aligned, level)] if len(aligned.names) > 1 else []
    return [*compared, *_length(aligned, level)]


def _matrix(aligned: Aligned, level: float) -> Figure:
    lines: list[list[Any]] = []
    drawn: list[dict[str, Any]] = []
    for pair in combinations(aligned.names, 2):
        correlation = aligned.correlation(*pair, level)
        shown = measured(correlation)
        one, two = map(score_words, pair)
        lines.append([one, two, shown, correlation.n_points])
        if shown.value is not None:
            drawn += [
                {
                    "row": row,
                    "column": column,
                    "value": shown.value,
                    "text": f"{shown.value:+z.2f}",
                    "tip": f"{row} with {column}: {cell_text(_RHO, shown)}",
                }
                for row, column in ((one, two), (two, one))
            ]
    columns = [Column("score"), Column("with"), _RHO, Column("answers", "count")]
    title = "Agreement between methods, answer by answer"
    table = make_table("agreement", title, columns, lines)
    order = [score_words(one) for one in aligned.names]
    options = {"order": order, "columns": order, "domain": [-1.0, 1.0], "wide": True}
    picture = Picture("matrix", drawn, "", "", options=options) if drawn else None
    says = (
        "Scores are oriented so that higher is better; blue squares agree, orange ones "
        "disagree. Differences between models are included: two methods may agree on models "
        "but not on answers."
    )
    return Figure(table.key, title, basis_of(aligned, level), says, table, picture)


def _length(aligned: Aligned, level: float) -> list[Figure]:
    lengths = aligned.frame["length"].drop_nans()
    if lengths.n_unique() < 2:
        return []
    found = [(one, aligned.correlation(one, "length", level)) for one in aligned.names]
    lines = [(score_words(one), measured(rho), rho.n_points) for one, rho in found]
    columns = [Column("score"), _RHO, Column("answers", "count")]
    title = "Length: correlation of scores with answer length"
    table = make_table("length", title, columns, lines)
    shown = figures.points(table, 0, 1)
    options = {"zero": 0.0, "domain": [-1.0, 1.0], "wide": True}
    picture = Picture("intervals", shown, "Spearman's rho with length", options=options)
    says = (
        "Right of 0, longer answers score higher. This alone does not distinguish a bias from "
        "longer answers being better; compare with the row of labels or references, if any."
    )
    return [
        Figure(table.key, title, basis_of(aligned, level), says, table, picture if shown else None)
    ]
