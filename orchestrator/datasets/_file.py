"""Settings, and the finding and naming of paths, shared by datasets that are files."""

from pathlib import Path

from pydantic import Field

from orchestrator.dataset.fields import FieldNames
from orchestrator.disk.paths import answers, expanded
from orchestrator.plugin import DatasetError, FileSettings


class FileConfig(FileSettings):
    """A file with a row for every item."""

    fields: FieldNames = Field(
        FieldNames(), description="Columns of the prompt, the key, and so on."
    )


def located(path: str, base: Path) -> tuple[Path, str]:
    """The file, looked for from `base`, and its name for messages.

    Raises:
        DatasetError: If it is not there.
    """
    given = expanded(path)
    file = base / given
    if not answers(file, Path.is_file):
        what = "is a folder" if answers(file, Path.is_dir) else "there is no such file"
        raise DatasetError(f"{path}: {what}")
    try:
        return file, str(file.resolve().relative_to(Path.cwd()))
    except ValueError:
        return file, str(given)
