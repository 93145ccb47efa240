"""The columns of a file for prompt, reference, key and category, and rows made into items."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import Field, model_serializer

from orchestrator.ask import digest
from orchestrator.dataset.shapes import (
    CHATS,
    Row,
    RowError,
    at,
    available,
    chat,
    flow,
    from_text,
    is_chat,
    is_list,
    likely,
    written,
)
from orchestrator.errors import DatasetError, nearest
from orchestrator.plugins.base import Settings
from orchestrator.records import Item, Message, Messages

DEFAULTS: Final = {
    "prompt": ("prompt", "question", "instruction", "input"),
    "messages": ("messages",),
    "turns": ("turns",),
    "reference": ("reference", "answer", "target"),
    "key": ("key", "id", "question_id"),
    "category": ("category",),
    "cluster": ("cluster",),
}
OTHER_PROMPTS: Final = ("user_input", "query", "problem")
"""Names of the question that count where none of the usual ones is there."""
_QUESTIONS: Final = ("prompt", "messages", "turns")
# Of Alpaca and what copies it, whose instruction stands apart from what it is about.
_ALPACA: Final = ["instruction", "input"]
_MAX_CLUSTER: Final = 80
_WHOLE: Final = re.compile(r"-?[0-9]{1,16}\.0+")


class FieldNames(Settings):
    """Columns by what they hold, or paths such as doc.question; left out: found; null: none."""

    prompt: str | tuple[str, ...] | None = Field(
        None,
        description="Column of the question, or several whose texts are joined by an empty line. "
        "Default: prompt, question, instruction or input; instruction and input together.",
    )
    messages: str | None = Field(
        None,
        description="Column of a conversation instead: a list of {role, content}, or of {from, "
        "value}; answers at its end are left out. Default: messages, else conversations, "
        "conversation or conversation_input.",
    )
    turns: str | None = Field(
        None,
        description="Column of several questions instead: a list of texts, each asked after the "
        "answer to the previous one.",
    )
    reference: str | None = Field(
        None,
        description="Column of the reference answer, or of a list with one for each turn. Default: "
        "reference, answer or target.",
    )
    key: str | None = Field(
        None,
        description="Column of a unique key. Default: key, id or question_id, else a hash of the "
        "content.",
    )
    category: str | None = Field(
        None, description="Column of the category, for tables by category."
    )
    cluster: str | None = Field(
        None,
        description="Column with the same value for dependent items, such as the questions on one "
        "passage: intervals, tests and stopping rules are over clusters. Default: cluster, "
        "if present; otherwise items are independent, save those that ask the same.",
    )

    @model_serializer
    def _without_unset(self) -> dict[str, str | tuple[str, ...] | None]:
        # null is not the same as left out.
        return {name: getattr(self, name) for name in sorted(self.model_fields_set)}


Columns = Annotated[FieldNames, Field(description="Columns of the prompt, the key, and so on.")]
"""The setting `fields` of a kind whose rows may have any columns."""


def set_fields(**columns: object) -> str:
    """Return the advice to name these columns, as a recipe takes it."""
    return f"set dataset: {flow({'fields': columns})}"


def find_columns(names: FieldNames, there: Sequence[str], file: str, first: Row) -> FieldNames:
    """The columns as given, or by their usual names; None for a part that has none.

    What the first row holds under usual names elsewhere, or in capitals, is no more than proposed.

    Raises:
        DatasetError: If a given column is missing, if several could be meant, or if there is no
            prompt.
    """
    found: dict[str, Any] = {part: _column(part, names, there, file) for part in DEFAULTS}
    if not any(found[part] for part in _QUESTIONS) and "messages" not in names.model_fields_set:
        found["messages"] = next((name for name in (*CHATS[1:], "chosen") if name in there), None)
    there_are = [part for part in _QUESTIONS if found[part]]
    others = [name for name in OTHER_PROMPTS if name in there]
    if not there_are and len(others) == 1:
        found["prompt"], there_are = others[0], ["prompt"]
    if len(there_are) > 1:
        said = [part for part in there_are if part in names.model_fields_set]
        if len(said) != 1:
            which = [str(found[part]) for part in there_are]
            raise _ambiguous(file, there_are[0], which, there_are[1])
        found.update(dict.fromkeys(set(there_are) - set(said)))
    if not there_are:
        usual = ", ".join(repr(name) for name in (*DEFAULTS["prompt"], *CHATS, "turns"))
        raise DatasetError(
            f"{file}: no column for the prompt: none of {usual}; {available(there)}; "
            f"{set_fields(**_proposed(first))}"
        )
    return FieldNames(**found)


def _proposed(first: Row) -> dict[str, str]:
    """The settings for what a row holds under usual names in capitals or in mappings."""
    more = {"prompt": OTHER_PROMPTS, "messages": CHATS}
    near = {part: likely(first, (*usual, *more.get(part, ()))) for part, usual in DEFAULTS.items()}
    asked = next((part for part in _QUESTIONS if near[part]), None)
    unusual = [part for part in ("reference", "key") if near[part] not in ("", *DEFAULTS[part])]
    return {part: near[part] for part in (asked, *unusual)} if asked else {"prompt": "COLUMN"}


def make_item(row: Mapping[str, object], columns: FieldNames) -> Item:
    """An item of a row; its key is empty where no column gives one.

    Raises:
        RowError: If a value is missing or of the wrong kind.
    """
    try:
        messages, followups = _conversation_of(row, columns)
        n_turns = 1 + len(followups)
        column = columns.reference
        value = None if column is None else at(row, column)
        if isinstance(value, Mapping):
            value = value.get("text", value)  # SQuAD
        if not is_list(value):
            references = (_text_of(row, column, "reference"), *[None] * (n_turns - 1))
        else:
            given = tuple(value)
            if n_turns == 1 and len(set(map(str, given))) == 1:
                given = given[:1]
            if len(given) not in {0, n_turns}:
                there = "is 1 turn; choose another column, join them, or take the first: "
                there += set_fields(reference=f"{column}.0")
                there = there if n_turns == 1 else f"are {n_turns} turns"
                raise RowError(f"{column!r} lists {len(given)} references, but there {there}")
            texts = tuple(one for one in given if one is None or isinstance(one, str))
            if len(texts) < len(given):
                raise RowError(f"{column!r} must be a text, or a list of texts")
            references = texts or (None,) * n_turns
        cluster = _text_of(row, columns.cluster, "cluster") or None
        if cluster and len(cluster) > _MAX_CLUSTER:
            # A long name, such as a passage, is shown by its beginning.
            cluster = f"{cluster[:_MAX_CLUSTER]}… {digest('cluster', cluster).hex()[:16]}"
        # These have a place of their own in an item; clusters stay fields too.
        shown = {getattr(columns, part) for part in DEFAULTS.keys() - {"cluster", "prompt"}}
        shown |= set(_prompts(columns))
        key = "" if columns.key is None else key_text(_text_of(row, columns.key, "key"))
        if columns.key is not None and not key:
            raise RowError(f"no {columns.key!r}, which is the key; or {set_fields(key=None)}")
        return Item(
            key=key,
            messages=messages,
            followups=followups,
            reference=references[0],
            references=references if any(references[1:]) else (),
            category=_text_of(row, columns.category, "category"),
            cluster=cluster,
            fields={name: plain(row[name]) for name in sorted(row) if name not in shown},
        )
    except (RecursionError, ValueError) as error:
        raise RowError(f"a value is too deep or too long: {error}") from error


def key_text(value: object) -> str:
    """The key that a value is; empty for none.

    Equal numbers are one key, however a program wrote them: 81, 81.0 and "81.0", which is what
    pandas makes of numbers in a column with gaps.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return ""
    if isinstance(value, float) and not math.isfinite(value):
        return ""
    text = str(value)
    return text.partition(".")[0] if _WHOLE.fullmatch(text) else text


def plain(value: object) -> object:
    """A value that JSON can hold, mappings in the order of their keys."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        if isinstance(value, int):
            return value if -(2**63) <= value < 2**64 else str(value)
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in sorted(value, key=str)}
    return [plain(part) for part in value] if isinstance(value, Sequence) else str(value)


def _prompts(columns: FieldNames) -> tuple[str, ...]:
    prompt = columns.prompt or ()
    return (prompt,) if isinstance(prompt, str) else prompt


def _column(
    part: str, names: FieldNames, there: Sequence[str], file: str
) -> str | tuple[str, ...] | None:
    if part in names.model_fields_set:
        named: str | None = getattr(names, part)
        for name in _prompts(names) if part == "prompt" else [] if named is None else [named]:
            if name not in there and name.partition(".")[0] not in there:
                near = nearest(name, there, "")
                raise DatasetError(
                    f"{file}: no column {name!r} (fields.{part}); {available(there)}{near}"
                )
        return named
    # A column may both have a place in an item and say which items belong together.
    taken = {getattr(names, other) for other in names.model_fields_set - {"cluster", "prompt"}}
    taken |= set(_prompts(names))
    found = [name for name in DEFAULTS[part] if name in there and name not in taken]
    if found == _ALPACA:
        return tuple(found)
    if len(found) > 1:
        raise _ambiguous(file, part, found, "" if part == "prompt" else part)
    return found[0] if found else None


def _ambiguous(file: str, part: str, found: Sequence[str], null: str) -> DatasetError:
    either = " and ".join(repr(name) for name in found)
    other = f", or {set_fields(**{null: None})}" if null else ""
    one = set_fields(**{part: found[0]})
    return DatasetError(f"{file}: {either} could each be the {part}; {one}{other}")


def _text_of(row: Mapping[str, object], column: str | None, part: str) -> str | None:
    value = None if column is None else at(row, column)
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
            inner = likely(value, ("text", "content")) if isinstance(value, Mapping) else ""
            advice = set_fields(**{part: f"{column}.{inner}"})
            hint = f"; to read a part of it, {advice}" if inner else ""
            raise RowError(f"{column!r} is a {_kind(value)}, not text{hint}")


def _conversation_of(
    row: Mapping[str, object], columns: FieldNames
) -> tuple[Messages, tuple[str, ...]]:
    """Return the first messages, and the user turns that follow."""
    if columns.messages is not None:
        return _messages(at(row, columns.messages), columns.messages), ()
    if isinstance(columns.prompt, tuple):
        texts = [_text_of(row, column, "prompt") for column in columns.prompt]
        names = " and ".join(map(repr, columns.prompt))
        said = "\n\n".join(text for text in texts if text and text.strip())
        return (Message("user", _said(said, f"{names}, which are the prompt:")),), ()
    name = columns.turns or columns.prompt or ""
    value = at(row, name)
    if value is None and name.partition(".")[0] not in row:
        raise RowError(
            f"no {name!r}, which is the prompt; {available(sorted(row))}"
            f"{nearest(name, sorted(row), '')}"
        )
    if columns.turns is not None and isinstance(value, str):
        value = from_text(value, name)
        if isinstance(value, str):
            raise RowError(
                f"{name!r} is a single text; for one question {set_fields(prompt=name, turns=None)}"
            )
    if is_chat(value):
        return _messages(value, name), ()
    if is_list(value):
        turns = [_said(turn, f"{name}[{index}]") for index, turn in enumerate(value)]
    else:
        turns = [_text_of(row, name, "prompt") or ""]
    if not turns or not turns[0].strip():
        raise RowError(f"{name!r}, which is the prompt, is empty")
    return (Message("user", turns[0]),), tuple(turns[1:])


def _messages(value: object, column: str) -> Messages:
    if not is_chat(value := from_text(value, column)):
        kind = "an empty list" if value == [] else f"a {_kind(value)}"
        raise RowError(f"{column!r} must be a list of {{role, content}}, not {kind}")
    messages = []
    for index, (role, text) in enumerate(chat(value, column)):
        place = f"{column}[{index}]"
        if role == "tool":
            raise RowError(
                f"{place}: a call or a result of a tool; conversations with tools are not "
                "supported: leave these items out, or write what the tool gave into a turn of "
                "the user"
            )
        messages.append((role, text, place))
    while messages and messages[-1][0] == "assistant":
        messages.pop()  # what a model is to say again
    if not messages or messages[-1][0] != "user":
        raise RowError(f"{column!r} has no turn by 'user' at its end for a model to answer")
    return tuple(
        Message(role, _said(text, f"{place}: 'content'")) for role, text, place in messages
    )


def _said(content: object, what: str) -> str:
    content = written(content, what)
    if not isinstance(content, str) or not content.strip():
        raise RowError(f"{what} is empty")
    try:
        content.encode()
    except UnicodeEncodeError as error:
        raise RowError(f"{what} contains a lone surrogate") from error
    return content


_KINDS: Final[Mapping[type, str]] = {
    type(None): "missing value", Mapping: "mapping", str: "text", bytes: "binary value",
    Sequence: "list",
}  # fmt: skip


def _kind(value: object) -> str:
    named = (name for kind, name in _KINDS.items() if isinstance(value, kind))
    return next(named, type(value).__name__)
