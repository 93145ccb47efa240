"""Dependence between the items of a run: the one place that says what intervals are over.

A cluster is what is sampled as a whole, such as the questions on one passage. Every interval, test,
bootstrap and stopping rule takes the clusters for independent, and nothing within one of them. An
item for which the dataset names no cluster is a cluster of its own.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.frames import columns_of
from orchestrator.tables import counted_words

CLUSTER: Final = "cluster"
"""Column beside `item` in rows that are summarised."""

_ITEM: Final = "item"
_COLUMNS: Final = (_ITEM, CLUSTER)


class Clusters:
    """The cluster of each item of a run by its key, for frames of results.

    Before there are results, a dataset has them by place: `ClusterCodes` in `dataset.py`.

    Args:
        items: Columns item and cluster; cluster is null where an item stands alone. None where
            every item does.

    Attributes:
        n: Clusters of all items; 0 where the items are not known.
    """

    def __init__(self, items: pl.DataFrame | None = None) -> None:
        named = None
        self.n = 0
        if items is not None and set(_COLUMNS) <= set(items.columns):
            named = items.select(_COLUMNS).drop_nulls().unique(_ITEM, maintain_order=True)
            self.n = items[_ITEM].n_unique() - len(named) + named[CLUSTER].n_unique()
            if named[CLUSTER].n_unique() == len(named):
                named = None
        # No name of a cluster may be the key of an item that stands alone.
        self._named = None if named is None else named.with_columns("cluster " + pl.col(CLUSTER))

    @property
    def are_named(self) -> bool:
        """True if any two items belong together."""
        return self._named is not None

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with the column `cluster`; those without an item stay as they are."""
        if _ITEM not in rows.columns or CLUSTER in rows.columns:
            return rows
        if self._named is None:
            return rows.with_columns(pl.col(_ITEM).alias(CLUSTER))
        joined = rows.join(self._named, on=_ITEM, how="left", maintain_order="left")
        return joined.with_columns(pl.col(CLUSTER).fill_null("item " + pl.col(_ITEM)))

    def codes(self, items: pl.Series) -> NDArray[np.int64]:
        """The cluster of each of n items by key, as whole numbers from 0 on: shape (n,)."""
        return codes(self.of(items.to_frame(_ITEM))[CLUSTER])


def clusters_of(frames: Mapping[str, pl.DataFrame]) -> Clusters:
    """The clusters as the frame of the items has them; runs of older versions have none."""
    return Clusters(columns_of(frames, "items", _COLUMNS)) if "items" in frames else Clusters()


def codes(column: pl.Series) -> NDArray[np.int64]:
    """Names as whole numbers in their sorted order, from 0 on: shape (n,)."""
    ranks: NDArray[np.int64] = column.rank("dense").cast(pl.Int64).to_numpy()
    return ranks - 1


def counted(rows: pl.DataFrame) -> tuple[int, int | None]:
    """Items among the rows, and their clusters; None where each item stands alone."""
    n_items, n_clusters = rows[_ITEM].n_unique(), rows[CLUSTER].n_unique()
    return n_items, None if n_clusters == n_items else n_clusters


def prompt_words(rows: pl.DataFrame) -> str:
    """The prompts of rows in words: 60 prompts, or 60 prompts in 20 clusters."""
    return counted_words(*counted(rows))
