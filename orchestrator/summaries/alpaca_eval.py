"""AlpacaEval 2: win rates of models against the baseline, as judged and at equal length.

The length-controlled win rate needs the difficulties of the instructions (`length_control`).
Without them the fit has only the model and the length to explain a judgment, and published rates
of 5.9, 12.4 and 16.3 % become 19.6, 20.5 and 20.7 %: so there is no such column. Several turns of a
prompt are one cluster of the interval.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from orchestrator.clusters import CLUSTER, codes, prompt_words
from orchestrator.dataset.files import open_rows
from orchestrator.errors import DatasetError, StatisticsError
from orchestrator.frames import columns_of
from orchestrator.methods.alpaca_eval import Config, LengthControl
from orchestrator.numbers import finite
from orchestrator.plugin import (
    Cell,
    Column,
    Context,
    Measured,
    Summary,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import METHODS, comparisons, groups, plain_mean, share_of
from orchestrator.records import Floats
from orchestrator.statistics.length import (
    head_to_head,
    length_controlled_win_rate,
    standardised_length,
)
from orchestrator.summaries._verdicts import OK

# Difficulties of instructions and rows of gamed baselines, from files of the user's.
#
# They belong to AlpacaEval's length-controlled win rate and are not part of this project. Files
# are read as datasets are.


Rows = Sequence[Mapping[str, Any]]
Key = tuple[str, str]
"""Key of an item in a row: the field (item, index or instruction) and its value."""

# The first column of AlpacaEval's own files has no name.
_KEYS: Final = {"item": "item", "key": "item", "index": "index", "column_1": "index",
                "instruction": "instruction"}  # fmt: skip
_DIFFICULTY: Final = ("difficulty", "instruction_difficulty")
_LENGTH: Final = ("std_delta_len",)
_PREFERENCE: Final = ("preference",)


class Difficulties:
    """Difficulties by item.

    Items have the columns item, prompt and place (in the dataset, from 0); a run of an older
    version has no places, so that no difficulty is found by `index`.

    Attributes:
        gamed: Rows of the gamed baselines; None without their file.

    Raises:
        StatisticsError: If a file can't be read, or has not what it should have.
    """

    def __init__(self, settings: LengthControl, items: pl.DataFrame) -> None:
        rows = None if settings.gamed is None else _rows(settings.gamed)
        self.gamed: Floats | None = None
        if rows is not None:
            columns = (_LENGTH, _DIFFICULTY, _PREFERENCE)
            self.gamed = np.array([[_number(row, names) for row in rows] for names in columns])
            if not np.all((self.gamed[2] >= 0.0) & (self.gamed[2] <= 1.0)):
                raise StatisticsError("preferences of gamed rows must be in [0, 1]")
        given = (rows or ()) if settings.difficulties is None else _rows(settings.difficulties)
        self._found = {_key(row): _number(row, _DIFFICULTY) for row in given}
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
    file = Path(path)
    # A named pipe would be waited for.
    if not file.is_file():
        raise StatisticsError(f"{file.name} cannot be read: not a file")
    try:
        rows = open_rows(file, file.name)
        found = [rows.row(index) for index in range(len(rows))]
    except DatasetError as error:
        raise StatisticsError(str(error)) from error
    if not found:
        raise StatisticsError(f"{file.name} has no rows")
    return found


_COLUMNS = table_columns(
    "model | judge | win rate: percent | s.e.: percent | discrete: percent | n: count",
    "missing: count",
)
_CONTROLLED = Column("length-controlled", "percent")
_LENGTHS = table_columns(
    "model | judge | characters: number 0 | baseline's: number 0",
    "longer than the baseline's: percent | equal text: percent",
)
_OF_ITEMS = ("item", "prompt", "place")
# A fit for each, all at once: a second with the rows of the gamed baselines.
_MOST_RESAMPLES = 300


class Kind(Summary[Config]):
    """Win rates of models against the baseline, as judged and at equal length.

    Nothing is kept, for difficulties are in files.
    """

    reads = (
        "item", "category", "turn", "judge", "model", "baseline", "preference", "coverage",
        "model_first", "same_text", "n_characters", "n_characters_baseline", "status", "cause",
    )  # fmt: skip

    def summarise(self, context: Context) -> list[Table]:
        """Win rates, one line a model and judge; then the lengths that go with them."""
        rows = context.rows
        controlled = _controls(context, self.config.length_control)
        if isinstance(controlled, Difficulties):
            named = context.rows_of(context.own, ("item",), as_categories=True)
            rows = rows.with_columns(name=named["item"])
        lines: list[list[Cell]] = []
        lengths: list[list[Cell]] = []
        for names, group in groups(rows, "model", "judge"):
            good = group.filter(OK & pl.col("preference").is_not_null())
            found = head_to_head(good["preference"].to_numpy().astype(np.float64))
            line: list[Cell] = [
                *names,
                share_of(good, pl.col("preference") - 1.0, context.confidence_level),
                finite(found.standard_error / 100.0),
                finite(found.discrete_win_rate / 100.0),
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
            means = [plain_mean(column) for column in columns_of_lengths]
            lengths.append([*names, *means])
        notes = [
            "win rate: mean of preference - 1; s.e.: as published, with rows taken as independent",
            _about(controlled),
            METHODS,
        ]
        if (swapped := plain_mean(rows["model_first"])) is not None:
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
                    rows.filter(OK), pl.col("preference"), context.confidence_level, ends=(1.0, 2.0)
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


def _length_controlled(context: Context, good: pl.DataFrame, controlled: Difficulties) -> Measured:
    baseline, model, preference = (
        good[name].to_numpy().astype(np.float64)
        for name in ("n_characters_baseline", "n_characters", "preference")
    )
    n_resamples, prompts = min(context.n_resamples, _MOST_RESAMPLES), codes(good[CLUSTER])
    try:
        length = standardised_length(baseline, model)
        difficulties = controlled.of(good["name"])
        found = length_controlled_win_rate(
            preference,
            length,
            difficulties,
            gamed=controlled.gamed,
            prompts=prompts,
            resampling=context.resampling(n_resamples),
        )
    except StatisticsError as error:
        return Measured(None, why=str(error))
    if not prompts.any():
        # All resamples are the same.
        return Measured(found.win_rate / 100.0, why="one independent prompt: no interval")
    bounds = found.interval
    if bounds.low == bounds.high:
        why = "the penalty shrinks the model's effect to 0: no interval"
        return Measured(found.win_rate / 100.0, why=why)
    return Measured(found.win_rate / 100.0, bounds.low / 100.0, bounds.high / 100.0)
