"""Paired differences between models of a mean, for the tables that order models by it."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.clusters import CLUSTER
from orchestrator.statistics.bounded_mean import difference_ends
from orchestrator.statistics.differences import PairedDifference, paired_difference
from orchestrator.statistics.multiple import adjusted
from orchestrator.tables import Comparison, ModelPair, with_interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def comparisons(
    rows: pl.DataFrame,
    value: pl.Expr,
    confidence_level: float,
    ends: tuple[float, float] | None = None,
) -> tuple[Comparison, ...]:
    """Return the differences between all models of a mean over rows, for each judge.

    Two models are compared on the items and turns for which both have a value, as by
    `orchestrator compare`: each counts once, and intervals and tests are over clusters of items.

    Args:
        rows: Columns item, cluster and model; turn and judge where there are any.
        value: Of each row; null where missing.
        confidence_level: Of all resolvable pairs of a judge together.
        ends: Least and greatest value there can be; None where that is not known.
    """
    # Whole numbers stand for the texts: a pivot or joins take several times the memory.
    points = _codes(rows["item"])
    if "turn" in rows.columns:
        turns = _codes(rows["turn"])
        points = points * (int(turns.max(initial=0)) + 1) + turns
    n_points = int(points.max(initial=-1)) + 1
    clusters = np.zeros(n_points, np.int64)
    clusters[points] = _codes(rows[CLUSTER])
    models, of_model = _named(rows["model"])
    judges, of_judge = _named(rows["judge"]) if "judge" in rows.columns else ([""], 0)
    values = rows.select(value.cast(pl.Float64)).to_series().fill_null(math.nan).to_numpy()
    found = []
    for at, judge in enumerate(judges):
        kept = ~np.isnan(values) & (of_judge == at)
        if not kept.any():
            continue
        places = of_model[kept] * n_points + points[kept]
        n = len(models) * n_points
        counts = np.bincount(places, minlength=n)
        sums = np.bincount(places, values[kept], minlength=n)
        means = np.divide(sums, counts, out=np.full(n, np.nan), where=counts > 0)
        pairs = _pairs(models, means.reshape(-1, n_points), clusters, confidence_level, ends)
        found.append(Comparison(judge, confidence_level, tuple(pairs)))
    return tuple(found)


def _pairs(
    models: Sequence[str],
    means: Floats,
    clusters: Ints,
    level: float,
    ends: tuple[float, float] | None,
) -> Iterator[ModelPair]:
    """Yield the pairs of one judge.

    Args:
        models: M names.
        means: Shape (M, points); nan where missing.
        clusters: Shape (points,).
        level: As for `comparisons`.
        ends: Likewise.
    """
    reach = difference_ends(ends, ends)
    found = [
        _upwards(means, first, second, clusters, reach)
        for first, second in combinations(range(len(models)), 2)
    ]
    p_values = np.array([one.p_value() for _, _, one in found], np.float64)
    together = adjusted(p_values, 1.0 - level)
    for at, (higher, lower, one) in enumerate(found):
        error = float(together.errors[at])
        # Without a test, any level gives the reason why there is no interval.
        interval = one.interval(0.5 if math.isnan(error) else 1.0 - error)
        yield ModelPair(
            higher=models[higher],
            lower=models[lower],
            difference=with_interval(_number(one.value), interval, one.n),
            p_value=_number(p_values[at]),
            adjusted_p=_number(together.p_values[at]),
            resolvable=bool(together.is_resolved[at]),
            level=_number(1.0 - error),
        )


def _upwards(
    means: Floats, first: int, second: int, clusters: Ints, ends: tuple[float, float] | None
) -> tuple[int, int, PairedDifference]:
    """Return the model that is higher on the points of both, the other, and the difference."""
    found = paired_difference(means[second], means[first], clusters, ends)
    if found.value < 0.0:
        return second, first, paired_difference(means[first], means[second], clusters, ends)
    return first, second, found


def _named(column: pl.Series) -> tuple[list[str], Ints]:
    """Return the names in a column, in their order, and the place of each row's among them."""
    column = column.cast(pl.Categorical).fill_null("")
    names = column.unique(maintain_order=True).cast(pl.String)
    return names.to_list(), column.cast(pl.Enum(names)).to_physical().cast(pl.Int64).to_numpy()


def _codes(column: pl.Series) -> Ints:
    """Return values as whole numbers in any order, from 0 on, which stands for null."""
    if column.dtype == pl.String:
        column = column.cast(pl.Categorical).to_physical()
    ranks: Ints = column.rank("dense").fill_null(0).cast(pl.Int64).to_numpy()
    return ranks


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
