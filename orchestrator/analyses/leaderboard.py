"""Scores of models against their scores on leaderboards: gold by model, not by answer.

Source: Xia et al. (Findings of ACL 2024), Table 4: ProbDiff's confidence beside the official scores
of MT-Bench and AlpacaEval. The paper compares the two orders by eye; here they have a coefficient
and its exact p-value. With four models no order is significant at 5 %.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from orchestrator.analyses._gold import evaluators, level_means, mean_cell
from orchestrator.plugin import (
    Analysis,
    Cell,
    Column,
    Context,
    Measured,
    Settings,
    Table,
    UsageError,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import METHODS, order_words
from orchestrator.ranking.scores import Score, ScoreRef
from orchestrator.statistics.agreement import ranking_agreement
from orchestrator.statistics.resampling import Resampling

_ORDERS: Final = table_columns(
    "leaderboard | score | official order | order found | Kendall tau-b: signed 2",
    "p: p | Spearman: signed 2 | models: count",
)


class Config(Settings):
    """Settings of `leaderboard`."""

    official: dict[str, dict[str, float]] = Field(
        description="Official scores, larger is better: for each leaderboard, model to number.",
        min_length=1,
    )
    scores: tuple[ScoreRef, ...] = Field(
        (),
        description="Scores to compare. Default: every score of every method. `confidence` is "
        "ProbDiff's at its main threshold.",
    )

    @field_validator("official")
    @classmethod
    def _two_models(cls, value: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        if short := [name for name, scores in value.items() if len(scores) < 2]:
            raise ValueError(f"give the scores of two models or more: {', '.join(short)}")
        return value


class LeaderboardAnalysis(Analysis[Config]):
    """Scores of models beside official ones, and whether both give one order."""

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate the scores of each model, then the orders."""
        official = self.config.official
        scores = evaluators(context, self.config.scores)
        models = list(
            dict.fromkeys(name for one in scores for name in one.points["model"].drop_nulls())
        )
        for name, listed in official.items():
            if not listed.keys() & set(models):
                raise UsageError(
                    f"{context.name}: no model of this run is on {name!r}; models: "
                    f"{', '.join(models)}"
                )
        return [
            _scores(context, official, scores, models),
            _orders(context, official, scores, models),
        ]


def _scores(
    context: Context,
    official: dict[str, dict[str, float]],
    scores: Sequence[Score],
    models: Sequence[str],
) -> Table:
    columns = [Column("model")]
    columns += [Column(f"{name} (official)", "number", 2) for name in official]
    columns += [Column(one.name, "number", 3) for one in scores]
    lines: list[list[Cell]] = []
    for model in models:
        known = [listed.get(model) for listed in official.values()]
        means = [
            mean_cell(one.points.filter(pl.col("model") == model), context.confidence_level)
            for one in scores
        ]
        lines.append([model, *known, *means])
    title = "Scores of the models and official scores"
    return make_table("leaderboard", title, columns, lines, notes=[METHODS])


def _orders(
    context: Context,
    official: dict[str, dict[str, float]],
    scores: Sequence[Score],
    models: Sequence[str],
) -> Table:
    resampling = Resampling(context.n_resamples, context.rng(), context.confidence_level)
    lines: list[list[Cell]] = []
    for name, listed in official.items():
        there = [model for model in models if model in listed]
        gold = np.array([listed[model] for model in there], dtype=np.float64)
        for one in scores:
            means = [one.points.filter(pl.col("model") == model)["value"].mean() for model in there]
            numbers = np.array([np.nan if mean is None else mean for mean in means], np.float64)
            value = one.orientation * level_means(numbers, one.points["value"])
            found = ranking_agreement(value, gold, resampling)
            why = found.undefined or ""
            tau = Measured(found.tau_b, why=why if found.tau_b is None else "")
            orders = order_words(gold, there), order_words(value, there)
            lines.append(
                [name, one.name, *orders, tau, found.tau_p, found.spearman, found.n_models]
            )
    notes = [
        "p: share of all orderings that agree or disagree at least as much as Kendall's tau; with "
        "four models it is at least 0.083"
    ]
    title = "Order of the models by each score and by official scores"
    return make_table("leaderboard.order", title, _ORDERS, lines, notes=notes)
