"""Figures across methods: who agrees with whom, glass-box features against gold, and length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.analyses._scores import score
from orchestrator.clusters import CLUSTER, codes, prompt_words
from orchestrator.contracts.context import Source
from orchestrator.errors import OrchestratorError
from orchestrator.frames import slices_of
from orchestrator.judged import ROWS_AT_ONCE
from orchestrator.report import numbers
from orchestrator.report.generic import cell_text
from orchestrator.report.html import figures
from orchestrator.report.html.figures import Figure, Picture, as_table, name
from orchestrator.report.html.material import Material
from orchestrator.statistics.averages import levelled
from orchestrator.statistics.correlation import METHOD, Correlation, correlate
from orchestrator.tables import Column, Measured, with_interval

Floats = NDArray[np.float64]

_KEYS: Final = ("item", "turn", "model")
_GOLD: Final = "exact match"
_PER_METHOD: Final = 3
_MOST: Final = 14
_RHO: Final = Column("Spearman", "signed", 2)
_OVER_BLACK: Final = 0.82


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


def align(material: Material, wanted: Mapping[str, Sequence[str]] | None = None) -> Aligned | None:
    """The scores of all methods side by side.

    Args:
        material: The run.
        wanted: Columns by method; a few main ones of each where left out.
    """
    frame: pl.DataFrame | None = None
    names: list[str] = []
    for source in material.context.sources:
        columns = list(source.scores)[:_PER_METHOD] if wanted is None else wanted.get(source.name)
        for column in columns or ():
            points = _points(material, source, column)
            if points is None or len(names) >= _MOST + (0 if wanted is None else 40):
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
    answers = _answers(material)
    if answers is None:
        frame = frame.with_columns(length=pl.lit(None, pl.Float64))
        return Aligned(material.context.clusters.of(frame), names, gold=False)
    frame = frame.join(answers, on=list(_KEYS), how="left")
    gold = frame[_GOLD].drop_nulls().n_unique() > 1
    frame = material.context.clusters.of(frame)
    return Aligned(frame, [*names, _GOLD] if gold else names, gold)


def _points(material: Material, source: Source, column: str) -> pl.DataFrame | None:
    try:
        found = score(material.context, source, column)
    except OrchestratorError:
        # A column that these rows lack, e.g. since an older version wrote them.
        return None
    points = found.means().select(*_KEYS, pl.col("value") * found.orientation)
    return None if points["value"].n_unique() < 2 else points


def _answers(material: Material) -> pl.DataFrame | None:
    """Length and correctness of the answers; the first method's, where several drew some."""
    wanted = (*_KEYS, "status", "text", "exact_match")
    parts = [
        rows.filter(pl.col("status") == "ok").select(
            *_KEYS,
            pl.col("text").str.len_chars().cast(pl.Float64).alias("length"),
            pl.col("exact_match").cast(pl.Float64).alias(_GOLD),
        )
        for rows in slices_of(material.frames, "answers", wanted, ROWS_AT_ONCE)
    ]
    if not parts:
        return None
    return pl.concat(parts).unique(list(_KEYS), keep="first", maintain_order=True)


def _basis(aligned: Aligned, level: float) -> str:
    return (
        f"n = {numbers.counted(aligned.frame.height, 'answer')} on "
        f"{prompt_words(aligned.frame)}, of all models together · Spearman's rho, "
        f"{numbers.level(level)} intervals over prompts: {METHOD}"
    )


def of_agreement(material: Material) -> list[Figure]:
    """Agreement of the methods on answers and on the order of models, and effects of length."""
    aligned = align(material)
    if aligned is None:
        return []
    level = material.context.confidence_level
    found = []
    if len(aligned.names) > 1:
        found.append(_matrix(aligned, level))
        if aligned.frame["model"].n_unique() > 1:
            found.append(_orders(aligned))
    return [*found, *_lengths(aligned, level)]


def _matrix(aligned: Aligned, level: float) -> Figure:
    lines: list[list[Any]] = []
    drawn: list[dict[str, Any]] = []
    for one, two in combinations(aligned.names, 2):
        correlation = aligned.correlation(one, two, level)
        shown = with_interval(correlation.value, correlation.interval, why=correlation.undefined)
        lines.append([one, two, shown, correlation.n_points])
        if shown.value is not None:
            drawn += [_square(*pair, shown) for pair in ((one, two), (two, one))]
    columns = [Column("score"), Column("with"), _RHO, Column("answers", "count")]
    title = "Agreement between methods, answer by answer"
    table = as_table("agreement", title, columns, lines)
    order = [name(one) for one in aligned.names]
    options = {"order": order, "columns": order, "domain": [-1.0, 1.0], "small": True}
    picture = Picture("matrix", drawn, "", "", options=options) if drawn else None
    says = (
        "Scores are oriented so that higher is better; blue squares agree, orange ones "
        "disagree. Differences between models are included: two methods may agree on models "
        "but not on answers."
    )
    return Figure(table.key, title, _basis(aligned, level), says, table, picture)


def _square(row: str, column: str, shown: Measured) -> dict[str, object]:
    value = shown.value or 0.0
    return {
        "row": name(row),
        "column": name(column),
        "value": value,
        "text": f"{value:+.2f}",
        "on_dark": abs(value) > _OVER_BLACK,
        "tip": f"{name(row)} with {name(column)}: {cell_text(_RHO, shown)}",
    }


def _orders(aligned: Aligned) -> Figure:
    """The mean of each score by model, as ranks."""
    means = aligned.frame.group_by("model", maintain_order=True).agg(
        pl.col(list(aligned.names)).fill_nan(None).mean()
    )
    models = means["model"].to_list()
    lines: list[list[Any]] = []
    drawn: list[dict[str, Any]] = []
    for score_name in aligned.names:
        size = aligned.frame[score_name].fill_nan(None).abs().mean()
        levels = levelled(
            means[score_name].fill_null(np.nan).to_numpy(),
            float(size) if isinstance(size, float) else 0.0,
        )
        ranks = pl.Series(levels).fill_nan(None).rank("min", descending=True).to_list()
        for model, rank, mean in zip(models, ranks, means[score_name].to_list(), strict=True):
            if rank is None:
                continue
            lines.append([score_name, model, int(rank), mean])
            drawn.append(
                {
                    "row": name(score_name),
                    "column": name(model),
                    "value": -float(rank),
                    "text": str(int(rank)),
                    "on_dark": rank == 1 and len(models) > 1,
                    "tip": (
                        f"{name(model)} by {name(score_name)}: rank {int(rank)}, mean {mean:.4g}"
                    ),
                }
            )
    columns = [
        Column("score"),
        Column("model"),
        Column("rank", "count"),
        Column("mean", "number", 4),
    ]
    title = "Agreement between methods, model by model"
    table = as_table("orders-of-models", title, columns, lines)
    options = {
        "order": [name(one) for one in aligned.names],
        "columns": [name(model) for model in models],
        "domain": [-len(models), -1],
        "ranks": True,
    }
    picture = Picture("matrix", drawn, "", "", options=options)
    basis = f"n = {numbers.counted(aligned.frame.height, 'answer')} · ranks of means, no intervals"
    says = (
        "Rank of each model by the mean of each score; 1 is best. Ranks do not show which "
        "differences are significant: see the rankings and the tables of each method."
    )
    return Figure(table.key, title, basis, says, table, picture)


def _lengths(aligned: Aligned, level: float) -> list[Figure]:
    lengths = aligned.frame["length"].drop_nulls()
    if lengths.n_unique() < 2:
        return []
    lines = []
    for one in aligned.names:
        correlation = aligned.correlation(one, "length", level)
        lines.append(
            [
                one,
                with_interval(correlation.value, correlation.interval, why=correlation.undefined),
                correlation.n_points,
            ]
        )
    columns = [Column("score"), _RHO, Column("answers", "count")]
    title = "Length: correlation of scores with answer length"
    table = as_table("length", title, columns, lines)
    shown = figures.points(table, 0, 1)
    options = {"zero": 0.0, "domain": [-1.0, 1.0]}
    picture = Picture("intervals", shown, "Spearman's rho with length", options=options)
    says = (
        "Right of 0, longer answers score higher. This alone does not distinguish a bias from "
        "longer answers being better; compare with the row of gold, if present."
    )
    return [
        Figure(table.key, title, _basis(aligned, level), says, table, picture if shown else None)
    ]


def of_glass_box(material: Material) -> list[Figure]:
    """Correlation of glass-box features with gold, or with a judge where there is no gold."""
    sources = [one for one in material.context.sources if one.kind == "glass_box"]
    if not sources:
        return []
    judges = [one for one in material.context.sources if one.kind in _JUDGES]
    wanted = {one.name: list(one.scores) for one in sources}
    wanted |= {one.name: list(one.scores)[:1] for one in judges[:1]}
    aligned = align(material, wanted)
    judged = f"{judges[0].name}.{next(iter(judges[0].scores))}" if judges else ""
    gold = _GOLD if aligned is not None and aligned.gold else judged
    if aligned is None or gold not in aligned.names:
        return []
    level = material.context.confidence_level
    features = [one for one in aligned.names if one not in (gold, judged)]
    lines: list[list[Any]] = []
    for one in features:
        correlation = aligned.correlation(one, gold, level)
        lines.append(
            [
                one.partition(".")[2],
                with_interval(correlation.value, correlation.interval, why=correlation.undefined),
                correlation.n_points,
            ]
        )
    lines.sort(key=lambda row: -(row[1].value if row[1].value is not None else -2.0))
    title = f"Glass-box features against {'gold: ' if gold == _GOLD else ''}{gold}"
    columns = [Column("feature"), _RHO, Column("answers", "count")]
    table = as_table("glass-box", title, columns, lines)
    shown = figures.points(table, 0, 1)
    options = {"zero": 0.0}
    picture = Picture("intervals", shown, f"Spearman's rho with {name(gold)}", options=options)
    says = "Each feature is oriented as its paper predicts; left of 0 it is misleading."
    return [
        Figure(table.key, title, _basis(aligned, level), says, table, picture if shown else None)
    ]


_JUDGES: Final = frozenset({"pointwise", "pairwise_ranking", "pairwise_scoring"})
