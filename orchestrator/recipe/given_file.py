"""The type of a setting that names a file of the user's, such as labels."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from orchestrator.disk.paths import answers, expanded


def _found(value: str, info: ValidationInfo) -> str:
    folder = (info.context or {}).get("folder")
    if folder is None:
        return value  # a run that is done names it by its whole path
    file = Path(folder) / expanded(value)
    if not answers(file, Path.is_file):
        raise ValueError(f"no such file: {value!r}")
    return str(file.resolve())


GivenFile = Annotated[str, Field(min_length=1), AfterValidator(_found)]
"""A path relative to the recipe; the whole path of a file that is there."""
