"""Pointwise ratings: mean scores, and models compared by their score distributions."""

from collections.abc import Iterable
from typing import Final

import polars as pl

from orchestrator.clusters import prompt_words
from orchestrator.contracts.context import Context
from orchestrator.contracts.summary import Summary
from orchestrator.judgment.distribution import UNRELIABLE_BELOW
from orchestrator.methods.pointwise import Config
from orchestrator.summaries._clusters import mean_of, without_n
from orchestrator.summaries._judged import estimator_table, mass, rates_table
from orchestrator.summaries._preferences import preferences
from orchestrator.tables import Cell, Column, Table, make_table

_SCORES: Final = (
    Column("model"),
    Column("judge"),
    Column("rated", "count"),
    Column("failed", "count"),
    Column("mean score", "number", 2),
    Column("mode", "number", 2),
    Column("median", "number", 2),
    Column("1st percentile", "number", 2),
)
_READINGS: Final = (
    Column("model"),
    Column("judge"),
    Column("entropy, nats", "number", 2),
    Column("coverage"),
    Column("low coverage", "percent"),
    Column("only bounded", "count"),
    Column("traces without a score", "count"),
)


class PointwiseRatingSummary(Summary[Config]):
    """Mean scores, and models compared by their score distributions."""

    reads = (
        "item",
        "category",
        "model",
        "judge",
        "turn",
        "p",
        "mean",
        "mode",
        "rounded_mean",
        "median",
        "first_percentile",
        "entropy",
        "coverage",
        "exact",
        "n_silent",
        "status",
        "cause",
    )

    def summarise(self, context: Context) -> list[Table]:
        """Mean scores; then win rates and ratings by every estimator, for each judge."""
        if context.rows.is_empty():
            return []
        tables = [_scores(context, self.config.scale), _readings(context)]
        for judge, found in preferences(context.rows).by_judge():
            tables.append(rates_table(found, context, "pointwise", judge))
            tables.append(estimator_table(found, "pointwise", judge))
        return tables


def _scores(context: Context, scale: tuple[int, int]) -> Table:
    lines: list[list[Cell]] = []
    for (judge, model), rows in _groups(context):
        good = rows.filter(pl.col("status") == "ok")
        locations: list[Cell] = [
            good[name].mean()  # type: ignore[misc] # of a column of floats
            for name in ("mode", "median", "first_percentile")
        ]
        mean = without_n(mean_of(good, pl.col("mean"), context.confidence_level))
        missing = len(rows) - len(good)
        lines.append([str(model), str(judge), len(good), missing, mean, *locations])
    notes = [
        "mean score: of the whole distribution; interval over prompts (jackknife, Student's t)",
        "mode, median, 1st percentile: means over answers of each distribution's own, for contrast",
    ]
    return make_table(
        "pointwise.scores",
        f"Scores from {scale[0]} to {scale[1]}",
        _SCORES,
        lines,
        basis=prompt_words(context.rows),
        notes=notes,
    )


def _groups(context: Context) -> Iterable[tuple[tuple[object, ...], pl.DataFrame]]:
    return context.rows.group_by("judge", "model", maintain_order=True)


def _readings(context: Context) -> Table:
    """Tabulate measures of trust in the distributions."""
    lines: list[list[Cell]] = []
    for (judge, model), rows in _groups(context):
        good = rows.filter(pl.col("status") == "ok")
        lines.append(
            [
                str(model),
                str(judge),
                good["entropy"].mean(),  # type: ignore[list-item] # of a column of floats
                mass(good["coverage"]),
                (good["coverage"] < UNRELIABLE_BELOW).mean(),  # type: ignore[list-item]
                int((~good["exact"]).sum()),
                int(good["n_silent"].sum()),
            ]
        )
    return make_table(
        "pointwise.readings",
        "Readings of the judge",
        _READINGS,
        lines,
        notes=[f"coverage: probability on the scores; low is under {UNRELIABLE_BELOW:g}"],
    )
