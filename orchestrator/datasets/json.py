"""JSON: a file that is a list of objects, read as a whole; large files are better as JSON Lines."""

from pathlib import Path

from orchestrator.dataset.readers import LIST_SUFFIXES, JsonRows
from orchestrator.dataset.rows import from_rows
from orchestrator.datasets._file import FileConfig, located
from orchestrator.plugin import Dataset, DatasetKind


class Config(FileConfig):
    """Settings of `json`."""


class JsonKind(DatasetKind[Config]):
    """A file that is a list of objects."""

    suffixes = LIST_SUFFIXES

    def open(self, base: Path) -> Dataset:
        """Open the file and check every object.

        Raises:
            DatasetError: If it is no list of objects, or with every object that is not right.
        """
        file, shown = located(self.config.path, base)
        return from_rows(JsonRows(file, shown), self.config.fields)
