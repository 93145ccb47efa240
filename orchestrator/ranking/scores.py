"""Scores of a run's methods in one shape, side by side, their means, and statistics of columns."""

import contextlib
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec
import numpy as np
import polars as pl
from pydantic import Field

from orchestrator import numbers
from orchestrator.clusters import CLUSTER, OVER, codes, prompt_words
from orchestrator.contracts.context import Context, Source, answer_frames, role_slices
from orchestrator.contracts.method import MethodSettings, Statistic, Summary
from orchestrator.errors import OrchestratorError, PluginError, UsageError
from orchestrator.frames import CATEGORIES, names_of
from orchestrator.plugins.base import Settings
from orchestrator.ranking.cells import (
    METHODS,
    comparisons,
    floats,
    mean_by_place,
    mean_of,
    numbers_of,
    packed,
    plain_mean,
    share_of,
)
from orchestrator.records import Floats, Ints
from orchestrator.statistics import resampling
from orchestrator.statistics.correlation import Correlation, correlate
from orchestrator.statistics.resampling import JACKKNIFE, bootstrapped
from orchestrator.tables import (
    Cell,
    Column,
    Comparison,
    Measured,
    Table,
    make_table,
    measured,
    table_columns,
)

# Scores of a run's methods in one shape: item, cluster, category, turn, model, opponent, value.
#
# A frame of pairs gives each of its two models a point: P(A better) and 1 - P(A better).


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

    def column(self, name: str) -> Floats:
        """Return a column of its points, shape (n,); nan where a value is missing."""
        return floats(self.points[name])

    @property
    def prompts(self) -> Ints:
        """The cluster of each point as a number, shape (n,)."""
        return codes(self.points[CLUSTER])

    def means(self) -> pl.DataFrame:
        """One value an item, turn and model: the mean over judges and opponents."""
        known = self.points.drop_nulls("value")
        first, (places,) = _by_appearance([known])
        # Cluster and category follow the item.
        named = known.select("item", *OVER, "category", "turn", "model")[first]
        values = mean_by_place(known["value"].to_numpy(), places, first.size)
        return named.with_columns(value=pl.Series(values))


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


def score(
    context: Context,
    source: Source,
    column: str,
    *,
    as_categories: bool = False,
    only: Collection[str] = tuple(_SHAPE),
) -> Score:
    """One column of a method's rows.

    With `as_categories` the points hold texts as categories, and no clusters: a fifth of the
    memory. They have the columns of `only`.

    Raises:
        UsageError: If there is no such column of numbers.
    """
    there = names_of(context.frames, source.frame)
    left_out = OVER if as_categories else ()
    shape = {key: _SHAPE[key] for key in _SHAPE if key in only and key not in left_out}
    is_pairwise = "model_a" in there
    named = {"model": "model_a", "opponent": "model_b"} if is_pairwise else {}
    asked = [key for key in shape if key not in named]
    if named.keys() & shape.keys():
        asked += named.values()
    wanted = [one for one in asked if one in there and one != column]
    wanted.append(column)
    rows = context.rows_of(source, wanted, as_categories=as_categories)
    name = f"{source.name}.{column}"
    if column not in rows.columns or not _is_number(rows.schema[column]):
        rows = context.rows_of(source)
        numbers = [one for one, kind in rows.schema.items() if _is_number(kind)]
        raise UsageError(
            f"{context.name}: {source.name!r} has no numeric column {column!r}; available: "
            f"{', '.join(numbers)}"
        )
    ends = (0.0, 1.0) if rows.schema[column] == pl.Boolean() else ends_of(source, column)
    points = rows.with_columns(value=pl.col(column).cast(pl.Float64).fill_nan(None))
    if is_pairwise:
        ends = (0.0, 1.0)
        first, second = (
            points.rename(dict(zip(pair, ("model", "opponent"), strict=True)), strict=False)
            for pair in (("model_a", "model_b"), ("model_b", "model_a"))
        )
        second = second.with_columns(value=1.0 - pl.col("value"))
        points = pl.concat([first, second.select(first.columns)])
    text = pl.Categorical() if as_categories else pl.String()
    points = points.with_columns(
        pl.lit(None, text if kind == pl.String() else kind).alias(key)
        for key, kind in shape.items()
        if key not in points.columns
    ).select(*shape)
    points = points.with_columns(pl.col("^turn$").fill_null(1))
    return Score(name, source.scores.get(column, 1), points, is_pairwise=is_pairwise, ends=ends)


def ends_of(source: Source, column: str) -> tuple[float, float] | None:
    """Least and greatest value of a column of rows, where the method says them."""
    compared = source.method.compared()
    if compared is None or compared.column != column:
        return None
    return float(compared.low), float(compared.high)


def _is_number(kind: pl.DataType) -> bool:
    return kind.is_numeric() or kind == pl.Boolean()


GOLD: Final = "exact match"
"""Name of the score that says whether an answer equals its reference."""
_PER_METHOD: Final = 3
_MOST: Final = 14


@dataclass(frozen=True, slots=True)
class Aligned:
    """One row an answer, one column a score; more is better in all of them.

    Attributes:
        frame: Columns cluster, prompt_key, length (characters), and the scores; nan where missing.
        names: The scores, main ones of each method first; `GOLD` last, if it is known and varies.
    """

    frame: pl.DataFrame
    names: Sequence[str]

    def correlation(self, one: str, two: str, level: float) -> Correlation:
        """Spearman's, over all answers, with an interval over prompts."""
        return correlate(
            self.frame[one].to_numpy(),
            self.frame[two].to_numpy(),
            codes(self.frame[CLUSTER]),
            kind="spearman",
            confidence_level=level,
        )


def align(context: Context) -> Aligned | None:
    """A few main scores of each method side by side; None where there are none."""
    answers = _answers(context)
    parts = [_scores_of(context, one) for one in context.sources]
    about = [keys for keys, scores in parts if scores]
    if not about:
        return None
    first, places = _by_appearance(about if answers is None else [*about, answers])
    items = pl.concat(one["item"] for one in about)
    n = first.size
    frame: dict[str, Floats] = {}
    for scores, at in zip(filter(None, (scores for _, scores in parts)), places, strict=False):
        means = ((one, mean_by_place(values, at, n)) for one, values in scores.items())
        frame |= islice((mean for mean in means if _varies(mean[1])), _MOST - len(frame))
    if not frame:
        return None
    is_scored = ~np.all([np.isnan(column) for column in frame.values()], axis=0)
    lengths, right = np.full((2, n), math.nan)
    if answers is not None:
        # Of several answers the first is written last.
        at = places[-1][::-1]
        lengths[at], right[at] = floats(answers["length"])[::-1], floats(answers[GOLD])[::-1]
    frame |= {GOLD: right} if _varies(right[is_scored]) else {}
    over = numbers_of(items.gather(first[is_scored]), context.clusters)
    shown = {name: column[is_scored] for name, column in (frame | {"length": lengths}).items()}
    return Aligned(over.with_columns(pl.DataFrame(shown)), [*frame])


def _scores_of(context: Context, source: Source) -> tuple[pl.DataFrame, dict[str, Floats]]:
    """Return the `KEYS` of the points of a method, and those of its scores that can be read."""
    keys = pl.DataFrame()
    found: dict[str, Floats] = {}
    for column in islice(source.scores, _PER_METHOD):
        only = ("value",) if found else (*KEYS, "value")
        with contextlib.suppress(OrchestratorError):
            one = score(context, source, column, as_categories=True, only=only)
            keys = keys if found else one.points.select(KEYS)
            found[one.name] = one.column("value") * one.orientation
    return keys, found


def _by_appearance(about: Sequence[pl.DataFrame]) -> tuple[Ints, list[Ints]]:
    """Number the different `KEYS` of several frames as they appear.

    Returns the first row of each, shape (n,), and the numbers of each frame's rows, in [0, n).
    """
    # Whole numbers stand for the texts: to group and join by them takes several times the memory.
    code = codes(packed(pl.concat(one.select(KEYS) for one in about), KEYS))
    first = np.empty(int(code.max(initial=-1)) + 1, np.int64)
    # Of equal places the one written last remains.
    first[code[::-1]] = np.arange(code.size)[::-1]
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(order.size)
    ends = np.cumsum([len(one) for one in about])
    return first[order], np.split(number[code], ends[:-1])


def _varies(values: Floats) -> bool:
    known = values[~np.isnan(values)]
    return bool((known != known[:1]).any())


def _answers(context: Context) -> pl.DataFrame | None:
    """Length and correctness of the answers, the first method's first."""
    absent = {"turn": pl.lit(1, pl.Int64), "exact_match": pl.lit(None, pl.Boolean)}
    parts = []
    for frame, columns in answer_frames(context.frames).items():
        for rows in role_slices(context.frames, frame, columns, ("item", "status")):
            added = {name: value for name, value in absent.items() if name not in rows.columns}
            good = rows.with_columns(**added).filter(pl.col("status") == "ok")
            length = pl.col("text").str.len_chars().cast(pl.Float64).alias("length")
            gold = pl.col("exact_match").cast(pl.Float64).alias(GOLD)
            parts.append(good.select(*KEYS, length, gold).with_columns(CATEGORIES))
    return pl.concat(parts) if parts else None


def basis_of(aligned: Aligned, level: float) -> str:
    """Return in words what correlations of aligned answers rest on."""
    return (
        f"n = {numbers.counted(aligned.frame.height, 'answer')} on "
        f"{prompt_words(aligned.frame)}, of all models together · Spearman's rho, "
        f"{numbers.level(level)} intervals over prompts: {JACKKNIFE}"
    )


_UNIT: Final = ("item", "model", "model_a", "model_b", "judge", "status")
_NUMBERS: Final = table_columns(
    "score: score | better | mean: number | values: count | missing: count"
)
_BETTER: Final = {1: "higher", -1: "lower"}


class ScoresSummary(Summary[MethodSettings]):
    """The mean of each score by model, and by judge if there is one."""

    reads = _UNIT

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
        for name in source.scores:
            kind = rows.schema.get(name)
            if kind is None or not _is_number(kind):
                said = "which is no column of numbers of its rows"
                raise PluginError(f"{source.name}: 'scores' names {name!r}, {said}")
        sides = _sides(rows, source.scores)
        is_judged = "judge" in rows.columns and bool((rows["judge"] != "").any())
        keys = ["model", "judge"] if is_judged else ["model"]
        # Probabilities that one of two models is better are in [0, 1], as flags are.
        is_paired = "model_a" in rows.columns
        shares = {one for one in source.scores if is_paired or rows.schema[one] == pl.Boolean()}
        lines: list[list[Cell]] = []
        for group, points in sides.group_by(keys, maintain_order=True):
            names = [str(name or "") for name in group]
            for column, orientation in source.scores.items():
                mean = _mean(points, column, context.confidence_level, is_share=column in shares)
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
        if is_paired:
            notes.append("a score of a pair is the probability that the model beats its opponent")
        table = "scores.judges" if is_judged else "scores"
        columns = (*map(Column, keys), *_NUMBERS)
        compared: Sequence[Comparison] = ()
        if len(source.scores) == 1 and CLUSTER in rows.columns:
            ((score, orientation),) = source.scores.items()
            # The first screen has no column `better`.
            basis = f"{basis} · {score}: {_BETTER[orientation]} is better"
            ends = (0.0, 1.0) if shares else ends_of(source, score)
            compared = comparisons(sides, pl.col(score), context.confidence_level, ends)
        return [
            make_table(
                table, "Mean scores", columns, lines, basis=basis, notes=notes, comparisons=compared
            )
        ]


def _sides(rows: pl.DataFrame, columns: Iterable[str]) -> pl.DataFrame:
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


def _mean(points: pl.DataFrame, column: str, level: float, *, is_share: bool) -> Measured:
    if CLUSTER not in points.columns:
        return Measured(plain_mean(points[column]), why="rows without an item have no interval")
    return (share_of if is_share else mean_of)(points, pl.col(column), level, with_n=True)


def estimates(statistic: Statistic, context: Context) -> list[Table]:
    """Return the table of one statistic, one line for each model of the method.

    Raises:
        UsageError: If there is no such method, or no such column of numbers in its rows.
    """
    config = statistic.config
    source = source_of(context, config.method)
    points = score(context, source, config.column).points
    lines: list[list[Cell]] = []
    for (model,), rows in points.group_by("model", maintain_order=True):
        known = rows.drop_nulls("value")
        found = bootstrapped(
            known["value"].to_numpy().astype(np.float64),
            codes(known[CLUSTER]) if len(known) else np.zeros(0, np.int64),
            statistic.of,
            context.resampling(),
        )
        missing = len(rows) - len(known)
        lines.append([str(model), measured(found), len(known), missing])
    counted = table_columns("rows: count | missing: count")
    columns = (Column("model"), Column(statistic.title, "number"), *counted)
    title = f"{config.method}.{config.column}: {statistic.title}"
    basis = prompt_words(points.filter(pl.col("value").is_not_null()))
    notes = [f"interval: {resampling.METHOD}; missing: failed rows, and rows without a value"]
    return [make_table(context.name, title, columns, lines, basis=basis, notes=notes)]
