"""JSON Lines: one JSON object a line. Blank lines are skipped; rows are read when asked for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from orchestrator.dataset import Dataset, DatasetKind
from orchestrator.datasets._file import FileConfig, located
from orchestrator.datasets._keys import not_json, repeated_key
from orchestrator.datasets._lines import LineFile, decoded
from orchestrator.datasets._rows import Faults, from_rows
from orchestrator.errors import DatasetError


class Config(FileConfig):
    """Settings of `jsonl`."""


class JsonlKind(DatasetKind[Config]):
    """A file of JSON lines."""

    suffixes = (".jsonl", ".ndjson")

    def open(self, base: Path) -> Dataset:
        """Open the file and check every line.

        Raises:
            DatasetError: With every line that is not right.
        """
        file, shown = located(self.config.path, base)
        return from_rows(JsonLines(file, shown), self.config.fields)


class JsonLines:
    """Rows of a file of JSON lines."""

    def __init__(self, path: Path, shown: str) -> None:
        self.file = shown
        self._lines = LineFile(path, shown)
        columns: dict[str, None] = {}
        faults = Faults()
        for number, offset, line in self._lines.lines():
            if not line.strip():
                continue
            try:
                row = _object(line)
                if (key := repeated_key(line, row)) is not None:
                    faults.add(f"{shown}:{number}", f"duplicate key {key!r} in an object")
                if not columns.keys() >= row.keys():
                    columns.update(dict.fromkeys(row))
            except ValueError as error:
                faults.add(f"{shown}:{number}", str(error))
                if line.strip() == b"[":
                    break
            else:
                self._lines.add(offset)
        faults.check()
        self.columns = tuple(columns)

    def __len__(self) -> int:
        return len(self._lines)

    def row(self, index: int) -> Mapping[str, Any]:
        """See `_rows.Rows`."""
        try:
            return _object(self._lines.read(index))
        except ValueError as error:
            where = self._lines.where(index)
            raise DatasetError(f"{where}: changed while it was in use: {error}") from error

    def where(self, index: int) -> str:
        """See `_rows.Rows`."""
        return self._lines.where(index)


def _object(line: bytes) -> dict[str, object]:
    """The object of a line.

    Raises:
        ValueError: If it is none.
    """
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        begin = decoded(line)[:40].strip()
        what = (
            "a list; JSON Lines needs one object per line"
            if begin == "["
            else not_json(line, error)
        )
        raise ValueError(f"{what}; the line begins {begin!r}") from error
    if isinstance(value, dict):
        return value
    name = "list" if isinstance(value, list) else "value without names"
    raise ValueError(f"a {name}; each line must be an object {{...}}")
