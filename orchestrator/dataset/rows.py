"""Rows of files made into datasets: by the offset of their lines, 16 bytes a row in memory."""

import csv
import os
import re
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.ask import KEY_BYTES, item_digest
from orchestrator.dataset import (
    NO_ITEMS,
    Dataset,
    Digests,
    asked_hash,
    find_clusters,
    key_hash,
    repeated,
)
from orchestrator.dataset.fields import FieldNames, find_columns, make_item, set_fields
from orchestrator.dataset.shapes import Row, RowError, at, is_list
from orchestrator.errors import DatasetError

MAX_FAULTS: Final = 10


@dataclass(frozen=True, slots=True)
class Rows:
    """Random access to the rows of a file.

    Attributes:
        file: As shown in messages.
        columns: Every column that any row has.
        n: Number of rows.
        row: Gives the values of the row at an index, by column.
        where: Gives file and line of the row at an index, for messages.
        read_as: What was taken for the rows, where that is not the whole file.
    """

    file: str
    columns: tuple[str, ...]
    n: int
    row: Callable[[int], Row]
    where: Callable[[int], str]
    read_as: str = ""

    def __len__(self) -> int:
        return self.n


class Faults:
    """Collects what is wrong with a file, so that all is said at once."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}
        self._n = 0

    def add(self, where: str, message: str) -> None:
        """Remember a fault; of one kind, and of kinds, only the first few are shown."""
        self._n += 1
        if message in self._found or len(self._found) < MAX_FAULTS:
            self._found.setdefault(message, []).append(where)

    def check(self) -> None:
        """Do nothing if there are none.

        Raises:
            DatasetError: With what was found.
        """
        if not self._n:
            return
        lines = [_line(message, *places) for message, places in self._found.items()]
        more = self._n - sum(map(len, self._found.values()))
        raise DatasetError("\n".join([*lines, f"and {more:,} more"] if more else lines))


def _line(message: str, first: str, *others: str) -> str:
    """A fault with its first place; of the others what differs."""
    shown = ", ".join(place.rpartition(":")[2].strip() for place in others[: MAX_FAULTS - 1])
    more = f" and {len(others) - MAX_FAULTS + 1:,} more" if len(others) >= MAX_FAULTS else ""
    return f"{first}: {message}; the same at {shown}{more}" if others else f"{first}: {message}"


def from_rows(rows: Rows, names: FieldNames) -> Dataset:
    """A dataset of rows.

    Raises:
        DatasetError: With every row that can't be an item, or every key that is given twice.
    """
    if len(rows) == 0:
        raise DatasetError(f"{rows.file} {NO_ITEMS}")
    columns = find_columns(names, rows.columns, rows.file, rows.row(0))
    hashes = np.zeros(len(rows), dtype=np.uint64)
    # Without a key, an item is known by what it asks.
    asked = hashes if columns.key is None else np.zeros_like(hashes)
    contents = bytearray()
    clusters: list[str | None] = []
    faults = Faults()
    n_left_out = 0
    for index in range(len(rows)):
        try:
            row = rows.row(index)
            item = make_item(row, columns)
        except RowError as error:
            faults.add(rows.where(index), str(error))
            continue
        if columns.messages is not None and is_list(turns := at(row, columns.messages)):
            n_left_out += len(turns) > len(item.messages)
        hashes[index] = key_hash(item)
        if columns.key is not None:
            asked[index] = asked_hash(item)
        contents += item_digest(item)
        if columns.cluster is not None:
            clusters.append(item.cluster)
    faults.check()
    digests = np.frombuffer(contents, dtype=np.uint8).reshape(-1, KEY_BYTES)
    ordinals = _ordinals(hashes, digests)
    if columns.key is not None and ordinals is not None:
        first: dict[str, int] = {}
        for index in np.flatnonzero(np.isin(hashes, hashes[ordinals > 0])).tolist():
            key = make_item(rows.row(index), columns).key
            if (other := first.setdefault(key, index)) != index:
                what = f"the {columns.key} {key!r:.80} was already given at {rows.where(other)}"
                what += "" if names.key else f"; if it is no key, {set_fields(key=None)}"
                faults.add(rows.where(index), what)
        faults.check()
    made = Dataset(
        rows.file,
        lambda index: make_item(rows.row(index), columns),
        digests,
        ordinals,
        has_keys=columns.key is not None,
        clusters=find_clusters(clusters),
        asked=repeated(asked),
    )
    made.read_as = _read_as(rows, names, columns, n_left_out)
    return made


_BESIDE: Final = re.compile(
    r"system(?:_prompt|_message)?|(?:\w+_)?(?:contexts?|passages?|documents?|article|story|premise|hypothesis|choices|options"
    r"|endings)|(?:(?:choice|option|ending|sol)_?)?[A-E]|(?:choice|option|ending|sol)_?\d",
    re.IGNORECASE,
)
"""Usual names of columns without which their question can't be answered."""


def _read_as(rows: Rows, names: FieldNames, columns: FieldNames, n_left_out: int) -> str:
    """Return, as a sentence, what was found that the recipe does not name and is not usual."""
    found = [rows.read_as] if rows.read_as else []
    if isinstance(columns.prompt, tuple) and names.prompt is None:
        found.append(f"prompt from {' and '.join(map(repr, columns.prompt))}")
    if columns.messages is not None and columns.messages != "messages" and not names.messages:
        found.append(f"conversations from {columns.messages!r}")
    if n_left_out:
        found.append(f"the answer at the end of {n_left_out:,} of {len(rows):,} left out")
    used = {columns.key, columns.category, columns.cluster, columns.reference}
    unseen = [name for name in rows.columns if _BESIDE.fullmatch(name) and name not in used]
    if isinstance(columns.prompt, str) and names.prompt is None and unseen:
        found.append(
            f"{' and '.join(map(repr, unseen))} shown to no model (to show a text, "
            f"{set_fields(prompt=[unseen[0], columns.prompt])})"
        )
    return f"{rows.file} read with {', '.join(found)}" if found else ""


def _ordinals(hashes: NDArray[np.uint64], digests: Digests) -> NDArray[np.int32] | None:
    """Number the rows with the same hash from 0; return None if all hashes differ.

    Equal hashes are counted in the order of their content, not of the file, so that the order of
    rows decides no key.
    """
    halves = digests.view(np.uint64)
    order = np.lexsort((halves[:, 1], halves[:, 0], hashes))
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = hashes[order][1:] != hashes[order][:-1]
    if begins.all():
        return None
    places = np.arange(len(order))
    first = np.maximum.accumulate(np.where(begins, places, 0))
    ordinals = np.empty(len(order), dtype=np.int32)
    ordinals[order] = places - first
    return ordinals


MAX_ROW_BYTES: Final = 64 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_CHUNK: Final = 1024 * 1024
_MAGIC: Final = (
    (b"\x1f\x8b", "compressed by gzip; add .gz to its name"),
    (b"\x28\xb5\x2f\xfd", "compressed by Zstandard; add .zst to its name"),
    (b"\xfd7zXZ\0", "compressed by xz; add .xz to its name"),
    (b"BZh9", "compressed by bzip2; add .bz2 to its name"),
    (b"PK\x03\x04", "a ZIP archive, or an Excel file; unpack it, or name it .xlsx"),
    (b"PAR1", "a Parquet file; name it .parquet"),
    (b"PARE", "an encrypted Parquet file; save it without encryption"),
    (b"ARROW1", "an Arrow file; save it as Parquet"),
    (b"\xd0\xcf\x11\xe0", "an old or locked Excel file; save it as .xlsx, without a password"),
    ((b"\xff\xfe", b"\xfe\xff"), "UTF-16 text; save the file as UTF-8"),
    (b"version https://git-lfs", "only a pointer; fetch the file with: git lfs pull"),
    ((b"<!doctype html", b"<html"), "a web page, not the file; see where it was downloaded from"),
)
_LONGEST_MAGIC: Final = 32


def other_form(begin: bytes) -> str:
    """Return what a file is by how it begins, with what to do; empty for one with rows of text."""
    forms = (begin, begin.lstrip().lower())
    known = (said for magic, said in _MAGIC if any(form.startswith(magic) for form in forms))
    binary = "binary, or UTF-16 text without its mark; save the file as UTF-8"
    return next(known, binary if b"\0" in begin[:_LONGEST_MAGIC] else "")


class LineFile:
    """A file of which rows are known by the offset of their lines, 8 bytes a row.

    It stays open: a file that is replaced by another under its name is still read as it was.

    Attributes:
        starts: Offsets of the rows, added by who reads it first.
        begin: Offset of the first line.

    Raises:
        DatasetError: If the file can't be opened.
    """

    def __init__(self, path: Path, shown: str) -> None:
        self.file = shown
        self.starts = array("q")
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise DatasetError(f"{shown}: cannot be read: {error.strerror}") from error
        weakref.finalize(self, os.close, self._fd)
        self._size = os.fstat(self._fd).st_size
        begin = os.pread(self._fd, _LONGEST_MAGIC, 0)
        if said := other_form(begin):
            raise DatasetError(f"{shown}: {said}")
        self.begin = len(_BOM) if begin.startswith(_BOM) else 0

    def lines(self) -> Iterator[tuple[int, int, bytes]]:
        """Every line with its 1-based number and its offset.

        Raises:
            DatasetError: If a line is longer than `MAX_ROW_BYTES`.
        """
        with os.fdopen(os.dup(self._fd), "rb") as stream:
            stream.seek(self.begin)
            offset, number = self.begin, 1
            while line := stream.readline(MAX_ROW_BYTES + 1):
                if len(line) > MAX_ROW_BYTES:
                    raise DatasetError(
                        f"{self.file}:{number}: a line of more than {MAX_ROW_BYTES >> 20} MB; "
                        "is this a file with one row per line?"
                    )
                yield number, offset, line
                offset += len(line)
                number += 1

    def rows(self, columns: Iterable[str], decode: Callable[[bytes], Row]) -> Rows:
        """The rows that begin at `starts`.

        Args:
            columns: Of all rows.
            decode: Makes a row of its bytes; any `ValueError` or `csv.Error` where they are none.
        """

        def row(index: int) -> Row:
            start = self.starts[index]
            end = self.starts[index + 1] if index + 1 < len(self.starts) else self._size
            try:
                return decode(os.pread(self._fd, end - start, start))
            except (ValueError, csv.Error, StopIteration) as error:
                raise DatasetError(f"{where(index)}: changed meanwhile; run it again") from error

        def where(index: int) -> str:
            # Counts lines, so for messages only.
            end, position, number = self.starts[index], 0, 1
            while position < end:
                chunk = os.pread(self._fd, min(_CHUNK, end - position), position)
                if not chunk:
                    break
                number += chunk.count(b"\n")
                position += len(chunk)
            return f"{self.file}:{number}"

        return Rows(self.file, tuple(columns), len(self.starts), row, where)


def decoded(line: bytes) -> str:
    """The line as text.

    Raises:
        ValueError: If it is not UTF-8.
    """
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8 text; save the file as UTF-8") from error
