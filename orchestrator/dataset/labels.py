"""Labels of people (or of anything else) for answers, or for pairs of answers, from a file.

A row has the item's key and a label, mostly who gave it, and either the model whose answer it is
about, the two models it compares, or neither where it is about the item.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import polars as pl

from orchestrator.dataset.fields import key_text
from orchestrator.dataset.files import open_rows
from orchestrator.dataset.rows import Faults
from orchestrator.errors import DatasetError

_COLUMNS: Final = {
    "item": ("item", "key", "question_id", "id"),
    "turn": ("turn",),
    "model": ("model", "generator", "model_id"),
    "model_a": ("model_a", "model_1"),
    "model_b": ("model_b", "model_2"),
    "label": ("label", "score", "rating", "grade", "winner", "preference"),
    "annotator": ("annotator", "annotator_id", "rater", "judge"),
}
SCHEMA: Final = {
    "item": pl.String(),
    "turn": pl.Int64(),
    "model": pl.String(),
    "model_a": pl.String(),
    "model_b": pl.String(),
    "label": pl.String(),
    "value": pl.Float64(),
    "annotator": pl.String(),
}
"""Columns of what `read_labels` gives: `value` is the label as a number, null where it is none."""


def read_labels(path: Path) -> pl.DataFrame:
    """Every label of a JSON Lines, JSON, CSV or Parquet file, in the columns of `SCHEMA`.

    Raises:
        DatasetError: If it has no column for items or labels, or with every row that lacks them.
    """
    rows = open_rows(path, path.name)
    columns = {
        part: next((name for name in names if name in rows.columns), None)
        for part, names in _COLUMNS.items()
    }
    for part in ("item", "label"):
        if columns[part] is None:
            usual = ", ".join(_COLUMNS[part])
            raise DatasetError(f"{path.name}: no column for the {part}: none of {usual}")
    if (columns["model_a"] is None) != (columns["model_b"] is None):
        raise DatasetError(f"{path.name}: a pair needs both 'model_a' and 'model_b'")
    faults = Faults()
    found = []
    for index in range(len(rows)):
        try:
            found.append(_label(rows.row(index), columns))
        except ValueError as error:
            faults.add(rows.where(index), str(error))
    faults.check()
    return pl.DataFrame(found, schema=SCHEMA, orient="row")


def _label(row: Mapping[str, object], columns: Mapping[str, str | None]) -> tuple[object, ...]:
    def text(part: str) -> str | None:
        name = columns[part]
        value = None if name is None else row.get(name)
        return None if value is None or value == "" else str(value)

    item, label = key_text(row.get(columns["item"] or "")), text("label")
    if not item or label is None:
        raise ValueError(f"the {'label' if item else 'item'} is missing")
    turn = key_text(text("turn"))
    if turn and not (turn.isascii() and turn.isdecimal() and len(turn) < 10):
        raise ValueError(f"the turn must be a number, not {turn!r:.40}")
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    models = (text("model"), text("model_a"), text("model_b"))
    # "nan" and "inf" are words that nobody gave as a rating.
    rating = number if math.isfinite(number) else None
    return (item, int(turn) if turn else None, *models, label, rating, text("annotator"))
