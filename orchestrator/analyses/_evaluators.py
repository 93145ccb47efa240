"""Scores of models: columns of methods, and ProbDiff's confidence, which a threshold makes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.clusters import OVER
from orchestrator.methods.probdiff import ProbDiff
from orchestrator.plugin import Context, Measured, Source
from orchestrator.ranking.cells import mean_of, share_of, without_n
from orchestrator.ranking.scores import Score, ScoreRef, score, source_of
from orchestrator.statistics.means import levelled

Floats = NDArray[np.float64]

CONFIDENCE: Final = "confidence"
"""Name of ProbDiff's score of a model, beside its columns: 1 where d reaches the main threshold."""
_READ: Final = ("item", "category", "turn", "model", "status", "d")


def evaluators(context: Context, wanted: Sequence[ScoreRef]) -> list[Score]:
    """Return the scores that are asked for, or every score, ProbDiff's confidence among them.

    Raises:
        UsageError: If there is no such method or column.
    """
    refs = wanted or [ScoreRef(method=source.name, column=None) for source in context.sources]
    found = []
    for ref in refs:
        source = source_of(context, ref.method)
        columns = [ref.column] if ref.column is not None else list(source.scores)
        if ref.column is None and isinstance(source.method, ProbDiff):
            columns.append(CONFIDENCE)
        found += [_evaluator(context, source, column) for column in columns]
    return found


def _evaluator(context: Context, source: Source, column: str) -> Score:
    if column != CONFIDENCE or not isinstance(source.method, ProbDiff):
        return score(context, source, column)
    rows = context.rows_of(source, _READ)
    # A text without d fails, as published; a failed request is missing.
    passed = (pl.col("d") >= source.method.config.deltas[0]).fill_null(value=False)
    points = rows.filter(pl.col("status") == "ok").select(
        "item",
        *OVER,
        "category",
        "turn",
        "model",
        opponent=pl.lit(None, pl.String),
        judge=pl.lit(None, pl.String),
        value=passed.cast(pl.Float64),
    )
    return Score(f"{source.name}.{CONFIDENCE}", 1, points, is_pairwise=False)


def mean_cell(points: pl.DataFrame, confidence_level: float) -> Measured:
    """Return the mean of points, with the interval of a share where they are in [0, 1]."""
    known = points["value"].drop_nulls()
    if len(known) and known.is_between(0.0, 1.0).all():
        return without_n(share_of(points, pl.col("value"), confidence_level))
    return without_n(mean_of(points, pl.col("value"), confidence_level))


def level_means(means: Floats, values: pl.Series) -> Floats:
    """Return the means of some values, nan for none; equal where they differ by rounding alone."""
    size = values.drop_nulls().abs().mean()
    return levelled(means, float(size) if isinstance(size, float) else 0.0)


def order_words(values: Floats, models: Sequence[str]) -> str:
    """Return the models as `a > b = c`, the largest value first, those without one last."""
    known = zip(np.nan_to_num(values, nan=-np.inf).tolist(), models, strict=True)
    ranked = sorted(known, key=lambda pair: (-pair[0], pair[1]))
    words = [ranked[0][1]]
    for (before, _), (after, model) in pairwise(ranked):
        words += ["=" if before == after else ">", model]
    return " ".join(words)
