"""Error replies -> `Failure`: one classification for every server, and how long to wait.

Bodies come in four shapes: `{"error": {...}}` (OpenAI, vLLM, llama.cpp), a flat
`{"object": "error", "message": ...}` (SGLang), `{"error": "...", "error_type": ...}` (TGI) and
`{"detail": ...}` (FastAPI). What they say is untrusted text: it is stripped of terminal escapes,
shortened, and never repeats the key it was sent.
"""

import base64
import contextlib
import datetime as dt
import html
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache, wraps
from html.entities import codepoint2name
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import urljoin

import msgspec

from orchestrator.records import Failure
from orchestrator.wire.rulings import ruling

P = ParamSpec("P")
T = TypeVar("T")


class Failed(Exception):  # noqa: N818 (a failure on its way to becoming a value)
    """A reply or a request failed; caught where a reader or a back-end's method ends."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


def known(value: T | Failure) -> T:
    """`value`.

    Raises:
        Failed: If it is a failure.
    """
    if isinstance(value, Failure):
        raise Failed(value)
    return value


STREAMED: Final = re.compile(rb"\s*(?:data|event|id|retry)?:")
"""How a stream of events begins."""
_STREAMS: Final = "; the server streams its replies, though asked not to: switch that off there"
_OF_READING: Final = ("no_logprobs", "unparseable", "no_answer")


def as_value(read: Callable[P, T]) -> Callable[P, T | Failure]:
    """Let a function return the failure that it raises as `Failed`.

    Of a body that came as a stream it says so: what is missing may be what streams leave out.
    """

    @wraps(read)
    def call(*arguments: P.args, **named: P.kwargs) -> T | Failure:
        try:
            return read(*arguments, **named)
        except Failed as failed:
            found, body = failed.failure, next(iter(arguments), None)
            if found.cause in _OF_READING and isinstance(body, bytes) and STREAMED.match(body):
                return msgspec.structs.replace(found, message=f"{found.message}{_STREAMS}")
            return found

    return call


MAX_RETRY_AFTER_S: Final = 24 * 3600.0
WAITING_HEADERS: Final = (
    "retry-after", "retry-after-ms", "x-ratelimit-remaining", "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-tokens", "x-ratelimit-reset", "x-ratelimit-reset-after",
    "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", "ratelimit-remaining",
    "ratelimit-reset", "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset", "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
)  # fmt: skip
"""Headers that say how long to wait, in lower case."""

_RESETS: Final = tuple(
    (name, name.replace("reset-after", "remaining").replace("reset", "remaining"))
    for name in WAITING_HEADERS
    if "reset" in name
)
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:ms|h|m|s))+")
"""As Go writes it, such as 6m0s or 20ms."""
_SECONDS: Final[Mapping[str, float]] = {
    "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "milli": 1e-3
}  # fmt: skip
# What counts from 1970 is above the first, in milliseconds above the second.
_EPOCH: Final = 1e9
_EPOCH_MS: Final = 1e12
_UNIT: Final = r"(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)"
_IN_WORDS: Final = re.compile(
    rf"(?:try again|retry|retry[_ ]?delay|retry[_ -]?after|retry[_ ]?after[_ ]?seconds|"
    rf"estimated_time|wait)[\"']?\s*[:=]?\s*(?:(?:in|after|for|about|at least)\s+)*[\"']?"
    rf"((?:\d+(?:\.\d+)?\s*(?:{_UNIT}(?![a-z]))?\s*)+)",
    re.IGNORECASE,
)
_SPELLED: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milli|d|h|m|s)?[a-z]*", re.IGNORECASE)


def retry_after(headers: Mapping[str, str], words: str = "") -> float | None:
    """Seconds to wait by a reply's headers, or else by its words; None where neither says.

    Retry-After may be a date; it is compared with the reply's own Date header, so a wrong clock
    here does no harm. Without it, what is said of the limit that is used up counts.
    """
    stated = _stated_wait(headers)
    if stated is None:
        stated = _in_words(words)
    if stated is None or not math.isfinite(stated):
        return None
    return min(max(stated, 0.0), MAX_RETRY_AFTER_S)


def _stated_wait(headers: Mapping[str, str]) -> float | None:
    now = _moment(headers.get("date", ""))
    if (milliseconds := _number(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1000
    if value := headers.get("retry-after", "").strip():
        found = _number(value)
        found = _until(value, now) if found is None else found
        return math.nan if found is None else found
    waits = [
        _until(headers[reset], now)
        for reset, remaining in _RESETS
        if headers.get(reset) and _is_used_up(headers, remaining)
    ]
    return max((wait for wait in waits if wait is not None), default=None)


def _is_used_up(headers: Mapping[str, str], remaining: str) -> bool:
    """Return whether a limit is the one that was met; one header for all is taken for that."""
    said = headers.get(remaining)
    if said is None:
        return remaining in {"x-ratelimit-remaining", "ratelimit-remaining"}
    return _number(said) == 0


def _until(value: str, now: dt.datetime | None) -> float | None:
    """Seconds until what a header says: a number, a duration, a time since 1970, or a date."""
    number = _number(value)
    if number is not None and number >= _EPOCH:
        since = number / 1000 if number >= _EPOCH_MS else number
        return None if now is None else since - now.timestamp()
    if number is not None:
        return number
    if _DURATION.fullmatch(value.strip()):
        return _seconds(value)
    then = _moment(value)
    return None if then is None or now is None else (then - now).total_seconds()


def _moment(value: str) -> dt.datetime | None:
    for read in (parsedate_to_datetime, dt.datetime.fromisoformat):
        try:
            found = read(value.strip())
        except (ValueError, TypeError, OverflowError):
            continue
        return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)
    return None


def _in_words(words: str) -> float | None:
    """Seconds by a sentence such as "try again in 6m0s", or by a field of the body."""
    match = _IN_WORDS.search(words)
    return None if match is None else _seconds(match[1])


def _seconds(text: str) -> float:
    """The sum of numbers with or without units."""
    parts = [(float(number), unit.lower()) for number, unit in _SPELLED.findall(text)]
    return math.fsum(number * _SECONDS[unit or "s"] for number, unit in parts)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


MESSAGE_LENGTH: Final = 500
_ROUTE: Final = re.compile(r"(https?://.+?)/(?:(?:chat/)?completions|models)((?:\?.*)?)")
READ_HEADERS: Final = (*WAITING_HEADERS, "date", "location")
"""Headers that `classify` reads, in lower case."""

_INSPECTED: Final = 16_384
# Of a longer body the words are looked for in its beginning only, unparsed.
_MOST_PARSED: Final = 1 << 20
_SHORTEST_SECRET: Final = 4
LONG_SECRET: Final = 12
"""Characters from which on a key in a model's text is taken for the key; shorter may be a word."""

_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")
_STATUS: Final = re.compile(r"[345][0-9]{2}")
# Of a page the title tells what it is; words such as "content" are in the code of each.
_PAGE: Final = re.compile(r"\A\s*<.*?<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_DEAD: Final = re.compile(r"EngineCore|EngineDeadError|engine (?:is dead|has died)", re.IGNORECASE)
# Levels of an error body whose words are read.
_DEEPEST: Final = 6
_MOST_PARTS: Final = 20
_TELLING: Final = frozenset({
    "base_resp", "code", "description", "detail", "details", "error", "error_code", "error_msg",
    "error_type", "errors", "estimated_time", "fault", "faultstring", "innererror", "issues", "loc",
    "message", "Message", "metadata", "msg", "object", "param", "path", "raw", "reason", "reasons",
    "retry_after", "retry_after_seconds", "retryDelay", "status", "status_msg", "title", "type",
})  # fmt: skip
_SAYING: Final = (
    "error", "errors", "message", "Message", "fault", "faultstring", "detail", "msg", "error_msg",
    "base_resp", "status_msg", "issues", "title", "type",
)  # fmt: skip
"""Where an error's words are, the first that is there."""


def classify(
    status: int, body: bytes, headers: Mapping[str, str], secret: str = "", address: str = ""
) -> Failure:
    """Return the failure for a reply of an address with an error status; headers in lower case."""
    parsed = _parsed(body)
    said = clean(message_in(body) if parsed is None else _message(parsed), secret)
    if 300 <= status < 400 and headers.get("location"):
        said = clean(redirected(headers["location"], address), secret)
    return _failure(status, parsed, said, f"HTTP {status}", headers)


def redirected(location: str, address: str) -> str:
    """Describe a redirect of an address, which no request follows: the key would go along."""
    with contextlib.suppress(ValueError):
        location = urljoin(address, location)
    found = _ROUTE.fullmatch(location)
    right = f" to {found[1]}{found[2]}" if found else ""
    return f"the address redirects to {location}; correct base_url{right}"


def in_reply(parsed: Mapping[str, Any], secret: str = "") -> Failure:
    """Return the failure for an error inside a reply with status 200."""
    said = clean(_message(parsed), secret)
    found = _failure(_stated(parsed), parsed, said, "the reply is an error", {})
    return msgspec.structs.replace(found, status=200)


def _stated(parsed: Mapping[str, Any]) -> int:
    """The status that an error body states, by its error before by itself; 0 where it has none."""
    error = parsed.get("error")
    for place in (error, parsed) if isinstance(error, dict) else (parsed,):
        for name in ("code", "status", "status_code", "http_status", "http_code"):
            said = place.get(name)
            if isinstance(said, int | str) and _STATUS.fullmatch(_shown(said)):
                return int(said)
    return 0


def _failure(
    status: int, parsed: object, said: str, what: str, headers: Mapping[str, str]
) -> Failure:
    words = said if parsed is None else " ".join((said, *_all_words(parsed)))[:_INSPECTED]
    wait_s = retry_after(headers, words)
    found = ruling(status, words, may_wait=wait_s is not None)
    cause = found.cause
    if cause == "server_error" and _DEAD.search(said):
        cause = "dead_server"
    message = f"{what}: {said}" if said else f"{what}, without a word"
    if found.advice:
        message = f"{message} ({found.advice})"
    return Failure(
        cause,
        message,
        permanent=found.permanent,
        status=status,
        retry_after_s=None if found.permanent else wait_s,
        scope=found.scope,
    )


def message_in(body: bytes) -> str:
    """The words of an error body, whatever its shape; not cleaned."""
    parsed = _parsed(body)
    if parsed is not None:
        return _message(parsed)
    text = body[: _INSPECTED if len(body) > _MOST_PARSED else None].decode("utf-8", "replace")
    page = _PAGE.search(text[:_INSPECTED])
    return text if page is None else f"a web page: {html.unescape(page[1])}"


def _parsed(body: bytes) -> Mapping[str, Any] | None:
    """The error body where it is a JSON object, or a list of one; else None."""
    if len(body) > _MOST_PARSED:
        return None
    try:
        parsed = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError, MemoryError):
        return None
    # Google's endpoint sends a list.
    first = parsed[0] if isinstance(parsed, list) and parsed else parsed
    return first if isinstance(first, dict) else None


def clean(text: str, secret: str = "") -> str:
    """At most 500 printable characters on one line, without `secret`."""
    text = redact(text, secret)[:_INSPECTED]
    text = _ESCAPE.sub("", text)
    text = "".join(character if character.isprintable() else " " for character in text)
    text = redact(" ".join(text.split()), secret)
    return text if len(text) <= MESSAGE_LENGTH else text[: MESSAGE_LENGTH - 1] + "…"


def redact(text: str, secret: str) -> str:
    """`text` without `secret` in whatever way servers write it; very short ones are no secrets."""
    return spelled(secret).sub("[key]", text) if secret else text


@lru_cache(maxsize=64)
def spelled(secret: str) -> re.Pattern[str]:
    """Finds secrets, one a line: in any case, escaped for JSON, URLs and HTML, and in base64."""
    found = []
    for one in sorted(secret.split("\n"), key=len, reverse=True):
        if len(one) >= _SHORTEST_SECRET:
            found += ["".join(
                rf"(?:\\{{0,4}}{re.escape(character)}|\\{{1,4}}u{code:04x}|%(?:25){{0,3}}{code:02x}"
                rf"|&(?:amp;){{0,3}}(?:#x0{{0,3}}{code:x}|#0{{0,3}}{code}"
                rf"|{codepoint2name.get(code, '_')});{'|[+]' * (character == ' ')})"
                for character, code in zip(one, map(ord, one), strict=True)
            )]  # fmt: skip
        for n_before in range(3) if len(one) >= LONG_SECRET else ():
            # Those of its characters that do not depend on what stands around it.
            data = b"\0" * n_before + one.encode()
            core = base64.b64encode(data)[(8 * n_before + 5) // 6 : 8 * len(data) // 6].decode()
            found.append(core.replace("+", "[+-]").replace("/", "[/_]"))
    return re.compile("|".join(found) or r"(?!)", re.IGNORECASE)


def _message(value: object, depth: int = 0) -> str:
    """An error's words in whatever form, with those of the provider that a gateway repeats."""
    if isinstance(value, str):
        repeated = _inner(value)
        return value if repeated is None or depth >= _DEEPEST else _message(repeated, depth + 1)
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, dict) or depth >= _DEEPEST:
        return _shown(value)
    found = (first.get(name) for name in _SAYING)
    inner = next((one for one in found if one and isinstance(one, str | dict | list)), None)
    said = _shown(value) if inner is None else _message(inner, depth + 1)
    where = (first.get("loc") or first.get("path")) if first is not value else None
    if isinstance(where, list) and where:
        said = f"{'.'.join(map(_shown, where))}: {said}"
    beside, details = first.get("metadata"), first.get("details")
    raw = beside.get("raw") if isinstance(beside, dict) else None
    if raw is None and isinstance(details, list) and details and isinstance(details[0], dict):
        # As Azure wraps the faults that FastAPI finds.
        raw = details if details[0].get("msg") else None
    return f"{said}: {_message(raw, depth + 1)}" if raw else said


def _inner(text: str) -> Mapping[str, object] | None:
    """The error body that a gateway repeats as text; None where it is none."""
    return _parsed(text.encode("utf-8", "replace")) if text.lstrip().startswith("{") else None


def _shown(value: object) -> str:
    try:
        return str(value)
    # Nested too deep, or an integer of thousands of digits.
    except (RecursionError, ValueError, MemoryError):
        return ""


def _all_words(value: object, depth: int = 0) -> Iterator[str]:
    """What an error body says of the error in any of its fields: types and codes too.

    Others may repeat the prompt, whose words say nothing of why it was refused.
    """
    if isinstance(value, dict) and depth < _DEEPEST:
        for name, part in value.items():
            if name in _TELLING:
                is_named = isinstance(part, str | int) and name not in _SAYING
                yield from ([name] if is_named else [])
                yield from _all_words(part, depth + 1)
    elif isinstance(value, list) and depth < _DEEPEST:
        for part in value[:_MOST_PARTS]:
            yield from _all_words(part, depth + 1)
    elif isinstance(value, str) and depth < _DEEPEST and (inner := _inner(value)) is not None:
        yield from _all_words(inner, depth + 1)
    elif isinstance(value, str | int | float):
        yield _shown(value)[:MESSAGE_LENGTH]
