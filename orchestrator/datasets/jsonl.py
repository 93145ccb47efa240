"""JSON Lines: one JSON object a line. Blank lines are skipped; rows are read when asked for."""

from pathlib import Path

from orchestrator.dataset.files import FileConfig, located, open_rows
from orchestrator.dataset.readers import LINES_SUFFIXES
from orchestrator.dataset.rows import from_rows
from orchestrator.plugin import Dataset, DatasetKind


class Config(FileConfig):
    """Settings of `jsonl`."""


class JsonlKind(DatasetKind[Config]):
    """A file of JSON lines."""

    suffixes = LINES_SUFFIXES

    def open(self, base: Path) -> Dataset:
        """Open the file and check every line.

        Raises:
            DatasetError: With every line that is not right.
        """
        file, shown = located(self.config.path, base)
        opened = open_rows(file, shown, self.suffixes[0])
        return from_rows(opened, self.config.fields)
