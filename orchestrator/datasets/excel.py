"""Sheets of Excel and LibreOffice, read by calamine into polars (the extra `[excel]`)."""

from pydantic import Field

from orchestrator.dataset.files import EXCEL_SUFFIXES, FileConfig, FileKind


class Config(FileConfig):
    """Settings of `excel`."""

    sheet: str | None = Field(None, description="Name of the sheet. Default: the first.")


class ExcelKind(FileKind[Config]):
    """A sheet of an Excel or LibreOffice file, with a header line."""

    suffixes = EXCEL_SUFFIXES
