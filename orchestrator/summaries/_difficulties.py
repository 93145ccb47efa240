"""Difficulties of instructions and rows of gamed baselines, from files of the user's.

They belong to AlpacaEval's length-controlled win rate and are not part of this project. Read are
CSV with a heading, JSON lines, and JSON lists of objects.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.methods.alpaca_eval import LengthControl
from orchestrator.statistics.length import Gamed, difficulties_from_predictions

Floats = NDArray[np.float64]
Rows = Sequence[Mapping[str, Any]]
Key = tuple[str, str]
"""Key of an item in a row: the field (item, index or instruction) and its value."""

_MOST_BYTES: Final = 64 << 20
# The column without a name is the index in AlpacaEval's own file of difficulties.
_KEYS: Final = {"item": "item", "key": "item", "index": "index", "": "index",
                "instruction": "instruction"}  # fmt: skip
_DIFFICULTY: Final = ("difficulty", "instruction_difficulty")
_LENGTH: Final = ("std_delta_len",)
_PREFERENCE: Final = ("preference",)
_PREDICTED: Final = ("glm_preference",)
_WEIGHTS: Final = ("not_gamed_baseline.astype(float)", "instruction_difficulty")


class Difficulties:
    """Difficulties by item.

    Args:
        settings: Where they come from.
        items: Columns item, prompt and place (in the dataset, from 0) of the run's items; a run of
            an older version has no places, so that no difficulty is found by `index`.

    Attributes:
        gamed: Rows of the gamed baselines; None without their file.

    Raises:
        StatisticsError: If a file can't be read, or has not what it should have.
    """

    def __init__(self, settings: LengthControl, items: pl.DataFrame) -> None:
        rows = None if settings.gamed is None else _rows(settings.gamed)
        self.gamed = None if rows is None else _gamed(rows)
        self._found = _by_key(settings, rows or ())
        places = items["place"] if "place" in items.columns else [None] * len(items)
        self._names: dict[str, tuple[Key, ...]] = {
            item: (("item", item), ("index", str(place)), ("instruction", prompt))
            for item, prompt, place in zip(items["item"], items["prompt"], places, strict=True)
        }

    def of(self, items: Iterable[str]) -> Floats:
        """The difficulty of each item, shape (n,).

        Raises:
            StatisticsError: If an item has none.
        """
        values = []
        for item in items:
            names = self._names.get(item, (("item", item),))
            values.append(next((self._found[name] for name in names if name in self._found), None))
        missing = sum(value is None for value in values)
        if missing:
            raise StatisticsError(f"{missing:,} of {len(values):,} judged items have no difficulty")
        return np.array(values, dtype=np.float64)


def _by_key(settings: LengthControl, gamed: Rows) -> dict[Key, float]:
    if settings.leaderboard is not None:
        board = settings.leaderboard
        # Difficulties from the predictions of one or more models, a file each.
        files = [_rows(file) for file in board.predictions]
        tables = [{_key(row): _number(row, _PREDICTED) for row in rows} for rows in files]
        keys = [key for key in tables[0] if all(key in table for table in tables)]
        predicted = np.array([[table[key] for key in keys] for table in tables], dtype=np.float64)
        own = None
        if board.weights is not None:
            # Coefficients of the model and of the difficulty for each file, shape (M, 2)
            by_model = {str(row.get("") or row.get("model")): row for row in _rows(board.weights)}
            models = [str(rows[0].get("generator_2")) for rows in files]
            if unknown := [model for model in models if model not in by_model]:
                said = f"no weights of {', '.join(unknown)}"
                raise StatisticsError(f"{Path(board.weights).name}: {said}")
            own = np.array([[_number(by_model[m], (name,)) for name in _WEIGHTS] for m in models])
        found = difficulties_from_predictions(predicted, own)
        return dict(zip(keys, found.tolist(), strict=True))
    rows = gamed if settings.difficulties is None else _rows(settings.difficulties)
    return {_key(row): _number(row, _DIFFICULTY) for row in rows}


def _gamed(rows: Rows) -> Gamed:
    columns = (_LENGTH, _DIFFICULTY, _PREFERENCE)
    length, difficulty, preference = (
        np.array([_number(row, names) for row in rows]) for names in columns
    )
    if not np.all((preference >= 0.0) & (preference <= 1.0)):
        raise StatisticsError("preferences of gamed rows must be in [0, 1]")
    return Gamed(length, difficulty, preference)


def _text(file: Path) -> str:
    # A named pipe would be waited for.
    if not file.is_file():
        raise OSError("not a file")
    if file.stat().st_size > _MOST_BYTES:
        raise OSError(f"larger than {_MOST_BYTES:,} bytes")
    return file.read_text(encoding="utf-8-sig")


def _key(row: Mapping[str, object]) -> Key:
    for column, kind in _KEYS.items():
        value = row.get(column)
        if value is not None:
            return kind, str(value)
    raise StatisticsError("a row has no item: add a column item, index or instruction")


def _number(row: Mapping[str, Any], names: Sequence[str]) -> float:
    value = next((row[name] for name in names if row.get(name) not in (None, "")), None)
    try:
        number = float(value)  # type: ignore[arg-type] # whatever the file holds
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise StatisticsError(f"a row has no number in {' or '.join(names)}: {value!r}")
    return number


def _rows(path: str) -> Rows:
    """The rows of a file.

    Raises:
        StatisticsError: If it can't be read or holds no rows.
    """
    file = Path(path)
    try:
        text = _text(file)
        rows: object
        match file.suffix.lower():
            case ".csv":
                rows = list(csv.DictReader(io.StringIO(text)))
            case ".json":
                rows = json.loads(text)
            case _:
                rows = [json.loads(line) for line in text.split("\n") if line.strip()]
    except (OSError, ValueError, csv.Error, RecursionError) as error:
        raise StatisticsError(f"{file.name} cannot be read: {error}") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise StatisticsError(f"{file.name} has no rows")
    return rows
