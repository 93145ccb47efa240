"""Dependence between the items of a run: the one place that says what intervals are over.

A cluster is what is sampled as a whole, such as the questions on one passage. Every interval, test,
bootstrap and stopping rule takes the clusters for independent, and nothing within one of them. An
item for which the dataset names no cluster is a cluster of its own, with its copies: items that ask
the same are one prompt, however many rows they have.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.columns import ITEMS
from orchestrator.frames import columns_of, lazy_of, names_of
from orchestrator.statistics.multiple import connected
from orchestrator.statistics.resampling import codes_of
from orchestrator.tables import counted_words

CLUSTER: Final = "cluster"
"""Column beside `item` in rows that are summarised."""
PROMPT: Final = "prompt_key"
"""Column beside it: the first of the items that ask the same, by which prompts are counted."""
OVER: Final = (CLUSTER, PROMPT)

_ITEM: Final = "item"
_SAME: Final = "same_as"
_COLUMNS: Final = (_ITEM, CLUSTER, _SAME)


class Clusters:
    """The cluster of each item of a run by its key, for frames of results.

    Before there are results, a dataset has them by place: `orchestrator.dataset.ClusterCodes`.

    Args:
        items: Columns item, cluster and same_as; cluster is null where the dataset names none,
            same_as where no item before asks the same. None where every item stands alone.

    Attributes:
        n: Clusters of all items; 0 where the items are not known.
        n_prompts: Items that ask something of their own; 0 likewise.
    """

    def __init__(self, items: pl.DataFrame | None = None) -> None:
        self._of: pl.DataFrame | None = None
        self.n = self.n_prompts = 0
        if items is None or _ITEM not in items.columns:
            return
        absent = [name for name in _COLUMNS if name not in items.columns]
        items = items.with_columns(pl.lit(None, pl.String).alias(name) for name in absent)
        found = items.unique(_ITEM, maintain_order=True).select(_COLUMNS)
        n_items = len(found)
        # What no other item is named with stands alone: of most runs, nearly all.
        originals = found[_SAME].drop_nulls().implode()
        is_alone = pl.col(CLUSTER).is_null() & pl.col(_SAME).is_null()
        found = found.filter(is_alone.not_() | pl.col(_ITEM).is_in(originals)).select(
            _ITEM,
            # No name of a cluster may be the key of an item that stands alone.
            pl.coalesce("cluster " + pl.col(CLUSTER), "item " + pl.coalesce(_SAME, _ITEM)).alias(
                CLUSTER
            ),
            pl.coalesce(_SAME, _ITEM).alias(PROMPT),
        )
        joined = connected(codes(found[CLUSTER]), codes(found[PROMPT]))
        found = found.with_columns(found[CLUSTER].gather(joined))
        n_alone = n_items - len(found)
        self.n = n_alone + found[CLUSTER].n_unique()
        self.n_prompts = n_alone + found[PROMPT].n_unique()
        if self.n < n_items:
            self._of = found

    @property
    def are_known(self) -> bool:
        """True if any two items belong together."""
        return self._of is not None

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with the columns of `OVER`; those without an item stay as they are."""
        if _ITEM not in rows.columns or CLUSTER in rows.columns:
            return rows
        if self._of is None:
            return rows.with_columns(pl.col(_ITEM).alias(name) for name in OVER)
        joined = rows.join(self._of, on=_ITEM, how="left", maintain_order="left")
        return joined.with_columns(
            pl.col(CLUSTER).fill_null("item " + pl.col(_ITEM)), pl.coalesce(PROMPT, _ITEM)
        )

    def counted(self, items: pl.Series) -> tuple[int, int | None]:
        """Count prompts and clusters of items by key, as `counted` does."""
        return counted(self.of(items.to_frame(_ITEM)))


def clusters_of(frames: Mapping[str, pl.DataFrame]) -> Clusters:
    """The clusters as the frame of the items has them; runs of older versions have none."""
    found, names = Clusters(), names_of(frames, ITEMS)
    if _ITEM in names:
        # Of most runs every item stands alone, and their keys need not be read.
        is_named = [pl.col(one).is_not_null().any() for one in (CLUSTER, _SAME) if one in names]
        n, *named = lazy_of(frames, ITEMS).select(pl.len(), *is_named).collect().row(0)
        if any(named):
            return Clusters(columns_of(frames, ITEMS, _COLUMNS))
        found.n = found.n_prompts = n
    return found


def codes(column: pl.Series) -> NDArray[np.int64]:
    """Names as whole numbers in their sorted order, from 0 on: shape (n,)."""
    if column.dtype.is_integer() and not column.has_nulls():
        return codes_of(column.to_numpy())
    ranks: NDArray[np.int64] = column.rank("dense").cast(pl.Int64).to_numpy()
    return ranks - 1


def n_distinct(column: pl.Series) -> int:
    """Return the number of different values."""
    if not column.dtype.is_integer() or column.has_nulls():
        return column.n_unique()
    return int(codes(column).max(initial=-1)) + 1


def counted(rows: pl.DataFrame) -> tuple[int, int | None]:
    """Prompts among the rows, and their clusters; None where each prompt stands alone."""
    n_prompts, n_clusters = n_distinct(rows[PROMPT]), n_distinct(rows[CLUSTER])
    return n_prompts, None if n_clusters == n_prompts else n_clusters


def prompt_words(rows: pl.DataFrame) -> str:
    """The prompts of rows in words: 60 prompts, or 60 prompts in 20 clusters."""
    return counted_words(*counted(rows))
