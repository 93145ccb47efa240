"""A run with each item three times over, which says nothing new, and all that a report says of it.

Copies of an item are one prompt: every estimate, interval, p-value and number of prompts must be
that of the run without copies. Where they only belong to one cluster, they are so many prompts, and
all else is the same: whoever takes them for independent items makes shorter intervals.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
import polars as pl

from orchestrator.report.html.figures import Material
from orchestrator.report.html.page import all_figures
from orchestrator.runner.results.frames import analyse
from orchestrator.runner.results.tables import all_sources, summarise
from orchestrator.tables import Measured, Table

COPIES = 3
# Causes of failure stand with the number of rows that have them: "no_verdict 42".
_COUNTED = re.compile(r"(?<=[a-z]) [\d,]+(?=, |\Z)")
Frames = dict[str, pl.DataFrame]
Told = Literal["clusters", "copies", "nothing"]
"""What the frame of items says of copies: that they belong together, that they ask the same."""


def copied(frames: Mapping[str, pl.DataFrame], told: Told = "clusters") -> Frames:
    """The frames with every item three times over."""
    found = {name: _copied(rows) for name, rows in frames.items() if "item" in rows.columns}
    items = pl.concat([rows.select("item") for rows in found.values()]).unique(maintain_order=True)
    about = found.get("items", items.with_columns(fields=pl.lit(None, pl.String)))
    none, original = pl.lit(None, pl.String), pl.col("item").str.replace("#.$", "")
    first = original + "#0"
    same = pl.when(first != pl.col("item")).then(first)
    about = about.with_columns(
        cluster=original if told == "clusters" else none,
        same_as=same if told == "copies" else none,
    )
    return {**found, "items": about}


def _copied(rows: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([rows.with_columns(pl.col("item") + f"#{n}") for n in range(COPIES)])


def numbers(
    frames: Frames, settings: dict[str, Any], *, counts: bool = False
) -> dict[str, tuple[float | None, ...]]:
    """Value, bounds, or p-value by where it stands: rankings, tables, and figures of the page.

    Args:
        frames: Of a run.
        settings: The resolved recipe.
        counts: Also the numbers of prompts.
    """
    found: dict[str, tuple[float | None, ...]] = {}
    rankings = analyse(frames, confidence_level=0.95)
    for one in rankings:
        told = msgspec.to_builtins(one)
        found |= _flat(f"ranking {one.source} {one.judge}", told, _COUNTED_ROWS)
        if counts:
            found |= _flat(f"prompts {one.source} {one.judge}", told, _COUNTED_ROWS - _COUNTS)
    tables = summarise(frames, settings)
    for table in tables:
        found |= dict(_of_table(f"table {table.source} {table.key}", table, counts=counts))
    material = Material(
        name="copies", where="", at="", version="", settings=settings, identities={}, servers={},
        progress={}, frames=frames, rankings=rankings, tables=tables,
        context=all_sources(frames, settings),
    )  # fmt: skip
    for figure in all_figures(material):
        found |= dict(_of_table(f"figure {figure.key}", figure.table, counts=counts))
    return found


def _of_table(
    place: str, table: Table, *, counts: bool
) -> Iterator[tuple[str, tuple[float | None, ...]]]:
    if counts and (said := _PROMPTS.findall(table.basis)):
        yield f"{place} | basis", tuple(float(n.replace(",", "")) for n in said)
    for row in table.rows:
        cells = list(zip(table.columns, row, strict=True))
        said = [f"{cell:.4f}" for column, cell in cells if column.name == "delta"]
        words = [_COUNTED.sub("", cell) for cell in row if isinstance(cell, str)]
        label = " ".join(said + words)
        for column, cell in cells:
            key = f"{place} | {label} | {column.name}"
            if isinstance(cell, Measured) and column.form != "count":
                yield key, (cell.value, cell.low, cell.high)
                if counts:
                    yield f"{key} n", (cell.n, cell.n_clusters)
            elif isinstance(cell, int | Measured) and counts and column.name in _OF_PROMPTS:
                yield key, (cell if isinstance(cell, int) else cell.value,)
            elif isinstance(cell, float):
                yield key, (cell,)


_COUNTED_ROWS = frozenset({
    "n", "n_units", "n_judged", "n_exact", "n_same_text", "n_items", "n_items_used", "n_judgments",
    "n_missing", "n_unknown", "n_clusters",
})  # fmt: skip
_COUNTS = frozenset({"n_items", "n_items_used", "n_clusters"})
_OF_PROMPTS = frozenset({"prompts", "items", "n_prompts"})
_PROMPTS = re.compile(r"([\d,]+) (?:prompts?|items?)")


def _flat(place: str, value: Any, without: frozenset[str]) -> dict[str, tuple[float | None, ...]]:
    if isinstance(value, dict):
        parts = [(key, inner) for key, inner in value.items() if key not in without]
    elif isinstance(value, list):
        parts = list(enumerate(value))
    else:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return {place: (value,)} if is_number else {}
    found: dict[str, tuple[float | None, ...]] = {}
    for key, inner in parts:
        found |= _flat(f"{place}.{key}", inner, without)
    return found


def differing(
    one: Mapping[str, tuple[float | None, ...]], two: Mapping[str, tuple[float | None, ...]]
) -> list[str]:
    """Places at which two runs say different numbers."""
    return [key for key in {**one, **two} if not _same(one.get(key), two.get(key))]


def _same(one: tuple[float | None, ...] | None, two: tuple[float | None, ...] | None) -> bool:
    if one is None or two is None or len(one) != len(two):
        return False
    return all(map(_close, one, two))


def _close(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return a == b or math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
