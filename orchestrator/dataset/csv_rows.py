"""Rows of CSV and TSV files with a header line, RFC 4180; each is read when it is asked for."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from orchestrator.dataset.lines import MAX_ROW_BYTES, LineFile, decoded
from orchestrator.dataset.rows import Faults
from orchestrator.errors import DatasetError

SUFFIXES: Final = (".csv", ".tsv")
_SEPARATORS: Final = (",", ";", "\t", "|")


class CsvRows:
    """Rows of a file with a header line.

    Args:
        path: The file.
        shown: Its name for messages.
        separator: Delimiter; None: found by the suffix and the header.
    """

    def __init__(self, path: Path, shown: str, separator: str | None = None) -> None:
        # The limit of the csv module is for the whole process and a hundredth of ours.
        csv.field_size_limit(MAX_ROW_BYTES)
        self.file = shown
        self._lines = LineFile(path, shown)
        self._separator = separator or self._found_separator(path)
        self.columns: tuple[str, ...] = ()
        faults = Faults()
        for number, offset, values in self._rows():
            if isinstance(values, ValueError):
                faults.add(f"{shown}:{number}", str(values))
                break  # a wrong quote makes all that follows unreadable
            if not self.columns:
                for name, n in Counter(values).items():
                    if n > 1 and name:
                        faults.add(f"{self.file}:{number}", f"{n} columns are named {name!r}")
                self.columns = tuple(
                    name or f"column_{place}" for place, name in enumerate(values, start=1)
                )
            elif len(values) != len(self.columns):
                what = f"{len(values)} values, but the header has {len(self.columns)} columns"
                faults.add(f"{shown}:{number}", what)
            else:
                self._lines.add(offset)
        faults.check()

    def __len__(self) -> int:
        return len(self._lines)

    def row(self, index: int) -> Mapping[str, Any]:
        """See `rows.Rows`."""
        try:
            lines = io.StringIO(decoded(self._lines.read(index)), newline="\n")
            values = next(csv.reader(lines, delimiter=self._separator, strict=True))
        except (ValueError, csv.Error, StopIteration) as error:
            where = self._lines.where(index)
            raise DatasetError(f"{where}: changed while it was in use: {error}") from error
        # An empty field is a missing value: CSV can't tell the two apart.
        return {name: value or None for name, value in zip(self.columns, values, strict=False)}

    def where(self, index: int) -> str:
        """See `rows.Rows`."""
        return self._lines.where(index)

    def _found_separator(self, path: Path) -> str:
        """The first usual delimiter that divides the header; programs write what is local."""
        usual = "\t" if path.suffix.lower() == ".tsv" else ","
        _, _, line = next(self._lines.lines(), (1, 0, b""))
        for separator in (usual, *_SEPARATORS):
            try:
                names = next(csv.reader([decoded(line)], delimiter=separator, strict=True), [])
            except (ValueError, csv.Error):
                continue
            if len(names) > 1:
                return separator
        return usual

    def _rows(self) -> Iterator[tuple[int, int, list[str] | ValueError]]:
        """Every row with the number and offset of its first line; an error ends the file."""
        taken: list[tuple[int, int]] = []

        def texts() -> Iterator[str]:
            for number, offset, line in self._lines.lines():
                taken.append((number, offset))
                yield decoded(line)

        reader = csv.reader(texts(), delimiter=self._separator, strict=True)
        while True:
            taken.clear()
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield *taken[0], ValueError(f"not CSV: {error}; check the quotes of this row")
                return
            except ValueError as error:
                yield *taken[-1], error
                return
            if values:
                yield *taken[0], values
