"""A sheet of labels that the page fills in: the one file that the viewer ever writes.

It is named on the command line, and requests give a code and a label only. Each label is saved at
once, into the sheet as it is on the disk then, so that a spreadsheet's changes are kept.
"""

import csv
import io
import math
import threading
from pathlib import Path
from typing import Any, Final

from orchestrator.dataset.rows import MAX_ROW_BYTES
from orchestrator.disk import files
from orchestrator.errors import UsageError, on_disk_error
from orchestrator.ranking.human_labels import CODE, LABEL, TIE, read_human_labels, read_key

_PAIR_LABELS: Final = ("", "1", "2", TIE)
_MOST_CHARACTERS: Final = 30
_TEXTS: Final = ("answer", "answer_1", "answer_2")


class Sheet:
    """A sheet that one person labels.

    The key file lies beside it.

    Raises:
        DatasetError: If a row of the sheet or of the key file is wrong.
        UsageError: If it is no sheet of `orchestrator labels`, or of several people.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        if not path.is_file():
            raise UsageError(f"{path}: no such file; write it with: orchestrator labels RUN --to F")
        read_human_labels(path)
        columns, rows = self._read()
        codes = [row[CODE] for row in rows if CODE in row]
        if path.suffix.lower() != ".csv" or "prompt" not in columns or not codes:
            raise UsageError(f"{path} is no sheet that orchestrator labels wrote as CSV")
        if len(set(codes)) < len(codes):
            raise UsageError(
                f"{path} has several rows of a code; each person labels a copy of the sheet"
            )
        self.is_pairs = "answer_1" in columns
        # In the order in which they were drawn, so that the first ones are a random choice.
        self._codes = list(read_key(path))

    def listing(self) -> dict[str, object]:
        """Return the rows in their random order, each with its label.

        Raises:
            UsageError: If the file can't be read.
        """
        with self._lock:
            labels = {row[CODE]: row[LABEL].strip() for row in self._read()[1]}
        return {
            "file": self._path.name,
            "is_pairs": self.is_pairs,
            "rows": [[code, labels.get(code, "")] for code in self._codes],
        }

    def row(self, code: str) -> dict[str, object]:
        """Return the texts and the label of a row.

        Raises:
            UsageError: If there is no such row, or the file can't be read.
        """
        with self._lock:
            row = self._found(self._read()[1], code)
        texts = [row[name] for name in _TEXTS if name in row]
        return {"code": code, "prompt": row["prompt"], "texts": texts, "label": row[LABEL].strip()}

    def write(self, code: str, label: object) -> None:
        """Save a label; an empty one takes it away.

        Raises:
            UsageError: If the label or the code is none, or the file can't be read or written.
        """
        told = self._checked(label)
        with self._lock:
            columns, rows = self._read()
            self._found(rows, code)[LABEL] = told
            out = io.StringIO(newline="")
            writer = csv.DictWriter(out, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            with on_disk_error(f"{self._path} cannot be written"):
                # With the mark that the sheet was written with, for spreadsheets.
                files.write(self._path, out.getvalue().encode("utf-8-sig"), durable=True)

    def _checked(self, label: object) -> str:
        text = label.strip() if isinstance(label, str) else ""
        if not isinstance(label, str) or len(text) > _MOST_CHARACTERS:
            raise UsageError("the label must be a short text")
        if self.is_pairs and text not in _PAIR_LABELS:
            raise UsageError(f"the label of a pair is 1, 2 or tie, not {text!r}")
        if not self.is_pairs and text and not _is_number(text):
            raise UsageError(f"the label must be a number, not {text!r}")
        return text

    def _found(self, rows: list[dict[str, str]], code: str) -> dict[str, str]:
        for row in rows:
            if row.get(CODE) == code:
                return row
        raise UsageError(f"{self._path.name} has no row {code!r:.40}")

    def _read(self) -> tuple[list[str], list[dict[str, Any]]]:
        csv.field_size_limit(MAX_ROW_BYTES)
        try:
            text = self._path.read_bytes().decode("utf-8-sig")
            reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
            rows = list(reader)
            columns = list(reader.fieldnames or ())
        except (OSError, ValueError, csv.Error) as error:
            raise UsageError(f"{self._path} cannot be read: {error}") from error
        if not {CODE, LABEL} <= set(columns) or any(None in row.values() for row in rows):
            raise UsageError(f"{self._path} is no sheet that orchestrator labels wrote as CSV")
        return columns, rows


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
