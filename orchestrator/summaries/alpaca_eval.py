"""AlpacaEval 2: win rates of models against the baseline, as judged and at equal length.

The length-controlled win rate needs the difficulties of the instructions (`length_control`).
Without them the fit has only the model and the length to explain a judgment, and published rates
of 5.9, 12.4 and 16.3 % become 19.6, 20.5 and 20.7 %: so there is no such column. Several turns of a
prompt are one cluster of the interval.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.clusters import CLUSTER, codes, prompt_words
from orchestrator.errors import StatisticsError
from orchestrator.frames import columns_of
from orchestrator.methods.alpaca_eval import Config, LengthControl
from orchestrator.plugin import Cell, Column, Context, Measured, Summary, Table, make_table
from orchestrator.ranking.cells import METHODS, share_of, without_n
from orchestrator.ranking.comparisons import comparisons
from orchestrator.statistics.jackknife import Resampling
from orchestrator.statistics.length import (
    head_to_head,
    length_controlled_win_rate,
    standardised_length,
)
from orchestrator.summaries._difficulties import Difficulties
from orchestrator.summaries._harness import OK

_COLUMNS = (
    Column("model"),
    Column("judge"),
    Column("win rate", "percent"),
    Column("s.e.", "percent"),
    Column("discrete", "percent"),
    Column("n", "count"),
    Column("missing", "count"),
)
_CONTROLLED = Column("length-controlled", "percent")
_LENGTHS = (
    Column("model"),
    Column("judge"),
    Column("characters", "number", 0),
    Column("baseline's", "number", 0),
    Column("longer than the baseline's", "percent"),
    Column("equal text", "percent"),
)
_OF_ITEMS = ("item", "prompt", "place")
# A fit for each, all at once: a second with the rows of the gamed baselines.
_MOST_RESAMPLES = 300
# Raised whenever the arithmetic of the fit changes, so that kept numbers are computed anew.
_FIT = 1


class _Fitted(msgspec.Struct, frozen=True):
    """A length-controlled win rate in percent, and its interval."""

    win_rate: float
    low: float | None
    high: float | None


class AlpacaEvalSummary(Summary[Config]):
    """Win rates of models against the baseline, as judged and at equal length."""

    reads = (
        "item",
        "category",
        "turn",
        "judge",
        "model",
        "baseline",
        "preference",
        "coverage",
        "model_first",
        "same_text",
        "n_characters",
        "n_characters_baseline",
        "status",
        "cause",
    )

    def summarise(self, context: Context) -> list[Table]:
        """Win rates, one line a model and judge; then the lengths that go with them."""
        rows = context.rows
        if rows.is_empty():
            return []
        controlled = _controls(context, self.config.length_control)
        lines: list[list[Cell]] = []
        lengths: list[list[Cell]] = []
        for (model, judge), group in rows.group_by("model", "judge", maintain_order=True):
            good = group.filter(OK & pl.col("preference").is_not_null())
            found = head_to_head(good["preference"].to_numpy().astype(np.float64))
            line: list[Cell] = [
                str(model),
                str(judge),
                without_n(share_of(good, pl.col("preference") - 1.0, context.confidence_level)),
                _percent(found.standard_error),
                _percent(found.discrete_win_rate),
                found.n,
                len(group) - found.n,
            ]
            if isinstance(controlled, str):
                line.insert(3, Measured(None, why=controlled))
            elif controlled is not None:
                line.insert(3, _length_controlled(context, good, controlled))
            lines.append(line)
            written = group.filter(OK)
            own, other = written["n_characters"], written["n_characters_baseline"]
            columns_of_lengths = (own, other, own > other, written["same_text"])
            means = [column.cast(pl.Float64).mean() for column in columns_of_lengths]
            lengths.append([str(model), str(judge), *means])  # type: ignore[list-item]
        notes = [
            "win rate: mean of preference - 1; s.e.: as published, with rows taken as independent",
            _about(controlled),
            METHODS,
        ]
        swapped = rows["model_first"].mean()
        if isinstance(swapped, float):
            notes.append(f"the model was shown first in {100 * swapped:.0f} % of the judgments")
        basis = prompt_words(rows)
        columns = _COLUMNS if controlled is None else (*_COLUMNS[:3], _CONTROLLED, *_COLUMNS[3:])
        title = f"AlpacaEval: preference over {self.config.baseline}"
        return [
            make_table(
                "alpaca_eval",
                title,
                columns,
                lines,
                basis=basis,
                notes=notes,
                comparisons=comparisons(
                    rows.filter(OK),
                    pl.col("preference"),
                    context.confidence_level,
                    ends=(1.0, 2.0),
                ),
            ),
            make_table(
                "alpaca_eval.lengths", "AlpacaEval: lengths of the outputs", _LENGTHS, lengths
            ),
        ]


def _controls(context: Context, settings: LengthControl | None) -> Difficulties | str | None:
    """Difficulties of the run's items; why they can't be had; None where none are asked for."""
    if settings is None:
        return None
    if "items" not in context.frames:
        return "the run has no frame of items"
    try:
        return Difficulties(settings, columns_of(context.frames, "items", _OF_ITEMS))
    except StatisticsError as error:
        return str(error)


def _about(controlled: Difficulties | str | None) -> str:
    if controlled is None:
        return (
            "no length-controlled win rate: set `length_control` to the difficulties of the "
            "instructions, without which it would not be AlpacaEval's number"
        )
    if isinstance(controlled, Difficulties) and controlled.gamed is None:
        return (
            "length-controlled: AlpacaEval's fit with difficulties but without its rows of gamed "
            "baselines, which identify the effect of length: close to the published number, not "
            "equal"
        )
    return "length-controlled: AlpacaEval's fit; interval over prompts, refitted for each"


def _percent(value: float) -> float | None:
    return None if math.isnan(value) else value / 100.0


def _length_controlled(context: Context, good: pl.DataFrame, controlled: Difficulties) -> Measured:
    baseline, model, preference = (
        good[name].to_numpy().astype(np.float64)
        for name in ("n_characters_baseline", "n_characters", "preference")
    )
    n_resamples, prompts = min(context.n_resamples, _MOST_RESAMPLES), codes(good[CLUSTER])

    def fitted() -> _Fitted:
        found = length_controlled_win_rate(
            preference,
            length,
            difficulties,
            gamed=controlled.gamed,
            prompts=prompts,
            resampling=Resampling(n_resamples, context.rng(), context.confidence_level),
        )
        bounds = found.interval
        low, high = (None, None) if bounds is None else (bounds.low, bounds.high)
        return _Fitted(found.win_rate, low, high)

    try:
        length = standardised_length(baseline, model)
        difficulties = controlled.of(good["item"])
        arrays = [preference, length, difficulties, prompts]
        if (gamed := controlled.gamed) is not None:
            arrays += [gamed.length, gamed.difficulty, gamed.preference]
        rest = (_FIT, n_resamples, context.seed, context.confidence_level)
        key = _digest(arrays, rest)
        found = context.once(key, _Fitted, fitted)
    except StatisticsError as error:
        return Measured(None, why=str(error))
    if not prompts.any():
        # All resamples are the same.
        return Measured(found.win_rate / 100.0, why="one independent prompt: no interval")
    if found.low is None or found.high is None or found.low == found.high:
        why = "the penalty shrinks the model's effect to 0: no interval"
        return Measured(found.win_rate / 100.0, why=why)
    return Measured(found.win_rate / 100.0, found.low / 100.0, found.high / 100.0)


def _digest(arrays: Sequence[NDArray[Any]], rest: tuple[object, ...]) -> bytes:
    """Of everything that a fit comes from."""
    found = hashlib.blake2b(repr(rest).encode(), digest_size=16)
    for array in arrays:
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.digest()
