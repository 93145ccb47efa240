"""Completions of llama-server: what forced and drawn tokens weigh.

An entry of its log-probabilities names its token by id, and the most likely tokens at its place. A
token after which the text ends inside a character has no entry; what it weighs is looked up in the
whole distribution at its place.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from backends.llamacpp.wire import CONTROL
from orchestrator.records import Failure, Generation, TopLogprobs, unparseable
from orchestrator.wire import by_ids
from orchestrator.wire.answers import (
    Alternative,
    Answer,
    ListedEntry,
    Logprobs,
    Message,
    withheld_at_end,
)
from orchestrator.wire.by_ids import Path
from orchestrator.wire.by_ids import Reading as NodeReading
from orchestrator.wire.drawn import Reading, drawn
from orchestrator.wire.failures import Failed, as_value
from orchestrator.wire.parsing import (
    ROUNDING,
    Decoder,
    TokenId,
    Usage,
    count,
    error_in,
    logprob,
    no_logprobs,
)

FRAGMENT: Final = "fragment"
"""Cause of the failure that stands for a token of which the server says nothing."""

_LEAST: Final = -1e30
_FLOOR: Final = -103.0
"""The server computes p in float32, so ln p below this is given as that of zero."""


class _Timings(msgspec.Struct, gc=False):
    cache_n: int | None = None


class _Completion(msgspec.Struct, gc=False):
    content: str | None = None
    tokens: list[TokenId] | None = None
    stop_type: str = ""
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    timings: _Timings | None = None
    completion_probabilities: list[ListedEntry] | None = None
    error: Any = None


_completion: Final = Decoder(_Completion, needs="stop_type")


class Step(msgspec.Struct, frozen=True):
    """Tokens that were forced, one after the other.

    Attributes:
        logprobs: ln p of each, raw; nan where the server can't tell it from zero.
        listed: The most likely tokens at each place, as (id, ln p), most likely first.
        n_cached: Prompt tokens from its cache.
    """

    logprobs: list[float]
    listed: list[list[tuple[int, float]]]
    n_cached: int


@as_value
def tried(body: bytes, secret: str) -> str:
    """Return the reason for a completion's end: "eos", "word" or "limit"."""
    return _completion(body, secret).stop_type


@as_value
def forced(body: bytes, n_prompt: int, tokens: Path, secret: str) -> Step:
    """Return the log-probabilities of forced tokens, from a reply to `force`.

    Failures: "unparseable" where the server saw another prompt or drew other tokens, "fragment"
    where it says nothing of them.
    """
    reply = _answer(body, n_prompt, secret)
    entries = reply.completion_probabilities or []
    if tuple(reply.tokens or ()) != tokens:
        raise Failed(Failure("unparseable", "the server sampled tokens other than those forced"))
    if len(entries) != len(tokens):
        raise Failed(Failure(FRAGMENT, "llama-server omits tokens that end inside a character"))
    if [entry.id for entry in entries] != list(tokens):
        said = "the server's log-probabilities belong to other tokens than the sampled ones"
        raise Failed(unparseable(said))
    values = [_value(entry.logprob) for entry in entries]
    listed = [
        [(one.id, _value(one.logprob)) for one in entry.top_logprobs if one.id is not None]
        for entry in entries
    ]
    n_cached = count(reply.timings.cache_n if reply.timings else None)
    return Step(values, listed, n_cached)


def looked(found: Step, token: int) -> tuple[NodeReading, int]:
    """The distribution after a prompt, where a token was forced; and prompt tokens cached."""
    if not found.listed[0]:
        raise Failed(no_logprobs("the reply lists no alternatives"))
    read = {one: value for one, value in found.listed[0] if value == value}
    # Where the list goes down to what float32 can't hold, all that is not on it lies there.
    bound = min(read.values(), default=0.0) if len(read) == len(found.listed[0]) else _FLOOR
    if not math.isnan(found.logprobs[0]):
        read[token] = found.logprobs[0]
    return NodeReading(read, bound), found.n_cached


def top_of(listed: Sequence[Sequence[tuple[int, float]]], k: int) -> TopLogprobs:
    """The k most likely tokens at each place; nan and -1 where fewer are listed."""
    if not all(listed):
        raise Failed(no_logprobs("the reply lists no alternatives"))
    return by_ids.top_of(listed, k)


class Draft(msgspec.Struct):
    """A drawn text, of whose tokens some may lack their log-probabilities.

    Attributes:
        reply: As the server gave it.
        entries: One for each token; None where the server said nothing.
    """

    reply: _Completion
    entries: list[ListedEntry | None]

    @property
    def tokens(self) -> Path:
        """The drawn tokens, the one that ended the answer included."""
        return tuple(self.reply.tokens or ())

    @property
    def complete(self) -> bool:
        """True if the server reported every token."""
        return None not in self.entries


@as_value
def draft(body: bytes, n_prompt: int, secret: str) -> Draft:
    """Return the drawn tokens; entries are in place only if there is one for each token."""
    reply = _answer(body, n_prompt, secret)
    tokens, found = reply.tokens, reply.completion_probabilities or []
    if tokens is None or reply.content is None:
        raise Failed(withheld_at_end(reply.stop_type, secret) or error_in(body, secret))
    if [entry.id for entry in found] == tokens:
        return Draft(reply, list(found))
    return Draft(reply, [None] * len(tokens))


def place(made: Draft, spelled: Sequence[bytes]) -> list[int]:
    """Put entries where they belong, by the tokens' bytes; the places of the text without one.

    The server leaves out tokens after which the text ends inside a character, and with a stop
    string as many of the last ones as the string has tokens when it is cut alone.
    """
    found = made.reply.completion_probabilities or []
    visible = [b"" if CONTROL.fullmatch(piece) else piece for piece in spelled]
    # Places after which the text so far ends with a whole character.
    shown, tail = [], b""
    for at, piece in enumerate(visible):
        tail = (tail + piece)[-3:]
        if not ends_inside(tail):
            shown.append(at)
    del shown[len(found) :]
    if [made.tokens[at] for at in shown] != [entry.id for entry in found]:
        said = "the server's log-probabilities cannot be told apart by token"
        raise Failed(unparseable(said))
    entries: list[ListedEntry | None] = [None] * len(made.tokens)
    for at, entry in zip(shown, found, strict=True):
        entries[at] = entry
    length, begin, lacking = len((made.reply.content or "").encode("utf-8", "replace")), 0, []
    for at, piece in enumerate(visible):
        if entries[at] is None:
            if begin < length:
                lacking.append(at)
            entries[at] = ListedEntry(id=made.tokens[at])
        # The server may have held a token's text back and shown it with the next one's.
        one = entries[at] or ListedEntry()
        entries[at] = ListedEntry(one.token, one.logprob, list(piece), one.id, one.top_logprobs)
        begin += len(piece)
    made.entries = entries
    return lacking


def fill(made: Draft, at: int, reading: NodeReading, k: int) -> None:
    """Put in what was looked up for a token that the server said nothing of."""
    entry = made.entries[at]
    if entry is not None:
        ranked = sorted(reading.logprobs.items(), key=lambda pair: -pair[1])[:k]
        entry.logprob = reading.logprobs.get(made.tokens[at])
        entry.top_logprobs = [Alternative(logprob=one, id=other) for other, one in ranked]


def generation(made: Draft, reading: Reading) -> Generation:
    """The text that was drawn; see `orchestrator.wire.replies.generation`."""
    reply = made.reply
    entries = [entry for entry in made.entries if entry is not None]
    for entry in entries:
        if entry.logprob is not None and entry.logprob < _LEAST:
            # What was drawn can't have had probability zero; it is below what float32 can hold.
            entry.logprob = None
    answer = Answer(
        Message(reply.content),
        Logprobs(entries) if len(entries) == len(made.tokens) else None,
        reply.stop_type,
        list(made.tokens),
    )
    usage = Usage(
        prompt_tokens=reply.tokens_evaluated,
        completion_tokens=reply.tokens_predicted,
        cached_tokens=reply.timings.cache_n if reply.timings else None,
    )
    return drawn(answer, usage, reading)


def ends_inside(text: bytes) -> bool:
    """Return True if a text ends inside a character, by llama.cpp's test of the last 3 bytes."""
    return any(
        0xC0 <= byte < 0xF8 and n_after < 1 + (byte >= 0xE0) + (byte >= 0xF0)
        for n_after, byte in enumerate(reversed(text[-3:]))
    )


def _value(found: float | None) -> float:
    """Natural log of p; nan where float32 can't hold p, and so the server says nothing of it."""
    if found is None or found < _LEAST or found > ROUNDING:
        return math.nan
    return logprob(found)


def _answer(body: bytes, n_prompt: int, secret: str) -> _Completion:
    """A completion, if the server read as many prompt tokens as were sent; else `Failed`."""
    reply = _completion(body, secret)
    by_ids.check_prompt(n_prompt, reply.tokens_evaluated)
    return reply
