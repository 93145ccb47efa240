"""Means of a frame's rows as cells, with intervals, and paired differences between models."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, cycle, pairwise
from typing import Any

import msgspec
import numpy as np
import polars as pl

from orchestrator import plugins
from orchestrator.clusters import CLUSTER, OVER, Clusters, codes, counted, prompt_words
from orchestrator.contracts.context import Context, Source
from orchestrator.numbers import finite
from orchestrator.records import Floats, Ints
from orchestrator.statistics.bounded_mean import difference_ends
from orchestrator.statistics.means import (
    clustered_mean,
    decided_together,
    paired_difference,
    share_over,
)
from orchestrator.statistics.results import Estimate
from orchestrator.tables import Cell, Comparison, Measured, ModelPair, measured

METHODS = (
    "intervals are over prompts: shares by Gaffke's test of a bounded mean, other means by the "
    "jackknife with Student's t, an approximation"
)


def given(context: Context, source: Source, columns: Sequence[str] | None) -> pl.DataFrame:
    """Return the rows of a method for its summary; with texts only if the method is not bundled."""
    if source.kind not in plugins.kinds(plugins.METHODS):
        return context.rows_of(source, columns)
    return numbered(msgspec.structs.replace(context, name=source.name, sources=[source]), columns)


def numbered(context: Context, columns: Sequence[str] | None, **made: pl.Expr) -> pl.DataFrame:
    """Return rows of the method of a context with numbers for items, clusters and prompts.

    Numbers follow the order of names, and other texts are categories: rows are read in slices, and
    sorted, joined and counted in a fraction of the time and memory of texts. `made` are further
    columns, which are made while rows are read: of lists and texts.
    """
    rows = context.rows_of(context.own, columns, as_categories=True, **made)
    if "item" not in rows.columns:
        return rows
    return rows.with_columns(numbers_of(rows["item"], context.clusters, ("item", *OVER)))


def packed(rows: pl.DataFrame, keys: Sequence[str]) -> pl.Series:
    """Return a whole number for each row, another one where any of the keys differs."""
    code = np.zeros(len(rows), np.uint64)
    for key in keys:
        column = rows[key]
        if column.dtype == pl.String:
            column = column.cast(pl.Categorical)
        if isinstance(column.dtype, pl.Categorical | pl.Enum):
            column = column.to_physical()
        if column.has_nulls():
            # From 1 on; 0 where the row has none.
            column = column.rank("dense").fill_null(0)
        own = codes(column).astype(np.uint64)
        code *= own.max(initial=0) + np.uint64(1)
        code += own
    return pl.Series(code).shrink_dtype()


def numbers_of(items: pl.Series, clusters: Clusters, names: Sequence[str] = OVER) -> pl.DataFrame:
    """Return what `names` says of items, which are categories, as numbers in the order of names."""
    places, keys = items.to_physical(), items.unique().drop_nulls()
    at = keys.to_physical().to_numpy()
    found = clusters.of(keys.cast(pl.String).to_frame("item"))
    numbers = []
    # Where every item stands alone, all names say the same of it and share its numbers.
    for name in names if clusters.are_known else names[:1]:
        of_place = np.zeros(int(at.max(initial=0)) + 1, np.int32)
        of_place[at] = codes(found[name]) + 1
        numbers.append(pl.Series(name, of_place).gather(places))
    return pl.DataFrame([one.alias(name) for one, name in zip(cycle(numbers), names, strict=False)])


def groups(rows: pl.DataFrame, *by: str) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    """Yield each combination of values, in the order of the rows, with its rows.

    One is held at a time: all groups together would be all rows once more.
    """
    code = packed(rows, by)
    for place in code.arg_unique().sort().to_list() if len(rows) else ():
        alike = code == code[place]
        yield rows.select(by).row(place), rows if alike.all() else rows[alike.arg_true()]


def good_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that did not fail; a filter that keeps all would copy all."""
    good = (rows["status"] == "ok").fill_null(value=False)
    return rows if good.all() else rows.filter(good)


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


def floats(column: pl.Series) -> Floats:
    """Return the values of a column, shape (n,); nan where one is missing."""
    return column.cast(pl.Float64).fill_null(math.nan).to_numpy().astype(np.float64)


def plain_mean(values: pl.Series) -> float | None:
    """Return the mean, with no interval: it describes what was read and compares no models."""
    found = values.cast(pl.Float64).mean()
    return found if isinstance(found, float) else None


def entropy(column: str) -> pl.Expr:
    """Return -sum_k p_k ln p_k of each list; a label without probability adds nothing."""
    share = pl.element()
    return -pl.col(column).list.eval(pl.when(share > 0).then(share * share.log())).list.sum()


def means_by_model(
    context: Context, rows: pl.DataFrame, oriented: Mapping[str, int]
) -> list[list[Cell]]:
    """Return lines of model, column, sign of what is better, mean, known and undefined values.

    The columns, of which some may not be there, are read one at a time beside the rows.
    """
    kept = rows.select("model", "status", *OVER)
    lines: dict[str, list[list[Cell]]] = {}
    for name, better in oriented.items():
        values = context.rows_of(context.own, [name], as_categories=True)
        if name not in values.columns:
            continue
        for (model,), group in groups(kept.with_columns(values[name]), "model"):
            good = good_rows(group)
            mean = mean_of(good, pl.col(name), context.confidence_level, with_n=True)
            undefined = good[name].null_count()
            sign = {1: "+", -1: "-"}.get(better, "")
            line = [model, name, sign, mean, len(good) - undefined, undefined]
            lines.setdefault(model, []).append(line)
    return [line for of_model in lines.values() for line in of_model]


def share_of(
    rows: pl.DataFrame, flag: pl.Expr, confidence_level: float, *, with_n: bool = False
) -> Measured:
    """The mean of a flag, or of values in [0, 1], over rows; null is left out."""
    known = rows.select(*OVER, value=flag.cast(pl.Float64)).drop_nulls("value")
    found = share_over(known["value"].to_numpy(), codes(known[CLUSTER]), confidence_level)
    return _counted(found, known, with_n)


def mean_of(
    rows: pl.DataFrame,
    value: pl.Expr,
    confidence_level: float,
    ends: tuple[float, float] | None = None,
    *,
    with_n: bool = False,
) -> Measured:
    """The mean of numbers over rows, which have known ends or not; null is left out."""
    known = rows.select(*OVER, value=value.cast(pl.Float64)).drop_nulls("value")
    found = clustered_mean(known["value"].to_numpy(), codes(known[CLUSTER]), confidence_level, ends)
    return _counted(found, known, with_n)


def _counted(found: Estimate, rows: pl.DataFrame, with_n: bool) -> Measured:  # noqa: FBT001
    if not with_n:
        return measured(found)
    n_items, n_clusters = counted(rows)
    return msgspec.structs.replace(measured(found), n=n_items, n_clusters=n_clusters)


def comparisons(
    rows: pl.DataFrame,
    value: pl.Expr,
    confidence_level: float,
    ends: tuple[float, float] | None = None,
) -> tuple[Comparison, ...]:
    """Return the differences between all models of a mean over rows, for each judge.

    Two models are compared on the items and turns for which both have a value, as by `orchestrator
    compare`: each counts once, and intervals and tests are over clusters of items. Missing values
    are null. `confidence_level` is that of all resolvable pairs of a judge together; `ends` are the
    least and greatest value there can be, None where not known.
    """
    # Whole numbers stand for the texts: a pivot or joins take several times the memory.
    points = _codes(rows, *(name for name in ("item", "turn") if name in rows.columns))
    n_points = int(points.max(initial=-1)) + 1
    clusters = np.zeros(n_points, np.int64)
    clusters[points] = _codes(rows, CLUSTER)
    models, of_model = _named(rows["model"])
    judges, of_judge = _named(rows["judge"]) if "judge" in rows.columns else ([""], 0)
    values = rows.select(value.cast(pl.Float64)).to_series().fill_null(math.nan).to_numpy()
    found = []
    for at, judge in enumerate(judges):
        kept = ~np.isnan(values) & (of_judge == at)
        if not kept.any():
            continue
        # A choice that keeps all would copy all.
        chosen = slice(None) if kept.all() else kept
        places = of_model[chosen] * np.int64(n_points)
        places += points[chosen]
        means = mean_by_place(values[chosen], places, len(models) * n_points)
        del places
        pairs = _pairs(models, means.reshape(-1, n_points), clusters, confidence_level, ends)
        found.append(Comparison(judge, confidence_level, tuple(pairs)))
    return tuple(found)


def mean_by_place(values: Floats, places: Ints, n: int) -> Floats:
    """Return the mean of the values at each place in [0, n), shape (n,); nan where there are none.

    `values` and `places` have shape (m,); nan is left out.
    """
    known = ~np.isnan(values)
    # A choice that keeps all would copy all.
    if not known.all():
        values, places = values[known], places[known]
    counts = np.bincount(places, minlength=n)
    sums = np.bincount(places, values, minlength=n)
    means: Floats = np.divide(sums, counts, out=np.full(n, math.nan), where=counts > 0)
    return means


def _pairs(
    models: Sequence[str],
    means: Floats,
    clusters: Ints,
    level: float,
    ends: tuple[float, float] | None,
) -> Iterator[ModelPair]:
    """Yield the pairs of one judge.

    `means` have shape (M, points), nan where missing; `clusters` (points,).
    """
    reach = difference_ends(ends, ends)
    found = []
    for higher, lower in combinations(range(len(models)), 2):
        gap = paired_difference(means[lower], means[higher], clusters, reach)
        if gap.value < 0.0:
            higher, lower = lower, higher
            gap = paired_difference(means[lower], means[higher], clusters, reach)
        found.append((higher, lower, gap))
    together = decided_together([one for _, _, one in found], level)
    for (higher, lower, _), decided in zip(found, together, strict=True):
        yield ModelPair(
            higher=models[higher],
            lower=models[lower],
            difference=measured(decided.estimate, with_n=True),
            p_value=finite(decided.p_value),
            adjusted_p=finite(decided.adjusted_p),
            resolvable=decided.is_resolved,
            level=finite(decided.level),
        )


def _named(column: pl.Series) -> tuple[list[str], Ints]:
    """Return the names in a column, in their order, and the place of each row's among them."""
    column = column.cast(pl.Categorical).fill_null("")
    names = column.unique(maintain_order=True).cast(pl.String)
    return names.to_list(), column.cast(pl.Enum(names)).to_physical().cast(pl.Int32).to_numpy()


def _codes(rows: pl.DataFrame, *columns: str) -> Ints:
    """Return the values of columns together as whole numbers in any order, from 0 on."""
    return codes(packed(rows, columns)).astype(np.int32)


def order_words(values: Floats, models: Sequence[str]) -> str:
    """Return the models as `a > b = c`, the largest value first, those without one last.

    Empty without models.
    """
    known = zip(np.nan_to_num(values, nan=-np.inf).tolist(), models, strict=True)
    ranked = sorted(known, key=lambda pair: (-pair[0], pair[1]))
    words = [name for _, name in ranked[:1]]
    for (before, _), (after, model) in pairwise(ranked):
        words += ["=" if before == after else ">", model]
    return " ".join(words)
