"""Parquet, read by polars; the file's columns are held in memory as they are."""

from pathlib import Path

from orchestrator.dataset.files import PARQUET_SUFFIXES, FileConfig, located, open_rows
from orchestrator.dataset.rows import from_rows
from orchestrator.plugin import Dataset, DatasetKind


class Config(FileConfig):
    """Settings of `parquet`."""


class ParquetKind(DatasetKind[Config]):
    """A Parquet file."""

    suffixes = PARQUET_SUFFIXES

    def open(self, base: Path) -> Dataset:
        """Open the file and check every row.

        Raises:
            DatasetError: If it is not Parquet, or with every row that is not right.
        """
        file, shown = located(self.config.path, base)
        opened = open_rows(file, shown, self.suffixes[0])
        return from_rows(opened, self.config.fields)
