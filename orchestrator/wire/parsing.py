"""Bytes -> typed records, with the oddities of real servers: NaN literals, errors inside a 200."""

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from orchestrator.records import REQUEST, UNCLEAR, Failure, FloatArray, unparseable
from orchestrator.wire import failures
from orchestrator.wire.failures import STREAMED, Failed, as_value

MAX_BODY_BYTES: Final = 64 * 2**20
SENTINEL: Final = -9998.5
"""vLLM writes -9999.0 for -inf, others the smallest float32; no real value lies below this."""
MAX_COUNT: Final = 2**31 - 1
"""More of anything is no count of one reply; the sum of a run's still fits 64 bits."""
_MOST_DIGITS: Final = 18
MAX_TOKENS: Final = 2**20
"""More tokens is no answer; it is far beyond every context."""
MAX_TEXT_BYTES: Final = 4 * MAX_TOKENS
"""Of a text and its thinking together."""
MAX_LISTED: Final = 2**23
"""Alternatives of an answer in all; shorter lists count as long as the longest of them."""
ROUNDING: Final = 1e-2
"""A log-probability may exceed 0 by rounding, not by more."""

_PAGE: Final = re.compile(rb"\s*<(?:!doctype|html|head|\?xml)\b", re.IGNORECASE)
_MOST_INDEXED: Final = 128
# What a part of a stream adds to: texts, lists whose entries have an index, and what holds either.
_GROWING: Final = frozenset((
    "content", "text", "reasoning", "reasoning_content", "reasoning_text", "thinking", "refusal",
    "arguments",
))  # fmt: skip
_INDEXED: Final = ("choices", "tool_calls")
_HOLDING: Final = ("delta", "logprobs", "function")
# Where other interfaces have their answers: Anthropic, OpenAI's Responses, Ollama, Gemini, TGI.
_OTHERS: Final = frozenset(("content", "output", "response", "candidates", "generated_text"))
_ERROR_FIELDS: Final = ("error", "errors", "message", "detail", "msg", "base_resp")
# How Azure and Gemini say that a prompt was filtered, beside no answer. Words (`rulings`) can't
# tell: filters are named where it passed, too. A text that repeats it escapes its quotes.
FILTERED: Final = re.compile(
    rb'"(?:filtered|(?:in|out)put_sensitive)"\s*:\s*true|"block_?reason"\s*:\s*["1-9]',
    re.IGNORECASE,
)
_COUNT: Final = re.compile(r"[0-9]{1,18}(?:\.0{1,18})?")

TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
T = TypeVar("T")
_UNREADABLE: Final = (
    ValueError, TypeError, AttributeError, RecursionError, OverflowError, MemoryError
)  # fmt: skip


class Usage(msgspec.Struct, gc=False):
    """Token counts as the server gives them, also under the names of OpenAI's Responses."""

    class Details(msgspec.Struct, gc=False):
        """Parts of a count: of the prompt what the cache held, of the text the reasoning."""

        cached_tokens: int | None = None
        reasoning_tokens: int | None = None

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None

    @property
    def n_prompt(self) -> int:
        """Prompt tokens, 0 where not said."""
        return count(self.prompt_tokens or self.input_tokens)

    @property
    def n_completion(self) -> int:
        """Generated tokens, 0 where not said.

        Some providers bill the tokens of hidden reasoning beside these, and tell them by the total.
        """
        said = count(self.completion_tokens or self.output_tokens)
        total = count(self.total_tokens)
        return max(said, total - self.n_prompt) if said else said

    @property
    def n_cached(self) -> int:
        """Prompt tokens from the prefix cache, 0 where not said."""
        details = self.prompt_tokens_details
        return count(self.cached_tokens or (details.cached_tokens if details else None))

    @property
    def n_thinking(self) -> int | None:
        """Tokens of the reasoning before the answer; None where not said."""
        details = self.completion_tokens_details
        said = details.reasoning_tokens if details else None
        return None if said is None or count(said) != said else said


def count(said: int | None) -> int:
    """A count as a server gives it; 0 where it gives none, or a number that counts nothing."""
    return said if said is not None and 0 < said <= MAX_COUNT else 0


NO_USAGE: Final = Usage()


class Counted(msgspec.Struct, gc=False):
    """The token counts of a reply, and its error; subclasses add the answers."""

    usage: Usage | None = None
    error: Any = None


class Reply(Counted, Generic[T], gc=False):
    """Answers of one kind, from a route of OpenAI's form."""

    choices: list[T] | None = None

    @property
    def first(self) -> T:
        """The first answer of a reply that has any."""
        return (self.choices or [])[0]


class Decoder(Generic[T]):
    """Decodes bodies into a `msgspec.Struct` type.

    Args:
        kind: The type.
        needs: Field without which there is no answer, nor is there beside an `error`.
    """

    def __init__(self, kind: type[T], needs: str = "") -> None:
        self._kind = kind
        self._needs = needs
        self._decode = msgspec.json.Decoder(kind).decode

    def __call__(self, body: bytes, secret: str = "") -> T:
        """Return the record.

        Raises:
            Failed: "unparseable", or what an error in the reply says.
        """
        if len(body) > MAX_BODY_BYTES:
            raise Failed(too_large(len(body)))
        try:
            found = self._decode(body)
        except _UNREADABLE:
            found = self._decode_leniently(body, secret)
        if self._needs and (found.error or not getattr(found, self._needs)):  # type: ignore[attr-defined]
            raise Failed(error_in(body, secret))
        return found

    def _decode_leniently(self, body: bytes, secret: str) -> T:
        # NaN and Infinity are accepted here, which msgspec refuses.
        if _PAGE.match(body):
            said = f"a web page came, not an answer; correct base_url: {_start(body, secret)}"
            raise Failed(Failure("unparseable", said, status=200, scope=UNCLEAR))
        try:
            parsed = _parsed(body)
        except _UNREADABLE as error:
            # Not permanent: what was cut or garbled on its way may come whole the next time.
            what = "no whole stream of parts" if STREAMED.match(body) else "not JSON"
            said = f"the reply is {what}: {_start(body, secret)}" if body.strip() else "empty reply"
            # Lines of JSON are how some servers stream, whatever they are asked for.
            is_lines = body.startswith(b"{") and str(error).startswith("Extra data")
            scope = UNCLEAR if is_lines else REQUEST
            raise Failed(Failure("unparseable", said, scope=scope)) from None
        if isinstance(parsed, dict) and parsed.get("usage") is not None:
            # Counts are no part of an answer: one that is none must not cost it.
            parsed["usage"] = _counts(parsed["usage"])
        reply = parsed[0] if isinstance(parsed, list) and len(parsed) == 1 else parsed
        has_choices = isinstance(reply, dict) and isinstance(reply.get("choices"), list)
        for forms in ({}, _FORMS, _TEXTS) if has_choices else ({},):
            try:
                found = _usual(reply, forms) if forms else reply
                return msgspec.convert(found, self._kind)
            except _UNREADABLE as error:
                said = failures.clean(f"{error}: {_start(body, secret)}", secret)
        if isinstance(parsed, dict) and parsed.get("error"):
            raise Failed(failures.in_reply(parsed, secret))
        said = f"the reply has an unexpected shape: {said}"
        raise Failed(Failure("unparseable", said, permanent=True, status=200, scope=UNCLEAR))


# What a part is, and what is made of it where a server writes it otherwise.
_Forms = dict[str, tuple[Any, Callable[[Any], object]]]
_FORMS: Final[_Forms] = {
    "finish_reason": (str, lambda said: said.get("type") if isinstance(said, dict) else str(said)),
    "message": (dict, lambda said: {"content": said}),
    # A gateway that decodes JSON makes a number of the text 4.
    "content": (str | list, lambda said: [said] if isinstance(said, dict) else json.dumps(said)),
    "token": (str, str),
    "top_logprobs": (
        list, lambda said: [{"token": token, "logprob": value} for token, value in said.items()]
    ),
    **dict.fromkeys(("bytes", "token_ids"), (list, lambda _: None)),
    "logprob": (float | int, float),
    "logprobs": (dict, lambda _: None),
    "refusal": (str, lambda _: None),
}  # fmt: skip
# The texts alone, where what is said of their tokens can't be read.
_TEXTS: Final = _FORMS | {"logprobs": (type(None), lambda _: None)}
_MOST: Final = {"bytes": 255, "token_ids": 2**31 - 1}


def _usual(value: object, forms: _Forms, name: str = "") -> object:
    """A part of a reply as most servers write it.

    What is no part of the answer, and can't be read, is left out: it must not cost a paid answer.
    """
    kind, otherwise = forms.get(name, (object, str))
    if value is None:
        value = [] if name == "top_logprobs" else None
    elif not isinstance(value, kind):
        value = otherwise(value)
    if isinstance(value, dict):
        return {key: _usual(part, forms, key) for key, part in value.items()}
    if isinstance(value, list) and name in _MOST:
        return value if all(type(n) is int and 0 <= n <= _MOST[name] for n in value) else None
    if isinstance(value, list):
        return [_usual(one, forms) for one in value]
    return value


class _Pieces(list[object]):
    """A text as it grows."""


def _parsed(body: bytes) -> object:
    """Return the JSON of a reply, put together where it came as a stream.

    Raises:
        ValueError: If it is no JSON, or no whole stream.
        RecursionError: If it is nested too deep.
    """
    if not STREAMED.match(body):
        return loads(body)
    whole: dict[str, object] = {}
    is_whole = False
    for line in body.splitlines():
        name, _, data = line.partition(b":")
        if name != b"data" or not data.strip():
            continue
        if data.strip() == b"[DONE]":
            is_whole = True
            break
        part = loads(data)
        if not isinstance(part, dict):
            raise ValueError("a part of the stream is no object")  # noqa: TRY004 (of a reply)
        _add(whole, part)
    choices = whole.get("choices")
    of_choices = choices if isinstance(choices, list) else []
    ends = [one.get("finish_reason") for one in of_choices if isinstance(one, dict)]
    # Of other streams nothing tells if texts are added up, or said anew from part to part.
    is_ended = bool(ends) and (is_whole or all(ends))
    if not is_ended and not any(map(whole.get, _ERROR_FIELDS)):
        raise ValueError("the stream ends before its answer does")
    return _plain(whole)


def _add(whole: dict[str, object], part: dict[str, object]) -> None:
    """Add a part: texts and lists grow, choices and calls by their index; else the newest counts.

    What is said of tokens stays as it is, whatever they are called.
    """
    for said, value in part.items():
        key = "message" if said == "delta" else said
        held = whole.get(key)
        if value is None:
            whole.setdefault(key, None)
        elif said in _HOLDING and isinstance(value, dict):
            inner = whole[key] = held if isinstance(held, dict) else {}
            _add(inner, value)
        elif said in _INDEXED and isinstance(value, list):
            grown = whole[key] = held if isinstance(held, list) else []
            for one in value:
                _add(_same(grown, one), one)
        elif key in _GROWING and isinstance(value, str):
            whole[key] = held if isinstance(held, list) else _Pieces([held] if held else [])
            whole[key].append(value)  # type: ignore[attr-defined]
        elif isinstance(value, list):
            whole[key] = held if isinstance(held, list) else []
            whole[key].extend(value)  # type: ignore[attr-defined]
        else:
            whole[key] = value


def _same(grown: list[object], one: object) -> dict[str, object]:
    """The entry that another adds to; one without an index is the first."""
    at = one.get("index") or 0 if isinstance(one, dict) else None
    for its in grown:
        if isinstance(its, dict) and (its.get("index") or 0) == at:
            return its
    if at is None or len(grown) >= _MOST_INDEXED:
        raise ValueError("what is no choice, or too many")
    new: dict[str, object] = {}
    grown.append(new)
    return new


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    is_text = isinstance(value, _Pieces) and all(isinstance(one, str) for one in value)
    return "".join(value) if is_text else [_plain(one) for one in value]


def _counts(usage: object) -> dict[str, Any]:
    """Token counts, also as 10.0 or "10", which some proxies write; what is none is left out."""
    if not isinstance(usage, dict):
        return {}
    found: dict[str, Any] = {}
    for name, said in usage.items():
        if name.endswith("_details"):
            found[name] = _counts(said)
        elif isinstance(said, str) and _COUNT.fullmatch(said):
            found[name] = int(said.partition(".")[0])
        elif isinstance(said, int | float) and not isinstance(said, bool) and said % 1 == 0:
            found[name] = int(said)
    return found


def loads(body: bytes | str) -> Any:  # noqa: ANN401 (any JSON)
    """Parse JSON, NaN and Infinity included; integers beyond 64 bits become floats.

    Raises:
        ValueError: If it is no JSON, or nested too deep, or takes too much memory.
    """
    try:
        return json.loads(body, parse_int=_integer)
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"unreadable JSON: {type(error).__name__}") from None


def _integer(digits: str) -> int | float:
    # Neither float() of a long integer nor str() or int() of its digits can be relied on.
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def error_in(body: bytes, secret: str) -> Failure:
    """Return the failure in a reply without an answer."""
    try:
        parsed = _parsed(body)
    except _UNREADABLE:
        parsed = None
    reply = parsed if isinstance(parsed, dict) else {}
    is_message = isinstance(reply.get("message"), dict)
    if any(map(reply.get, _ERROR_FIELDS)) and not is_message:
        return failures.in_reply(reply, secret)
    # As another interface answers, each time.
    is_other = is_message or bool(_OTHERS.intersection(reply))
    whose = "is of another interface; correct base_url" if is_other else "has no answer"
    said = f"the reply {whose}: {_start(body, secret)}"
    if FILTERED.search(body):
        return Failure("moderation", said, permanent=True, status=200)
    return Failure("unparseable", said, status=200, scope=UNCLEAR if is_other else REQUEST)


def field(name: str, kind: type[T]) -> Callable[[bytes, str], T | Failure]:
    """Return the reader of one field of a reply; a reply without it is an error.

    Args:
        name: Of the field.
        kind: Of its value.
    """
    fields = [(name, kind | None, None), ("error", Any, None)]
    decode: Decoder[Any] = Decoder(msgspec.defstruct("Reply", fields, gc=False))

    def read(body: bytes, secret: str) -> T:
        found: T | None = getattr(decode(body, secret), name)
        if found is None:
            raise Failed(error_in(body, secret))
        return found

    return as_value(read)


def too_large(n_bytes: int, most_bytes: int = MAX_BODY_BYTES) -> Failure:
    """The failure of a reply over a limit."""
    most, size = f"{most_bytes / 2**20:.0f} MiB", f"{n_bytes / 2**20:.0f} MiB"
    return unparseable(f"the reply is larger than {most} ({size})")


def no_logprobs(said: str) -> Failure:
    """The failure of a reply without the log-probabilities that were asked for.

    Most often it is the server's state: a setting, or a proxy that drops them, until somebody acts.
    That others are answered shows that it was this reply's alone. Either way the next call asks
    again.
    """
    return Failure("no_logprobs", said, status=200, scope=UNCLEAR)


def logprob_array(values: list[float | None]) -> FloatArray:
    """Log-probabilities as float32: sentinels are -inf, null is nan.

    Raises:
        Failed: If one is above 0.
    """
    return cleaned(np.array(values, dtype=np.float64))


def cleaned(wide: NDArray[np.float64]) -> FloatArray:
    """The same as `logprob_array` of numbers as they are written, which are changed in place."""
    wide[wide <= SENTINEL] = -np.inf
    if wide.size and np.fmax.reduce(wide, axis=None) > ROUNDING:
        raise Failed(no_logprobs("the server returns log-probabilities above 0: perhaps logits"))
    return wide.astype(np.float32)


def logprob(value: float | None) -> float:
    """One log-probability: sentinels are -inf; null and impossible values are nan."""
    if value is None or value > ROUNDING:
        return float("nan")
    return float("-inf") if value <= SENTINEL else min(value, 0.0)


def text_of(text: str) -> str:
    """`text` with lone surrogates replaced, so that it can be stored."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def _start(body: bytes, secret: str) -> str:
    said = failures.clean(body[:8192].decode("utf-8", "replace"), secret)
    return said if len(said) <= 200 else said[:199] + "…"
