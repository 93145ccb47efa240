"""Two runs side by side: paired differences, their recipes, tables of both, items that differ most.

Paired differences are those of `orchestrator compare`. A difference of two numbers of the reports
is shown without an interval, and the page says so: runs on the same items are not independent.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import polars as pl

from orchestrator import numbers
from orchestrator.errors import OrchestratorError
from orchestrator.report.html.shell import Grid, Shown, grid, safe_block
from orchestrator.report.text import safe_line
from orchestrator.runner.api import compare
from orchestrator.tables import Table
from orchestrator.view.items import Items, Measure
from orchestrator.view.library import Snapshot
from orchestrator.view.overview import folded

_MOST_ITEMS: Final = 50
_MOST_SETTINGS: Final = 200
_MAX_SETTING: Final = 300
_DECIMALS: Final = re.compile(r"\.(\d+)")
_PERCENT: Final = "%"
# The page has settings and items of its own.
_SHOWN_OTHERWISE: Final = frozenset({"compare.settings", "compare.items"})
# Columns of words that say what was found, not what a row is about.
_FOUND: Final = frozenset({"rank", "group", "causes", "share"})

Data = dict[str, Any]


def compared(a: Snapshot, b: Snapshot, measure: str, runs: tuple[str, str]) -> Data:
    """Return the common ground and the differences of two runs.

    Of a `measure` that is unknown, the first that they share stands for it. Columns are headed by
    the names of the `runs`.
    """
    # Settings that differ: path, and what it is in each; a dash where it is not there
    left, right = dict(_leaves(a.result.settings)), dict(_leaves(b.result.settings))
    settings = []
    for path in dict.fromkeys((*left, *right)):
        if left.get(path) != right.get(path):
            values = [side.get(path, numbers.UNDEFINED) for side in (left, right)]
            settings.append([safe_line(path), *(safe_block(one, _MAX_SETTING) for one in values)])
    # Tables with equal columns that both reports have, their rows matched by their names
    mine, theirs = ({_about(one): one for one in each.overview[1]} for each in (a, b))
    pairs = [(grid(mine[one], one[0]), grid(theirs[one], one[0])) for one in mine if one in theirs]
    merged = [one for pair in pairs if (one := _merged(*pair, runs)) is not None and one.rows]
    shared = [one for one in a.items.measures if one in b.items.measures]
    chosen = next((one for one in shared if one.key == measure), shared[0] if shared else None)
    return {
        "paired": _paired(a, b),
        "settings": settings[:_MOST_SETTINGS],
        "tables": folded(merged),
        "measures": shared,
        "measure": chosen and chosen.key,
        "items": [] if chosen is None else _items(a.items, b.items, chosen),
        "n_shared": len(a.items.table.join(b.items.table, on="item", how="semi")),
        "n_items": [len(a.items.table), len(b.items.table)],
    }


def _paired(a: Snapshot, b: Snapshot) -> Data:
    """The comparison of both runs, as `orchestrator compare` prints it; or why there is none."""
    try:
        found = compare(a.result, b.result, allow_code=a.result.allow_code)
    except OrchestratorError as error:
        return {"headline": [safe_line(str(error))], "notes": [], "tables": folded([])}
    shown = [table for table in found.tables if table.key not in _SHOWN_OTHERWISE]
    return {
        "headline": [safe_line(line) for line in found.headline],
        "notes": [safe_line(line) for line in found.notes],
        "tables": folded([grid(table, table.key) for table in shown]),
    }


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{place}")
    else:
        yield path, str(value)


def _about(table: Table) -> tuple[str, str, str]:
    """Return what two tables have in common that are put together."""
    return table.key, table.source, str([column.name for column in table.columns])


def _merged(a: Grid, b: Grid, runs: tuple[str, str]) -> Grid | None:
    """One table of both: names, then what was found in both, and differences of numbers."""
    titles = [title for title, _ in a.columns]
    numeric = [place for place, (_, is_number) in enumerate(a.columns) if is_number]
    worded = [
        place for place, title in enumerate(titles) if title in _FOUND and place not in numeric
    ]
    names = [p for p in range(len(titles)) if p not in numeric and p not in worded]
    mine, others = ({tuple(row[p].text for p in names): row for row in of.rows} for of in (a, b))
    unclear = len(mine) < len(a.rows) or len(others) < len(b.rows)
    if not numeric or not names or unclear:
        return None
    columns = [a.columns[place] for place in names]
    for place in (*worded, *numeric):
        is_number = place in numeric
        columns += [(f"{titles[place]}, {safe_line(run)}", is_number) for run in runs]
        columns += [("difference", True)] if is_number else []
    both = [name for name in mine if name in others]
    rows = []
    for name in both:
        row = [mine[name][place] for place in names]
        for place in (*worded, *numeric):
            pair = (mine[name][place], others[name][place])
            row += [*pair, _difference(*pair)] if place in numeric else pair
        rows.append(row)
    alone = numbers.counted(len(mine) + len(others) - 2 * len(both), "row")
    is_whole = len(mine) == len(others) == len(both)
    notes = () if is_whole else (f"{alone} that occur in only one run were excluded.",)
    of = msgspec.structs.replace(a.of, notes=notes, basis="")
    bounded = [
        number and any(row[i].aside for row in rows) for i, (_, number) in enumerate(columns)
    ]
    return Grid(a.key, of, columns, bounded, rows)


def _difference(a: Shown, b: Shown) -> Shown:
    if not a.order or not b.order:
        return Shown(numbers.UNDEFINED, "", number=True)
    found = float(b.order) - float(a.order)
    if found == 0:
        return Shown("0", "", number=True, order="0.0")
    is_share = a.text.endswith(_PERCENT)
    decimals = _DECIMALS.search(a.text)
    digits = len(decimals[1]) if decimals else 0
    shown = f"{round(100 * found if is_share else found, digits) + 0.0:+.{digits}f}"
    return Shown(f"{shown} pp" if is_share else shown, "", number=True, order=repr(found))


def _items(a: Items, b: Items, of: Measure) -> list[Data]:
    """The items of both whose measure is shown to differ, the largest difference first."""
    measure = of.key
    columns = ("item", "index", measure)
    joined = (
        a.table.select(*columns, "preview")
        .join(b.table.select(columns), on="item", suffix=" b")
        .with_columns(difference=pl.col(f"{measure} b") - pl.col(measure))
        .filter(pl.col("difference").is_finite())
        .filter(pl.col("difference").round(of.digits) != 0)
        .sort(pl.col("difference").abs(), "index", descending=[True, False])
        .head(_MOST_ITEMS)
    )
    return [
        {
            "name": safe_line(row["item"]),
            "preview": safe_line(row["preview"] or ""),
            "index": [row["index"], row["index b"]],
            "values": [row[measure], row[f"{measure} b"], row["difference"]],
        }
        for row in joined.iter_rows(named=True)
    ]
