"""Tables of summaries and analyses, as tests read them."""

from typing import Any


def lines(table: Any) -> list[dict[str, Any]]:
    """Return the rows of a table, each by the names of its columns."""
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


def by_name(table: Any, place: int = 0) -> dict[Any, dict[str, Any]]:
    """Return the rows of a table by their cell at a place, mostly a name."""
    return {row[place]: line for row, line in zip(table.rows, lines(table), strict=True)}
