"""Values of rows as other programs write them, told apart by content: texts, chats, nested rows.

Datasets and files of answers share what is here.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

from orchestrator.errors import DatasetError

Row: TypeAlias = Mapping[str, Any]
"""A row as it was decoded: its values by column."""
CHATS: Final = ("messages", "conversations", "conversation", "conversation_input")
"""Usual names of a column that holds a conversation."""
_ROLES: Final = {
    "system": "system", "developer": "system",
    "user": "user", "human": "user",
    "assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "model": "assistant",
    "ai": "assistant", "bot": "assistant",
    "tool": "tool", "function": "tool", "ipython": "tool", "observation": "tool",
    "function_call": "tool", "tool_call": "tool",
}  # fmt: skip
_ROLE_NAMES: Final = ("role", "from")
_CALLS: Final = ("tool_calls", "function_call")
# In which a text is wrapped, the first that is there.
_WRAPPERS: Final = ("content", "value", "text", "parts", "prompt", "answer")
_NO_TEXT: Final = frozenset({"thinking", "redacted_thinking", "reasoning", "refusal"})
_MOST_DEPTH: Final = 8
_MOST_LISTS: Final = 12
_PLAIN: Final = re.compile(
    r'(?<!\\)"(?!(?:null|true|false|yes|no|on|off)")([a-z_][\w./-]*)"', re.IGNORECASE | re.ASCII
)


class RowError(DatasetError):
    """A row that can't be read; says what is wrong and which `settings` may help, not where."""

    def __init__(self, said: str, **settings: str) -> None:
        super().__init__(said)
        self.settings = settings


def flow(settings: Mapping[str, object]) -> str:
    """Return settings on one line, as a recipe takes them: `{path: a.csv, key: "my id"}`."""
    return _PLAIN.sub(r"\1", json.dumps(settings, ensure_ascii=False))


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Return True if a value is a list of values."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def at(row: object, path: str) -> Any:  # noqa: ANN401 (as decoded)
    """The value at a column, or at a path such as `doc.question` or `resps.0`; None for none."""
    if isinstance(row, Mapping) and path in row:
        return row[path]
    value = row
    for name in path.split("."):
        if isinstance(value, str) and value.lstrip().startswith("{"):
            # A mapping in a CSV file.
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(value)
        if isinstance(value, Mapping):
            value = value.get(name)
        elif is_list(value) and name.isdecimal() and int(name[:9]) < len(value):
            value = value[int(name[:9])]
        else:
            return None
    return value


def likely(row: Row, names: Iterable[str]) -> str:
    """The first path in a row that ends with one of these names, but for case; empty for none."""
    ends = {path.rpartition(".")[2].strip().lower(): path for path in [*_paths(row)][::-1]}
    return next((ends[name.lower()] for name in names if name.lower() in ends), "")


def _paths(row: Row, above: str = "") -> Iterator[str]:
    for name, value in row.items():
        yield f"{above}{name}"
        if isinstance(value, Mapping) and above.count(".") < _MOST_DEPTH:
            yield from _paths(value, f"{above}{name}.")


def available(names: Sequence[str]) -> str:
    """The first columns that there are, for messages."""
    shown = ", ".join(f"{name!r:.60}" for name in names[:_MOST_LISTS])
    return f"available: {shown}{', …' if len(names) > _MOST_LISTS else ''}"


def written(value: object, what: str, between: str = "\n", depth: int = 0) -> str | None:
    """The text that a value holds: itself, a list of parts, or one that is wrapped.

    Raises:
        RowError: If it holds something else, such as an image.
    """
    if value is None or isinstance(value, str):
        return value
    if depth < _MOST_DEPTH and isinstance(value, Mapping):
        kind = value.get("type")
        if kind in _NO_TEXT:
            return None
        for name in _WRAPPERS:
            if name in value:
                return written(value[name], what, between, depth + 1)
        if isinstance(kind, str):
            raise RowError(f"{what} has a part of type {kind!r:.40}; only texts can be read")
    if depth < _MOST_DEPTH and is_list(value):
        texts = [written(part, what, between, depth + 1) for part in value]
        return between.join(text for text in texts if text is not None)
    raise RowError(f"{what} must be text")


def is_chat(value: object) -> TypeGuard[Sequence[Row]]:
    """Return True if a value is a list of turns with roles, in any of the usual forms."""
    return (
        is_list(value)
        and bool(value)
        and all(
            isinstance(turn, Mapping)
            and any(isinstance(turn.get(name), str) for name in _ROLE_NAMES)
            for turn in value
        )
    )


def chat(value: Sequence[Row], column: str) -> Iterator[tuple[str, str | None]]:
    """Role and text of each turn of a conversation: of OpenAI's form, ShareGPT's and the like.

    The role is system, user, assistant or tool; the text may be missing.

    Raises:
        RowError: If a role is unknown, or a turn is not text.
    """
    for index, turn in enumerate(value):
        place = f"{column}[{index}]"
        given = next(turn[name] for name in _ROLE_NAMES if isinstance(turn.get(name), str))
        role = _ROLES.get(given.casefold())
        if role is None:
            known = ", ".join(_ROLES)
            raise RowError(f"{place}: 'role' must be one of {known}, not {given!r:.40}")
        if role == "tool" or any(turn.get(name) for name in _CALLS):
            yield "tool", None
            continue
        content = {name: part for name, part in turn.items() if name not in _ROLE_NAMES}
        yield role, written(content, f"{place}: 'content'") if content else None


def from_text(value: object, column: str) -> object:
    """A list or mapping that was written as JSON text, as CSV files hold it; else the value.

    Raises:
        RowError: If a text begins like one and is not JSON.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        found: object = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RowError(f"{column!r} is text, but not JSON: {error}") from error
    return found


# Rows of a JSON document that is no list: where programs put them, told by what stands beside them.
_DOCUMENTS: Final = (
    ("samples", ("eval", "samples")),  # Inspect
    ("request_states", ("request_states",)),  # HELM
    ("results.results", ("results",)),  # promptfoo
    ("testCases", ("testCases",)),  # DeepEval
    ("test_results", ("test_results",)),
)


def rows_in(document: object, path: str | None, shown: str) -> tuple[list[Any], str]:
    """The rows of a JSON document, and the path of their list, empty where they are the document.

    Args:
        document: As decoded.
        path: Of the list as the user names it, such as `data.paragraphs.qas`. Lists on the way are
            followed, and each row has the plain values that stand beside the lists.
        shown: The file, for messages.

    Raises:
        RowError: If there is no list of objects, or none can be told to be the rows.
    """
    if path is not None:
        return list(_along(document, path.split("."), {}, shown, path)), path
    if isinstance(document, list):
        return document, ""
    if not isinstance(document, Mapping):
        raise DatasetError(f"{shown}: a JSON file must contain a list of objects [{{...}}, ...]")
    table = _table(document)
    if table is not None:
        return table, "a table of columns"
    for path, beside in _DOCUMENTS:
        if all(name in document for name in beside) and _is_rows(at(document, path)):
            model = at(document, "eval.model")
            rows = at(document, path)
            return [{"eval.model": model, **row} for row in rows] if model else rows, path
    found = list(_lists(document, "", 0))[:_MOST_LISTS]
    if len(found) == 1:
        return at(document, found[0]), found[0]
    which = f"; it could be any of {', '.join(found)}" if found else ""
    raise RowError(
        f"{shown}: a JSON file must contain a list of objects [{{...}}, ...]{which}",
        rows=found[0] if found else "data.items",
    )


def _is_rows(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _lists(value: Row, path: str, depth: int) -> Iterator[str]:
    """Paths of the lists of objects in mappings of mappings."""
    for name, one in value.items():
        if _is_rows(one):
            yield f"{path}{name}"
        elif isinstance(one, dict) and depth < 2:
            yield from _lists(one, f"{path}{name}.", depth + 1)


def _along(
    value: object, names: Sequence[str], beside: Row, shown: str, path: str
) -> Iterator[dict[str, Any]]:
    if is_list(value):
        for one in value:
            yield from _along(one, names, beside, shown, path)
    elif not isinstance(value, Mapping) or (names and names[0] not in value):
        raise DatasetError(f"{shown}: there is no list of objects at rows: {path}")
    elif names:
        plain = {name: one for name, one in value.items() if not isinstance(one, list | dict)}
        yield from _along(value[names[0]], names[1:], {**beside, **plain}, shown, path)
    else:
        yield {**beside, **value}


def _table(document: Row) -> list[dict[str, Any]] | None:
    """Rows of a table: `columns` beside `data` (W&B, MLflow, pandas), by column, or by key."""
    columns, data = document.get("columns"), document.get("data")
    if isinstance(columns, list) and isinstance(data, list):
        if all(isinstance(row, list) and len(row) == len(columns) for row in data):
            return [dict(zip(map(str, columns), row, strict=True)) for row in data]
        return None
    first = next(iter(document.values()), None)
    same = isinstance(first, dict) and all(
        isinstance(one, dict) and one.keys() == first.keys() for one in document.values()
    )
    if not first or not same:
        return None
    if all(map(str.isdecimal, first)):
        return [{name: one[key] for name, one in document.items()} for key in first]
    # Rows by their keys: OpenCompass, pandas by index.
    return [{"key": name, **one} for name, one in document.items()] if len(document) > 1 else None
