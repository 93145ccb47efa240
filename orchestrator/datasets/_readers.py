"""Any file of rows by its suffix."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from orchestrator.datasets import csv, json, jsonl, parquet
from orchestrator.datasets._rows import Rows
from orchestrator.errors import DatasetError


def open_rows(path: Path, shown: str) -> Rows:
    """The rows of a JSON Lines, JSON, CSV, TSV or Parquet file.

    Raises:
        DatasetError: If the suffix is none of these, or the file can't be read.
    """
    suffix = path.suffix.lower()
    if suffix in jsonl.JsonlKind.suffixes:
        return jsonl.JsonLines(path, shown)
    if suffix in json.JsonKind.suffixes:
        return json.JsonRows(path, shown)
    if suffix in csv.CsvKind.suffixes:
        return csv.CsvRows(path, shown)
    if suffix in parquet.ParquetKind.suffixes:
        return parquet.ParquetRows(path, shown)
    kinds = (jsonl.JsonlKind, json.JsonKind, csv.CsvKind, parquet.ParquetKind)
    known = ", ".join(suffix for kind in kinds for suffix in kind.suffixes)
    raise DatasetError(f"{shown}: unknown file type ({known})")


def joined_rows(paths: Sequence[Path], shown: str) -> Rows:
    """The rows of several files of one kind, one after the other.

    Raises:
        DatasetError: If a file can't be read.
    """
    if len(paths) == 1:
        return open_rows(paths[0], shown)
    if all(path.suffix.lower() in parquet.ParquetKind.suffixes for path in paths):
        return parquet.ParquetRows(list(paths), shown)
    return JoinedRows([open_rows(path, f"{shown} {path.name}") for path in paths], shown)


class JoinedRows:
    """Rows of several files, one after the other."""

    def __init__(self, parts: Sequence[Rows], shown: str) -> None:
        self._parts = parts
        self._ends = list(accumulate(map(len, parts)))
        self.file = shown
        self.columns = tuple(dict.fromkeys(name for part in parts for name in part.columns))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def row(self, index: int) -> Mapping[str, Any]:
        """See `_rows.Rows`."""
        part, place = self._found(index)
        return part.row(place)

    def where(self, index: int) -> str:
        """See `_rows.Rows`."""
        part, place = self._found(index)
        return part.where(place)

    def _found(self, index: int) -> tuple[Rows, int]:
        which = bisect_right(self._ends, index)
        return self._parts[which], index - (self._ends[which - 1] if which else 0)
