"""Figures across methods: who agrees with whom, and which scores go along with length."""

from itertools import combinations
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator import numbers
from orchestrator.ranking.aligned import Aligned, align, basis_of
from orchestrator.report.html import figures
from orchestrator.report.html.figures import Figure, Picture, as_table, name
from orchestrator.report.html.material import Material
from orchestrator.statistics.averages import levelled
from orchestrator.tables import Column, cell_text, with_interval

Floats = NDArray[np.float64]

_RHO: Final = Column("Spearman", "signed", 2)
_OVER_BLACK: Final = 0.82


def of_agreement(material: Material) -> list[Figure]:
    """Agreement of the methods on answers and on the order of models, and effects of length."""
    aligned = align(material.context)
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
            drawn += [
                {
                    "row": name(row),
                    "column": name(column),
                    "value": shown.value,
                    "text": f"{shown.value:+z.2f}",
                    "on_dark": abs(shown.value) > _OVER_BLACK,
                    "tip": f"{name(row)} with {name(column)}: {cell_text(_RHO, shown)}",
                }
                for row, column in ((one, two), (two, one))
            ]
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
    return Figure(table.key, title, basis_of(aligned, level), says, table, picture)


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
        Figure(table.key, title, basis_of(aligned, level), says, table, picture if shown else None)
    ]
