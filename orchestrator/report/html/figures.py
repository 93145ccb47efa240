"""Figures as pages draw them: text from outside that stands in a picture is made safe here."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final, get_args

from orchestrator import figures
from orchestrator.errors import PluginError
from orchestrator.figures import MAX_ROWS, Figure, Kind, Picture, as_table, cell, finite, key
from orchestrator.report.text import safe_line, safe_name, safe_names
from orchestrator.tables import Table

__all__ = [
    "MAX_ROWS",
    "Figure",
    "Picture",
    "as_table",
    "cell",
    "finite",
    "key",
    "made_safe",
    "name",
    "named",
    "point",
    "points",
]

_MAX_NAME: Final = 40
# A name with a few words, as the figures of summaries have them.
_MAX_LABEL: Final = 80
_NAMES: Final = frozenset({"label", "group", "row", "column", "part"})
_NAMED_OPTIONS: Final = frozenset({"order", "columns"})


def name(text: str) -> str:
    """A name from outside as it stands in charts."""
    return safe_name(text, _MAX_NAME, joined=True)


def named(texts: Iterable[str]) -> Callable[[str], str]:
    """Return a function that cuts these names so that no two look the same in a chart."""
    shown = safe_names(texts, _MAX_NAME, joined=True)
    return lambda text: shown.get(text) or name(text)


point = partial(figures.point, name=name)


def points(table: Table, label: int, value: int, group: int | None = None) -> list[dict[str, Any]]:
    """As `figures.points`, the labels cut so that no two look the same."""
    called = named(
        str(row[place])
        for row in table.rows
        for place in (label, label if group is None else group)
    )
    return figures.points(table, label, value, group, name=called)


def made_safe(figure: Figure) -> Figure:
    """Return a figure of a summary as a page may draw it.

    Raises:
        PluginError: If its picture is of no known kind.
    """
    picture = figure.picture
    if picture is not None:
        if picture.kind not in get_args(Kind):
            kinds = ", ".join(get_args(Kind))
            raise PluginError(f"a picture is of the kind {picture.kind!r:.40}; there are {kinds}")
        picture = replace(
            picture,
            rows=[
                {column: _safe(column, value) for column, value in row.items()}
                for row in picture.rows
            ],
            x=safe_line(picture.x),
            y=safe_line(picture.y),
            groups=[_label(group) for group in picture.groups],
            options={
                option: [_label(str(one)) for one in value] if option in _NAMED_OPTIONS else value
                for option, value in picture.options.items()
            },
        )
    return replace(figure, key=key(figure.key), picture=picture)


def _safe(column: str, value: Any) -> Any:  # noqa: ANN401 (a cell of a picture)
    if not isinstance(value, str):
        return value
    return _label(value) if column in _NAMES else safe_line(value)


def _label(text: str) -> str:
    return safe_name(text, _MAX_LABEL)
