"""The content of the report as plain data for the page: sections, figures and tables."""

import importlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final
from xml.etree import ElementTree as ET

from orchestrator.report.brief import Brief
from orchestrator.report.html import basis, page
from orchestrator.report.html.figures import Figure
from orchestrator.report.html.shell import can_draw, grid, safe_block, together
from orchestrator.report.picture import forest
from orchestrator.report.questions import Check
from orchestrator.report.text import safe_line, safe_names
from orchestrator.report.words import Name, Phrase
from orchestrator.runner.interface.exporting import material
from orchestrator.runner.interface.result import Result
from orchestrator.tables import Table

_MAX_RECIPE: Final = 60_000
_SVG: Final = "{http://www.w3.org/2000/svg}"

Tree = list[Any]
"""An element as [tag, attributes, children]; a child is text or a tree."""


def overview(result: Result) -> dict[str, object]:
    """The run as the report shows it, without examples, which are pages, and without drawings."""
    about = material(result)
    drawn = can_draw()
    found = page.shown_sections(about)
    parts = [part for part in found if part.figures or part.tables or part.folded]
    return {
        "name": safe_line(about.name),
        "description": safe_line(str(about.settings.get("description") or "")),
        "facts": [[safe_line(label), safe_line(value)] for label, value in basis.facts(about)],
        "brief": _brief(about.brief) | {"is_empty": page.is_empty(about)},
        "warnings": [safe_line(line) for line in page.warnings(about, drawn=drawn)],
        "sections": [
            {
                "key": part.key,
                "title": part.title,
                "figures": [_figure(figure) for figure in part.figures],
                "tables": [table_of(table) for table in part.tables],
                "folded": [table_of(table) for table in part.folded],
            }
            for part in parts
        ],
        "recipe": safe_block(
            json.dumps(basis.portable(about.settings), indent=1, default=str), _MAX_RECIPE
        ),
    }


def _brief(brief: Brief) -> dict[str, object]:
    """The run in brief; sentences are lists of texts, and of names as lists of one."""
    short = safe_names(brief.names, page.MAX_NAME, joined=True)
    rows = safe_names(brief.names, page.MAX_ROW_NAME, joined=True)

    def said(phrase: Phrase) -> list[str | list[str]]:
        return [
            [short.get(part.text) or safe_line(part.text)]
            if isinstance(part, Name)
            else together(part if isinstance(part, str) else safe_line(part.text))
            for part in phrase.parts
        ]

    def checks(of: Sequence[Check]) -> list[dict[str, object]]:
        return [
            {"about": one.about, "says": said(one.says), "doubtful": one.is_doubtful} for one in of
        ]

    questions = []
    for place, one in enumerate(brief.questions):
        shown = one.standings if one.state not in ("withheld", "empty") else ()
        drawn = forest(one)
        questions.append(
            {
                "subject": said(one.subject),
                "source": safe_line(one.source),
                "state": one.state,
                "answer": said(one.answer),
                "detail": safe_line(one.detail),
                "measure": safe_line(one.measure),
                "apart": said(one.apart) if one.state != "withheld" else [],
                "basis": safe_line(one.basis),
                "checks": checks([*one.checks, *(brief.checks if not place else ())]),
                "ticks": [] if drawn is None else drawn[0],
                "models": [
                    {
                        "name": rows[model.model],
                        "whole": safe_line(model.model),
                        "rank": model.rank,
                        "shown": model.shown,
                        "bounds": together(safe_line(model.bounds)),
                        "mark": None if drawn is None else asdict(drawn[1][at]),
                    }
                    for at, model in enumerate(shown)
                ],
            }
        )
    return {
        "incomplete": safe_line(brief.incomplete),
        "questions": questions,
        "silence": brief.silence,
        "checks": checks(brief.checks),
        "cautions": [said(one) for one in brief.cautions],
        "next_steps": [said(one) for one in brief.next_steps],
        "cost": [] if brief.cost is None else list(brief.cost.words()),
    }


def drawings(result: Result) -> dict[str, Tree]:
    """The charts of the report by the key of their figure; none where they can't be drawn."""
    if not can_draw():
        return {}
    drawing = importlib.import_module("orchestrator.report.html.charts")
    found = {}
    for figure in page.all_figures(material(result)):
        chart = drawing.specification(figure)
        if chart is not None:
            picture = drawing.svg(chart, figure.key, safe_line(figure.alternative))
            # Shapes and text that we have just written
            found[figure.key] = _tree(ET.fromstring(picture))  # noqa: S314
    return found


def table_of(table: Table) -> dict[str, object]:
    """A table as the page draws it."""
    shown = grid(table, table.key)
    return {
        "key": shown.key,
        "title": safe_line(table.title),
        "source": safe_line(table.source),
        "basis": safe_line(table.basis),
        "notes": [safe_line(note) for note in table.notes],
        "columns": [[safe_line(name), number] for name, number in shown.columns],
        "bounded": list(shown.bounded),
        "rows": [
            [
                {
                    "text": cell.text,
                    "aside": cell.aside,
                    "number": cell.number,
                    "order": cell.order,
                    "interval": cell.interval,
                }
                for cell in row
            ]
            for row in shown.rows
        ],
    }


def _figure(figure: Figure) -> dict[str, object]:
    return {
        "key": figure.key,
        "title": safe_line(figure.title),
        "says": safe_line(figure.says),
        "basis": safe_line(figure.basis),
        "alternative": safe_line(figure.alternative),
        "table": table_of(figure.table),
        "beside": [table_of(table) for table in figure.beside],
        "is_drawn": figure.picture is not None and can_draw(),
    }


def _tree(element: ET.Element) -> Tree:
    children: list[Any] = [element.text] if element.text else []
    for child in element:
        children.append(_tree(child))
        if child.tail and child.tail.strip():
            children.append(child.tail)
    return [element.tag.removeprefix(_SVG), dict(element.attrib), children]
