"""Pairwise scoring: scores of both answers, what the judge gave to the labels, and estimators."""

from typing import Final

import polars as pl

from orchestrator.clusters import OVER, prompt_words
from orchestrator.judgment.distribution import UNRELIABLE_BELOW
from orchestrator.plugin import (
    Cell,
    Context,
    MethodSettings,
    Summary,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import comparisons, groups, mean_of, plain_mean, without_n
from orchestrator.ranking.preferences import estimator_table, mass, preferences

_SCORES: Final = table_columns(
    "model | judge | pairs: count | mean score: number 2 | coverage",
    "low coverage: percent | silent traces: count",
)


class PairwiseScoringSummary(Summary[MethodSettings]):
    """Scores of both answers, what the judge gave to the labels, and estimators."""

    reads_alone = True
    reads = (
        "item", "category", "model_a", "model_b", "judge", "turn", "coverage_ab", "coverage_ba",
        "prefer_a", "mean_pre", "mean_post", "mode_pre", "mode_post", "median_pre", "median_post",
        "score_a", "score_b", "same_text", "n_silent", "status", "cause",
    )  # fmt: skip

    def summarise(self, context: Context) -> list[Table]:
        """Mean scores over both orders, then estimators, for each judge."""
        good = context.rows.filter((pl.col("status") == "ok").fill_null(value=False))
        if good.is_empty():
            return []
        lines: list[list[Cell]] = []
        for (judge,), rows in groups(good, "judge"):
            models = pl.concat([rows["model_a"], rows["model_b"]]).unique(maintain_order=True)
            for model in models:
                mine = rows.filter((pl.col("model_a") == model) | (pl.col("model_b") == model))
                score = pl.when(pl.col("model_a") == model).then("score_a").otherwise("score_b")
                coverage = mine.select(pl.min_horizontal("coverage_ab", "coverage_ba")).to_series()
                lines.append(
                    [
                        model,
                        str(judge),
                        len(mine),
                        without_n(mean_of(mine, score, context.confidence_level)),
                        mass(coverage),
                        plain_mean(coverage < UNRELIABLE_BELOW),
                        int(mine["n_silent"].sum()),
                    ]
                )
        sides = [
            good.select(
                "item", *OVER, "turn", "judge", model=f"model_{side}", score=f"score_{side}"
            )
            for side in ("a", "b")
        ]
        notes = [
            "mean score: over both orders; the second score of a reply is read after the most "
            "likely first one; interval over prompts",
            f"coverage: product of the probabilities on the scores at both positions, in the order "
            f"of the answers that has less; low is below {UNRELIABLE_BELOW:g}",
        ]
        tables = [
            make_table(
                "pairwise_scoring.scores",
                "Two scores in one reply",
                _SCORES,
                lines,
                basis=prompt_words(good),
                notes=notes,
                comparisons=comparisons(
                    pl.concat(sides), pl.col("score"), context.confidence_level
                ),
            )
        ]
        for judge_name, found in preferences(context.rows).by_judge():
            tables.append(estimator_table(found, "pairwise_scoring", judge_name))
        return tables
