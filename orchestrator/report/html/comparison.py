"""The page of a comparison: its headline, and its tables with their charts, in one file."""

import importlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from orchestrator.report.html.figures import Figure, made_safe
from orchestrator.report.html.page import can_draw
from orchestrator.report.html.shell import harmless_json, keyed, own_file, policy, template
from orchestrator.report.text import safe_line


def render_comparison(
    title: str, headline: Sequence[str], notes: Sequence[str], parts: Sequence[Figure]
) -> str:
    """Return a comparison as one HTML file; without charts where they can't be drawn.

    Args:
        title: Of the page.
        headline: The result in a few sentences.
        notes: What limits it.
        parts: Tables, with a picture where there is one; each with a key of its own.
    """
    drawing = importlib.import_module("orchestrator.report.html.drawing") if can_draw() else None
    specified: dict[str, Any] = {}
    drawn: dict[str, Markup] = {}
    for figure in map(made_safe, parts):
        chart = None if drawing is None else drawing.specification(figure)
        if drawing is not None and chart is not None:
            specified[figure.key] = chart
            picture = drawing.svg(chart, figure.key, safe_line(figure.alternative))
            # Shapes and text only, checked where it is made
            drawn[figure.key] = Markup(picture)  # noqa: S704
    style, script = own_file("style.css"), own_file("script.js")
    return template("comparison.html.j2").render(
        title=title,
        headline=headline,
        notes=notes,
        parts=parts,
        drawn=drawn,
        grid=keyed(),
        style=Markup(style),  # noqa: S704 (our own file)
        script=Markup(script),  # noqa: S704 (our own file)
        data=Markup(harmless_json(specified)),  # noqa: S704 (no `<` is left in it)
        policy=policy(style, script),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
