"""Selection of a snapshot's items, and the export of the selected ones as a file."""

import io
import re
from typing import Final

import polars as pl

from orchestrator.errors import UsageError
from orchestrator.report.files import harmless
from orchestrator.schemas import ITEMS
from orchestrator.view.items import Rows, Wanted
from orchestrator.view.snapshot import Snapshot

_EXPORTS: Final = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


def selected(snapshot: Snapshot, wanted: Wanted) -> Rows:
    """Numbers of the items that are wanted, in the order that is wanted.

    Raises:
        UsageError: If a condition or an order can't be read.
    """
    found = snapshot.texts.find(wanted.query) if wanted.query.strip() else None
    return snapshot.items.select(wanted, found)


def exported(snapshot: Snapshot, wanted: Wanted, form: str, run: str) -> tuple[bytes, str, str]:
    """The items that are wanted, with their whole prompts, as a file: content, name, type.

    CSV is made safe for spreadsheets as `orchestrator export` does it; JSON is exact.

    Raises:
        UsageError: If there is no such form, or the selection can't be read.
    """
    if form not in _EXPORTS:
        raise UsageError(f"items can be exported as csv or json, not as {form!r}")
    rows = selected(snapshot, wanted)
    table = snapshot.items.table[rows].drop("preview")
    frames = snapshot.result.frames
    if ITEMS in frames:
        texts = frames.scan(ITEMS).select("item", "prompt", "reference")
        table = table.lazy().join(texts, on="item", how="left", maintain_order="left").collect()
    to = io.BytesIO()
    if form == "csv":
        # Names of columns are cells of the file too
        names = pl.DataFrame({"name": table.columns})
        table = table.rename(dict(zip(table.columns, harmless(names)["name"], strict=True)))
        harmless(table).write_csv(to)
    else:
        table.write_json(to)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", run)[:80]
    return to.getvalue(), f"{name}-items.{form}", _EXPORTS[form]
