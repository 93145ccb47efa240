"""Scores that judges give, alone or in pairs, and models compared by their distributions."""

from typing import Final

import polars as pl

from orchestrator.clusters import CLUSTER, OVER, prompt_words
from orchestrator.judgment.distribution import UNRELIABLE_BELOW
from orchestrator.methods.pointwise import Config
from orchestrator.plugin import (
    Cell,
    Context,
    MethodSettings,
    Summary,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import comparisons, good_rows, groups, mean_of, numbered, plain_mean
from orchestrator.ranking.preferences import (
    PAIRWISE,
    SOFT,
    estimator_table,
    judged_rows,
    mass,
    preferences,
    tables_by_judge,
)

_SCORES: Final = table_columns(
    "model | judge | rated: count | failed: count | mean score: number 2",
    "mode: number 2 | median: number 2 | 1st percentile: number 2",
)
_READINGS: Final = table_columns(
    "model | judge | entropy, nats: number 2 | coverage | low coverage: percent",
    "only bounded: count | traces without a score: count",
)
_READS: Final = (
    "item", "model", "judge", "turn", "mean", "mode", "median", "first_percentile", "entropy",
    "coverage", "exact", "n_silent", "status",
)  # fmt: skip
_READ_PAIRS: Final = ("turn", "judge", "model_a", "model_b", SOFT, *PAIRWISE, "score_a", "score_b")
_PAIRED: Final = table_columns(
    "model | judge | pairs: count | mean score: number 2 | coverage",
    "low coverage: percent | silent traces: count",
)


class PointwiseRatingSummary(Summary[Config]):
    """Mean scores, and models compared by their score distributions."""

    reads_alone = True
    reads = ("status",)

    def summarise(self, context: Context) -> list[Table]:
        """Mean scores; then win rates and ratings by every estimator, for each judge."""
        told = numbered(context, _READS)
        scores: list[list[Cell]] = []
        readings: list[list[Cell]] = []
        for (judge, model), group in groups(told, "judge", "model"):
            names, good = [model, judge], good_rows(group)
            mean = mean_of(good, pl.col("mean"), context.confidence_level, self.config.scale)
            locations = [plain_mean(good[one]) for one in ("mode", "median", "first_percentile")]
            scores.append([*names, len(good), len(group) - len(good), mean, *locations])
            readings.append(
                [
                    *names,
                    plain_mean(good["entropy"]),
                    mass(good["coverage"]),
                    plain_mean(good["coverage"] < UNRELIABLE_BELOW),
                    int((~good["exact"]).sum()),
                    int(good["n_silent"].sum()),
                ]
            )
        lowest, highest = self.config.scale
        title, basis = f"Scores from {lowest} to {highest}", prompt_words(told)
        notes = [
            "mean score: mean of the whole distribution; interval over prompts (Gaffke's test of a "
            "bounded mean)",
            "mode, median, 1st percentile: of each answer's distribution, averaged over answers, "
            "for comparison",
        ]
        low = f"coverage: probability on the scores; low is below {UNRELIABLE_BELOW:g}"
        tables = [
            make_table(
                "pointwise.scores",
                title,
                _SCORES,
                scores,
                basis=basis,
                notes=notes,
                comparisons=comparisons(
                    good_rows(told),
                    pl.col("mean"),
                    context.confidence_level,
                    self.config.scale,
                ),
            ),
            make_table(
                "pointwise.readings", "Readings of the judge", _READINGS, readings, notes=[low]
            ),
        ]
        del told
        return [*tables, *tables_by_judge(context, "pointwise")]


class PairwiseScoringSummary(Summary[MethodSettings]):
    """Scores of both answers, what the judge gave to the labels, and estimators."""

    reads_alone = True
    reads = ("status",)

    def summarise(self, context: Context) -> list[Table]:
        """Mean scores over both orders, then estimators, for each judge."""
        if good_rows(context.rows).is_empty():
            return []
        kept, halves = ["item", "turn", "judge", "n_silent"], ("coverage_ab", "coverage_ba")
        of_sides = ("model_a", "model_b", "score_a", "score_b", *halves, "status")
        good = good_rows(numbered(context, (*kept, *of_sides)))
        coverage, kept = pl.min_horizontal(halves), [*kept, *OVER]
        sides = pl.concat(
            good.select(*kept, model=f"model_{side}", score=f"score_{side}", coverage=coverage)
            for side in ("a", "b")
        )
        basis = prompt_words(good)
        del good
        lines: list[list[Cell]] = [
            [
                model,
                judge,
                len(mine),
                mean_of(mine, pl.col("score"), context.confidence_level),
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
                _PAIRED,
                lines,
                basis=basis,
                notes=notes,
                comparisons=comparisons(
                    sides.select("item", "turn", CLUSTER, "judge", "model", "score"),
                    pl.col("score"),
                    context.confidence_level,
                ),
            )
        ]
        del sides
        pairs = preferences(judged_rows(context, context.own, _READ_PAIRS))
        for judge_name, found in pairs.by_judge():
            tables.append(estimator_table(found, "pairwise_scoring", judge_name))
        return tables
