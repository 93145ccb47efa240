"""AlignBench: ratings by category, and the overall score as a macro average.

Overall = the mean of (the mean of the two reasoning categories) and (the mean of the six language
categories). Each category weighs the same within its half, whatever its number of questions.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.judgment.harness.align_bench import LANGUAGE, REASONING
from orchestrator.statistics.jackknife import Jackknifed, jackknife_sums, student_interval
from orchestrator.summaries._base import Context
from orchestrator.summaries._clusters import METHODS, mean_of
from orchestrator.summaries._harness import OK, rating_tables
from orchestrator.tables import Cell, Column, Measured, Table, make_table, with_interval

Floats = NDArray[np.float64]

_HALVES: Final = (REASONING, LANGUAGE)
_COLUMNS: Final = (
    Column("model"),
    Column("judge"),
    Column("overall", "number", 2),
    Column("reasoning", "number", 2),
    Column("language", "number", 2),
    Column("over all questions", "number", 2),
)


def summarise(context: Context) -> list[Table]:
    """Overall scores where the dataset has AlignBench's categories, then ratings."""
    tables = rating_tables(context, "AlignBench")
    known = {name for half in _HALVES for names in half.items() for name in names}
    if not tables or not known & set(context.rows["category"].drop_nulls()):
        return tables
    lines = [
        [str(model), str(judge), *_line(rows, context.confidence_level)]
        for (model, judge), rows in context.rows.group_by("model", "judge", maintain_order=True)
    ]
    notes = ["overall: mean of the two halves, each the mean of its categories' means", METHODS]
    overall = make_table("align_bench.overall", "AlignBench: overall", _COLUMNS, lines, notes=notes)
    return [overall, *tables]


def _line(rows: pl.DataFrame, confidence_level: float) -> list[Cell]:
    good = rows.filter(OK & pl.col("rating").is_not_null())
    halves = [_groups(good, names) for names in _HALVES]
    both = [(0.5 * weight, sums) for half in halves for weight, sums in half]
    return [
        _weighted(both, confidence_level),
        *(_weighted(half, confidence_level) for half in halves),
        mean_of(good, pl.col("rating"), confidence_level).value,
    ]


def _groups(good: pl.DataFrame, names: Mapping[str, str]) -> list[tuple[float, Floats]]:
    """Weight and (sum, number) of ratings by prompt, shape (P, 2), of each category."""
    found = []
    for either in names.items():
        rows = good.filter(pl.col("category").is_in(either))
        summed = rows.group_by("item", maintain_order=True).agg(
            total=pl.col("rating").sum(), n=pl.len().cast(pl.Float64)
        )
        found.append((1.0 / len(names), summed.select("total", "n").to_numpy()))
    return found


def _weighted(groups: Sequence[tuple[float, Floats]], confidence_level: float) -> Measured:
    """Sum over categories, which share no prompt, of a weight times the category's mean."""
    n = sum(len(sums) for _, sums in groups)
    if not all(len(sums) for _, sums in groups):
        return Measured(None, n=n, why="a category has no rating")
    value = sum(weight * float(_ratio(sums.sum(axis=0)[None])[0]) for weight, sums in groups)
    if min(len(sums) for _, sums in groups) < 2:
        return Measured(value, n=n, why="a category has one prompt: no interval")
    errors = [weight * jackknife_sums(sums, _ratio).errors for weight, sums in groups]
    found = Jackknifed(value, np.concatenate(errors))
    interval = student_interval(
        value, found.standard_error, n, confidence_level, n_strata=len(groups)
    )
    return with_interval(value, interval, n)


def _ratio(sums: Floats) -> Floats:
    result: Floats = sums[:, 0] / sums[:, 1]
    return result
