"""JSON: a file that is a list of objects, read as a whole; large files are better as JSON Lines."""

from pathlib import Path

from pydantic import Field

from orchestrator.dataset.files import FileConfig, located, open_rows
from orchestrator.dataset.readers import LIST_SUFFIXES
from orchestrator.dataset.rows import from_rows
from orchestrator.plugin import Dataset, DatasetKind


class Config(FileConfig):
    """Settings of `json`."""

    rows: str | None = Field(
        None,
        description=(
            "Path of the list of rows in the file, such as data.paragraphs.qas. Default: the file "
            "itself, or the only list of objects in it."
        ),
        min_length=1,
    )


class JsonKind(DatasetKind[Config]):
    """A file that is a list of objects, or has one."""

    suffixes = LIST_SUFFIXES

    def open(self, base: Path) -> Dataset:
        """Open the file and check every object.

        Raises:
            DatasetError: If it has no list of objects, or with every object that is not right.
        """
        file, shown = located(self.config.path, base)
        opened = open_rows(file, shown, self.suffixes[0], rows=self.config.rows)
        return from_rows(opened, self.config.fields)
