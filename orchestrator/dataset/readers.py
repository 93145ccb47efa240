"""Rows of CSV and JSON files, with the line of each."""

import contextlib
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from orchestrator.dataset.rows import MAX_ROW_BYTES, Faults, LineFile, Rows, decoded, other_form
from orchestrator.dataset.shapes import Row, rows_in
from orchestrator.errors import DatasetError

SUFFIXES: Final = (".csv", ".tsv")
_SEPARATORS: Final = (",", ";", "\t", "|")
_SEPARATOR_LINE: Final = re.compile(rb'"?sep=([!-~\t])"?\r?\n', re.IGNORECASE)


def csv_rows(path: Path, shown: str, separator: str | None = None) -> Rows:
    """The rows of a file with a header line.

    Without a separator, that is found by the suffix and the header.

    Raises:
        DatasetError: If it can't be read, or with every row that is none.
    """
    # The limit of the csv module is for the whole process and a hundredth of ours.
    csv.field_size_limit(MAX_ROW_BYTES)
    file = LineFile(path, shown)
    # Excel may say in a line before the header by what its values are separated.
    _, _, line = next(file.lines(), (1, 0, b""))
    told = _SEPARATOR_LINE.fullmatch(line)
    if told is not None:
        file.begin += len(line)
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    divides = separator or (told[1].decode() if told else _separator(file, usual))
    columns: tuple[str, ...] = ()
    faults = Faults()
    for number, offset, values in _rows(file, divides):
        if isinstance(values, ValueError):
            faults.add(f"{shown}:{number}", str(values))
            break  # a wrong quote makes all that follows unreadable
        if not columns:
            for name, n in Counter(values).items():
                if n > 1 and name:
                    faults.add(f"{shown}:{number}", f"{n} columns are named {name!r:.80}")
            columns = tuple(name or f"column_{place}" for place, name in enumerate(values, start=1))
        elif len(values) != len(columns):
            what = f"{len(values)} values, but the header has {len(columns)} columns"
            faults.add(f"{shown}:{number}", what)
        else:
            file.starts.append(offset)
    faults.check()

    def decode(line: bytes) -> Row:
        lines = io.StringIO(decoded(line), newline="\n")
        values = next(csv.reader(lines, delimiter=divides, strict=True))
        # An empty field is a missing value: CSV can't tell the two apart.
        return {name: value or None for name, value in zip(columns, values, strict=False)}

    return file.rows(columns, decode)


def _separator(file: LineFile, usual: str) -> str:
    """The first usual delimiter that divides the header; programs write what is local."""
    _, _, line = next(file.lines(), (1, 0, b""))
    for separator in (usual, *_SEPARATORS):
        try:
            names = next(csv.reader([decoded(line)], delimiter=separator, strict=True), [])
        except (ValueError, csv.Error):
            continue
        if len(names) > 1:
            return separator
    return usual


def _rows(file: LineFile, separator: str) -> Iterator[tuple[int, int, list[str] | ValueError]]:
    """Yield every row with the number and offset of its first line; an error ends the file."""
    taken: list[tuple[int, int]] = []

    def texts() -> Iterator[str]:
        for number, offset, line in file.lines():
            taken.append((number, offset))
            yield decoded(line)

    reader = csv.reader(texts(), delimiter=separator, strict=True)
    while True:
        taken.clear()
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            said = _CR_ENDS if "new-line" in str(error) else f"{error}; check this row's quotes"
            yield *taken[0], ValueError(f"not CSV: {said}")
            return
        except ValueError as error:
            yield *taken[-1], error
            return
        if any(values):
            yield *taken[0], values


# Rows of JSON files: a list of objects, read as a whole, or JSON Lines, read when asked for.
#
# Faults that decoders do not name are found too: keys that stand twice, halves of characters.


LIST_SUFFIXES: Final = (".json",)
LINES_SUFFIXES: Final = (".jsonl", ".ndjson")
_KEY_END: Final = re.compile(rb'"\s*:')
# An escaped backslash or a whole pair is taken first, so that what is left is a half.
_ESCAPED: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


_CR_ENDS: Final = "lines end with a carriage return alone; save the file with line feeds"
_SPREAD: Final = {
    "[": "a list; JSON Lines needs one object per line",
    "{": "an object over several lines; JSON Lines needs one object per line",
}


def not_json(text: bytes, error: Exception) -> str:
    """Say why a text can't be decoded.

    Programs that cut texts by characters of UTF-16 leave halves, which decoders call malformed.
    """
    half = next((found for found in _ESCAPED.finditer(text) if found["half"]), None)
    if half is None:
        said = "nested too deep" if isinstance(error, RecursionError) else error
        return other_form(text) or f"not JSON: {said}"
    return f"has half a character ({half['half'].decode()}, a lone surrogate); remove it"


def decode(text: str | bytes) -> object:
    """Decode JSON, also with the NaN that Python writes and the comma between lines of a list.

    Raises:
        ValueError: If it is no JSON.
        RecursionError: If it is nested too deep.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        whole = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        with contextlib.suppress(ValueError):
            if not any(found["half"] for found in _ESCAPED.finditer(whole)):
                return json.loads(whole.rstrip().removesuffix(b","))
        raise


def repeated_key(text: bytes, value: object) -> str | None:
    """Return a key that an object of a JSON text has twice, at any depth; None where there is none.

    The text is valid JSON, the value what it was decoded to. As many keys in it as the text can
    hold mean that none was lost, so that few texts have to be decoded again.
    """
    n_keys, to_visit = 0, [value]
    while to_visit:
        one = to_visit.pop()
        if isinstance(one, dict):
            n_keys += len(one)
            to_visit += one.values()
        elif isinstance(one, list):
            to_visit += one
    if len(_KEY_END.findall(text)) == n_keys:
        return None
    found: list[str] = []

    def make(entries: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, entry in entries:
            if key in made:
                found.append(key)
            made[key] = entry
        return made

    try:
        json.loads(text, object_pairs_hook=make)
    except (ValueError, RecursionError):
        # Numbers of thousands of digits, or nested deeper than this decoder goes.
        return None
    return found[0] if found else None


def json_rows(path: Path, shown: str, rows: str | None = None) -> Rows:
    """The rows of a file that is a list of objects, or has one somewhere.

    Raises:
        DatasetError: If it can't be read, or has no such list.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DatasetError(f"{shown}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{shown}: not UTF-8 text; save the file as UTF-8") from error
    try:
        document = decode(text)
    except (ValueError, RecursionError) as error:
        what = not_json(text.encode(), error)
        lines = "; if it has an object on each line, name it .jsonl"
        is_json = what.startswith("not JSON")
        raise DatasetError(f"{shown}: {what}{lines if is_json else ''}") from error
    found, where = rows_in(document, rows, shown)
    faults = Faults()
    if (key := repeated_key(text.encode(), document)) is not None:
        faults.add(shown, f"duplicate key {key!r:.80} in an object")
    columns: dict[str, None] = {}
    for index, value in enumerate(found):
        if isinstance(value, dict):
            columns.update(dict.fromkeys(value))
        else:
            faults.add(f"{shown}: entry {index + 1}", "must be an object {...}")
    faults.check()
    return Rows(
        shown,
        tuple(columns),
        len(found),
        found.__getitem__,
        lambda index: f"{shown}: entry {index + 1}",
        f"rows from {where!r}" if where else "",
    )


def json_lines(path: Path, shown: str) -> Rows:
    """The rows of a file of JSON lines.

    Raises:
        DatasetError: If it can't be read, or with every line that is no row.
    """
    file = LineFile(path, shown)
    columns: dict[str, None] = {}
    faults = Faults()
    for number, offset, line in file.lines():
        if not line.strip():
            continue
        try:
            row = _row(line)
            if (key := repeated_key(line, row)) is not None:
                faults.add(f"{shown}:{number}", f"duplicate key {key!r:.80} in an object")
            if not columns.keys() >= row.keys():
                columns.update(dict.fromkeys(row))
        except ValueError as error:
            faults.add(f"{shown}:{number}", str(error))
            if line.strip() in (b"[", b"{"):
                break
        else:
            file.starts.append(offset)
    faults.check()
    return file.rows(columns, _row)


def _row(line: bytes) -> Row:
    """The object on a line.

    Raises:
        ValueError: If it is something else.
    """
    try:
        value = decode(line)
    except (ValueError, RecursionError) as error:
        begin, has_cr = decoded(line)[:40].strip(), b"\r" in line.strip()
        what = _SPREAD.get(begin) or (_CR_ENDS if has_cr else not_json(line, error))
        raise ValueError(f"{what}; the line begins {begin!r}") from error
    if isinstance(value, dict):
        return value
    name = "list" if isinstance(value, list) else "value without names"
    or_list = "; or name the file .json" if value and isinstance(value, list) else ""
    raise ValueError(f"a {name}; each line must be an object {{...}}{or_list}")
