"""AlignBench's dimensions, by type of question, read from its own folder `config`."""

import json
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo

from orchestrator.prompts.files import find_folder

FILES: Final = {
    "types": "subcategory_question_mapping.json",
    "sets": "dimension_set.json",
    "definitions": "dimension_definition.json",
}


class Dimensions(BaseModel):
    """Dimensions by which AlignBench judges.

    Attributes:
        types: The type of question, by subcategory.
        sets: The names of the dimensions, by type of question.
        definitions: What a dimension means, by its name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    types: dict[str, str]
    sets: dict[str, tuple[str, ...]]
    definitions: dict[str, str]

    def described(self, subcategory: str) -> str | None:
        """The numbered list that the prompt shows; None for an unknown subcategory."""
        names = self.sets.get(self.types.get(subcategory, ""))
        if names is None:
            return None
        return "".join(
            f"{number}. {name}: {self.definitions.get(name, '')}\n"
            for number, name in enumerate(names, 1)
        )


def _read(value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 (what a recipe holds)
    if not isinstance(value, str):
        return value
    folder = find_folder(value, (info.context or {}).get("folder", "."))
    if folder is None:
        raise ValueError(f"there is no folder {value!r}; it is `config` in THUDM/AlignBench")
    return {field: _json(folder / name) for field, name in FILES.items()}


def _json(file: Path) -> Any:  # noqa: ANN401 (checked by the model)
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file.name} cannot be read: {error}") from error


FROM_FOLDER: Final = BeforeValidator(_read, json_schema_input_type=str | dict[str, Any] | None)
"""For a pydantic field: a path becomes the dimensions in that folder."""
