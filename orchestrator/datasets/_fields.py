"""Which columns of a file are prompt, reference, key and category, and rows made into items."""

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from typing import Any, Final, NamedTuple

from pydantic import Field, model_serializer

from orchestrator.errors import DatasetError
from orchestrator.recipe.schema import Settings
from orchestrator.records import Item, Message, Messages

DEFAULTS: Final = {
    "prompt": ("prompt", "question", "instruction", "input"),
    "messages": ("messages",),
    "reference": ("reference", "answer", "target"),
    "key": ("key", "id", "question_id"),
    "category": ("category",),
}
_ROLES: Final = ("system", "user", "assistant")
_MAX_NAMES: Final = 12


class FieldNames(Settings):
    """Columns by what they hold. Left out: found by the usual names. null: there is none."""

    prompt: str | None = Field(
        None, description="The question; prompt, question, instruction or input where left out."
    )
    messages: str | None = Field(
        None, description="A conversation instead: a list of {role, content}, the last by the user."
    )
    reference: str | None = Field(
        None, description="A right answer; reference, answer or target where left out."
    )
    key: str | None = Field(
        None,
        description="Unique; key, id or question_id where left out, else made of its content.",
    )
    category: str | None = Field(None, description="For tables by category.")

    @model_serializer
    def _only_given(self) -> dict[str, str | None]:
        # null is not the same as left out.
        return {name: getattr(self, name) for name in sorted(self.model_fields_set)}


class Columns(NamedTuple):
    """The column of each part of an item; None where there is none."""

    prompt: str | None
    messages: str | None
    reference: str | None
    key: str | None
    category: str | None


class RowError(Exception):
    """A row that can't be made into an item; says what and what to do, not where."""


def find_columns(names: FieldNames, there: Sequence[str], file: str) -> Columns:
    """The columns as given, or by their usual names.

    Raises:
        DatasetError: If a given column is missing, if several could be meant, or if there is no
            prompt.
    """
    found = {part: _column(part, names, there, file) for part in DEFAULTS}
    given = names.model_fields_set
    if found["prompt"] and found["messages"]:
        if ("prompt" in given) == ("messages" in given):
            raise _ambiguous(file, "prompt", [found["prompt"], found["messages"]], "messages: null")
        found["messages" if "prompt" in given else "prompt"] = None
    if not found["prompt"] and not found["messages"]:
        usual = ", ".join(repr(name) for name in (*DEFAULTS["prompt"], "messages"))
        raise DatasetError(
            f"{file}: no column for the prompt: none of {usual}; {_listed(there)}; "
            f"say which by fields: {{prompt: COLUMN}}"
        )
    return Columns(**found)


def make_item(row: Mapping[str, Any], columns: Columns) -> Item:
    """An item of a row; its key is empty where no column gives one.

    Raises:
        RowError: If a value is missing or of the wrong kind.
    """
    try:
        return Item(
            key=_given_key(row, columns),
            messages=_messages(row, columns),
            reference=_text_of(row, columns.reference),
            category=_text_of(row, columns.category),
            fields={name: plain(row[name]) for name in sorted(row) if name not in columns},
        )
    except (RecursionError, ValueError) as error:
        raise RowError(f"a value is too deep or too long: {error}") from error


def _given_key(row: Mapping[str, Any], columns: Columns) -> str:
    if columns.key is None:
        return ""
    key = _text_of(row, columns.key)
    if not key:
        raise RowError(f"no {columns.key!r}, which is the key; or say fields: {{key: null}}")
    return key


def plain(value: Any) -> Any:  # noqa: ANN401 (any column)
    """A value that JSON can hold, mappings in the order of their keys."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in sorted(value, key=str)}
    return [plain(part) for part in value] if isinstance(value, Sequence) else str(value)


def _number(value: float) -> int | float | str | None:
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    return value if math.isfinite(value) else None


def _column(part: str, names: FieldNames, there: Sequence[str], file: str) -> str | None:
    if part in names.model_fields_set:
        name: str | None = getattr(names, part)
        if name is not None and name not in there:
            raise DatasetError(
                f"{file}: no column {name!r} (fields.{part}); {_listed(there)}{_near(name, there)}"
            )
        return name
    taken = {getattr(names, other) for other in names.model_fields_set}
    found = [name for name in DEFAULTS[part] if name in there and name not in taken]
    if len(found) > 1:
        null = "" if part == "prompt" else f"{part}: null"
        raise _ambiguous(file, part, found, null)
    return found[0] if found else None


def _ambiguous(file: str, part: str, found: Sequence[str], null: str) -> DatasetError:
    either = " and ".join(repr(name) for name in found)
    other = f", or {null}" if null else ""
    return DatasetError(
        f"{file}: {either} could each be the {part}; say which by "
        f"fields: {{{part}: {found[0]}}}{other}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_MAX_NAMES])
    return f"there are {shown}{', …' if len(names) > _MAX_NAMES else ''}"


def _near(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _text_of(row: Mapping[str, Any], column: str | None) -> str | None:
    value = None if column is None else row.get(column)
    match value:
        case None | str():
            return value
        case float() if not math.isfinite(value):
            return None
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal():
            return str(value)
        case _:
            raise RowError(f"{column!r} is a {_kind(value)}, not text")


def _messages(row: Mapping[str, Any], columns: Columns) -> Messages:
    if columns.messages is not None:
        return _conversation(row.get(columns.messages), columns.messages)
    name = columns.prompt or ""
    value = row.get(name)
    if value is None and name not in row:
        raise RowError(
            f"no {name!r}, which is the prompt; {_listed(sorted(row))}{_near(name, sorted(row))}"
        )
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        raise RowError(
            f"{name!r} is a list; questions of several turns are not supported yet: give one "
            f"text, or a conversation in 'messages'"
        )
    text = _text_of(row, name)
    if text is None or not text.strip():
        raise RowError(f"{name!r}, which is the prompt, is empty")
    return (Message("user", text),)


def _conversation(value: object, column: str) -> Messages:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RowError(f"{column!r} is text, but not JSON: {error}") from error
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        raise RowError(f"{column!r} must be a list of {{role, content}}, not a {_kind(value)}")
    messages = tuple(_turn(turn, f"{column}[{index}]") for index, turn in enumerate(value))
    if messages[-1].role != "user":
        raise RowError(
            f"the last turn of {column!r} is by {messages[-1].role!r}; it must be by 'user', "
            f"so that a model can answer it"
        )
    return messages


def _turn(turn: object, place: str) -> Message:
    role = turn.get("role") if isinstance(turn, Mapping) else None
    content = turn.get("content") if isinstance(turn, Mapping) else None
    if role not in _ROLES:
        raise RowError(f"{place}: 'role' must be {', '.join(_ROLES)}, got {role!r:.40}")
    if not isinstance(content, str) or not content.strip():
        what = "is empty" if content is None or isinstance(content, str) else "must be text"
        raise RowError(f"{place}: 'content' {what}")
    try:
        content.encode()
    except UnicodeEncodeError as error:
        raise RowError(f"{place}: 'content' holds half of a character") from error
    return Message(str(role), content)


def _kind(value: object) -> str:
    match value:
        case None:
            return "missing value"
        case Mapping():
            return "mapping"
        case str():
            return "text"
        case bytes():
            return "binary value"
        case Sequence():
            return "list"
        case _:
            return type(value).__name__
