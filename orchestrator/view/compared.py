"""Two runs side by side: paired differences, settings and items that differ.

Paired differences are those of `orchestrator compare`.
"""

from itertools import islice
from typing import Any, Final

import polars as pl

from orchestrator.errors import OrchestratorError
from orchestrator.report.html.shell import grid, safe_block
from orchestrator.report.text import page_line
from orchestrator.runner.api import compare
from orchestrator.runner.comparing.differences import differing
from orchestrator.view.items import Items, Measure
from orchestrator.view.library import Snapshot
from orchestrator.view.overview import folded

_MOST_ITEMS: Final = 50
_MOST_SETTINGS: Final = 200
_MAX_SETTING: Final = 300
# The page has settings and items of its own.
_SHOWN_OTHERWISE: Final = frozenset({"compare.settings", "compare.items"})

Data = dict[str, Any]


def compared(a: Snapshot, b: Snapshot, measure: str) -> Data:
    """Return the common ground and the differences of two runs.

    Of a `measure` that is unknown, the first that they share stands for it.
    """
    settings = differing([a.result.settings, b.result.settings])
    shared = [one for one in a.items.measures if one in b.items.measures]
    chosen = next((one for one in shared if one.key == measure), shared[0] if shared else None)
    return {
        "paired": _paired(a, b),
        "settings": [
            [page_line(path), *(safe_block(one, _MAX_SETTING) for one in values)]
            for path, values in islice(settings, _MOST_SETTINGS)
        ],
        "measures": shared,
        "measure": chosen and chosen.key,
        "items": [] if chosen is None else _items(a.items, b.items, chosen),
        "n_shared": len(a.items.table.join(b.items.table, on="item", how="semi")),
    }


def _paired(a: Snapshot, b: Snapshot) -> Data:
    """The comparison of both runs, as `orchestrator compare` prints it; or why there is none."""
    try:
        found = compare(a.result, b.result, allow_code=a.result.allow_code)
    except OrchestratorError as error:
        return {"headline": [page_line(str(error))], "notes": [], "tables": folded([])}
    shown = [table for table in found.tables if table.key not in _SHOWN_OTHERWISE]
    return {
        "headline": [page_line(line) for line in found.headline],
        "notes": [page_line(line) for line in found.notes],
        "tables": folded([grid(table, table.key) for table in shown]),
    }


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
            "name": page_line(row["item"]),
            "preview": page_line(row["preview"] or ""),
            "index": [row["index"], row["index b"]],
            "values": [row[measure], row[f"{measure} b"], row["difference"]],
        }
        for row in joined.iter_rows(named=True)
    ]
