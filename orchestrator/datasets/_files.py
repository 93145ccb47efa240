"""Kinds of files with a row for every item."""

from pathlib import Path
from typing import TypeVar

from pydantic import Field

from orchestrator.dataset import readers
from orchestrator.dataset.fields import Columns, FieldNames
from orchestrator.dataset.files import EXCEL_SUFFIXES, PARQUET_SUFFIXES, located, open_rows
from orchestrator.dataset.rows import from_rows
from orchestrator.dataset.shapes import RowError, flow
from orchestrator.disk.paths import suffix_of
from orchestrator.errors import DatasetError
from orchestrator.plugin import Dataset, DatasetKind, FileSettings


class FileConfig(FileSettings):
    """A file with a row for every item."""

    fields: Columns = FieldNames()


FileT = TypeVar("FileT", bound=FileConfig, covariant=True)


class _FileKind(DatasetKind[FileT]):
    """A kind of file; settings besides the path and the fields are those of `open_rows`."""

    def open(self, base: Path) -> Dataset:
        """Open the file and check every row.

        Raises:
            DatasetError: If it can't be read, or with every row that is not right.
            UsageError: If an extra is needed to read it.
        """
        file, shown = located(self.config.path, base)
        suffix = suffix_of(file.name)
        more = self.config.model_dump(exclude={"path", "fields"})
        kind = suffix if suffix in self.suffixes else self.suffixes[0]
        try:
            rows = open_rows(file, shown, kind, **more)
        except RowError as error:
            raise DatasetError(f"{error}; set dataset: {flow(error.settings)}") from error
        return from_rows(rows, self.config.fields)


class CsvConfig(FileConfig):
    """Settings of `csv`."""

    separator: str | None = Field(
        None,
        description="Delimiter, one character. Default: a tab for .tsv, otherwise a comma, a "
        "semicolon, a tab or a bar, the first that divides the header.",
        min_length=1,
        max_length=1,
    )


class CsvKind(_FileKind[CsvConfig]):
    """CSV and TSV with a header line (RFC 4180). Values are text; rows are read when asked for."""

    suffixes = readers.SUFFIXES


class JsonConfig(FileConfig):
    """Settings of `json`."""

    rows: str | None = Field(
        None,
        description="Path of the list of rows in the file, such as data.paragraphs.qas. Default: "
        "the file itself, or the only list of objects in it.",
        min_length=1,
    )


class JsonKind(_FileKind[JsonConfig]):
    """JSON: a list of objects, read as a whole; large files are better as JSON Lines."""

    suffixes = readers.LIST_SUFFIXES


class JsonlKind(_FileKind[FileConfig]):
    """JSON Lines: one JSON object a line. Blank lines are skipped; rows are read when asked for."""

    suffixes = readers.LINES_SUFFIXES


class ExcelConfig(FileConfig):
    """Settings of `excel`."""

    sheet: str | None = Field(None, description="Name of the sheet. Default: the first.")


class ExcelKind(_FileKind[ExcelConfig]):
    """Sheets of Excel and LibreOffice, read by calamine into polars (the extra `[excel]`)."""

    suffixes = EXCEL_SUFFIXES


class ParquetKind(_FileKind[FileConfig]):
    """Parquet, read by polars; the file's columns are held in memory as they are."""

    suffixes = PARQUET_SUFFIXES
