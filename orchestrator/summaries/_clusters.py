"""Means and shares of a frame's rows as cells, with intervals over prompts."""

import msgspec
import numpy as np
import polars as pl

from orchestrator.statistics.clustered import clustered_share
from orchestrator.statistics.jackknife import (
    Floats,
    Jackknifed,
    jackknife_sums,
    student_interval,
)
from orchestrator.tables import Measured, measured

METHODS = (
    "intervals are over prompts: shares by Wilson's interval on the effective number of prompts, "
    "means by the jackknife with Student's t"
)


_NOTHING = Measured(None, n=0, why="nothing to average")


def without_n(cell: Measured) -> Measured:
    """The cell, where another place says what it rests on."""
    return msgspec.structs.replace(cell, n=None)


def share_of(rows: pl.DataFrame, flag: pl.Expr, confidence_level: float) -> Measured:
    """The mean of a flag, or of values in [0, 1], over rows; null is left out.

    Args:
        rows: With the column `item`.
        flag: Booleans or numbers.
        confidence_level: In (0, 1).
    """
    sums = _by_item(rows, flag)
    if not len(sums):
        return _NOTHING
    return measured(clustered_share(sums[:, 0], sums[:, 1], confidence_level))


def mean_of(rows: pl.DataFrame, value: pl.Expr, confidence_level: float) -> Measured:
    """The mean of numbers over rows; null is left out."""
    sums = _by_item(rows, value)
    if not len(sums):
        return _NOTHING
    if len(sums) == 1:
        return Measured(float(_ratio(sums)[0]), n=1, why="one prompt: no interval")
    return _shown(jackknife_sums(sums, _ratio), confidence_level)


def macro_share_of(rows: pl.DataFrame, flag: pl.Expr, by: str, confidence_level: float) -> Measured:
    """The unweighted mean over groups of each group's mean of a flag."""
    groups = [_by_item(group, flag) for _, group in rows.group_by(by, maintain_order=True)]
    groups = [sums for sums in groups if len(sums)]
    if not groups:
        return _NOTHING
    n = len(groups)
    n_prompts = sum(map(len, groups))
    if min(map(len, groups)) < 2:
        value = sum(float(_ratio(sums.sum(axis=0)[None])[0]) for sums in groups) / n
        return Measured(value, n=n_prompts, why="a category has one prompt: no interval")
    found = [jackknife_sums(sums, _ratio) for sums in groups]
    value = sum(one.value for one in found) / n
    errors = np.concatenate([one.errors for one in found]) / n
    cell = _shown(Jackknifed(value, errors), confidence_level, n_strata=n)
    if cell.low is None or cell.high is None:
        return cell
    return Measured(value, max(cell.low, 0.0), min(cell.high, 1.0), n_prompts)


def _by_item(rows: pl.DataFrame, value: pl.Expr) -> Floats:
    """Sum and number of values by item, shape (n_items, 2)."""
    known = rows.select("item", value=value.cast(pl.Float64)).drop_nulls("value")
    summed = known.group_by("item", maintain_order=True).agg(
        total=pl.col("value").sum(), n=pl.len().cast(pl.Float64)
    )
    sums: Floats = summed.select("total", "n").to_numpy()
    return sums


def _ratio(sums: Floats) -> Floats:
    result: Floats = sums[:, 0] / sums[:, 1]
    return result


def _shown(found: Jackknifed, confidence_level: float, *, n_strata: int = 1) -> Measured:
    interval = student_interval(
        found.value, found.standard_error, found.n_prompts, confidence_level, n_strata=n_strata
    )
    if isinstance(interval, str):
        return Measured(found.value, n=found.n_prompts, why=interval)
    return Measured(found.value, interval.low, interval.high, found.n_prompts)
