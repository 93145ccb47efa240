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
from orchestrator.ranking.cells import (
    comparisons,
    good_rows,
    groups,
    mean_of,
    plain_mean,
    without_n,
)
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
        good = good_rows(context.rows)
        if good.is_empty():
            return []
        coverage = pl.min_horizontal("coverage_ab", "coverage_ba")
        kept = ["item", *OVER, "turn", "judge", "n_silent"]
        sides = pl.concat(
            good.select(*kept, model=f"model_{side}", score=f"score_{side}", coverage=coverage)
            for side in ("a", "b")
        )
        lines: list[list[Cell]] = [
            [
                model,
                str(judge),
                len(mine),
                without_n(mean_of(mine, pl.col("score"), context.confidence_level)),
                mass(mine["coverage"]),
                plain_mean(mine["coverage"] < UNRELIABLE_BELOW),
                int(mine["n_silent"].sum()),
            ]
            for (judge,), rows in groups(sides, "judge")
            for (model,), mine in groups(rows, "model")
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
                comparisons=comparisons(sides, pl.col("score"), context.confidence_level),
            )
        ]
        for judge_name, found in preferences(context.rows).by_judge():
            tables.append(estimator_table(found, "pairwise_scoring", judge_name))
        return tables
