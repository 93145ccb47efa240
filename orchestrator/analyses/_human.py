"""Files of human labels.

A file has a column `label` and says what each label is about: by a `code` that stands in the key
file beside it (`labels.key.jsonl` for `labels.csv`), so that people see no name of a model, or by
columns item and model, or item, model_a and model_b. A row with an empty label is not labelled yet.
"""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec

from orchestrator.datasets._readers import open_rows
from orchestrator.datasets._rows import Faults
from orchestrator.errors import DatasetError

CODE: Final = "code"
LABEL: Final = "label"
TIE: Final = "tie"
PROBABILITY: Final = "probability"
_SIDES: Final = {
    **dict.fromkeys(("a", "1", "model_a"), 1.0),
    **dict.fromkeys(("b", "2", "model_b"), 0.0),
    **dict.fromkeys((TIE, "tied", "draw", "="), 0.5),
}


class About(msgspec.Struct, frozen=True):
    """The answer, or the pair of answers, that a label is about.

    Attributes:
        item: Key.
        turn: From 1 on.
        models: One name, or two in the order in which the answers were shown.
        probability: With which it was chosen for a label; None where all had the same.
    """

    item: str
    turn: int
    models: tuple[str, ...]
    probability: float | None = None


class Label(msgspec.Struct, frozen=True):
    """One person's label.

    Attributes:
        about: What it is about.
        value: The number given; of a pair 1 if its first model is better, 0 if its second, else
            0.5.
        annotator: Name; empty if the file has none.
        where: File and line.
    """

    about: About
    value: float
    annotator: str
    where: str


def key_path(path: Path) -> Path:
    """The key file of a file of labels."""
    return path.with_name(f"{path.stem}.key.jsonl")


def read_human_labels(
    path: Path,
    *,
    scale: tuple[float, float] | None = None,
    items: Collection[str] | None = None,
    models: Collection[str] | None = None,
) -> list[Label]:
    """All labels that are filled in.

    Args:
        path: JSON Lines, JSON, CSV or Parquet.
        scale: Least and greatest number that a label of a single answer may be.
        items: Keys that there are; None where they are not known.
        models: Names that there are; likewise.

    Raises:
        DatasetError: With every row that is wrong, by file and line.
    """
    rows = open_rows(path, path.name)
    if LABEL not in rows.columns:
        raise DatasetError(f"{path.name}: no column 'label'")
    known = read_key(path) if CODE in rows.columns else None
    faults, seen, found = Faults(), dict[tuple[About, str], str](), list[Label]()
    kinds: set[int] = set()
    for index in range(len(rows)):
        row, where = rows.row(index), rows.where(index)
        try:
            about = _about(row) if known is None else _coded(row, known)
            _check(about, items, models)
            given = _text(row, LABEL)
            if given is None:
                continue
            value = _pair(given, about.models) if len(about.models) == 2 else _number(given, scale)
        except ValueError as error:
            faults.add(where, str(error))
            continue
        label = Label(about, value, _text(row, "annotator") or "", where)
        kinds.add(len(about.models))
        same = (msgspec.structs.replace(about, models=tuple(sorted(about.models))), label.annotator)
        if before := seen.get(same):
            faults.add(where, f"a second label of the same answers; the first is at {before}")
        seen.setdefault(same, where)
        found.append(label)
    if len(kinds) > 1:
        faults.add(path.name, "labels of single answers and of pairs; put them into two files")
    faults.check()
    return found


def read_key(path: Path) -> dict[str, About]:
    """What each code of a file of labels is about, from its key file.

    Raises:
        DatasetError: If there is no key file, or with each of its rows that is wrong.
    """
    key = key_path(path)
    if not key.is_file():
        raise DatasetError(
            f"{path.name}: the column 'code' needs the key file {key.name} beside it"
        )
    rows = open_rows(key, key.name)
    faults, found = Faults(), dict[str, About]()
    for index in range(len(rows)):
        row = rows.row(index)
        try:
            code, about = _code(row), _about(row)
        except ValueError as error:
            faults.add(rows.where(index), str(error))
            continue
        if code in found:
            faults.add(rows.where(index), f"a second row of the code {code!r:.40}")
        found[code] = about
    faults.check()
    return found


def _code(row: Mapping[str, object]) -> str:
    code = _text(row, CODE)
    if code is None:
        raise ValueError("the code is missing")
    return code


def _coded(row: Mapping[str, object], known: Mapping[str, About]) -> About:
    code = _code(row)
    if code not in known:
        raise ValueError(f"unknown code {code!r:.40}: not in the key file")
    return known[code]


def _about(row: Mapping[str, object]) -> About:
    item, turn = _text(row, "item"), _text(row, "turn") or "1"
    if item is None:
        raise ValueError("the item is missing")
    if not (turn.isascii() and turn.isdecimal() and 0 < len(turn) < 10):
        raise ValueError(f"the turn must be a number, not {turn!r:.40}")
    model, first, second = (_text(row, name) for name in ("model", "model_a", "model_b"))
    if model is not None and first is None and second is None:
        models: tuple[str, ...] = (model,)
    elif model is None and first is not None and second is not None:
        models = (first, second)
    else:
        raise ValueError("name either the model, or model_a and model_b")
    if len(set(models)) != len(models):
        raise ValueError(f"a pair of {models[0]!r:.40} with itself")
    return About(item, int(turn), models, _probability(row))


def _probability(row: Mapping[str, object]) -> float | None:
    given = _text(row, PROBABILITY)
    if given is None:
        return None
    value = _float(given)
    if not 0.0 < value <= 1.0:
        raise ValueError(f"the probability must be above 0 and at most 1, not {given!r:.40}")
    return value


def _check(about: About, items: Collection[str] | None, models: Collection[str] | None) -> None:
    if items is not None and about.item not in items:
        raise ValueError(f"unknown item {about.item!r:.60}")
    for model in about.models:
        if models is not None and model not in models:
            names = ", ".join(sorted(models))
            raise ValueError(f"unknown model {model!r:.60}; available: {names}")


def _pair(given: str, models: tuple[str, ...]) -> float:
    if given in models:
        return 1.0 if given == models[0] else 0.0
    value = _SIDES.get(given.lower())
    if value is None:
        raise ValueError(f"the label of a pair is 1, 2 or tie, not {given!r:.40}")
    return value


def _number(given: str, scale: tuple[float, float] | None) -> float:
    value = _float(given)
    if not math.isfinite(value):
        raise ValueError(f"the label must be a number, not {given!r:.40}")
    if scale is not None and not scale[0] <= value <= scale[1]:
        raise ValueError(f"the label {given} is not on the scale from {scale[0]:g} to {scale[1]:g}")
    return value


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _text(row: Mapping[str, object], name: str) -> str | None:
    value = row.get(name)
    text = "" if value is None else str(value).strip()
    return text or None
