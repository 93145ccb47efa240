"""Figures of ProbDiff: the distribution of d, and the confidence at any threshold."""

from typing import Any, Final

import numpy as np
import polars as pl

from orchestrator import numbers
from orchestrator.figures import as_table, cell, finite, key
from orchestrator.plugin import Column, Context, Figure, Picture
from orchestrator.ranking.cells import prompts_of
from orchestrator.statistics.bounded_mean import METHOD
from orchestrator.statistics.confidence import Gaps, confidence

_BINS: Final = 40
_POINTS: Final = 41
_LOWEST: Final = -1.5
_PUBLISHED: Final = -0.05
_CONFIDENCE: Final = Column("confidence", "percent")


def gap_figures(context: Context) -> list[Figure]:
    """Return the distribution of d, and confidence at any threshold."""
    if context.rows.is_empty():
        return []
    good = context.rows.filter(pl.col("status") == "ok")
    known = good.filter(pl.col("d").is_finite())
    if known.is_empty():
        return []
    return [_gaps(context.name, known), _curve(context.name, good, context.confidence_level)]


def _gaps(method: str, rows: pl.DataFrame) -> Figure:
    d = rows["d"].to_numpy()
    # The outermost values go into the last bins, so that the middle can be seen.
    moved = rows.filter(~pl.col("unchanged"))["d"].to_numpy()
    low, high = np.quantile(moved if moved.size else d, [0.02, 0.98])
    edges = np.linspace(low, high if high > low else low + 1e-3, _BINS + 1)
    lines: list[list[Any]] = []
    drawn: list[dict[str, Any]] = []
    for (model,), part in rows.group_by("model", maintain_order=True):
        values = part["d"].to_numpy()
        changed = part.filter(~pl.col("unchanged"))["d"].to_numpy()
        counts = np.histogram(np.clip(changed, edges[0], edges[-1]), edges)[0]
        unchanged = int(part["unchanged"].sum())
        group = f"{model!s} · unchanged {numbers.percent(unchanged / len(values))}"
        quartiles = np.quantile(values, [0.25, 0.5, 0.75])
        lines.append([str(model), len(values), float(values.mean()), *quartiles, unchanged])
        for left, right, n in zip(edges[:-1], edges[1:], counts, strict=True):
            if n:
                tip = f"{model!s}: {n} from {left:+.3f} to {right:+.3f}"
                drawn.append(
                    {
                        "x": float(left),
                        "x2": float(right),
                        "value": float(n / len(values)),
                        "group": group,
                        "tip": tip,
                    }
                )
    columns = [
        Column("model"),
        Column("answers", "count"),
        Column("mean d", "signed"),
        Column("1st quartile", "signed"),
        Column("median", "signed"),
        Column("3rd quartile", "signed"),
        Column("unchanged", "count"),
    ]
    title = f"ProbDiff: distribution of d ({method})"
    table = as_table(key("probdiff-d", method), title, columns, lines)
    models = list(dict.fromkeys(row["group"] for row in drawn))[:12]
    picture = Picture(
        "bars",
        [row for row in drawn if row["group"] in models],
        "d, nats per token",
        "share of answers",
        models,
        {"binned": True, "zero": 0.0},
    )
    basis = (
        f"n = {numbers.counted(len(d), 'answer')} with a d · histogram of the changed ones, of "
        f"which 4 % lie outside its range"
    )
    says = (
        "d is the mean log-probability of the rewriting minus that of the answer. A confident "
        "model has d at or above 0. Unchanged texts have d = 0 and are counted separately."
    )
    return Figure(table.key, title, basis, says, table, picture)


def _curve(method: str, rows: pl.DataFrame, level: float) -> Figure:
    d = rows["d"].drop_nulls().drop_nans().to_numpy()
    low, high = np.quantile(d, [0.05, 0.99])
    # Far below, every model passes; the published thresholds are near 0.
    spaced = np.linspace(max(min(low, -0.2), _LOWEST), max(high, 0.05), _POINTS)
    deltas = np.unique(np.append(np.round(spaced, 4), _PUBLISHED))
    lines: list[list[Any]] = []
    drawn: list[dict[str, Any]] = []
    for (model,), part in rows.group_by("model", maintain_order=True):
        gaps = Gaps(part["d"].fill_null(np.nan).to_numpy(), prompts_of(part))
        for one in confidence(gaps, deltas.tolist(), level):
            shown = cell(one.published)
            lines.append([str(model), one.delta, shown])
            share = numbers.maybe(shown.value, numbers.percent)
            drawn.append(
                {
                    "x": one.delta,
                    "value": finite(shown.value),
                    "low": finite(shown.low),
                    "high": finite(shown.high),
                    "group": str(model),
                    "tip": f"{model!s} at {one.delta:+.3f}: {share}",
                }
            )
    title = f"ProbDiff: confidence at any threshold ({method})"
    columns = [Column("model"), Column("delta", "signed"), _CONFIDENCE]
    table = as_table(key("probdiff-confidence", method), title, columns, lines)
    models = list(dict.fromkeys(row["group"] for row in drawn))
    options = {"zero": _PUBLISHED, "percent": True}
    picture = Picture(
        "lines", drawn, "delta, nats per token", "share with d ≥ delta", models, options
    )
    basis = (
        f"n = {numbers.counted(len(rows), 'answer')} · {numbers.level(level)} intervals: {METHOD}"
    )
    says = "Share of answers with d at or above delta; the paper's delta, -0.05, is marked."
    return Figure(table.key, title, basis, says, table, picture)
