"""AlignBench: ratings by category, and the overall score as a macro average.

Overall = the mean of (the mean of the two reasoning categories) and (the mean of the six language
categories). Each category weighs the same within its half, whatever its number of questions.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from orchestrator.clusters import CLUSTER
from orchestrator.judgment.harness.align_bench import LANGUAGE, REASONING
from orchestrator.plugin import (
    Cell,
    Context,
    Measured,
    MethodSettings,
    Summary,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import METHODS, groups, mean_of
from orchestrator.records import Floats
from orchestrator.statistics.resampling import Jackknifed, jackknife_sums, student_interval
from orchestrator.summaries.verdicts import OK, VERDICT_COLUMNS, rating_tables
from orchestrator.tables import with_interval

_HALVES: Final = (REASONING, LANGUAGE)
_COLUMNS: Final = table_columns(
    "model | judge | overall: number 2 | reasoning: number 2 | language: number 2",
    "over all questions: number 2",
)


class _Group(NamedTuple):
    """A category: its weight, its clusters of prompts, and (sum, number) of the ratings of each."""

    weight: float
    clusters: Sequence[str]
    sums: Floats


class AlignBenchSummary(Summary[MethodSettings]):
    """Ratings by category, and the overall score as a macro average."""

    reads = VERDICT_COLUMNS

    def summarise(self, context: Context) -> list[Table]:
        """Overall scores where the dataset has AlignBench's categories, then ratings."""
        tables = rating_tables(context, "AlignBench")
        known = {name for half in _HALVES for names in half.items() for name in names}
        if not tables or not known & set(context.rows["category"].drop_nulls()):
            return tables
        lines: list[list[Cell]] = []
        level = context.confidence_level
        for (model, judge), rows in groups(context.rows, "model", "judge"):
            good = rows.filter(OK & pl.col("rating").is_not_null())
            halves = [_groups(good, names) for names in _HALVES]
            both = [group._replace(weight=0.5 * group.weight) for half in halves for group in half]
            lines.append(
                [
                    str(model),
                    str(judge),
                    _weighted(both, level),
                    *(_weighted(half, level) for half in halves),
                    mean_of(good, pl.col("rating"), level).value,
                ]
            )
        notes = ["overall: mean of the two halves, each the mean of its categories' means", METHODS]
        overall = make_table(
            "align_bench.overall", "AlignBench: overall", _COLUMNS, lines, notes=notes
        )
        return [overall, *tables]


def _groups(good: pl.DataFrame, names: Mapping[str, str]) -> list[_Group]:
    found = []
    for either in names.items():
        rows = good.filter(pl.col("category").is_in(either))
        summed = rows.group_by(CLUSTER, maintain_order=True).agg(
            total=pl.col("rating").sum(), n=pl.len().cast(pl.Float64)
        )
        sums = summed.select("total", "n").to_numpy()
        found.append(_Group(1.0 / len(names), summed[CLUSTER].to_list(), sums))
    return found


def _weighted(groups: Sequence[_Group], confidence_level: float) -> Measured:
    """Sum over categories, which may share clusters, of a weight times the category's mean."""
    clusters = dict.fromkeys(name for group in groups for name in group.clusters)
    n = len(clusters)
    if not all(group.clusters for group in groups):
        return Measured(None, n=n, why="a category has no rating")
    value = sum(group.weight * float(_ratio(group.sums.sum(axis=0)[None])[0]) for group in groups)
    if min(len(group.clusters) for group in groups) < 2:
        return Measured(value, n=n, why="a category has one independent prompt: no interval")
    places = {name: place for place, name in enumerate(clusters)}
    errors, sizes = np.zeros(n), np.zeros(n)
    for group in groups:
        at = [places[name] for name in group.clusters]
        errors[at] += group.weight * jackknife_sums(group.sums, _ratio).errors
        sizes[at] += group.sums[:, 1]
    found = Jackknifed(value, errors)
    interval = student_interval(
        value, found.standard_error, n, confidence_level, n_strata=len(groups), sizes=sizes
    )
    return with_interval(value, interval, n)


def _ratio(sums: Floats) -> Floats:
    return sums[:, 0] / sums[:, 1]
