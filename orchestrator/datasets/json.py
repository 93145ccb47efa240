"""JSON: a file that is a list of objects, read as a whole; large files are better as JSON Lines."""

from pydantic import Field

from orchestrator.dataset.files import FileConfig, FileKind
from orchestrator.dataset.readers import LIST_SUFFIXES


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


class JsonKind(FileKind[Config]):
    """A file that is a list of objects, or has one."""

    suffixes = LIST_SUFFIXES
