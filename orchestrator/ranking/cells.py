"""Means of a frame's rows as cells, with intervals over clusters of prompts."""

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.clusters import CLUSTER, OVER, codes, counted, prompt_words
from orchestrator.statistics.clustered import clustered_share
from orchestrator.statistics.means import clustered_mean
from orchestrator.tables import Cell, Measured, measured

_NAMED = ("category", "model", "judge", "status", "cause")
METHODS = (
    "intervals are over prompts: shares by Gaffke's test of a bounded mean, other means by the "
    "jackknife with Student's t, an approximation"
)


def numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with items and clusters as whole numbers, in the order of their names.

    Numbers are sorted, joined and counted in a fraction of the time and memory of texts.
    """
    items = rows["item"]
    numbers = items.rank("dense").cast(pl.Int32)

    def ranked(column: str) -> pl.Series:
        """Most often each item is its own prompt and its own cluster."""
        alone = rows[column].equals(items, check_names=False)
        return (numbers if alone else rows[column].rank("dense").cast(pl.Int32)).alias(column)

    named = [name for name in _NAMED if rows.schema.get(name) == pl.String()]
    return rows.with_columns(
        numbers,
        *map(ranked, OVER),
        pl.col(named).cast(pl.Categorical),
    )


def without_n(cell: Measured) -> Measured:
    """The cell, where another place says what it rests on."""
    return msgspec.structs.replace(cell, n=None, n_clusters=None)


def n_prompts(rows: pl.DataFrame) -> Cell:
    """Return the number of prompts in the rows, with the number of clusters where there are any."""
    n_items, n_clusters = counted(rows)
    return n_items if n_clusters is None else Measured(n_items, n_clusters=n_clusters)


def basis_of(rows: pl.DataFrame) -> str:
    """Prompts of a frame, and what failed by model."""
    basis = prompt_words(rows)
    failed = rows.filter(pl.col("status") != "ok")
    if failed.is_empty():
        return basis
    counts = failed.group_by("model", maintain_order=True).len().rows()
    by_model = ", ".join(f"{model} {n:,}" for model, n in counts)
    return f"{basis} · {len(failed):,} failed ({by_model})"


def prompts_of(rows: pl.DataFrame) -> NDArray[np.int64]:
    """The cluster of each row as a number: what intervals are over, shape (n,)."""
    return codes(rows[CLUSTER])


def share_of(rows: pl.DataFrame, flag: pl.Expr, confidence_level: float) -> Measured:
    """The mean of a flag, or of values in [0, 1], over rows; null is left out."""
    known = rows.select(*OVER, value=flag.cast(pl.Float64)).drop_nulls("value")
    if known.is_empty():
        return Measured(None, n=0, why="nothing to count")
    sums = known.group_by(CLUSTER, maintain_order=True).agg(
        total=pl.col("value").sum(), n=pl.len().cast(pl.Float64)
    )
    found = clustered_share(sums["total"].to_numpy(), sums["n"].to_numpy(), confidence_level)
    return _counted(measured(found), known)


def mean_of(
    rows: pl.DataFrame,
    value: pl.Expr,
    confidence_level: float,
    ends: tuple[float, float] | None = None,
) -> Measured:
    """The mean of numbers over rows, which have known ends or not; null is left out."""
    known = rows.select(*OVER, value=value.cast(pl.Float64)).drop_nulls("value")
    found = clustered_mean(known["value"].to_numpy(), prompts_of(known), confidence_level, ends)
    return _counted(measured(found), known)


def _counted(cell: Measured, rows: pl.DataFrame) -> Measured:
    """The cell with the prompts that it rests on, and their clusters."""
    n_items, n_clusters = counted(rows)
    return msgspec.structs.replace(cell, n=n_items, n_clusters=n_clusters)
