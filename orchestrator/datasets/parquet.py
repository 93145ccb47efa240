"""Parquet, read by polars; the file's columns are held in memory as they are."""

from orchestrator.dataset.files import PARQUET_SUFFIXES, FileConfig, FileKind


class Config(FileConfig):
    """Settings of `parquet`."""


class ParquetKind(FileKind[Config]):
    """A Parquet file."""

    suffixes = PARQUET_SUFFIXES
