"""Tables of `human_labels` for ratings: labels and a judge's preferences together."""

from itertools import combinations
from typing import Final

import numpy as np

from orchestrator.plugin import Cell, Column, Measured, Table, make_table
from orchestrator.ranking.labelled import LabelledRows
from orchestrator.statistics.label_ratings import (
    MIN_LABELLED,
    CorrectedRatings,
    LabelledPairs,
    corrected_ratings,
    rating_interval,
)
from orchestrator.statistics.prediction_powered import Labelled
from orchestrator.tables import with_interval

_MAX_MODELS: Final = 8
"""Models up to which the table of differences is made."""


def rating_tables(rows: LabelledRows, level: float) -> list[Table]:
    """Ratings by labels and judge, and their differences; none for fewer than three models."""
    frame = rows.frame
    models = sorted({*frame["first"], *frame["second"]})
    if len(models) < 3:
        return []
    data = _pairs(rows, models)
    both, alone = corrected_ratings(data), corrected_ratings(data, tuning=0.0)
    judge = _judge_ratings(data)
    lines: list[list[Cell]] = [
        [
            model,
            _rating_cell(both, level, place),
            _rating_cell(alone, level, place),
            None if np.isnan(judge.models[place].value) else judge.models[place].value,
            int(both.prompts_of_models[place]),
        ]
        for place, model in enumerate(models)
    ]
    lines.sort(key=_order)
    columns = [
        Column("model"),
        Column("corrected", "number", 0),
        Column("labels alone", "number", 0),
        Column("judge alone", "number", 0),
        Column("labelled prompts", "count"),
    ]
    notes = [
        "Bradley-Terry, Elo scale, mean 1000; corrected: PPI++ for logistic regression "
        "(Angelopoulos, Duchi and Zrnic 2023), intervals over prompts, each for itself",
        f"lambda, the weight of the judge: {both.tuning:.2f}; {both.n_labels:,} labels",
        "valid only if the labelled rows are a random choice of the comparisons of all pairs",
    ]
    if int(both.prompts_of_models.min()) < MIN_LABELLED:
        notes.append(f"no interval for models with fewer than {MIN_LABELLED} labelled prompts")
    title = f"Ratings by human labels and {rows.source}"
    found = [make_table("human_labels.ratings", title, columns, lines, notes=notes)]
    if len(models) <= _MAX_MODELS:
        found.append(_rating_differences(models, both, alone, level))
    return found


def _rating_differences(
    models: list[str], both: CorrectedRatings, alone: CorrectedRatings, level: float
) -> Table:
    lines: list[list[Cell]] = [
        [
            models[one],
            models[two],
            *(_rating_cell(found, level, one, two) for found in (both, alone)),
        ]
        for one, two in combinations(range(len(models)), 2)
    ]
    columns = (
        Column("model"),
        Column("minus"),
        Column("corrected", "signed", 0),
        Column("labels alone", "signed", 0),
    )
    notes = ["intervals over prompts, each for itself: with many pairs some leave out 0 by chance"]
    title = "Differences of ratings by human labels and judge"
    return make_table("human_labels.rating_differences", title, columns, lines, notes=notes)


def _pairs(rows: LabelledRows, models: list[str]) -> LabelledPairs:
    frame = rows.frame
    place = {model: index for index, model in enumerate(models)}
    first, second = (
        np.array([place[model] for model in frame[side]], dtype=np.int64)
        for side in ("first", "second")
    )
    return LabelledPairs(rows.columns(), first, second, len(models))


def _judge_ratings(data: LabelledPairs) -> CorrectedRatings:
    """The judge's own ratings: its preferences in place of the labels."""
    rows = data.rows
    told = Labelled(rows.scores, rows.scores, rows.prompts)
    return corrected_ratings(
        LabelledPairs(told, data.first, data.second, data.n_models), tuning=0.0
    )


def _rating_cell(
    found: CorrectedRatings, level: float, one: int, two: int | None = None
) -> Measured:
    interval = rating_interval(found, one, level, minus=two)
    value = found.models[one].value - (0.0 if two is None else found.models[two].value)
    return with_interval(None if np.isnan(value) else value, interval)


def _order(line: list[Cell]) -> float:
    """Best first; models without a rating last."""
    cell = line[1]
    value = cell.value if isinstance(cell, Measured) else None
    return float("inf") if value is None else -float(value)
