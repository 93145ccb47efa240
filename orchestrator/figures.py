"""A figure: data to be drawn, in words what it shows, and always the same numbers as a table."""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final, Literal

from orchestrator.numbers import finite
from orchestrator.tables import Measured, Table, cell_text

Kind = Literal["intervals", "matrix", "bars", "lines"]

MAX_ROWS: Final = 60
"""Rows of a chart; a table has all of them."""
MAX_GROUPS: Final = 7
"""Colours and shapes of a chart."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Input of `charts` for one picture.

    Attributes:
        kind: Which chart.
        rows: Plain values, each with what its chart needs. All charts show "tip" of a row in words.
            "intervals": label, group, value, low, high, low_open, high_open (see `points`).
            "matrix": row, column, value, text. "bars": x (and x2 where binned), value, group.
            "lines": x, value, low, high, group.
        x: Title of the horizontal axis.
        y: Title of the vertical axis, where the kind has one.
        groups: Names that get colours, in order; empty for one colour.
        options: Of the kind: "zero" (a reference value), "diagonal" (where it begins and ends),
            "domain", "percent", "wide" (its chart has the page to itself), "open" (whether the
            vertical axis of "lines" ends where values do).
    """

    kind: Kind
    rows: Sequence[Mapping[str, Any]]
    x: str = ""
    y: str = ""
    groups: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the report.

    Attributes:
        key: Name for links and files.
        title: In words.
        basis: Its n and its method.
        says: How to read it, in a sentence or two.
        table: The numbers.
        picture: None where there is nothing to draw.
        beside: Tables that belong to it and are not folded away.
    """

    key: str
    title: str
    basis: str
    says: str
    table: Table
    picture: Picture | None = None
    beside: Sequence[Table] = ()

    @property
    def alternative(self) -> str:
        """The figure for those who don't see it."""
        return f"{self.title}. {self.basis}. {self.says} The table below has the numbers."


def key(*parts: str) -> str:
    """A name for links and files: small letters, digits and hyphens."""
    text = "-".join(parts).lower()
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in text)
    return "-".join(part for part in kept.split("-") if part)[:80] or "figure"


def free(name: str, taken: Container[str], between: str = "-") -> str:
    """Return the name, with a number where another has it."""
    numbered = (f"{name}{between}{n}" for n in count(2))
    return next(one for one in chain([name], numbered) if one not in taken)


def points(
    table: Table, label: int | Sequence[int], value: int, group: int | None = None
) -> list[dict[str, Any]]:
    """The rows of a table as those of an "intervals" picture.

    Args:
        table: The table.
        label: Place of the column of labels, or of several.
        value: Place of the column of numbers.
        group: Place of the column of groups; None for none.
    """
    groups = set() if group is None else {row[group] for row in table.rows}
    # Of groups, a part would be missed, and colours that come again tell nothing.
    if groups and (len(groups) > MAX_GROUPS or len(table.rows) > MAX_ROWS):
        return []
    labels = [label] if isinstance(label, int) else label
    found: list[dict[str, Any]] = []
    for row in table.rows[:MAX_ROWS]:
        cell = row[value]
        if isinstance(cell, int | float):
            cell = Measured(float(cell))
        if not isinstance(cell, Measured):
            continue
        ends = {"value": cell.value, "low": cell.low, "high": cell.high}
        if all(end is None or math.isnan(end) for end in ends.values()):
            continue
        grouped = "" if group is None else str(row[group])
        words = " - ".join(cell_text(table.columns[at], row[at]) for at in labels)
        text = cell_text(table.columns[value], cell)
        found.append(
            {
                "label": words,
                "group": grouped,
                **{name: finite(end) for name, end in ends.items()},
                "low_open": cell.low is not None and math.isinf(cell.low),
                "high_open": cell.high is not None and math.isinf(cell.high),
                "tip": f"{words}{f', {grouped}' if grouped else ''}: {text}",
            }
        )
    # Open ends alone have no place on an axis.
    is_placed = any(row[end] is not None for row in found for end in ("value", "low", "high"))
    return found if is_placed else []
