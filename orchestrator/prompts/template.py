"""The type of a setting that holds a Jinja template, written in the recipe or in a file beside it.

What is read becomes part of the settings, so that another wording makes other rows, and a run that
is done can be read without the file. A template includes no other file: it is rendered in a
sandbox that loads nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from orchestrator.disk.paths import expanded

SUFFIXES: Final = (".j2", ".jinja")
_MOST_BYTES: Final = 1 << 20


class _PromptFile(BaseModel):
    """A file with a Jinja template."""

    model_config = ConfigDict(extra="forbid")

    file: str = Field(description="Path of the file, relative to the recipe.", min_length=1)


def _read(value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 (what a recipe holds)
    path = _path(value)
    if path is None:
        return value
    folder = Path((info.context or {}).get("folder", "."))
    try:
        content = _content(folder / expanded(path))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path!r} cannot be read: {_why(error)}") from error
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{path!r} is larger than {_MOST_BYTES:,} bytes; is it a template?")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path!r} is not UTF-8 text; save it as UTF-8") from error
    if "{{" not in text:
        raise ValueError(f"{path!r} shows nothing of the item: it has no {{{{ … }}}}")
    return text


def _content(file: Path) -> bytes:
    """Read a file, at most one byte beyond the largest that is allowed."""
    if file.is_fifo() or file.is_char_device():
        raise ValueError("it is no file")
    with file.open("rb") as stream:
        return stream.read(_MOST_BYTES + 1)


def _path(value: object) -> str | None:
    """The file that is named; None where it is a template itself, or the name of a prompt."""
    if isinstance(value, Mapping):
        if set(value) != {"file"} or not isinstance(value["file"], str) or not value["file"]:
            raise ValueError("must be a name, a template, or {file: PATH}")
        return str(value["file"])
    if not isinstance(value, str) or "{{" in value or "\n" in value:
        return None
    return value if value.lower().endswith(SUFFIXES) else None


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


TemplateText = Annotated[str, BeforeValidator(_read, json_schema_input_type=str | _PromptFile)]
"""A name or a template as it is; a path that ends in .j2 or .jinja, or {file: PATH}, is read."""
