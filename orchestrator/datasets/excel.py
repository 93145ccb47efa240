"""Sheets of Excel and LibreOffice, read by calamine into polars (the extra `[excel]`)."""

from pathlib import Path

from pydantic import Field

from orchestrator.dataset.files import EXCEL_SUFFIXES, FileConfig, located, open_rows
from orchestrator.dataset.rows import from_rows
from orchestrator.plugin import Dataset, DatasetKind


class Config(FileConfig):
    """Settings of `excel`."""

    sheet: str | None = Field(None, description="Name of the sheet. Default: the first.")


class ExcelKind(DatasetKind[Config]):
    """A sheet of an Excel or LibreOffice file, with a header line."""

    suffixes = EXCEL_SUFFIXES

    def open(self, base: Path) -> Dataset:
        """Open the file and check every row.

        Raises:
            DatasetError: If it can't be read, or with every row that is not right.
            UsageError: If the extra `[excel]` is not installed.
        """
        file, shown = located(self.config.path, base)
        opened = open_rows(file, shown, self.suffixes[0], sheet=self.config.sheet)
        return from_rows(opened, self.config.fields)
