"""Figures of distributions: verdicts, both orders, scores, ProbDiff's d and its confidence."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.contracts.context import Source
from orchestrator.frames import columns_of, names_of, slices_of
from orchestrator.judged import ROWS_AT_ONCE
from orchestrator.report import numbers
from orchestrator.report.html import figures
from orchestrator.report.html.figures import Figure, Picture, as_table, name
from orchestrator.report.html.material import Material
from orchestrator.statistics.clustered import METHOD
from orchestrator.statistics.confidence import Gaps, confidence
from orchestrator.summaries._clusters import prompts_of
from orchestrator.tables import Column, Measured

Floats = NDArray[np.float64]

_VERDICTS: Final = {
    2: ("first better", "second better"),
    3: ("first better", "tie", "second better"),
    5: ("first much better", "first better", "tie", "second better", "second much better"),
}
_GRID: Final = 10
_BINS: Final = 40
_DELTAS: Final = 41
_LOWEST: Final = -1.5
_PUBLISHED: Final = -0.05
_PROBABILITY: Final = Column("mean probability", "number", 3)
_CONFIDENCE: Final = Column("confidence", "percent")


def _parts(
    material: Material, frame: str, columns: Sequence[str]
) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """Good rows of a frame by method and judge: both names, and some columns of the rows."""
    found: dict[tuple[str, str], list[pl.DataFrame]] = {}
    wanted = ("method", "judge", "status", *columns)
    for rows in slices_of(material.frames, frame, wanted, ROWS_AT_ONCE):
        good = rows.filter(pl.col("status") == "ok")
        for (method, judge), part in good.group_by("method", "judge", maintain_order=True):
            found.setdefault((str(method), str(judge)), []).append(part.select(columns))
    for (method, judge), parts in found.items():
        yield method, judge, pl.concat(parts)


def of_verdicts(material: Material) -> list[Figure]:
    """Mean distribution of a judge's verdicts, and the two orders against each other."""
    found = []
    both = ("prefer_a_ab", "prefer_a_ba")
    for frame, columns in (("judgments", ("p_ab", "p_ba", *both)), ("pair_scores", both)):
        for method, judge, rows in _parts(material, frame, columns):
            orders = rows.filter(
                pl.col("prefer_a_ab").is_finite() & pl.col("prefer_a_ba").is_finite()
            )
            if frame == "judgments":
                found += _verdicts(method, judge, rows)
            if not orders.is_empty():
                found.append(_orders(method, judge, orders))
    return found


def _lists(column: pl.Series) -> Floats:
    """Lists of one length as rows; those without, or of another length, are left out."""
    lengths = column.list.len().fill_null(0)
    length = int(lengths.max() or 0)  # type: ignore[arg-type]  # of numbers
    if not length:
        return np.empty(0)
    cells = column.filter(lengths == length).explode().cast(pl.Float64).to_numpy()
    return cells.reshape(-1, length)


def _verdicts(method: str, judge: str, rows: pl.DataFrame) -> list[Figure]:
    ab, ba = _lists(rows["p_ab"]), _lists(rows["p_ba"])
    shown = [part for part in (ab, ba[:, ::-1] if ba.size else ba) if part.size]
    if not shown or len({part.shape[1] for part in shown}) > 1:
        return []
    readings = np.concatenate(shown)
    length = readings.shape[1]
    labels = _VERDICTS.get(length) or tuple(f"{length // 2 - i:+d}" for i in range(length))
    means = readings.mean(axis=0)
    pairs = list(zip(labels, means.tolist(), strict=True))
    title = f"Verdicts of {judge} ({method})"
    table = as_table(
        figures.key("verdicts", method, judge), title, [Column("verdict"), _PROBABILITY], pairs
    )
    drawn = [
        {"x": label, "value": p, "group": "", "tip": f"{label}: {numbers.probability(p)}"}
        for label, p in pairs
    ]
    picture = Picture("bars", drawn, "verdict", "mean probability", options={"order": labels})
    basis = f"n = {numbers.count(len(readings))} readings, each order one · mean of distributions"
    says = "“First” is the answer shown first; without position bias the distribution is symmetric."
    return [Figure(table.key, title, basis, says, table, picture)]


def _orders(method: str, judge: str, rows: pl.DataFrame) -> Figure:
    edges = np.linspace(0.0, 1.0, _GRID + 1)
    x, y = rows["prefer_a_ab"].to_numpy(), rows["prefer_a_ba"].to_numpy()
    counts = np.histogram2d(x, y, bins=(edges, edges))[0].astype(int)
    drawn: list[dict[str, Any]] = []
    lines: list[list[Any]] = []
    for i, j in np.argwhere(counts):
        n = int(counts[i, j])
        first = f"{edges[i]:.1f} to {edges[i + 1]:.1f}"
        second = f"{edges[j]:.1f} to {edges[j + 1]:.1f}"
        lines.append([first, second, n])
        drawn.append(
            {
                "x": float(edges[i]),
                "x2": float(edges[i + 1]),
                "y": float(edges[j]),
                "y2": float(edges[j + 1]),
                "n": n,
                "tip": f"A first {first}, B first {second}: {numbers.counted(n, 'judgment')}",
            }
        )
    title = f"Both orders of {judge} ({method})"
    columns = [Column("P(A better), A first"), Column("B first"), Column("judgments", "count")]
    table = as_table(figures.key("orders", method, judge), title, columns, lines)
    picture = Picture("grid", drawn, "P(A better), A shown first", "P(A better), B shown first")
    basis = f"n = {numbers.counted(len(rows), 'judgment')} with both orders · counts in squares"
    says = (
        "On the diagonal the order has no effect; at the lower right the answer shown first "
        "wins, at the upper left the one shown second."
    )
    return Figure(table.key, title, basis, says, table, picture)


def of_scores(material: Material) -> list[Figure]:
    """The judge's mean distribution over scores, by model."""
    found = []
    if "p" not in names_of(material.frames, "scores"):
        return []
    for method, judge, part in _parts(material, "scores", ("model", "p")):
        source = _source(material, method)
        compared = None if source is None else source.method.compared()
        low = 1 if compared is None else int(compared.low)
        found += _scores(method, judge, part, low)
    return found


def _source(material: Material, method: str) -> Source | None:
    return next((one for one in material.context.sources if one.name == method), None)


def _scores(method: str, judge: str, rows: pl.DataFrame, low: int) -> list[Figure]:
    lines: list[list[Any]] = []
    drawn: list[dict[str, Any]] = []
    n_read = 0
    for (model,), part in rows.group_by("model", maintain_order=True):
        read = _lists(part["p"])
        n_read += len(read)
        for index, p in enumerate(read.mean(axis=0).tolist() if read.size else []):
            label = str(low + index)
            lines.append([str(model), label, p])
            tip = f"{name(str(model))}, score {label}: {numbers.probability(p)}"
            drawn.append({"x": label, "value": p, "group": name(str(model)), "tip": tip})
    if not drawn:
        return []
    title = f"Scores by {judge} ({method})"
    columns = [Column("model"), Column("score"), _PROBABILITY]
    table = as_table(figures.key("scores", method, judge), title, columns, lines)
    models = list(dict.fromkeys(row["group"] for row in drawn))[:12]
    order = sorted({row["x"] for row in drawn}, key=int)
    picture = Picture(
        "bars",
        [row for row in drawn if row["group"] in models],
        "score",
        "mean probability",
        models,
        {"order": order},
    )
    basis = f"n = {numbers.counted(n_read, 'answer')} · mean of the judge's distributions"
    says = "The full distribution over the scale, not only the most likely score."
    return [Figure(table.key, title, basis, says, table, picture)]


def of_probdiff(material: Material) -> list[Figure]:
    """The distribution of d, and confidence at any threshold."""
    wanted = ("method", "item", "model", "status", "d", "unchanged")
    rows = columns_of(material.frames, "probdiff", wanted)
    if rows.is_empty():
        return []
    found = []
    rows = material.context.clusters.of(rows)
    for (method,), part in rows.filter(pl.col("status") == "ok").group_by(
        "method", maintain_order=True
    ):
        known = part.filter(pl.col("d").is_finite())
        if not known.is_empty():
            level = material.context.confidence_level
            found += [_gaps(str(method), known), _curve(str(method), part, level)]
    return found


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
        group = f"{name(str(model))} · unchanged {numbers.percent(unchanged / len(values))}"
        quartiles = np.quantile(values, [0.25, 0.5, 0.75])
        lines.append([str(model), len(values), float(values.mean()), *quartiles, unchanged])
        for left, right, n in zip(edges[:-1], edges[1:], counts, strict=True):
            if n:
                tip = f"{name(str(model))}: {n} from {left:+.3f} to {right:+.3f}"
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
    table = as_table(figures.key("probdiff-d", method), title, columns, lines)
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
        "which 4 % lie beyond its ends"
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
    spaced = np.linspace(max(min(low, -0.2), _LOWEST), max(high, 0.05), _DELTAS)
    deltas = np.unique(np.append(np.round(spaced, 4), _PUBLISHED))
    lines: list[list[Any]] = []
    drawn: list[dict[str, Any]] = []
    for (model,), part in rows.group_by("model", maintain_order=True):
        gaps = Gaps(part["d"].fill_null(np.nan).to_numpy(), prompts_of(part))
        for one in confidence(gaps, deltas.tolist(), level):
            shown = figures.cell(one.published)
            lines.append([str(model), one.delta, shown])
            drawn.append(_on_curve(str(model), one.delta, shown))
    title = f"ProbDiff: confidence at any threshold ({method})"
    columns = [Column("model"), Column("delta", "signed"), _CONFIDENCE]
    table = as_table(figures.key("probdiff-confidence", method), title, columns, lines)
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


def _on_curve(model: str, delta: float, shown: Measured) -> dict[str, object]:
    share = numbers.maybe(shown.value, numbers.percent)
    return {
        "x": delta,
        "value": figures.finite(shown.value),
        "low": figures.finite(shown.low),
        "high": figures.finite(shown.high),
        "group": name(model),
        "tip": f"{name(model)} at {delta:+.3f}: {share}",
    }
