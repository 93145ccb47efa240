"""AlpacaEval 2: win rates of models against the baseline, as judged and at equal length.

The length-controlled win rate here is fitted without AlpacaEval's difficulties of instructions and
its gamed baselines, which are not part of this project: compare it within a run, not with the
leaderboard. Several turns of a prompt are one cluster of the interval.
"""

import math

import numpy as np
import polars as pl

from orchestrator.clusters import prompt_words
from orchestrator.errors import StatisticsError
from orchestrator.statistics.jackknife import Resampling
from orchestrator.statistics.length import (
    head_to_head,
    length_controlled_win_rate,
    standardised_length,
)
from orchestrator.summaries._base import Context
from orchestrator.summaries._clusters import METHODS, share_of, without_n
from orchestrator.summaries._harness import OK
from orchestrator.tables import Cell, Column, Measured, Table, make_table

_COLUMNS = (
    Column("model"),
    Column("judge"),
    Column("win rate", "percent"),
    Column("s.e.", "percent"),
    Column("length-controlled", "percent"),
    Column("discrete", "percent"),
    Column("n", "count"),
    Column("missing", "count"),
)
_LENGTHS = (
    Column("model"),
    Column("judge"),
    Column("characters", "number", 0),
    Column("baseline's", "number", 0),
    Column("longer than the baseline's", "percent"),
    Column("equal text", "percent"),
)
# A fit for each: milliseconds where it is easy, ten times that where C is large.
_MOST_RESAMPLES = 300


def summarise(context: Context) -> list[Table]:
    """Win rates, one line a model and judge; then the lengths that go with them."""
    rows = context.rows
    if rows.is_empty():
        return []
    groups = [
        ([str(model), str(judge)], group)
        for (model, judge), group in rows.group_by("model", "judge", maintain_order=True)
    ]
    lines = [_line(context, names, group) for names, group in groups]
    notes = [
        "win rate: mean of preference - 1; s.e. as published: every row taken as independent",
        "length-controlled: without AlpacaEval's difficulties and gamed rows, so for this run only",
        METHODS,
    ]
    swapped = rows["model_first"].mean()
    if isinstance(swapped, float):
        notes.append(f"the model was shown first in {100 * swapped:.0f} % of the judgments")
    basis = prompt_words(rows)
    title = f"AlpacaEval: preference over {context.config.baseline}"
    lengths = [[*names, *_lengths(group)] for names, group in groups]
    return [
        make_table("alpaca_eval", title, _COLUMNS, lines, basis=basis, notes=notes),
        make_table("alpaca_eval.lengths", "AlpacaEval: lengths of the outputs", _LENGTHS, lengths),
    ]


def _line(context: Context, names: list[str], rows: pl.DataFrame) -> list[Cell]:
    good = rows.filter(OK & pl.col("preference").is_not_null())
    found = head_to_head(good["preference"].to_numpy().astype(np.float64))
    return [
        *names,
        without_n(share_of(good, pl.col("preference") - 1.0, context.confidence_level)),
        _percent(found.standard_error),
        _length_controlled(context, good),
        _percent(found.discrete_win_rate),
        found.n,
        len(rows) - found.n,
    ]


def _lengths(rows: pl.DataFrame) -> list[float | None]:
    good = rows.filter(OK)
    longer = good["n_characters"] > good["n_characters_baseline"]
    columns = (good["n_characters"], good["n_characters_baseline"], longer, good["same_text"])
    return [column.cast(pl.Float64).mean() for column in columns]  # type: ignore[misc]


def _percent(value: float) -> float | None:
    return None if math.isnan(value) else value / 100.0


def _length_controlled(context: Context, good: pl.DataFrame) -> Measured:
    lengths = [
        good[name].to_numpy().astype(np.float64)
        for name in ("n_characters_baseline", "n_characters")
    ]
    n_resamples = min(context.n_resamples, _MOST_RESAMPLES)
    try:
        found = length_controlled_win_rate(
            good["preference"].to_numpy().astype(np.float64),
            standardised_length(*lengths),
            resampling=Resampling(n_resamples, context.rng(), context.confidence_level),
        )
    except StatisticsError as error:
        return Measured(None, why=str(error))
    interval = found.interval
    if interval is None or interval.low == interval.high:
        why = "the penalty leaves nothing of the model beside length: no interval"
        return Measured(found.win_rate / 100.0, why=why)
    return Measured(found.win_rate / 100.0, interval.low / 100.0, interval.high / 100.0)
