"""Tokens of an answer: those that spell its text, without what was thought and what ended it."""

from itertools import accumulate
from typing import Any, Final, NamedTuple

from orchestrator.records import Failure
from orchestrator.wire._ends import LENGTH, STOP, end_of
from orchestrator.wire._names import bytes_of
from orchestrator.wire._placeholders import id_in
from orchestrator.wire.agreement import misspelled
from orchestrator.wire.answers import Alternative, Answer, ListedEntry, Logprobs, Message
from orchestrator.wire.parsing import MAX_TEXT_BYTES, MAX_TOKENS, no_logprobs
from orchestrator.wire.spelling import Way, spells, way_of

TOO_LONG: Final = Failure(
    "unparseable",
    f"the answer is longer than {MAX_TEXT_BYTES >> 20} MiB or {MAX_TOKENS:,} tokens",
    permanent=True,
)


class Tokens(NamedTuple):
    """The tokens of an answer.

    Attributes:
        entries: All that the reply has.
        span: Those of the text.
        own: The bytes of these.
        way: How tokens are written that come without their bytes.
    """

    entries: list[Any]
    span: range
    own: list[bytes]
    way: Way

    def renamed(self, names: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return the texts of alternatives, as they were read, in bytes."""
        if self.way is bytes_of:
            return names
        return tuple(self.way(name.decode("utf-8", "replace")) for name in names)


def tokens_of(answer: Answer[Any], text: str, thought: str, n_top: int) -> Tokens | Failure:
    """Return the tokens of an answer, if they spell its text.

    Args:
        answer: Its thinking set aside.
        text: Of the answer.
        thought: What ended the thinking where it was in the text; else empty.
        n_top: Alternatives to read.
    """
    entries = entries_of(answer.logprobs, n_top)
    if isinstance(entries, Failure):
        return entries
    # An answer of no tokens has no log-probabilities to give.
    if not entries and (text or end_of(answer.finish_reason) != STOP):
        return no_logprobs("the reply has no log-probabilities")
    if len(entries) > MAX_TOKENS:
        return TOO_LONG
    way: Way = bytes_of
    if entries and entries[0].utf8 is None:
        way = way_of([one.token for one in entries], text)
    tokens = [way(one.token) if one.utf8 is None else bytes(one.utf8) for one in entries]
    span = _span(tokens, answer, thought)
    if isinstance(span, Failure):
        return span
    own = tokens[span.start : span.stop]
    # Behind thinking they were found by the text, and ids in the place of tokens spell nothing.
    is_told = bool(span.start) or (bool(entries) and id_in(entries[0].token) is not None)
    # A stop string may end a text inside a token.
    if not is_told and not spells(own, text, whole=end_of(answer.finish_reason) == LENGTH):
        return misspelled(own, text)
    return Tokens(entries, span, own, way)


def entries_of(found: Logprobs[Any] | None, n_top: int) -> list[Any] | Failure:
    """One entry for each token, of either form; empty where the reply has no log-probabilities."""
    if found is None:
        return []
    tokens, values = found.tokens, found.token_logprobs
    if found.content or found.refusal or tokens is None or values is None:
        return found.content or found.refusal or []
    listed = found.top_logprobs if n_top and found.top_logprobs else [None] * len(tokens)
    if not len(tokens) == len(values) == len(listed):
        said = f"{len(tokens)} tokens, {len(values)} log-probabilities, {len(listed)} alternatives"
        return Failure("unparseable", said, permanent=True)
    return [
        ListedEntry(
            token,
            value,
            top_logprobs=[Alternative(text, p) for text, p in (others or {}).items()],
        )
        for token, value, others in zip(tokens, values, listed, strict=True)
    ]


def _span(tokens: list[bytes], answer: Answer[Any], thought: str) -> range | Failure:
    """Return the tokens of the text, without the stop token and the thinking set aside."""
    message, end = answer.message or Message(), end_of(answer.finish_reason)
    reasoned = bool(thought or message.thought)
    if not reasoned and end == LENGTH:
        return range(len(tokens))
    text = message.text.encode("utf-8", "replace")
    if thought:
        found = after(tokens, thought.encode("utf-8", "replace"), text)
    else:
        found = located(tokens, text, last=reasoned)
    if reasoned:
        said = "the tokens of the reasoning cannot be told from those of the answer"
        return Failure("no_logprobs", said, permanent=True) if found is None else found
    if found is not None:
        return range(found.stop)
    # Some tokens are bytes of a character, so the text can't be followed; the last one still can.
    is_text = bool(tokens) and tokens[-1] != b"" and text.endswith(tokens[-1])
    return range(len(tokens) if is_text else max(len(tokens) - 1, 0))


def located(tokens: list[bytes], text: bytes, *, last: bool) -> range | None:
    """The tokens that spell a text, the first or last ones; None where there are none.

    Before the first ones only white space may stand.
    """
    joined = b"".join(tokens)
    at = joined.rfind(text) if last else joined.find(text)
    if at < 0 or (not last and joined[:at].strip()):
        return None
    return _covering(tokens, at, len(text))


def after(tokens: list[bytes], end: bytes, text: bytes) -> range | None:
    """The tokens of a text that follows the end of the thinking, line breaks between them."""
    joined = b"".join(tokens)
    begin = joined.find(end)
    begin = begin if begin < 0 else begin + len(end)
    at = joined.find(text, begin) if begin >= 0 else -1
    if at < 0 or joined[begin:at].strip(b"\r\n"):
        return None
    return _covering(tokens, at, len(text))


def _covering(tokens: list[bytes], at: int, n_bytes: int) -> range:
    """The tokens that hold any of the bytes from `at` on."""
    ends = list(accumulate(map(len, tokens)))
    first = next((i for i, end in enumerate(ends) if end > at), len(tokens))
    starts = [0, *ends[:-1]]
    stop = next((i for i, start in enumerate(starts) if start >= at + n_bytes), len(tokens))
    return range(min(first, stop), stop)
