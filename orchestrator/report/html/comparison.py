"""The page of a comparison: its headline, and its tables with their charts, in one file."""

from collections.abc import Sequence

from orchestrator.report.html.figures import Figure, made_safe
from orchestrator.report.html.shell import page


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
    figures = [made_safe(one) for one in parts]
    return page(
        "comparison.html.j2", figures, title=title, headline=headline, notes=notes, parts=figures
    )
