"""The report and comparisons as plain data for the page: their elements and charts."""

from collections.abc import Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

from orchestrator.errors import OrchestratorError
from orchestrator.interface.api import compare
from orchestrator.interface.differences import settings_table
from orchestrator.interface.exporting import material
from orchestrator.interface.result import Result
from orchestrator.report.html import page, shell
from orchestrator.report.text import page_line

_SVG: Final = "{http://www.w3.org/2000/svg}"

Tree = list[Any]
"""An element as [tag, attributes, children]; a child is text or a tree."""


def overview(result: Result) -> dict[str, object]:
    """The run in brief, which waits for nothing that stands below it."""
    return {
        "description": page_line(str(result.settings.get("description") or "")),
        "content": tree_of(page.content(material(result))),
    }


def sections(result: Result, parts: Sequence[page.Section]) -> dict[str, object]:
    """Return the sections of the report below its first screen, without drawings."""
    return {
        "sections": [[part.key, part.title] for part in parts],
        "content": tree_of(page.content(material(result), parts)),
    }


def drawings(parts: Sequence[page.Section]) -> dict[str, object]:
    """The charts of the report by the key of their figure; none where they can't be drawn."""
    figures = (figure for part in parts for figure in part.figures)
    # Shapes and text that we have just written
    return {key: _tree(ET.fromstring(svg)) for key, _, svg in shell.drawings(figures)}  # noqa: S314


def compared(a: Result, b: Result) -> dict[str, object]:
    """Two runs side by side, as `orchestrator compare` shows them.

    If they can't be compared, the reason, and the settings that differ.
    """
    headline: Sequence[str]
    try:
        found = compare(a, b, allow_code=a.allow_code)
        headline, notes, tables = found.headline, found.notes, found.tables
    except OrchestratorError as error:
        differing = settings_table({one.path.name: one.settings for one in (a, b)})
        headline, notes = [str(error)], ()
        tables = () if differing is None else (differing,)
    draw = shell.template("grid.html.j2").module.folded  # type: ignore[attr-defined]  # a macro
    return {
        "headline": [page_line(line) for line in headline],
        "notes": [page_line(line) for line in notes],
        "tables": tree_of("".join(draw(shell.grid(one, one.key), True) for one in tables)),  # noqa: FBT003
    }


def tree_of(markup: str) -> Tree:
    """The elements of our own templates, in one that holds all: they are well-formed XML."""
    return _tree(ET.fromstring(f"<div>{markup}</div>"))  # noqa: S314 (we have just written it)


def _tree(element: ET.Element) -> Tree:
    children: list[Any] = [element.text] if element.text else []
    for child in element:
        children.append(_tree(child))
        # Lines between elements are layout, a space is a space.
        if child.tail and (child.tail.strip() or "\n" not in child.tail):
            children.append(child.tail)
    return [element.tag.removeprefix(_SVG), dict(element.attrib), children]
