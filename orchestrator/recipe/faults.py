"""Pydantic's findings as faults a user can act on: where, what, and the nearest right name."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orchestrator import plugins
from orchestrator.errors import nearest
from orchestrator.plugins.base import descriptions
from orchestrator.recipe.schema import KEY_PATTERN, NAME_PATTERN, SUBSET_PATTERN, VARIABLE_PATTERN
from orchestrator.recipe.source import SECRET, KeyPath, Written, about, joined, walk
from orchestrator.secrets import FIELD, PARAMETER, is_secret

MAX_SHOWN: Final = 40

LITERAL_KEY: Final = re.compile(
    r"(?:x[-_])?api[-_]?key$|authorization$|bearer$|password$", re.IGNORECASE
)

_PATTERNS: Final = {
    NAME_PATTERN: (
        "must consist of letters, digits, '_', '.' and '-', and must not start with '.' or '-'"
    ),
    KEY_PATTERN: "must not contain spaces, slashes or control characters",
    SUBSET_PATTERN: "must be a number of items, a share such as 10%, or a shard such as 2/8",
    VARIABLE_PATTERN: "must be the name of an environment variable, not the key itself",
}
_TYPES: Final = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "finite_number": "must be a finite number",
}
_OF_OTHER_ARMS: Final = {"literal_error", "list_type", "tuple_type", "dict_type", "string_type"}


def from_pydantic(
    error: ValidationError, written: Written, prefix: KeyPath, model: type[BaseModel]
) -> None:
    """Note a fault for each place of the data at `prefix` that `model` refuses."""
    places: dict[KeyPath, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        path = _in_file(written.data, (*prefix, *detail["loc"]), detail["type"])
        places.setdefault(path, []).append(detail)
    for path, details in places.items():
        is_deeper = any(other[: len(path)] == path != other for other in places)
        for message in _messages(details, path, prefix, model, is_deeper=is_deeper):
            if (fault := written.fault(path, message)) not in written.faults:
                written.faults.append(fault)


def _messages(
    details: Sequence[ErrorDetails],
    path: KeyPath,
    prefix: KeyPath,
    model: type[BaseModel],
    *,
    is_deeper: bool,
) -> Iterator[str]:
    """Yield what is wrong at a place: one sentence on a value that no arm of a union takes."""
    arms = []
    for detail in details:
        if detail["type"] not in {"missing", "extra_forbidden"}:
            arms.append(detail)
        elif detail["type"] == "missing" or not LITERAL_KEY.match(str(path[-1])):
            # `refuse_secrets` says the other better.
            yield _message(detail, path, prefix, model)
    # The arm that takes the type, or some of what is inside, says what is wrong.
    if is_deeper:
        arms = [one for one in arms if one["type"] not in _OF_OTHER_ARMS]
    elif any(one["type"] not in {*_TYPES, "literal_error"} for one in arms):
        arms = [one for one in arms if one["type"] not in _TYPES]
    if arms:
        first, *others = dict.fromkeys(map(complaint, arms))
        end = "".join(f" or {words.removeprefix('must be ')}" for words in others)
        yield about(path, first + end + _got(arms[0], path))


def refuse_secrets(written: Written) -> None:
    """Note a fault for each key that stands in a recipe; none of them shows the key."""
    message = (
        "do not write an API key in a recipe or on a command line; set it in an environment "
        "variable and give its name as 'api_key_env: NAME'"
    )
    for path, _ in walk(written.data):
        if not path or not LITERAL_KEY.match(str(path[-1])) or path[:-1] == ("models",):
            continue
        # These may come from the environment, and refuse_in_requests looks at them.
        if path[-2:-1] not in {("headers",), ("query",)} or "backend" in path:
            written.refuse(path, message)


_KEY: Final = "api_key_env: NAME"
_ADDED: Final[Mapping[KeyPath, tuple[str, re.Pattern[str]]]] = {
    ("backend",): (_KEY, FIELD),
    ("extra_body",): (_KEY, FIELD),
    ("headers",): ("{}: {{env: NAME}}", PARAMETER),
    ("query",): ("{}: {{env: NAME}}", PARAMETER),
}
"""What requests are given, by its place in a model: how its secrets are named, and told."""
_VARIABLE: Final = re.compile(
    r"\$\{\w|(?:^|[/:=])\$[A-Za-z_]\w*(?:$|[/:&?])|\{\{.*\}\}|%[A-Za-z_]\w{2,}%"
)
_PATHS: Final = frozenset(
    {"base_url", "model", "weights", "answers", "ca_file", "headers", "query"}
)


def refuse_in_requests(written: Written) -> None:
    """Note a fault for each secret or variable in what requests are made of, which would be stored.

    No fault shows the secret. What a launched server gets (`env`, `extra_args`) is looked at by its
    kind, which names the way to pass it. A variable in an address, a name of a model or a path
    would be taken as text.
    """
    for path, value in walk(written.data):
        if not isinstance(value, str):
            continue
        part = path[2:3] if path[:1] == ("models",) and path[4:] != ("env",) else ()
        given, called = _ADDED.get(part, (_KEY, FIELD))
        name = str(path[-1]) if path else ""
        is_refused = given == _KEY and LITERAL_KEY.match(name)  # by `refuse_secrets`
        if part in _ADDED and (is_secret(value) or called.search(name)) and not is_refused:
            message = (
                f"{joined(path)} looks like a secret and would be stored with the run; set it in "
                f"an environment variable and give its name as '{given.format(name)}'"
            )
            written.faults.append(written.fault(path, message))
        is_path = not _PATHS.isdisjoint(part) or path == ("dataset", "path")
        if (is_path or path[:1] == ("reuse",)) and _VARIABLE.search(value):
            advice = (
                f"write '{path[3]}: {{env: NAME}}'"
                if part in {("headers",), ("query",)}
                else f'write the value, or give it by --set {joined(path)}="$NAME"; a key goes '
                "into 'api_key_env: NAME', other secrets into 'headers' or 'query'"
            )
            said = f"{value!r} is taken as it stands, for a recipe reads no variables; {advice}"
            written.refuse(path, said)


def refuse_infinite(written: Written) -> None:
    """Note a fault for each number of a recipe that is infinite or no number.

    Our own settings refuse them one by one; this is for values that no field of ours checks: JSON
    that is handed on to a server, and settings of plug-ins from elsewhere.
    """
    said = {*written.faults}
    for path, value in walk(written.data):
        if isinstance(value, float) and not math.isfinite(value):
            message = about(path, f"{_TYPES['finite_number']}, got {value!r}")
            written.faults += [*{written.fault(path, message)} - said]


def _in_file(data: Any, loc: KeyPath, kind: str) -> KeyPath:  # noqa: ANN401
    """The location without the steps that pydantic adds (union tags, `[key]`)."""
    path: list[str | int] = []
    for index, step in enumerate(loc):
        if isinstance(step, int):
            has = isinstance(data, Sequence) and step < len(data)
        else:
            has = isinstance(data, Mapping) and step in data
        if has:
            data = data[step]
        elif kind != "missing" or index < len(loc) - 1:
            continue
        path.append(step)
    return tuple(path)


def _message(detail: ErrorDetails, path: KeyPath, prefix: KeyPath, model: type[BaseModel]) -> str:
    """Return the words of a setting that is missing or unknown."""
    annotation: Any = model
    for step in path[len(prefix) : -1]:
        annotation = _step(annotation, step)
    parent = _first_model(annotation)
    if detail["type"] == "missing":
        text = descriptions(parent).get(str(path[-1])) if parent else None
        sentence = " ".join((text or "").split()).partition(". ")[0]
        purpose = f" ({sentence.rstrip('.')})" if text else ""
        return about(path[:-1], f"{path[-1]!r} is missing{purpose}")
    known = [name for name in (parent.model_fields if parent else ()) if name != path[-1]]
    end = plugins.was_removed(str(path[-1])) or nearest(str(path[-1]), known, "accepted")
    return about(path[:-1], f"unknown setting {path[-1]!r}{end}")


def complaint(detail: ErrorDetails) -> str:
    """Return pydantic's complaint in words that stand behind a path."""
    kind = detail["type"]
    if kind == "string_pattern_mismatch":
        pattern = detail["ctx"]["pattern"]
        return _PATTERNS.get(pattern, f"does not match {pattern}")
    if kind in _TYPES:
        return _TYPES[kind]
    if kind in {"string_too_long", "string_too_short"}:
        most = detail["ctx"].get("max_length", 0)
        return f"must have at most {most:,} characters" if most else "must not be empty"
    if kind == "too_short":
        least, n = detail["ctx"]["min_length"], detail["ctx"]["actual_length"]
        return (
            f"must have at least {least} {'entry' if least == 1 else 'entries'}, got {n or 'none'}"
        )
    message = detail["msg"].removeprefix("Value error, ")
    return message.replace("Input should", "must")


def _got(detail: ErrorDetails, path: KeyPath) -> str:
    """Return the value given, if it is short, no secret, and not in the message already."""
    value = detail["input"]
    if value is None:
        return ", got nothing"
    is_secret = any(step == "api_key_env" or SECRET.search(str(step)) for step in path)
    if is_secret or detail["type"] in {"value_error", "too_short", "too_long"}:
        return ""
    if isinstance(value, str | int | float):
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        # YAML takes a text such as 4, 1e3 or true for another kind of value.
        quoted = "; write it in quotes" if detail["type"] == "string_type" else ""
        return f", got {shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + '…'}{quoted}"
    return f", got a {'list' if isinstance(value, Sequence) else 'mapping'}"


def _step(annotation: Any, step: str | int) -> Any:  # noqa: ANN401
    """The annotation one step further in, or None."""
    if _is_model(annotation):
        found = annotation.model_fields.get(step)
        return found.annotation if found else None
    arguments = get_args(annotation)
    if get_origin(annotation) in {list, tuple, dict}:
        return arguments[-1] if arguments[-1] is not Ellipsis else arguments[0]
    return next((found for arm in arguments if (found := _step(arm, step)) is not None), None)


def _first_model(annotation: object) -> type[BaseModel] | None:
    if _is_model(annotation):
        return cast("type[BaseModel]", annotation)
    found = (_first_model(arm) for arm in get_args(annotation))
    return next((model for model in found if model), None)


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
