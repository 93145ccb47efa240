"""Pointwise ratings: mean scores, and models compared by their score distributions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import polars as pl

from orchestrator.clusters import prompt_words
from orchestrator.judgment.distribution import UNRELIABLE_BELOW
from orchestrator.methods.pointwise import Config
from orchestrator.plugin import Cell, Context, Summary, Table, make_table, table_columns
from orchestrator.ranking.cells import column_of, comparisons, mean_of, without_n
from orchestrator.ranking.preferences import decisions_of, estimator_table, mass, rates_table

_SCORES: Final = table_columns(
    "model | judge | rated: count | failed: count | mean score: number 2",
    "mode: number 2 | median: number 2 | 1st percentile: number 2",
)
_READINGS: Final = table_columns(
    "model | judge | entropy, nats: number 2 | coverage | low coverage: percent",
    "only bounded: count | traces without a score: count",
)


def _mean(values: pl.Series) -> Cell:
    return values.mean()  # type: ignore[return-value] # of a column of floats


# What is said of the good rows of a model and judge, by column, in the order of the tables.
_LOCATIONS: Final[dict[str, Sequence[Callable[[pl.Series], Cell]]]] = {
    "mode": [_mean],
    "median": [_mean],
    "first_percentile": [_mean],
}
_READ: Final[dict[str, Sequence[Callable[[pl.Series], Cell]]]] = {
    "entropy": [_mean],
    "coverage": [mass, lambda values: _mean(values < UNRELIABLE_BELOW)],
    "exact": [lambda flags: int((~flags).sum())],
    "n_silent": [lambda counts: int(counts.sum())],
}


class PointwiseRatingSummary(Summary[Config]):
    """Mean scores, and models compared by their score distributions."""

    reads_alone = True
    by_numbers = True
    reads = ("item", "model", "judge", "turn", "coverage", "status")

    def summarise(self, context: Context) -> list[Table]:
        """Mean scores; then win rates and ratings by every estimator, for each judge."""
        if context.rows.is_empty():
            return []
        told = context.rows.with_columns(column_of(context, "mean")).with_row_index("at")
        is_good = pl.col("status") == "ok"
        scores: list[list[Cell]] = []
        places: list[pl.Series] = []
        for judge, model in told.select("judge", "model").unique(maintain_order=True).iter_rows():
            # One at a time: all groups together would be all rows once more.
            group = told.filter(pl.col("judge") == judge, pl.col("model") == model)
            good = group.filter(is_good)
            mean = mean_of(good, pl.col("mean"), context.confidence_level, self.config.scale)
            scores.append(
                [str(model), str(judge), len(good), len(group) - len(good), without_n(mean)]
            )
            places.append(good["at"])
        readings = [line[:2] for line in scores]
        _describe(context, scores, places, _LOCATIONS)
        _describe(context, readings, places, _READ)
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
                    told.filter(pl.col("status") == "ok"),
                    pl.col("mean"),
                    context.confidence_level,
                    self.config.scale,
                ),
            ),
            make_table(
                "pointwise.readings", "Readings of the judge", _READINGS, readings, notes=[low]
            ),
        ]
        del told, places
        for judge_name, found in decisions_of(context).by_judge():
            tables.append(rates_table(found, context, "pointwise", judge_name))
            tables.append(estimator_table(found, "pointwise", judge_name))
        return tables


def _describe(
    context: Context,
    lines: Sequence[list[Cell]],
    places: Sequence[pl.Series],
    measures: Mapping[str, Sequence[Callable[[pl.Series], Cell]]],
) -> None:
    """Add to each line what measures say of its rows, whose places are given."""
    for name, of_column in measures.items():
        column = column_of(context, name)
        for line, at in zip(lines, places, strict=True):
            values = pl.Series(dtype=pl.Float64) if column is None else column.gather(at)
            line += [measure(values) for measure in of_column]
