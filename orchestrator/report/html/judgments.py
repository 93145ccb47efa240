"""Figures of judgments: distributions of verdicts and scores, and calibration."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl

from orchestrator import figures, numbers
from orchestrator.contracts.context import (
    Named,
    answers_of,
    ranked_in,
    role_slices,
    roles_in,
    there,
)
from orchestrator.contracts.method import is_judging
from orchestrator.contracts.settings import Winner
from orchestrator.errors import UsageError
from orchestrator.figures import Figure, Picture
from orchestrator.ranking.winners import CALIBRATED, Calibrated, calibrated, judged, tables
from orchestrator.records import Floats
from orchestrator.report.html.figures import Material
from orchestrator.report.html.methods import curved
from orchestrator.statistics.bounded_mean import METHOD
from orchestrator.tables import Column, Curves, make_table

Sums = dict[int, Floats]
"""The sum of lists of numbers by their length, and after each sum the number of lists."""

_VERDICTS: Final = {
    2: ("first better", "second better"),
    3: ("first better", "tie", "second better"),
    5: ("first much better", "first better", "tie", "second better", "second much better"),
}
_VERDICT_COLUMNS: Final = ("p_ab", "p_ba")
_PROBABILITY: Final = Column("mean probability", "number", 3)


def _add(sums: Sums, column: pl.Series) -> None:
    """Add lists of numbers row after row, so that slices of any length give the same sums."""
    lengths = column.list.len()
    for length in filter(None, lengths.unique()):
        cells = column.filter(lengths == length).explode().cast(pl.Float64).to_numpy()
        rows = np.pad(cells.reshape(-1, length), ((0, 0), (0, 1)), constant_values=1.0)
        sums[length] = np.vstack([sums.get(length, np.zeros(length + 1)), rows]).sum(axis=0)


def _sum(sums: Sums) -> tuple[Floats, int]:
    """Return the sum of the lists of the greatest length, and their number."""
    *found, n = sums[max(sums)] if sums else (0.0,)
    return np.array(found), int(n)


def _parts(
    material: Material, frame: str, columns: Named, wanted: Sequence[str]
) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """Some good rows at a time, by method and judge: both names, and some columns of the rows.

    Args:
        material: The run.
        frame: Its name.
        columns: Of a role that all wanted columns have.
        wanted: By the name that reports know them by.
    """
    read = {name: columns[name] for name in (*wanted, "judge") if name in columns}
    for rows in role_slices(material.frames, frame, read, ("method", "status")):
        good = rows.filter(pl.col("status") == "ok")
        if "judge" not in read:
            # Who compares is the method itself.
            good = good.with_columns(judge="method")
        for (method, judge), part in good.group_by("method", "judge", maintain_order=True):
            yield str(method), str(judge), part.select(wanted)


def verdicts(material: Material) -> list[Figure]:
    """Mean distribution of a judge's verdicts over both orders."""
    found = []
    for frame, pairs in ranked_in(material.frames).items():
        columns = there(material.frames, frame, pairs.columns())
        if not pairs.verdicts or not {*_VERDICT_COLUMNS} <= columns.keys():
            continue
        means: dict[tuple[str, str], tuple[Sums, Sums]] = {}
        for method, judge, rows in _parts(material, frame, columns, _VERDICT_COLUMNS):
            orders = means.setdefault((method, judge), ({}, {}))
            for sums, column in zip(orders, _VERDICT_COLUMNS, strict=True):
                _add(sums, rows[column])
        for of, orders in means.items():
            found += _verdicts(*of, *map(_sum, orders))
    return found


def _verdicts(
    method: str, judge: str, ab: tuple[Floats, int], ba: tuple[Floats, int]
) -> list[Figure]:
    shown = [sums for sums in (ab[0], ba[0][::-1]) if sums.size]
    if not shown or len({sums.size for sums in shown}) > 1:
        return []
    n, length = ab[1] + ba[1], shown[0].size
    labels = _VERDICTS.get(length) or tuple(f"{length // 2 - i:+d}" for i in range(length))
    means = np.sum(shown, axis=0) / n
    pairs = list(zip(labels, means.tolist(), strict=True))
    title = f"Verdicts of {judge} ({method})"
    table = make_table(
        figures.key("verdicts", method, judge), title, [Column("verdict"), _PROBABILITY], pairs
    )
    drawn = [
        {"x": label, "value": p, "group": "", "tip": f"{label}: {numbers.probability(p)}"}
        for label, p in pairs
    ]
    picture = Picture("bars", drawn, "verdict", "mean probability", options={"order": labels})
    basis = f"n = {numbers.count(n)} readings, each order one · mean of distributions"
    says = "“First” is the answer shown first; without position bias the distribution is symmetric."
    return [Figure(table.key, title, basis, says, table, picture)]


def scores(material: Material) -> list[Figure]:
    """The judge's mean distribution over scores, by model."""
    found = []
    for frame, role in roles_in(material.frames).items():
        if role.distribution is None:
            continue
        columns = there(material.frames, frame, role.distribution.columns())
        if not {"model", "p"} <= columns.keys():
            continue
        means: dict[tuple[str, str], dict[str, Sums]] = {}
        for method, judge, part in _parts(material, frame, columns, ("model", "p")):
            of = means.setdefault((method, judge), {})
            for (model,), rows in part.group_by("model", maintain_order=True):
                _add(of.setdefault(str(model), {}), rows["p"])
        for (method, judge), of in means.items():
            # The lowest score of a method whose run does not say it.
            source = next((one for one in material.context.sources if one.name == method), None)
            compared = None if source is None else source.method.compared()
            low = role.lowest.get(method, (1 if compared is None else int(compared.low)))
            found += _scores(method, judge, of, low)
    return found


def _scores(method: str, judge: str, of: dict[str, Sums], low: int) -> list[Figure]:
    lines: list[list[Any]] = []
    drawn: list[dict[str, Any]] = []
    n_read = 0
    for model, sums in of.items():
        found, n = _sum(sums)
        n_read += n
        for index, p in enumerate((found / n).tolist() if n else ()):
            label = str(low + index)
            lines.append([model, label, p])
            tip = f"{model}, score {label}: {numbers.probability(p)}"
            drawn.append({"x": label, "value": p, "group": model, "tip": tip})
    if not drawn:
        return []
    title = f"Scores by {judge} ({method})"
    columns = [Column("model"), Column("score"), _PROBABILITY]
    table = make_table(figures.key("scores", method, judge), title, columns, lines)
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


def calibration(material: Material) -> list[Figure]:
    """Confidence against accuracy of each judge; none where no pair has a known better answer."""
    context = material.context
    found: list[Calibrated] = []
    answers = answers_of(material.frames, ("exact_match",))
    if not answers.width or answers["exact_match"].null_count() == len(answers):
        return []
    for source in context.sources:
        if is_judging(source.method):
            try:
                known = judged(context, [source], Winner(exact_match=True), CALIBRATED)
                found += calibrated(known, context.confidence_level)
            except UsageError:
                # Of these answers it is not known which are right.
                continue
    found = [one for one in found if one[1].n]
    return [_figure(found, context.confidence_level)] if found else []


def _figure(found: list[Calibrated], confidence_level: float) -> Figure:
    overall, by_bin = tables(found)
    overall = msgspec.structs.replace(overall, title="Over all confidences")
    curves = Curves("mean confidence", ("accuracy",), "accuracy", "judge")
    drawn = curved(by_bin, curves)
    picture = None if drawn is None else drawn.picture
    if picture is not None:
        options = {"percent": True, "diagonal": [0.5, 1.0]}
        picture = replace(picture, x="confidence in the preferred answer", options=options)
    n = sum(one.n for _, one, _ in found)
    level = numbers.level(confidence_level)
    basis = (
        f"n = {numbers.counted(n, 'pair')} of which one answer alone equals the reference · "
        f"{level} intervals: {METHOD}"
    )
    says = "An answer is correct if it equals its reference."
    if picture is not None:
        line = "On the dashed line confidence equals accuracy; below it the judge is overconfident."
        says = f"{line} {says}"
    return Figure(
        "calibration", "Calibration of the judge", basis, says, by_bin, picture, [overall]
    )
