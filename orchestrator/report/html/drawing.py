"""Charts as SVG that may stand in a page, and as files; needs the extra `[report]`.

Vega runs here and not in the reader's browser: it needs `eval`, which the page's content security
policy refuses, and it is 900 kB. What is left of its interaction is a text for each mark.
"""

import re
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import vl_convert

from orchestrator.disk import files
from orchestrator.errors import OrchestratorError, UsageError
from orchestrator.report.html import charts
from orchestrator.report.html.figures import Figure

_SVG: Final = "http://www.w3.org/2000/svg"
_ALLOWED: Final = frozenset({
    "svg", "g", "path", "line", "rect", "text", "tspan", "circle", "defs", "clipPath", "title",
    "linearGradient", "stop",
})  # fmt: skip
_DROPPED: Final = frozenset({"style", "role", "aria-hidden", "tabindex", "class", "pointer-events"})
_GUIDES: Final = frozenset({"axis", "legend", "title", "group mark container", "header"})
_REFERENCE: Final = re.compile(r"url\(#([^)]*)\)")
_SCALE: Final = 2
# A wider chart would be illegible if a telephone shrank it.
_BROAD_PX: Final = 600


class DrawingError(OrchestratorError):
    """A chart holds what a page must not show; a fault of this program."""


def specification(figure: Figure) -> dict[str, object] | None:
    """The figure as Vega-Lite; None where it has no picture."""
    if figure.picture is None:
        return None
    return charts.draw(figure.picture)


def svg(specified: dict[str, Any], prefix: str, alternative: str) -> str:
    """A chart as SVG for a page.

    Args:
        specified: Vega-Lite.
        prefix: Makes its ids unique in the page.
        alternative: What it shows, for those who don't see it.

    Raises:
        DrawingError: If it holds anything but shapes and text.
    """
    ET.register_namespace("", _SVG)
    root = ET.fromstring(  # noqa: S314 (what vl-convert has just written)
        vl_convert.vegalite_to_svg(specified, allowed_base_urls=[])
    )
    for element in root.iter():
        _clean(element, prefix)
    if float(root.get("width", "0")) > _BROAD_PX:
        root.set("class", "broad")
    root.set("role", "img")
    root.set("aria-label", alternative)
    return ET.tostring(root, encoding="unicode")


def _clean(element: ET.Element, prefix: str) -> None:
    tag = element.tag.removeprefix(f"{{{_SVG}}}")
    if tag not in _ALLOWED:
        raise DrawingError(f"a chart holds <{tag}>")
    role = element.attrib.pop("aria-roledescription", "")
    label = element.attrib.pop("aria-label", "")
    if label and role not in _GUIDES and not role.endswith("container"):
        element.set("data-tip", label)
    for name in list(element.attrib):
        if name.startswith("on") or "href" in name or name in _DROPPED:
            del element.attrib[name]
        elif name == "id":
            element.set("id", f"{prefix}-{element.attrib['id']}")
        elif "url(" in (value := element.attrib[name]):
            element.set(name, _REFERENCE.sub(rf"url(#{prefix}-\1)", value))


def write_charts(figures: list[Figure], folder: Path) -> list[Path]:
    """Write each figure as `<key>.svg`, `.pdf` and `.png`, and return their paths.

    Raises:
        UsageError: If a file can't be written.
    """
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            if figure.picture is None:
                continue
            # A file of its own stands on any ground, so it brings one.
            found = {**charts.draw(figure.picture), "background": "white", "padding": 12}
            for suffix, content in (
                ("svg", vl_convert.vegalite_to_svg(found, allowed_base_urls=[]).encode()),
                ("pdf", vl_convert.vegalite_to_pdf(found, allowed_base_urls=[])),
                ("png", vl_convert.vegalite_to_png(found, scale=_SCALE, allowed_base_urls=[])),
            ):
                path = folder / f"{figure.key}.{suffix}"
                files.write(path, content)
                written.append(path)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}") from error
    return written
