"""Searching the texts of all items at each keystroke.

The texts of an item stand together in small letters. A search reads all of them by a vectorised
search for a substring, which finds parts of words too and needs no index that is larger than the
texts themselves. Few texts are held in memory; many stay in a file, which is read each time.
"""

import re
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.disk import columnar
from orchestrator.frames import FrameFiles

Found = NDArray[np.bool_]

_TERM: Final = re.compile(r'"([^"]*)"?|(\S+)')
_KEPT: Final = 32
_MOST_TERMS: Final = 12
_HELD_BYTES: Final = 256 << 20
# Columns that hold no text to be looked for but names, of which each row has the same.
_NAMES: Final = frozenset({
    "method", "model", "model_a", "model_b", "judge", "scorer", "status", "observed",
    "finish_reason", "undefined", "fields",
})  # fmt: skip


class Texts:
    """The texts, one row an item.

    Args:
        texts: One column in small letters; the text of an item is in one row.
    """

    def __init__(self, texts: pl.LazyFrame) -> None:
        self._texts = texts
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, ...], Found] = OrderedDict()

    def find(self, query: str) -> Found | None:
        """One truth value an item: whether all terms occur; None where there is no term."""
        found = [quoted or word for quoted, word in _TERM.findall(query.lower())]
        terms = tuple(dict.fromkeys([term for term in found if term][:_MOST_TERMS]))
        return self._find(terms) if terms else None

    def _find(self, terms: tuple[str, ...]) -> Found:
        with self._lock:
            if terms in self._kept:
                self._kept.move_to_end(terms)
                return self._kept[terms]
        *before, last = terms
        held = self._texts.select(pl.first().str.contains(last, literal=True)).collect()
        # A copy, because that of polars can't be written to.
        found = np.array(held.to_series())
        if before:
            # Most of a query was there at the keystroke before.
            found &= self._find(tuple(before))
        with self._lock:
            self._kept[terms] = found
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found


def write_texts(frames: FrameFiles, keys: pl.Series, path: Path) -> Texts:
    """Gather the texts of the items; in a file where they are many.

    Args:
        frames: Of the run.
        keys: The items, in the order of the rows.
        path: The file.
    """
    parts = []
    for name in frames:
        scan = frames.scan(name)
        schema = scan.collect_schema()
        for column, kind in schema.items() if "item" in schema else ():
            if kind == pl.String and column not in _NAMES and column != "item":
                texts_of = scan.select("item", pl.col(column).alias("text"))
                parts.append(texts_of.filter(pl.col("text").is_not_null()).unique())
    nothing = pl.LazyFrame(schema={"item": pl.String, "text": pl.String})
    joined = (
        pl.concat([nothing, *parts])
        .group_by("item")
        .agg(pl.col("text").unique(maintain_order=True).str.join("\n"))
    )
    texts = (
        keys.to_frame("item")
        .lazy()
        .join(joined, on="item", how="left", maintain_order="left")
        .select((pl.col("item") + "\n" + pl.col("text").fill_null("")).str.to_lowercase())
        .collect()
    )
    if texts.estimated_size() <= _HELD_BYTES:
        return Texts(texts.lazy())
    path.parent.mkdir(parents=True, exist_ok=True)
    texts.write_ipc(path, compression="uncompressed")
    return Texts(columnar.scan_arrow(path))
