"""JSON: a file that is a list of objects, read as a whole; large files are better as JSON Lines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from orchestrator.dataset import Dataset, DatasetKind
from orchestrator.datasets._file import FileConfig, located
from orchestrator.datasets._keys import not_json, repeated_key
from orchestrator.datasets._rows import Faults, from_rows
from orchestrator.errors import DatasetError


class Config(FileConfig):
    """Settings of `json`."""


class JsonKind(DatasetKind[Config]):
    """A file that is a list of objects."""

    suffixes = (".json",)

    def open(self, base: Path) -> Dataset:
        """Open the file and check every object.

        Raises:
            DatasetError: If it is no list of objects, or with every object that is not right.
        """
        file, shown = located(self.config.path, base)
        return from_rows(JsonRows(file, shown), self.config.fields)


class JsonRows:
    """Rows of a file that is a list of objects."""

    def __init__(self, path: Path, shown: str) -> None:
        self.file = shown
        try:
            text = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise DatasetError(f"{shown}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise DatasetError(f"{shown}: not UTF-8 text; save the file as UTF-8") from error
        try:
            found = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            what = not_json(text.encode(), error)
            lines = "; if it has an object on each line, name it .jsonl"
            raise DatasetError(f"{shown}: {what}{lines if ': ' in what else ''}") from error
        if not isinstance(found, list):
            raise DatasetError(
                f"{shown}: a JSON file must contain a list of objects [{{...}}, ...]"
            )
        faults = Faults()
        if (key := repeated_key(text.encode(), found)) is not None:
            faults.add(shown, f"duplicate key {key!r} in an object")
        columns: dict[str, None] = {}
        for index, value in enumerate(found):
            if isinstance(value, dict):
                columns.update(dict.fromkeys(value))
            else:
                faults.add(f"{shown}: entry {index + 1}", "must be an object {...}")
        faults.check()
        self._found: list[dict[str, Any]] = found
        self.columns = tuple(columns)

    def __len__(self) -> int:
        return len(self._found)

    def row(self, index: int) -> Mapping[str, Any]:
        """See `_rows.Rows`."""
        return self._found[index]

    def where(self, index: int) -> str:
        """See `_rows.Rows`."""
        return f"{self.file}: entry {index + 1}"
