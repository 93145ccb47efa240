"""JSON Lines: one JSON object a line. Blank lines are skipped; rows are read when asked for."""

from orchestrator.dataset.files import FileConfig, FileKind
from orchestrator.dataset.readers import LINES_SUFFIXES


class Config(FileConfig):
    """Settings of `jsonl`."""


class JsonlKind(FileKind[Config]):
    """A file of JSON lines."""

    suffixes = LINES_SUFFIXES
