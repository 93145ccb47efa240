"""Scores of a run's methods in one shape: item, cluster, category, turn, model, opponent, value.

A frame of pairs gives each of its two models a point: P(A better) and 1 - P(A better).
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import polars as pl
from pydantic import Field

from orchestrator.clusters import OVER
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import UsageError
from orchestrator.plugins.base import Settings
from orchestrator.statistics.bounded_mean import difference_ends

KEYS: Final = ("item", "turn", "model")
_SHAPE: Final = {
    "item": pl.String(),
    **dict.fromkeys(OVER, pl.String()),
    "category": pl.String(),
    "turn": pl.Int64(),
    "model": pl.String(),
    "opponent": pl.String(),
    "judge": pl.String(),
    "value": pl.Float64(),
}


class ScoreRef(Settings):
    """A score by the method that gave it."""

    method: str = Field(description="Name of a method of this recipe.")
    column: str | None = Field(None, description="Column of its rows. Default: all its scores.")


class Score(msgspec.Struct, frozen=True):
    """One column of one method.

    Attributes:
        name: "method.column".
        orientation: 1 where more is better, -1 where less is.
        points: Columns item, cluster, category, turn, model, opponent, judge, value; missing values
            are null, and so is the opponent where the points are no comparisons.
        is_pairwise: Whether the points come from comparisons.
        ends: Least and greatest value there can be; None where that is not known.
    """

    name: str
    orientation: int
    points: pl.DataFrame
    is_pairwise: bool
    ends: tuple[float, float] | None = None

    @property
    def ends_of_differences(self) -> tuple[float, float] | None:
        """Least and greatest difference of two values; None where that is not known."""
        return difference_ends(self.ends, self.ends)

    def means(self) -> pl.DataFrame:
        """One value an item, turn and model: the mean over judges and opponents."""
        known = self.points.drop_nulls("value")
        # Texts as keys would take three times the memory; cluster and category follow the item.
        # A whole number for each item, turn and model, another one where any of them differs.
        code = pl.repeat(0, len(known), dtype=pl.UInt64, eager=True)
        for key in KEYS:
            column = known[key]
            if column.dtype == pl.String:
                column = column.cast(pl.Categorical).to_physical()
            # From 1 on; 0 where the row has none.
            own = column.rank("dense").fill_null(0).cast(pl.UInt64)
            code = code * (column.n_unique() + 1) + own
        values = known.select(code=code, value="value").with_row_index("place")
        groups = values.group_by("code", maintain_order=True).agg(
            pl.col("place").first(), pl.col("value").mean()
        )
        named = known.select("item", *OVER, "category", "turn", "model")[groups["place"]]
        return named.with_columns(groups["value"])


def collect(context: Context, wanted: Sequence[ScoreRef]) -> list[Score]:
    """The scores that are asked for; every score of every method where none is.

    Raises:
        UsageError: If there is no such method or column.
    """
    if not wanted:
        return [
            score(context, source, column) for source in context.sources for column in source.scores
        ]
    found = []
    for ref in wanted:
        source = source_of(context, ref.method)
        columns = [ref.column] if ref.column is not None else list(source.scores)
        found += [score(context, source, column) for column in columns]
    return found


def source_of(context: Context, name: str) -> Source:
    """The method of a name.

    Raises:
        UsageError: If the recipe has none of it.
    """
    for source in context.sources:
        if source.name == name:
            return source
    names = ", ".join(source.name for source in context.sources)
    raise UsageError(f"{context.name}: unknown method {name!r}; available: {names}")


def score(context: Context, source: Source, column: str) -> Score:
    """One column of a method's rows.

    Raises:
        UsageError: If there is no such column of numbers.
    """
    wanted = dict.fromkeys((*_SHAPE, "model_a", "model_b", column))
    rows = context.rows_of(source, list(wanted))
    name = f"{source.name}.{column}"
    if column not in rows.columns or not _is_number(rows.schema[column]):
        rows = context.rows_of(source)
        numbers = [one for one, kind in rows.schema.items() if _is_number(kind)]
        raise UsageError(
            f"{context.name}: {source.name!r} has no numeric column {column!r}; available: "
            f"{', '.join(numbers)}"
        )
    rows = rows.with_columns(
        value=pl.col(column).cast(pl.Float64).fill_nan(None),
        **{
            key: pl.lit(None, kind)
            for key, kind in _SHAPE.items()
            if key not in (*rows.columns, "value")
        },
    ).with_columns(turn=pl.col("turn").fill_null(1))
    if "model_a" not in rows.columns:
        points = rows.select(*_SHAPE)
        ends = (0.0, 1.0) if rows.schema[column] == pl.Boolean() else ends_of(source, column)
        return Score(name, source.scores.get(column, 1), points, is_pairwise=False, ends=ends)
    sides = [
        rows.with_columns(model=pl.col("model_a"), opponent=pl.col("model_b")).select(*_SHAPE),
        rows.with_columns(
            model=pl.col("model_b"), opponent=pl.col("model_a"), value=1.0 - pl.col("value")
        ).select(*_SHAPE),
    ]
    return Score(
        name, source.scores.get(column, 1), pl.concat(sides), is_pairwise=True, ends=(0.0, 1.0)
    )


def ends_of(source: Source, column: str) -> tuple[float, float] | None:
    """Least and greatest value of a column of rows, where the method says them."""
    compared = source.method.compared()
    if compared is None or compared.column != column:
        return None
    return float(compared.low), float(compared.high)


def _is_number(kind: pl.DataType) -> bool:
    return kind.is_numeric() or kind == pl.Boolean()
