"""Parquet, read by polars; the file's columns are held in memory as they are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.dataset import Dataset, DatasetKind
from orchestrator.datasets._file import FileConfig, located
from orchestrator.datasets._rows import from_rows
from orchestrator.errors import DatasetError, StoreError


class Config(FileConfig):
    """Settings of `parquet`."""


class ParquetKind(DatasetKind[Config]):
    """A Parquet file."""

    suffixes = (".parquet", ".pq")

    def open(self, base: Path) -> Dataset:
        """Open the file and check every row.

        Raises:
            DatasetError: If it is not Parquet, or with every row that is not right.
        """
        file, shown = located(self.config.path, base)
        return from_rows(ParquetRows(file, shown), self.config.fields)


class ParquetRows:
    """Rows of a Parquet file, or of several with the same columns."""

    def __init__(self, path: Path | list[Path], shown: str) -> None:
        # Imported here: most recipes read no such file, and polars takes a quarter of a second.
        from orchestrator.disk import columnar  # noqa: PLC0415

        self.file = shown
        try:
            self._frame = columnar.read(path)
        except columnar.UNREADABLE as error:
            message = str(error).partition("\n")[0]
            raise DatasetError(f"{shown}: not readable as Parquet: {message}") from error
        except StoreError as error:
            raise DatasetError(f"{error}, or use JSON Lines") from error
        self.columns = tuple(self._frame.columns)

    def __len__(self) -> int:
        return len(self._frame)

    def row(self, index: int) -> Mapping[str, Any]:
        """See `_rows.Rows`."""
        return self._frame.row(index, named=True)

    def where(self, index: int) -> str:
        """See `_rows.Rows`."""
        return f"{self.file}: row {index + 1}"
