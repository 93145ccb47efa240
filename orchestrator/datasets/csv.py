"""CSV and TSV with a header line, RFC 4180. Every value is text; rows are read when asked for."""

from pydantic import Field

from orchestrator.dataset.files import FileConfig, FileKind
from orchestrator.dataset.readers import SUFFIXES


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


class CsvKind(FileKind[Config]):
    """A CSV or TSV file."""

    suffixes = SUFFIXES
