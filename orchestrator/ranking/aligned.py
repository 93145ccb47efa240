"""Scores of all methods side by side, with the length and correctness of the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator import numbers
from orchestrator.clusters import CLUSTER, codes, prompt_words
from orchestrator.contracts.context import ROWS_AT_ONCE, Context, answer_frames, role_slices
from orchestrator.errors import OrchestratorError
from orchestrator.ranking.points import score
from orchestrator.statistics.correlation import METHOD, Correlation, correlate

Floats = NDArray[np.float64]

GOLD: Final = "exact match"
"""Name of the score that says whether an answer equals its reference."""
_KEYS: Final = ("item", "turn", "model")
_PER_METHOD: Final = 3
_MOST: Final = 14


@dataclass(frozen=True, slots=True)
class Aligned:
    """One row an answer, one column a score; more is better in all of them.

    Attributes:
        frame: Columns item, turn, model, cluster, length (characters), and the scores.
        names: The scores, main ones of each method first.
        gold: Whether `exact match` is among them.
    """

    frame: pl.DataFrame
    names: Sequence[str]
    gold: bool

    def correlation(self, one: str, two: str, level: float) -> Correlation:
        """Spearman's, over all answers, with an interval over prompts."""
        return correlate(
            self._values(one),
            self._values(two),
            codes(self.frame[CLUSTER]),
            kind="spearman",
            confidence_level=level,
        )

    def _values(self, column: str) -> Floats:
        values = self.frame[column].cast(pl.Float64).fill_null(np.nan)
        return values.to_numpy().astype(np.float64)


def align(context: Context, wanted: Mapping[str, Sequence[str]] | None = None) -> Aligned | None:
    """The scores of all methods side by side.

    Args:
        context: The methods, and their frames.
        wanted: Columns by method; a few main ones of each where left out.
    """
    frame: pl.DataFrame | None = None
    names: list[str] = []
    for source in context.sources:
        columns = list(source.scores)[:_PER_METHOD] if wanted is None else wanted.get(source.name)
        for column in columns or ():
            try:
                found = score(context, source, column)
            except OrchestratorError:
                # A column that these rows lack, e.g. since an older version wrote them.
                continue
            points = found.means().select(*_KEYS, pl.col("value") * found.orientation)
            is_flat = points["value"].n_unique() < 2
            if is_flat or len(names) >= _MOST + (0 if wanted is None else 40):
                continue
            title = f"{source.name}.{column}"
            points = points.rename({"value": title})
            frame = (
                points
                if frame is None
                else frame.join(points, on=list(_KEYS), how="full", coalesce=True)
            )
            names.append(title)
    if frame is None:
        return None
    answers = _answers(context)
    if answers is None:
        frame = frame.with_columns(length=pl.lit(None, pl.Float64))
        return Aligned(context.clusters.of(frame), names, gold=False)
    frame = frame.join(answers, on=list(_KEYS), how="left")
    gold = frame[GOLD].drop_nulls().n_unique() > 1
    frame = context.clusters.of(frame)
    return Aligned(frame, [*names, GOLD] if gold else names, gold)


def _answers(context: Context) -> pl.DataFrame | None:
    """Length and correctness of the answers; the first method's, where several drew some."""
    absent = {"turn": pl.lit(1, pl.Int64), "exact_match": pl.lit(None, pl.Boolean)}
    parts = []
    for frame, columns in answer_frames(context.frames).items():
        for rows in role_slices(context.frames, frame, columns, ("item", "status"), ROWS_AT_ONCE):
            added = {name: value for name, value in absent.items() if name not in rows.columns}
            good = rows.with_columns(**added).filter(pl.col("status") == "ok")
            length = pl.col("text").str.len_chars().cast(pl.Float64).alias("length")
            gold = pl.col("exact_match").cast(pl.Float64).alias(GOLD)
            parts.append(good.select(*_KEYS, length, gold))
    if not parts:
        return None
    return pl.concat(parts).unique(list(_KEYS), keep="first", maintain_order=True)


def basis_of(aligned: Aligned, level: float) -> str:
    """Return in words what correlations of aligned answers rest on."""
    return (
        f"n = {numbers.counted(aligned.frame.height, 'answer')} on "
        f"{prompt_words(aligned.frame)}, of all models together · Spearman's rho, "
        f"{numbers.level(level)} intervals over prompts: {METHOD}"
    )
