"""CSV and TSV with a header line, RFC 4180. Every value is text; rows are read when asked for."""

from pathlib import Path

from pydantic import Field

from orchestrator.dataset.files import FileConfig, located, open_rows
from orchestrator.dataset.readers import SUFFIXES
from orchestrator.dataset.rows import from_rows
from orchestrator.disk.paths import suffix_of
from orchestrator.plugin import Dataset, DatasetKind


class Config(FileConfig):
    """Settings of `csv`."""

    separator: str | None = Field(
        None,
        description=(
            "Delimiter, one character. Default: a tab for .tsv, otherwise a comma, a semicolon, a "
            "tab or a bar, the first that divides the header."
        ),
        min_length=1,
        max_length=1,
    )


class CsvKind(DatasetKind[Config]):
    """A CSV or TSV file."""

    suffixes = SUFFIXES

    def open(self, base: Path) -> Dataset:
        """Open the file and check every row.

        Raises:
            DatasetError: With every row that is not right.
        """
        file, shown = located(self.config.path, base)
        opened = open_rows(
            file,
            shown,
            ".tsv" if suffix_of(file.name) == ".tsv" else ".csv",
            separator=self.config.separator,
        )
        return from_rows(opened, self.config.fields)
