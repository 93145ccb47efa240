"""Sheets of labels: a CSV file that people fill in, and the key file of what its codes are about.

The key file (`labels.key.jsonl` for `labels.csv`) has a row for each row of the sheet, in the order
in which the rows were drawn, so that people see no name of a model. It also holds a fingerprint of
each text that was shown: a spreadsheet that sorts one column alone gives labels to other answers,
and nothing else would tell.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from orchestrator.dataset.files import open_rows
from orchestrator.dataset.rows import Faults, Rows
from orchestrator.errors import DatasetError

CODE: Final = "code"
LABEL: Final = "label"
PROBABILITY: Final = "probability"
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
        probability: With which it was chosen for a label; None where all had the same.
    """

    item: str
    turn: int
    models: tuple[str, ...]
    probability: float | None = None


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


def fingerprints(row: Mapping[str, object]) -> dict[str, str]:
    """Return the fingerprints of the texts of a sheet's row, by column."""
    texts = {name: str(value) for name, value in row.items() if name not in (CODE, LABEL)}
    return {name: found for name, text in texts.items() if (found := fingerprint(text))}


def check_sheet(rows: Rows, codes: Sequence[str | None], key: Mapping[str, KeyRow]) -> None:
    """Refuse a sheet whose texts moved to other codes, or that lacks rows.

    Args:
        rows: Of the sheet.
        codes: Of each row; None where it has none.
        key: By code.

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


def left_out(key: Mapping[str, KeyRow], labelled: Sequence[str]) -> list[str]:
    """Return the codes without a label that were drawn before the last one that has one.

    The rows were drawn in random order, so that any number of the first ones is a random choice.
    """
    done = set(labelled)
    last = max((place for place, code in enumerate(key) if code in done), default=-1)
    return [code for code in islice(key, last + 1) if code not in done]


def open_key(path: Path) -> Rows:
    """Open the key file of a file of labels.

    Raises:
        DatasetError: If there is none.
    """
    key = key_path(path)
    if not key.is_file():
        raise DatasetError(
            f"{path.name}: the column 'code' needs the key file {key.name} beside it; copy it "
            "there, under that name"
        )
    return open_rows(key, key.name)
