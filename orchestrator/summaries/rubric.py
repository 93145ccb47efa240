"""Rubrics: scores of the models, each criterion, and how criteria agree."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

import polars as pl

from orchestrator.clusters import CLUSTER, codes, prompt_words
from orchestrator.judgment.distribution import UNRELIABLE_BELOW
from orchestrator.judgment.rubric import HIGHEST
from orchestrator.methods.rubric import Config
from orchestrator.plugin import Cell, Context, Summary, Table, make_table, table_columns
from orchestrator.ranking.cells import (
    comparisons,
    floats,
    good_rows,
    groups,
    mean_of,
    numbered,
    plain_mean,
)
from orchestrator.ranking.preferences import mass, tables_by_judge
from orchestrator.statistics.correlation import correlate
from orchestrator.tables import measured

CHECKLIST: Final = "checklist"
"""Name in tables of all questions of an item together."""

_ENDS: Final = (0.0, float(HIGHEST))
_SCORES: Final = table_columns(
    "model | judge | rated: count | failed: count | mean score: number 1",
    "s.d.: number 1 | s.d. at most: number 1 | least coverage",
)
_CRITERIA: Final = table_columns(
    "model | judge | criterion | weight: percent | mean score: number 1",
    "s.d.: number 1 | coverage | low: percent | missing: count",
)
_CORRELATIONS: Final = table_columns(
    "judge | criterion | other criterion | Spearman: number 2 | answers: count"
)
_UNIT: Final = ("item", "model", "judge", "turn", "status")
_READS: Final = (*_UNIT, "mean", "std", "std_high", "coverage", "cause")
_PARTS: Final = {
    "weight": "weights", "mean": "criteria_mean", "std": "criteria_std",
    "coverage": "criteria_coverage",
}  # fmt: skip


class Kind(Summary[Config]):
    """Scores by the rubric and by each criterion, and what the criteria add to one another."""

    reads_alone = True
    reads = ("status",)

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate scores, criteria and correlations; then win rates and ratings."""
        names = [one.name for one in self.config.criteria]
        n_read = pl.col("criteria_mean").list.len()
        rows = numbered(context, _READS, is_asked=n_read > len(names))
        readings = {name: _read_of(at) for at, name in enumerate(names)}
        if rows["is_asked"].any():
            readings[CHECKLIST] = _read_of_checklist(len(names))
        tables = [_scores(rows, context)]
        basis = prompt_words(rows)
        del rows
        tables.append(_by_criterion(context, readings, basis))
        if len(readings) > 1:
            means = {f"mean {name}": made["mean"] for name, made in readings.items()}
            first = next(iter(readings.values()))
            rows = numbered(context, _UNIT, is_read=first["n_missing"], **means)
            rows = rows.drop_nulls("is_read")
            tables.append(_correlations(rows, [*readings], context))
            del rows
        return [*tables, *tables_by_judge(context, "rubric")]


def _read_of(at: int) -> dict[str, pl.Expr]:
    """Return what is read of a criterion: its mean is null where its verdict is missing."""
    found = {name: pl.col(column).list.get(at) for name, column in _PARTS.items()}
    is_known = pl.col(_PARTS["mean"]).is_not_null()
    return found | {"n_missing": pl.when(is_known).then(found["mean"].is_null().cast(pl.Int64))}


def _read_of_checklist(begin: int) -> dict[str, pl.Expr]:
    """Return the same of the questions of an item together; null where none were asked.

    The mean is that of the questions, and missing where one of them is.
    """
    found = {name: pl.col(column).list.slice(begin) for name, column in _PARTS.items()}
    mean = found["mean"]
    n_missing = mean.list.eval(pl.element().is_null()).list.sum().cast(pl.Int64)
    made = {
        "weight": found["weight"].list.sum(),
        "mean": pl.when(n_missing == 0).then(mean.list.mean()),
        "std": pl.lit(None, pl.Float64),
        "coverage": found["coverage"].list.min(),
        "n_missing": n_missing,
    }
    return {name: pl.when(mean.list.len() > 0).then(one) for name, one in made.items()}


def _scores(rows: pl.DataFrame, context: Context) -> Table:
    lines: list[list[Cell]] = []
    for (judge, model), group in groups(rows, "judge", "model"):
        good = good_rows(group)
        mean = mean_of(good, pl.col("mean"), context.confidence_level, _ENDS)
        spreads = [plain_mean(good[name]) for name in ("std", "std_high")]
        n_failed = len(group) - len(good)
        coverage = mass(good["coverage"])
        lines.append([model, judge, len(good), n_failed, mean, *spreads, coverage])
    notes = [
        "mean score: weighted mean of the criteria's expectations, from 0 (worst labels) to 100 "
        "(best labels); interval over prompts (Gaffke's test of a bounded mean)",
        "s.d.: of one answer's score by the judge's own distributions, criteria "
        "independent within a reply; s.d. at most: whatever their dependence is",
        "failed: also answers of which a criterion has no verdict: they have no score",
    ]
    good = good_rows(rows)
    return make_table(
        "rubric.scores",
        "Scores by the rubric, 0 to 100",
        _SCORES,
        lines,
        basis=prompt_words(rows),
        notes=notes,
        comparisons=comparisons(good, pl.col("mean"), context.confidence_level, _ENDS),
    )


def _by_criterion(
    context: Context, readings: Mapping[str, Mapping[str, pl.Expr]], basis: str
) -> Table:
    lines: list[list[Cell]] = []
    for name, made in readings.items():
        # All rows have no name: they are let go of before those of the next criterion are read.
        every = groups(numbered(context, _UNIT, **made).drop_nulls("n_missing"), "judge", "model")
        for (judge, model), group in every:
            mean = mean_of(group, pl.col("mean"), context.confidence_level, _ENDS)
            lines.append(
                [
                    model,
                    judge,
                    name,
                    plain_mean(group["weight"]),
                    mean,
                    plain_mean(group["std"]),
                    mass(group["coverage"].drop_nulls()),
                    plain_mean(group["coverage"] < UNRELIABLE_BELOW),
                    int(group["n_missing"].sum()),
                ]
            )
    notes = [
        "mean score: expectation over all labels, 0 to 100; interval over prompts; s.d.: of the "
        "labels, mean over answers",
        f"coverage: probability on the labels; low: share of answers with less than "
        f"{UNRELIABLE_BELOW:g}",
        "missing: answers without a verdict on the criterion; they are in no mean",
    ]
    if CHECKLIST in readings:
        notes.append(
            "checklist: mean probability of the better answers to an item's questions; its "
            "coverage is the least of them, and missing counts questions"
        )
    return make_table(
        "rubric.criteria", "Each criterion", _CRITERIA, lines, basis=basis, notes=notes
    )


def _correlations(rows: pl.DataFrame, names: Sequence[str], context: Context) -> Table:
    lines: list[list[Cell]] = []
    for one, other in combinations(names, 2):
        for (judge,), group in groups(rows, "judge"):
            found = correlate(
                floats(group[f"mean {one}"]),
                floats(group[f"mean {other}"]),
                codes(group[CLUSTER]),
                confidence_level=context.confidence_level,
            )
            cell = measured(found)
            lines.append([judge, one, other, cell, found.n_points])
    notes = [
        "over answers of all models; interval over prompts (jackknife, Student's t)",
        "near 1: the judge does not tell the two criteria apart, and one of them adds little",
    ]
    return make_table(
        "rubric.correlations", "Agreement between criteria", _CORRELATIONS, lines, notes=notes
    )
