"""Templates and wordings from files: a setting's own, a harness's file, or the user's.

A harness's prompts are not part of this project; they are read where the user has them. What is
read becomes part of the settings, so that another wording makes other rows, and a run that is done
can be read without the file. Read are

* `.jsonl`: FastChat's `judge_prompts.jsonl`: `name`, `system_prompt`, `prompt_template` a line,
* `.json`, `.yaml`: a mapping from names to templates,
* `.py`: module text that assigns templates to names (it is parsed, never run),
* anything else: one template, named after nothing; chat mark-up (`<|im_start|>`) makes its turns.

Templates have `{name}` for a field and `{{`, `}}` for braces, as Python's `str.format` has them;
a name that is no field is left as it stands. `.j2` and `.jinja` files are Jinja.
"""

import ast
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo

from orchestrator.disk.paths import answers, expanded
from orchestrator.prompts import PromptError, render, variables

# The type of a setting that holds a Jinja template, written in the recipe or in a file beside it.
#
# What is read becomes part of the settings, so that another wording makes other rows, and a run
# that is done can be read without the file. A template includes no other file: it is rendered in a
# sandbox that loads nothing.


SUFFIXES: Final = (".j2", ".jinja")
_MOST_BYTES: Final = 1 << 20


def _read(value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 (what a recipe holds)
    if isinstance(value, Mapping):
        if set(value) != {"file"} or not isinstance(value["file"], str) or not value["file"]:
            raise ValueError("must be a name, a template, or {file: PATH}")
        path = value["file"]
    else:
        path = value
        is_line = isinstance(value, str) and not ("{{" in value or "\n" in value)
        if not is_line or not value.lower().endswith(SUFFIXES):
            return value  # a template itself, or the name of a prompt
    folder = Path((info.context or {}).get("folder", "."))
    text = _text(folder / expanded(path), path)
    if "{{" not in text:
        raise ValueError(f"{path!r} shows nothing of the item: it has no {{{{ … }}}}")
    return text


def _text(file: Path, shown: str) -> str:
    try:
        if file.is_fifo() or file.is_char_device():
            raise ValueError("it is no file")  # noqa: TRY301 (said as other errors are)
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{shown!r} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{shown!r} is larger than {_MOST_BYTES:,} bytes; is it a template?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{shown!r} is not UTF-8 text; save it as UTF-8") from error


TemplateText = Annotated[
    str, BeforeValidator(_read, json_schema_input_type=str | dict[Literal["file"], str])
]
"""A name or a template as it is; a path that ends in .j2 or .jinja, or {file: PATH}, is read."""


DATA: Final = "ORCHESTRATOR_DATA"
"""Environment variable: a folder with files of others."""
ONLY: Final = "prompt"
"""Name of the template of a file that holds one."""
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
_PIECE = re.compile(rf"\{{\{{|\}}\}}|\{{({_NAME})\}}")
_TURN_START = re.compile(r"<\|im_start\|>(system|user)\n")
_TURN_END: Final = "<|im_end|>"


class Wording(BaseModel):
    """One prompt: what the judge is told, and as whom.

    Attributes:
        user: The template of the user's turn.
        system: The template of the system prompt; empty for none.
        form: "braces" or "jinja".
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    user: str
    system: str = ""
    form: Literal["braces", "jinja"] = "braces"

    def fill(self, fields: Mapping[str, str | None]) -> tuple[str, str]:
        """(system, user) with the fields filled in; what is filled in is never read as a template.

        Raises:
            PromptError: If a field that the template shows is None.
        """
        return _fill(self.system, self.form, fields), _fill(self.user, self.form, fields)

    def shows(self, name: str) -> bool:
        """Return True if the template shows a field."""
        texts = (self.system, self.user)
        if self.form == "jinja":
            return any(name in variables(text) for text in texts)
        return any(found[1] == name for text in texts for found in _PIECE.finditer(text))


def _fill(text: str, form: str, fields: Mapping[str, str | None]) -> str:
    if form == "jinja":
        return render(text, dict(fields))

    def piece(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return match.group()[0]
        if name not in fields:
            return match.group()
        value = fields[name]
        if value is None:
            raise PromptError(f"the prompt shows {name!r}, and this item has none")
        return value

    return _PIECE.sub(piece, text)


def wordings_from(where: str, *built_in: str) -> BeforeValidator:
    """For a pydantic field: a path becomes the wordings in the file; all else stays as it is.

    The recipe's folder, which a relative path starts from, is "folder" in the validation context;
    then the folder is looked at that ORCHESTRATOR_DATA names.

    Args:
        where: Where the file comes from, for the message where it is missing.
        built_in: Names that are no paths.
    """

    def read(value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 (what a recipe holds)
        if not isinstance(value, str) or value in built_in:
            return value
        file = find_file(value, (info.context or {}).get("folder", "."))
        if file is None:
            raise ValueError(
                f"there is no file {value!r}, neither beside the recipe nor in the folder that "
                f"{DATA} names; {where}"
            )
        found = read_wordings(file)
        if not found:
            raise ValueError(f"{value!r} holds no template; {where}")
        return {name: wording.model_dump() for name, wording in found.items()}

    return BeforeValidator(read, json_schema_input_type=str | dict[str, Any])


def find_file(path: str, folder: str) -> Path | None:
    """The file, from the recipe's folder or the folder of data; None where there is none."""
    return next((found for found in _places(path, folder) if answers(found, Path.is_file)), None)


def _places(path: str, folder: str) -> list[Path]:
    data = os.environ.get(DATA)
    return [Path(start) / expanded(path) for start in (folder, data) if start]


def read_wordings(file: Path) -> dict[str, Wording]:
    """The templates in a file by name; {} where it holds none.

    Raises:
        ValueError: If it can't be read or is not what its suffix says.
    """
    text, suffix = _text(file, file.name), file.suffix.lower()
    if suffix == ".jsonl":
        lines = enumerate(text.split("\n"), 1)
        return dict(_fastchat(line, number) for number, line in lines if line.strip())
    if suffix in {".json", ".yaml", ".yml"}:
        try:
            data = json.loads(text) if suffix == ".json" else yaml.safe_load(text)
            return {
                str(name): _single(entry, "braces")
                if isinstance(entry, str)
                else Wording.model_validate(entry)
                for name, entry in data.items()
            }
        except (ValueError, AttributeError, yaml.YAMLError, RecursionError) as error:
            raise ValueError(f"it is no mapping from names to templates: {error}") from error
    if suffix == ".py":
        return _assigned(text)
    jinja = suffix in {".j2", ".jinja"}
    return {ONLY: _single(text, "jinja" if jinja else "braces")} if text.strip() else {}


def _fastchat(line: str, number: int) -> tuple[str, Wording]:
    try:
        entry = json.loads(line)
        return str(entry["name"]), Wording(
            user=entry["prompt_template"], system=entry.get("system_prompt") or ""
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"line {number} is no judge prompt with 'name' and 'prompt_template': {error}"
        ) from error


def _assigned(text: str) -> dict[str, Wording]:
    """String constants that are assigned to names anywhere in Python text, in lower case."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"it is no Python: {error}") from error
    found: dict[str, Wording] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            targets = node.targets if isinstance(node, ast.Assign) else []  # type: ignore[assignment]
        value = getattr(node, "value", None)
        if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                found[target.id.lower()] = Wording(user=value.value)
    return found


def _single(text: str, form: Literal["braces", "jinja"]) -> Wording:
    """One template; where it has chat mark-up, its system and its user turn.

    A turn that never ends is none.
    """
    turns, at = dict[str, str](), 0
    while (start := _TURN_START.search(text, at)) is not None:
        end = text.find(_TURN_END, start.end())
        if end < 0:
            break
        turns[start.group(1)] = text[start.end() : end].removesuffix("\n")
        at = end + len(_TURN_END)
    if "user" in turns:
        return Wording(user=turns["user"], system=turns.get("system", ""), form=form)
    return Wording(user=text, form=form)


# AlignBench's dimensions, by type of question, from its own folder `config`.

_ALIGN_BENCH: Final = {
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


def _dimensions(value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 (what a recipe holds)
    if not isinstance(value, str):
        return value
    places = _places(value, (info.context or {}).get("folder", "."))
    folder = next((place for place in places if answers(place, Path.is_dir)), None)
    if folder is None:
        raise ValueError(f"there is no folder {value!r}; it is `config` in THUDM/AlignBench")
    texts = {field: _text(folder / name, name) for field, name in _ALIGN_BENCH.items()}
    try:
        return {field: json.loads(text) for field, text in texts.items()}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{value!r} holds a file that is no JSON: {error}") from error


FROM_FOLDER: Final = BeforeValidator(
    _dimensions, json_schema_input_type=str | dict[str, Any] | None
)
"""For a pydantic field: a path becomes the dimensions in that folder."""
