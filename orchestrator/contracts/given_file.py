"""The type of a setting that names a file of the user's, such as labels."""

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from orchestrator.prompts.files import find_file


def _found(value: str, info: ValidationInfo) -> str:
    folder = (info.context or {}).get("folder")
    if folder is None:
        return value  # a run that is done names it by its whole path
    file = find_file(value, folder)
    if file is None:
        raise ValueError(f"no such file: {value!r} (relative to the recipe)")
    return str(file.resolve())


GivenFile = Annotated[str, Field(min_length=1), AfterValidator(_found)]
"""A path relative to the recipe or the folder of data; the whole path of a file that is there."""
