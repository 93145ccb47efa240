"""Labels of people (or of anything else): files of them, and the sheets that people fill in.

`read_labels` takes a file of labels for answers, pairs of answers or items, in columns of the usual
names. `read_human_labels` takes a sheet, and knows what was asked: a file with a column `label`,
and what each label is about: a `code` that stands in the key file beside it (`labels.key.jsonl` for
`labels.csv`), so that people see no name of a model, or columns item and model, or item, model_a
and model_b. A row with an empty label is not labelled yet.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from orchestrator.dataset.fields import key_text
from orchestrator.dataset.files import open_rows
from orchestrator.dataset.rows import Faults, Rows
from orchestrator.dataset.shapes import available
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
LABELS: Final = {
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
    """Every label of a JSON Lines, JSON, CSV or Parquet file, in the columns of `LABELS`.

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
        row = rows.row(index)
        told = {part: None if name is None else _text(row, name) for part, name in columns.items()}
        item, label = key_text(row.get(columns["item"] or "")), told["label"]
        if not item or label is None:
            faults.add(rows.where(index), f"the {'label' if item else 'item'} is missing")
            continue
        try:
            models = (told["model"], told["model_a"], told["model_b"])
            turn, value = _turn(told["turn"]), _finite(label)
            found.append((item, turn, *models, label, value, told["annotator"]))
        except ValueError as error:
            faults.add(rows.where(index), str(error))
    faults.check()
    return pl.DataFrame(found, schema=LABELS, orient="row")


# Sheets of labels: a CSV file that people fill in, and the key file of what its codes are about.
#
# The key file (`labels.key.jsonl` for `labels.csv`) has a row for each row of the sheet, in the
# order in which the rows were drawn, so that people see no name of a model. It also holds a
# fingerprint of each text that was shown: a spreadsheet that sorts one column alone gives labels to
# other answers, and nothing else would tell.


CODE: Final = "code"
LABEL: Final = "label"
PROBABILITY: Final = "probability"
"""Of rows that were not drawn at random alike."""
SHOWN: Final = "shown"

_LETTERS: Final = 2_000
_LEAST_LETTERS: Final = 12
"""Shorter texts have no fingerprint: spreadsheets rewrite dates, numbers and truth values."""


class About(msgspec.Struct, frozen=True):
    """The answer, or the pair of answers, that a label is about.

    Attributes:
        item: Key.
        turn: From 1 on.
        models: One name, or two in the order in which the answers were shown.
        is_random: False if it was not chosen by chance alone, alike with all others.
    """

    item: str
    turn: int
    models: tuple[str, ...]
    is_random: bool = True


class KeyRow(msgspec.Struct, frozen=True):
    """A row of a key file.

    Attributes:
        about: The answers of the code.
        shown: Fingerprint of each text of the sheet's row, by column.
        where: File and line.
    """

    about: About
    shown: Mapping[str, str]
    where: str


def key_path(path: Path) -> Path:
    """The key file of a file of labels."""
    return path.with_name(f"{path.stem}.key.jsonl")


def fingerprint(text: str) -> str | None:
    """Return a digest of the letters of a text; None where there are too few.

    Spreadsheets change line ends, spaces, quotes and what comes after 32,767 characters.
    """
    letters = "".join(islice(filter(str.isalpha, text), _LETTERS))
    if len(letters) < _LEAST_LETTERS:
        return None
    return hashlib.sha256(letters.encode(errors="backslashreplace")).hexdigest()[:16]


def check_sheet(rows: Rows, codes: Sequence[str | None], key: Mapping[str, KeyRow]) -> None:
    """Refuse a sheet whose texts moved to other codes, or that lacks rows.

    Raises:
        DatasetError: With every row that is wrong, by file and line.
    """
    faults = Faults()
    for index, code in enumerate(codes):
        known = key.get(code or "")
        if known is None:
            continue
        row = rows.row(index)
        for column, expected in known.shown.items():
            if column in rows.columns and fingerprint(str(row.get(column) or "")) != expected:
                faults.add(
                    rows.where(index),
                    f"{column!r} is not the text that {code} was written with; sort whole rows "
                    "and change only the labels, or write the sheet again with the same --seed "
                    "and copy the labels by their codes",
                )
                break
    there = set(codes)
    for code, one in key.items():
        if code not in there:
            faults.add(
                one.where,
                f"{code} is not in {rows.file}; restore its row, and leave the label empty if "
                "nobody labelled it",
            )
    faults.check()


TIE: Final = "tie"
_Read = Callable[[Mapping[str, object], str], str | None]
SIDES: Final = {
    **dict.fromkeys(("a", "1", "model_a", "model_1"), 1.0),
    **dict.fromkeys(("b", "2", "model_b", "model_2"), 0.0),
    **dict.fromkeys((TIE, "tied", "draw", "="), 0.5),
}
"""What labels of a pair mean, in lower case: 1 for its first answer, 0 for its second."""


class Label(msgspec.Struct, frozen=True):
    """One person's label.

    Attributes:
        about: What it is about.
        value: The number given; of a pair 1 if its first model is better, 0 if its second, else
            0.5.
        annotator: Name; empty if the file has none.
        where: File and line.
        code: Of the row; empty where the file names items and models.
    """

    about: About
    value: float
    annotator: str
    where: str
    code: str = ""


def read_human_labels(
    path: Path,
    *,
    scale: tuple[float, float] | None = None,
    items: Collection[str] | None = None,
    models: Collection[str] | None = None,
) -> list[Label]:
    """All labels that are filled in.

    `scale` bounds the labels of a single answer; keys and names are None where not known.

    Raises:
        DatasetError: With every row that is wrong, by file and line.
    """
    rows = open_rows(path, path.name)
    if LABEL not in rows.columns:
        raise DatasetError(f"{path.name}: no column 'label'; {available(rows.columns)}")
    known = read_key(path) if CODE in rows.columns else None
    faults, seen, found = Faults(), dict[tuple[About, str], str](), list[Label]()
    codes: list[str | None] = []
    kinds: set[int] = set()
    for index in range(len(rows)):
        row, where = rows.row(index), rows.where(index)
        codes.append(_text(row, CODE))
        try:
            about = _about(row, _text) if known is None else _coded(row, known)
            _check(about, items, models)
            given = _text(row, LABEL)
            if given is None:
                continue
            if len(about.models) == 1:
                value = _number(given, scale)
            else:
                # A sheet shows no names, so 1 and 2 are sides even if a model is called so.
                value = _pair(given, about.models if known is None else ())
        except ValueError as error:
            faults.add(where, str(error))
            continue
        code = "" if known is None else codes[-1] or ""
        label = Label(about, value, _text(row, "annotator") or "", where, code)
        kinds.add(len(about.models))
        same = (msgspec.structs.replace(about, models=tuple(sorted(about.models))), label.annotator)
        if before := seen.get(same):
            faults.add(where, f"a second label of the same answers; the first is at {before}")
        seen.setdefault(same, where)
        found.append(label)
    if len(kinds) > 1:
        faults.add(path.name, "labels of single answers and of pairs; put them into two files")
    if not all(one.about.is_random for one in found):
        faults.add(
            path.name,
            "its rows were not drawn at random alike (by `labels --below`, or with a "
            f"{PROBABILITY!r}), and say nothing of the others; draw a sheet with `orchestrator "
            "labels`",
        )
    faults.check()
    if known is not None:
        check_sheet(rows, codes, known)
    return found


def skipped_rows(path: Path, labels: Collection[Label]) -> list[str]:
    """Return the codes of a sheet that people passed over, in the order in which they were drawn.

    They have no label and stand before the last row that has one: the rows were drawn in random
    order, so that any number of the first ones is a random choice.

    Raises:
        DatasetError: See `read_key`.
    """
    done = {one.code for one in labels if one.code}
    codes = list(read_key(path)) if done else []
    last = max((place for place, code in enumerate(codes) if code in done), default=-1)
    return [code for code in codes[: last + 1] if code not in done]


def read_key(path: Path) -> dict[str, KeyRow]:
    """Return what each code of a file of labels is about, from its key file.

    Raises:
        DatasetError: If there is no key file, or with each of its rows that is wrong.
    """
    key = key_path(path)
    if not key.is_file():
        raise DatasetError(
            f"{path.name}: the column 'code' needs the key file {key.name} beside it; copy it "
            "there, under that name"
        )
    rows = open_rows(key, key.name)
    faults, found = Faults(), dict[str, KeyRow]()
    for index in range(len(rows)):
        row, where = rows.row(index), rows.where(index)
        try:
            # We wrote the names ourselves, with any spaces that they have.
            code, about = _code(row), _about(row, _exactly)
        except ValueError as error:
            faults.add(where, str(error))
            continue
        if code in found:
            faults.add(where, f"a second row of the code {code!r:.40}")
        shown = row.get(SHOWN)
        kept = shown if isinstance(shown, Mapping) else {}
        found[code] = KeyRow(about, {str(one): str(text) for one, text in kept.items()}, where)
    faults.check()
    return found


def _code(row: Mapping[str, object]) -> str:
    code = _text(row, CODE)
    if code is None:
        raise ValueError("the code is missing")
    return code


def _coded(row: Mapping[str, object], known: Mapping[str, KeyRow]) -> About:
    code = _code(row)
    if code not in known:
        raise ValueError(
            f"unknown code {code!r:.40}; the key file has codes such as {next(iter(known), '')!r}"
        )
    return known[code].about


def _about(row: Mapping[str, object], read: _Read) -> About:
    item, turn = read(row, "item"), _turn(_text(row, "turn"))
    if item is None:
        raise ValueError("no 'item', and no 'code' as in the sheets of `orchestrator labels`")
    model, first, second = (read(row, name) for name in ("model", "model_a", "model_b"))
    if model is not None and first is None and second is None:
        models: tuple[str, ...] = (model,)
    elif model is None and first is not None and second is not None:
        models = (first, second)
    else:
        raise ValueError("name either the model, or model_a and model_b")
    if len(set(models)) != len(models):
        raise ValueError(f"a pair of {models[0]!r:.40} with itself")
    return About(item, 1 if turn is None else turn, models, _text(row, PROBABILITY) is None)


def _check(about: About, items: Collection[str] | None, models: Collection[str] | None) -> None:
    if items is not None and about.item not in items:
        raise ValueError(f"unknown item {about.item!r:.60}")
    for model in about.models:
        if models is not None and model not in models:
            names = ", ".join(sorted(models))
            raise ValueError(f"unknown model {model!r:.60}; available: {names}")


def _pair(given: str, models: tuple[str, ...]) -> float:
    value = SIDES.get(key_text(given.lower()))
    if given in models:
        named = 1.0 if given == models[0] else 0.0
        if value not in (None, named):
            raise ValueError(
                f"the label {given!r:.40} is a model's name and also a side; write model_a, "
                "model_b or tie"
            )
        return named
    if value is None:
        raise ValueError(f"the label of a pair is 1, 2 or tie, not {given!r:.40}")
    return value


def _number(given: str, scale: tuple[float, float] | None) -> float:
    value = _finite(given)
    if value is None:
        raise ValueError(f"the label must be a number, not {given!r:.40}")
    if scale is not None and not scale[0] <= value <= scale[1]:
        raise ValueError(f"the label {given} is not on the scale from {scale[0]:g} to {scale[1]:g}")
    return value


def _turn(given: str | None) -> int | None:
    turn = key_text(given)
    if turn and not (turn.isascii() and turn.isdecimal() and len(turn) < 10):
        raise ValueError(f"the turn must be a number, not {turn!r:.40}")
    return int(turn) if turn else None


def _finite(given: str) -> float | None:
    """The number that a text is; "nan" and "inf" are words that nobody gave as a rating."""
    try:
        value = float(given)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _text(row: Mapping[str, object], name: str) -> str | None:
    return (_exactly(row, name) or "").strip() or None


def _exactly(row: Mapping[str, object], name: str) -> str | None:
    value = row.get(name)
    return None if value is None else str(value)
