"""Mean scores: the table of a method from outside this project without a summary of its own."""

from collections.abc import Iterable, Sequence
from typing import Final

import polars as pl

from orchestrator.clusters import CLUSTER, prompt_words
from orchestrator.contracts.context import Context, Source
from orchestrator.contracts.method import MethodSettings
from orchestrator.contracts.summary import Summary
from orchestrator.errors import PluginError
from orchestrator.ranking.cells import METHODS, mean_of, share_of
from orchestrator.ranking.comparisons import comparisons
from orchestrator.ranking.points import ends_of
from orchestrator.tables import Cell, Column, Comparison, Measured, Table, make_table

_UNIT: Final = ("item", "model", "model_a", "model_b", "judge", "status")
_NUMBERS: Final = (
    Column("score"),
    Column("better"),
    Column("mean", "number"),
    Column("values", "count"),
    Column("missing", "count"),
)
_BETTER: Final = {1: "higher", -1: "lower"}


class ScoresSummary(Summary[MethodSettings]):
    """The mean of each score by model, and by judge if there is one."""

    # Coverage tells which judges are not to be trusted.
    reads = (*_UNIT, "coverage", "coverage_ab", "coverage_ba")

    def summarise(self, context: Context) -> list[Table]:
        """Return one table with a line for each model, judge and column of `scores`.

        In a frame of pairs a model's value is P(A better) where it is A, and 1 less it where it
        is B.

        Raises:
            PluginError: If a score is not a column of numbers.
        """
        (source,) = context.sources
        rows = context.rows
        if not source.scores or rows.is_empty():
            return []
        if not source.scores.keys() <= set(rows.columns):
            rows = context.rows_of(source, (*_UNIT, *source.scores))
        sides = _sides(rows, _checked(source.name, source.scores, rows))
        is_judged = "judge" in rows.columns and bool((rows["judge"] != "").any())
        keys = ["model", "judge"] if is_judged else ["model"]
        lines: list[list[Cell]] = []
        for group, points in sides.group_by(keys, maintain_order=True):
            names = [str(name or "") for name in group]
            for column, orientation in source.scores.items():
                mean = _mean(points, column, rows.schema[column], context.confidence_level)
                missing = points[column].null_count()
                known = len(points) - missing
                lines.append([*names, column, _BETTER[orientation], mean, known, missing])
        basis = prompt_words(rows) if CLUSTER in rows.columns else f"{len(rows):,} rows"
        if n_failed := len(rows.filter(pl.col("status") != "ok")):
            basis = f"{basis} · {n_failed:,} failed"
        notes = [
            "better: direction in which the score means a better answer, as declared by the method",
            "missing: failed rows, and rows without a value",
            METHODS,
        ]
        if "model_a" in rows.columns:
            notes.append("a score of a pair is the probability that the model beats its opponent")
        table = "scores.judges" if is_judged else "scores"
        columns = (*map(Column, keys), *_NUMBERS)
        compared: Sequence[Comparison] = ()
        if len(source.scores) == 1 and CLUSTER in rows.columns:
            (score,) = source.scores
            compared = comparisons(
                sides, pl.col(score), context.confidence_level, _ends(source, score, rows)
            )
        return [
            make_table(
                table,
                "Mean scores",
                columns,
                lines,
                basis=basis,
                notes=notes,
                comparisons=compared,
            )
        ]


def _ends(source: Source, column: str, rows: pl.DataFrame) -> tuple[float, float] | None:
    """Least and greatest value of a score, where they are known."""
    # Probabilities that one of two models is better are in [0, 1], as flags are.
    if rows.schema[column] == pl.Boolean() or "model_a" in rows.columns:
        return 0.0, 1.0
    return ends_of(source, column)


def _checked(name: str, columns: Iterable[str], rows: pl.DataFrame) -> list[str]:
    found = list(columns)
    for column in found:
        kind = rows.schema.get(column)
        if kind is None or not (kind.is_numeric() or kind == pl.Boolean()):
            raise PluginError(
                f"{name}: 'scores' names {column!r}, which is no column of numbers of its rows"
            )
    return found


def _sides(rows: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Return the scores as floats by model; those of failed rows and nan are null."""
    is_good = pl.col("status") == "ok"
    rows = rows.with_columns(
        pl.when(is_good).then(pl.col(name).cast(pl.Float64).fill_nan(None)).alias(name)
        for name in columns
    )
    if "model_a" not in rows.columns or "model_b" not in rows.columns:
        return rows if "model" in rows.columns else rows.with_columns(model=pl.lit(""))
    reflected = [(1.0 - pl.col(name)).alias(name) for name in columns]
    first = rows.with_columns(model=pl.col("model_a"))
    second = rows.with_columns(*reflected, model=pl.col("model_b"))
    return pl.concat([first, second])


def _mean(
    points: pl.DataFrame, column: str, kind: pl.DataType, confidence_level: float
) -> Measured:
    if CLUSTER not in points.columns:
        mean = points[column].mean()
        value = mean if isinstance(mean, float) else None
        return Measured(value, why="rows without an item have no interval")
    # Probabilities that one of two models is better are in [0, 1], as flags are.
    if kind == pl.Boolean() or "model_a" in points.columns:
        return share_of(points, pl.col(column), confidence_level)
    return mean_of(points, pl.col(column), confidence_level)
