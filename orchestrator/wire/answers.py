"""One answer as servers write it: its text, what stands beside the text, its tokens, and its end.

What is no text of an answer is no empty answer: a reply without one says what it has instead.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from orchestrator.records import UNCLEAR, Failure
from orchestrator.wire import failures
from orchestrator.wire.parsing import TokenId, Usage

STOP: Final = "stop"
"""The model ended it, or a stop string did."""
LENGTH: Final = "length"
"""It was cut at its greatest length."""
WITHHELD: Final = "withheld"
"""A filter took it, or the rest of it."""
CALLED: Final = "called"
"""The model called a tool instead."""
BROKEN: Final = "broken"
"""The server gave up; the same request may be answered."""
UNSAID: Final = "unsaid"
UNKNOWN: Final = "unknown"

_STOPS: Final = re.compile(
    r"stop(?:_(?:sequence|token|string|str|word))?|word|normal|s|return|complete|completed|finish|"
    r"finished|done|end(?:_turn|_of_turn|_of_text|oftext)?|im_end|eo[mt](?:_id)?|eos(?:_token)?|"
    r"(?:eos|stop_string)_found"
)
# What is in the names of other ends, the first that is found: "time_limit" is none of length.
_WORDS: Final = {
    CALLED: "tool|function_call",
    BROKEN: r"abort|cancel|time|\Aerror\Z|network|interrupt|insufficient|preempt|fail|user_stop|"
    "load|server|internal|exception|malformed|disconnect|rate_limit",
    WITHHELD: "filter|safety|recitation|block|prohibited|spii|refus|sensitive|moderat|guard|toxic|"
    r"policy|armor|risk|censor|jailbreak|\Alanguage\Z",
    LENGTH: "max|length|limit|truncat|incomplete|context",
}
_OTHERS: Final = [(end, re.compile(words)) for end, words in _WORDS.items()]
_ENDS: Final[Mapping[str | None, str]] = {None: UNSAID, "": UNSAID, STOP: STOP, LENGTH: LENGTH}
# As enumerations are written whole: FinishReason.STOP, FINISH_REASON_STOP.
_ENUM: Final = re.compile(r"(?:finish|stop)_?reason[._]", re.IGNORECASE)
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def end_of(reason: str | None) -> str:
    """Translate a server's `finish_reason`, or its like, to one of the names above."""
    found = _ENDS.get(reason)
    if found is not None or reason is None:
        return found or UNSAID
    name = _HUMP.sub("_", _ENUM.sub("", reason[:_SHOWN].strip(" <|/>"), count=1))
    name = re.sub(r"[- :]+", "_", name).lower()
    return (
        STOP
        if _STOPS.fullmatch(name)
        else next((e for e, its in _OTHERS if its.search(name)), UNKNOWN)
    )


_DEEPEST: Final = 4
_SHOWN: Final = 200
_MOST_UNSEEN: Final = 8
"""Tokens of an empty answer at most: what ends it, or a stop string that it begins with."""

_Bytes = list[Annotated[int, msgspec.Meta(ge=0, le=255)]]


class Alternative(msgspec.Struct, gc=False):
    """A token that might have been drawn."""

    token: str = ""
    logprob: float | None = None
    id: TokenId | None = None


class Entry(msgspec.Struct, gc=False):
    """A drawn token with its log-probability."""

    token: str = ""
    logprob: float | None = None
    utf8: _Bytes | None = msgspec.field(default=None, name="bytes")
    id: TokenId | None = None


class ListedEntry(Entry, gc=False):
    """The same with the most likely tokens at its place."""

    top_logprobs: list[Alternative] = []


E = TypeVar("E", bound=Entry)


class Logprobs(msgspec.Struct, Generic[E], gc=False):
    """Log-probabilities of a text or of a refusal, token by token.

    As entries, or as the parallel lists of legacy completions, which some chat routes write too.
    """

    content: list[E] | None = None
    refusal: list[E] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None


class Part(msgspec.Struct, gc=False):
    """A part of a message that is written in parts."""

    type: str = ""
    text: str | None = None
    thinking: Any = None
    reasoning: Any = None
    refusal: str | None = None


class Message(msgspec.Struct, gc=False):
    """The message of the model; reasoning that the server's parser has set aside is apart."""

    content: str | list[Part | str] | None = None
    refusal: str | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    reasoning_text: Any = None
    reasoning_details: Any = None
    thinking: Any = None
    thinking_blocks: Any = None
    tool_calls: Any = None
    function_call: Any = None

    @property
    def text(self) -> str:
        """The answer; empty where there is none."""
        return self.content if isinstance(self.content, str) else ""

    @property
    def thought(self) -> str:
        """What was set aside, once it is settled; empty where nothing was."""
        return self.reasoning if isinstance(self.reasoning, str) else ""

    def settle(self) -> None:
        """Put the parts of a message together, and its reasoning into one text."""
        if not isinstance(self.content, str):
            parts = [Part(text=one) if isinstance(one, str) else one for one in self.content or ()]
            texts = [one.text for one in parts if one.text is not None and not _is_thought(one)]
            thoughts = [_words(one) for one in parts if _is_thought(one)]
            self.content = "".join(texts) if texts else None
            self.reasoning = self.reasoning or "".join(thoughts)
            self.refusal = self.refusal or "".join(one.refusal or "" for one in parts)
        said = (
            self.reasoning, self.reasoning_content, self.reasoning_text, self.thinking,
            self.reasoning_details, self.thinking_blocks,
        )  # fmt: skip
        self.reasoning = next(filter(None, map(_words, said)), "")


class Answer(msgspec.Struct, Generic[E], gc=False):
    """One choice of a reply."""

    message: Message | None = None
    logprobs: Logprobs[E] | None = None
    finish_reason: str | None = None
    token_ids: list[TokenId] | None = None
    error: Any = None


def missing(answer: "Answer[Any]", usage: Usage, secret: str) -> Failure | None:
    """Return the reason why a reply holds no whole answer; None where it holds one.

    Failures: those of `withheld`, "no_answer" for a text that was never begun, and "unparseable"
    where nothing tells if it is whole.
    """
    if (failure := withheld(answer, secret)) is not None:
        return failure
    message, end = answer.message or Message(), end_of(answer.finish_reason)
    if end == UNSAID:
        what = "null or missing" if answer.finish_reason is None else "empty"
        said = f"finish_reason is {what} in the reply, so nothing tells if the answer is whole; "
        said += "have the server, or the gateway before it, write stop or length there"
        return Failure("unparseable", said, status=200, scope=UNCLEAR)
    text, within = message.text, " within max_tokens" if end == LENGTH else ""
    if (message.thought or usage.n_thinking) and not text.strip():
        return no_answer(f"the model reasoned and wrote no answer{within}")
    if message.content is None:
        return no_answer(f"the content of the reply is null: no answer came{within}")
    if not text and end != STOP:
        reason = failures.clean(repr(answer.finish_reason), secret)
        return no_answer(f"no text came{within}: finish_reason {reason}")
    if not text and usage.n_completion > _MOST_UNSEEN:
        return no_answer(f"no text came, though the server counts {usage.n_completion:,} tokens")
    return None


def withheld(answer: "Answer[Any]", secret: str) -> Failure | None:
    """Return what came in an answer's place, or cut it; None where nothing did.

    Failures: "no_answer" where the model or its server gave something else, or withheld it; what an
    error in the answer says; "server_error" for an answer that the server gave up.
    """
    if answer.error:
        return failures.in_reply({"error": answer.error}, secret)
    message, end = answer.message or Message(), end_of(answer.finish_reason)
    if end in (STOP, LENGTH) and not (
        message.refusal or message.tool_calls or message.function_call
    ):
        return None
    if (broken := gave_up(answer.finish_reason, secret)) is not None:
        return broken
    reason = failures.clean(repr(answer.finish_reason), secret)
    if end == WITHHELD:
        part = "; the part that came is left out" if message.text else ""
        return no_answer(f"the answer was withheld: finish_reason {reason}{part}")
    if message.refusal:
        said = failures.clean(message.refusal[:_SHOWN], secret)
        return no_answer(f"a refusal came instead: {said}")
    if end == CALLED or message.tool_calls or message.function_call:
        return no_answer(f"the model called a tool instead: finish_reason {reason}")
    return None


def withheld_at_end(
    finish_reason: str | None, secret: str, text: str | None = None
) -> Failure | None:
    """The same of an answer of which only its end is known, and perhaps its text."""
    return withheld(Answer[Entry](Message(text), finish_reason=finish_reason), secret)


def gave_up(reason: str | None, secret: str) -> Failure | None:
    """Return the failure of an answer that its server gave up; None of another one."""
    if reason in (STOP, LENGTH) or end_of(reason) != BROKEN:
        return None
    shown = failures.clean(repr(reason), secret)
    return Failure("server_error", f"the server ended the answer with finish_reason {shown}")


def no_answer(said: str) -> Failure:
    """Return the failure of a reply without an answer."""
    return Failure("no_answer", said, permanent=True)


def _is_thought(part: Part) -> bool:
    return bool(part.thinking or part.reasoning) or part.type in {"thinking", "reasoning"}


def _words(said: object, depth: int = 0) -> str:
    """The text in reasoning of any form: a text, parts, parts of parts."""
    match said:
        case str():
            return said
        case list() if depth < _DEEPEST:
            return "".join(_words(one, depth + 1) for one in said)
        case dict() if depth < _DEEPEST:
            fields = ("text", "thinking", "reasoning", "summary", "content")
            return next((_words(said[one], depth + 1) for one in fields if said.get(one)), "")
        case Part():
            return _words(said.thinking or said.reasoning or said.text, depth)
        case _:
            return ""
