"""What goes wrong on purpose: replies that never come, and replies that are bad."""

from typing import Any, Final, TypeGuard

import msgspec

from launch._fake.http import Action, Ending, respond
from launch._fake.protocol import encode, error_body
from launch._fake.rules import Rule

_STATUS: Final = {"429": 429, "500": 500, "503": 503}
_SILENT: Final[dict[str, Ending]] = {
    "reset": "reset",
    "close": "close",
    "hang": "hang",
    "exit": "reset",
}
_NUMBERS: Final = {"sentinel": b"-9999.0", "nan": b"NaN", "null": b"null"}


def without_reply(rule: Rule, authorization: str) -> Action | None:
    """The action of a fault that takes the place of a reply; None for other faults."""
    fault = rule.fault or ""
    if fault in _SILENT:
        return Action(b"", ending=_SILENT[fault])
    if fault == "echo_key":
        body = error_body(rule.status, f"bad key: {authorization}")
        return Action(respond(rule.status, body))
    if fault in _STATUS or fault == "status":
        status = _STATUS.get(fault, rule.status)
        body = error_body(status, rule.message, "InventedError")
        return Action(respond(status, body, _retry_after(rule)))
    return None


def spoil(body: bytes, rule: Rule) -> bytes:
    """A good reply made bad in the way of `rule`."""
    match rule.fault:
        case "malformed":
            return body[: len(body) // 2] + b"}}"
        case "error_200":
            return error_body(rule.status, rule.message, "InventedError")
        case "wrong_types":
            return b'{"choices":"none","logprobs":7,"usage":[]}'
        case "sentinel" | "nan" | "null":
            return _renumbered(body, _NUMBERS[rule.fault])
        case _:
            return encode(_without(_decoded(body), rule.fault or ""))


def _without(body: Any, fault: str) -> Any:  # noqa: ANN401 (JSON)
    if not isinstance(body, dict) or not body.keys() & {"choices", "logprobs"}:
        return _bare(body) if fault == "no_logprobs" else {}
    if fault == "empty_choices":
        return {**body, "choices": [], "logprobs": None}
    if fault == "abort":
        return _with_choices(body, {"finish_reason": "abort"})
    return _with_choices({**body, "logprobs": None}, {"logprobs": None})


def _bare(value: object) -> object:
    """A reply of another dialect without anything that is named after log-probabilities."""
    if isinstance(value, list):
        return [_bare(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _bare(one) for name, one in value.items() if "logprob" not in name}


def _with_choices(body: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    choices = body.get("choices")
    if not isinstance(choices, list):
        return body
    return {**body, "choices": [{**choice, **changes} for choice in choices]}


def _renumbered(body: bytes, number: bytes) -> bytes:
    """Every log-probability replaced by a literal, which JSON may not even have."""
    marker = "log-probability"
    marked = encode(_marked(_decoded(body), marker))
    return marked.replace(b'"' + marker.encode() + b'"', number)


def _marked(value: object, marker: str) -> object:
    if isinstance(value, list):
        return [_marked(one, marker) for one in value]
    if not isinstance(value, dict):
        return value
    marked: dict[str, object] = {}
    for name, one in value.items():
        if name == "logprob":
            marked[name] = marker
        elif name == "logprobs" and isinstance(one, list):
            marked[name] = [marker] * len(one)
        elif name.endswith("put_token_logprobs") and isinstance(one, list):
            marked[name] = [[marker, *triple[1:]] for triple in one]
        elif name == "top_logprobs" and _is_table(one):
            marked[name] = [[marker] * len(row) for row in one]
        else:
            marked[name] = _marked(one, marker)
    return marked


def _is_table(value: object) -> TypeGuard[list[list[float]]]:
    """Whether these are the alternatives of a score; a chat's are objects."""
    return isinstance(value, list) and all(isinstance(row, list) for row in value)


def _decoded(body: bytes) -> Any:  # noqa: ANN401 (JSON)
    return msgspec.json.decode(body)


def _retry_after(rule: Rule) -> str:
    lines = [f"{name}: {value}\r\n" for name, value in rule.headers.items()]
    if rule.retry_after_s is not None:
        lines.append(f"Retry-After: {rule.retry_after_s:g}\r\n")
    return "".join(lines)
