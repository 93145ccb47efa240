"""Means of a frame's rows as cells, with intervals over prompts."""

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.statistics.clustered import clustered_share
from orchestrator.statistics.means import clustered_mean
from orchestrator.tables import Measured, measured

METHODS = (
    "intervals are over prompts: shares by Wilson's interval on the effective number of prompts, "
    "means by the jackknife with Student's t"
)


def without_n(cell: Measured) -> Measured:
    """The cell, where another place says what it rests on."""
    return msgspec.structs.replace(cell, n=None)


def basis_of(rows: pl.DataFrame) -> str:
    """Prompts of a frame, and what failed by model."""
    basis = f"{rows['item'].n_unique():,} prompts"
    failed = rows.filter(pl.col("status") != "ok")
    if failed.is_empty():
        return basis
    counts = failed.group_by("model", maintain_order=True).len().rows()
    by_model = ", ".join(f"{model} {n:,}" for model, n in counts)
    return f"{basis} · {len(failed):,} failed ({by_model})"


def prompts_of(rows: pl.DataFrame) -> NDArray[np.int64]:
    """Items as numbers, shape (n,)."""
    codes: NDArray[np.int64] = rows["item"].rank("dense").cast(pl.Int64).to_numpy()
    return codes


def share_of(rows: pl.DataFrame, flag: pl.Expr, confidence_level: float) -> Measured:
    """The mean of a flag, or of values in [0, 1], over rows; null is left out."""
    known = rows.select("item", value=flag.cast(pl.Float64)).drop_nulls("value")
    if known.is_empty():
        return Measured(None, n=0, why="nothing to count")
    sums = known.group_by("item", maintain_order=True).agg(
        total=pl.col("value").sum(), n=pl.len().cast(pl.Float64)
    )
    return measured(
        clustered_share(sums["total"].to_numpy(), sums["n"].to_numpy(), confidence_level)
    )


def mean_of(rows: pl.DataFrame, value: pl.Expr, confidence_level: float) -> Measured:
    """The mean of numbers over rows; null is left out."""
    known = rows.select("item", value=value.cast(pl.Float64)).drop_nulls("value")
    return measured(clustered_mean(known["value"].to_numpy(), prompts_of(known), confidence_level))
