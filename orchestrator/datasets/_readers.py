"""Any file of rows by its suffix."""

from pathlib import Path

from orchestrator.datasets import csv, json, jsonl, parquet
from orchestrator.datasets._rows import Rows
from orchestrator.errors import DatasetError


def open_rows(path: Path, shown: str) -> Rows:
    """The rows of a JSON Lines, JSON, CSV, TSV or Parquet file.

    Raises:
        DatasetError: If the suffix is none of these, or the file can't be read.
    """
    suffix = path.suffix.lower()
    if suffix in jsonl.SUFFIXES:
        return jsonl.JsonLines(path, shown)
    if suffix in json.SUFFIXES:
        return json.JsonRows(path, shown)
    if suffix in csv.SUFFIXES:
        return csv.CsvRows(path, shown, "\t" if suffix == ".tsv" else ",")
    if suffix in parquet.SUFFIXES:
        return parquet.ParquetRows(path, shown)
    known = ", ".join((*jsonl.SUFFIXES, *json.SUFFIXES, *csv.SUFFIXES, *parquet.SUFFIXES))
    raise DatasetError(f"{shown}: not known by its name as a file of rows ({known})")
