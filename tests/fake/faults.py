"""Faults on purpose: replies that never come, and replies that are bad."""

import random
from typing import Final

import msgspec

from tests.fake.http import Action, Ending, HttpRequest, respond
from tests.fake.protocol import encode, error_body
from tests.fake.rules import Rule

_STATUS: Final = {"429": 429, "500": 500, "503": 503}
_SILENT: Final[dict[str, Ending]] = {
    "reset": "reset",
    "close": "close",
    "hang": "hang",
    "exit": "reset",
}
_NUMBERS: Final = {
    "sentinel": b"-9999.0",
    "nan": b"NaN",
    "null": b"null",
    "infinity": b"Infinity",
    "positive": b"0.7",
}
# How long replies say they are that never end, and that no client may take.
_LONG_BYTES: Final = 10**7
_HUGE_BYTES: Final = 1 << 40
# A reply that does not say how long it is, and what it goes on with.
_UNFRAMED: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
_FLOOD: Final = b" " * 2**20
# Seconds between two bytes of the fault "drip".
_DRIP_S: Final = 0.02


def without_reply(rule: Rule, received: HttpRequest) -> Action | None:
    """The action of a fault that takes the place of a reply; None for other faults."""
    fault = rule.fault or ""
    if fault in _SILENT:
        return Action(b"", ending=_SILENT[fault])
    if fault == "echo_key":
        said = [received.headers.get("authorization", "")]
        said += [value for name, value in received.headers.items() if name.startswith("x-")]
        body = error_body(rule.status, f"bad key: {' '.join(said)}")
        return Action(respond(rule.status, body))
    if fault in _STATUS or fault == "status":
        status = _STATUS.get(fault, rule.status)
        body = error_body(status, rule.message, "InventedError")
        lines = [f"{name}: {value}\r\n" for name, value in rule.headers.items()]
        if rule.retry_after_s is not None:
            lines.append(f"Retry-After: {rule.retry_after_s:g}\r\n")
        return Action(respond(status, body, "".join(lines)))
    return None


def broken_off(body: bytes, fault: str) -> Action | None:
    """A good reply that does not come whole; None for other faults."""
    whole = respond(200, body)
    head, half = len(whole) - len(body), len(whole) - len(body) // 2
    found = {
        "cut": Action(whole[:half], ending="close"),
        "reset_head": Action(whole[:head], ending="reset"),
        "reset_body": Action(whole[:half], ending="reset"),
        "hang_head": Action(whole[: head // 2], ending="hang"),
        "hang_body": Action(whole[:half], ending="hang"),
        "drip": Action(_announced(_LONG_BYTES), ending="hang", drip_s=_DRIP_S),
        "flood": Action(_UNFRAMED + body, ending="hang", flood=_FLOOD),
        "huge": Action(_announced(_HUGE_BYTES) + body, ending="hang"),
    }
    return found.get(fault)


def _announced(n_bytes: int) -> bytes:
    """The head of a reply that says it is so long."""
    return f"HTTP/1.1 200 OK\r\nContent-Length: {n_bytes}\r\n\r\n".encode()


def spoil(body: bytes, rule: Rule) -> bytes:
    """A good reply made bad in the way of `rule`."""
    match rule.fault:
        case "malformed" | "truncated":
            return body[: len(body) // 2] + (b"}}" if rule.fault == "malformed" else b"")
        case "error_200":
            return error_body(rule.status, rule.message, "InventedError")
        case "wrong_types":
            return b'{"choices":"none","logprobs":7,"usage":[]}'
        case "fewer_logprobs" | "more_logprobs":
            return encode(_recounted(_decoded(body), -1 if rule.fault == "fewer_logprobs" else 1))
        case "sentinel" | "nan" | "null" | "infinity" | "positive":
            # Every log-probability replaced by a literal, which JSON may not even have.
            marker = "log-probability"
            marked = encode(_marked(_decoded(body), marker))
            return marked.replace(b'"' + marker.encode() + b'"', _NUMBERS[rule.fault])
        case _:
            return encode(_without(_decoded(body), rule.fault or ""))


def noisy(body: bytes, amount: float, drawn_by: int) -> bytes:
    """A good reply with noise of a standard deviation added to the log-probabilities it lists."""
    return encode(_shaken(_decoded(body), amount, random.Random(drawn_by)))


def _shaken(value: object, amount: float, rng: random.Random) -> object:
    if isinstance(value, list):
        return [_shaken(one, amount, rng) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: min(0.0, one + rng.gauss(0.0, amount))
        if name == "logprob" and isinstance(one, float)
        else _shaken(one, amount, rng)
        for name, one in value.items()
    }


_ENDS: Final = {"abort": "abort", "withheld": "content_filter", "unsaid": None}


def _without(body: object, fault: str) -> object:
    if not isinstance(body, dict) or not body.keys() & {"choices", "logprobs"}:
        return _bare(body) if fault == "no_logprobs" else {}
    if fault == "empty_choices":
        return {**body, "choices": [], "logprobs": None}
    if fault in _ENDS:
        return _with_choices(body, {"finish_reason": _ENDS[fault]})
    return _with_choices({**body, "logprobs": None}, {"logprobs": None})


def _bare(value: object) -> object:
    """A reply of another dialect without anything that is named after log-probabilities."""
    if isinstance(value, list):
        return [_bare(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _bare(one) for name, one in value.items() if "logprob" not in name}


def _with_choices(body: dict[str, object], changes: dict[str, object]) -> dict[str, object]:
    choices = body.get("choices")
    if not isinstance(choices, list):
        return body
    return {**body, "choices": [{**choice, **changes} for choice in choices]}


def _recounted(value: object, change: int) -> object:
    """Every list of log-probabilities longer or shorter by one."""
    if isinstance(value, list):
        return [_recounted(one, change) for one in value]
    if not isinstance(value, dict):
        return value
    counted: dict[str, object] = {}
    for name, one in value.items():
        if "logprobs" in name and isinstance(one, list) and one:
            counted[name] = [*one, one[-1]] if change > 0 else one[:-1]
        elif name == "logprobs" and isinstance(one, dict) and isinstance(one.get("content"), list):
            entries = one["content"]
            changed = [*entries, *entries[-1:]] if change > 0 else entries[:-1]
            counted[name] = {**one, "content": changed}
        else:
            counted[name] = _recounted(one, change)
    return counted


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
        # The alternatives of a score are lists; those of a chat are objects.
        elif (
            name == "top_logprobs"
            and isinstance(one, list)
            and all(isinstance(row, list) for row in one)
        ):
            marked[name] = [[marker] * len(row) for row in one]
        else:
            marked[name] = _marked(one, marker)
    return marked


def _decoded(body: bytes) -> object:
    return msgspec.json.decode(body)
