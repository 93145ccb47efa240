"""Tokens of an answer: those that spell its text; what a reply says twice must be the same."""

import math
from collections.abc import Collection
from itertools import accumulate
from typing import Any, Final

import numpy as np

from orchestrator.records import UNKNOWN_ID, Failure, FloatArray, IntArray, unparseable
from orchestrator.wire.answers import (
    LENGTH,
    STOP,
    Alternative,
    Answer,
    ListedEntry,
    Logprobs,
    Message,
    end_of,
)
from orchestrator.wire.failures import Failed
from orchestrator.wire.parsing import MAX_TEXT_BYTES, MAX_TOKENS, ROUNDING, no_logprobs
from orchestrator.wire.spelling import Way, bytes_of, id_in, spells, way_of

# ln p of what is not listed, or is listed without a number.
_NO_MASS: Final = np.float32(-1e30)
MOST_MASS: Final = 1.02
"""Probabilities of distinct tokens sum to 1 at most; more than half-precision numbers round."""


def check_alternatives(
    logprobs: FloatArray, ids: IntArray, drawn: FloatArray, drawn_ids: IntArray | None
) -> None:
    """See that the alternatives of an answer contradict neither each other nor what was drawn.

    Args:
        logprobs: Of alternatives as they are listed, shape (T, k); nan for none.
        ids: Of the same; below 0 where no id is known.
        drawn: ln p of each drawn token, shape (T,).
        drawn_ids: Its id, where known.

    Raises:
        Failed: If they do.
    """
    check_lists(logprobs)
    known = np.fmax(logprobs, _NO_MASS)
    ordered = np.sort(ids, axis=1)
    equal = ordered[:, 1:] == ordered[:, :-1]
    # Two tokens may have one text, and then one number below 0.
    if equal.any() and (equal & (ordered[:, 1:] >= 0)).any():
        said = "the reply lists a token twice among the alternatives of one place"
        raise Failed(unparseable(said))
    agrees = np.abs(known - drawn[:, None]) <= ROUNDING
    # Likelier than a token that is listed, and itself not listed with its number.
    least = np.where(known > _NO_MASS, known, 0).min(axis=1, initial=0)
    lost = ~agrees.any(axis=1) & (drawn > least + ROUNDING)
    if drawn_ids is not None:
        same = (ids == drawn_ids[:, None]) & (ids != UNKNOWN_ID)
        lost |= same.any(axis=1) & ~(same & agrees).any(axis=1)
    if lost.any():
        at = int(np.flatnonzero(lost)[0])
        said = f"token {at + 1} was drawn with ln p {drawn[at]:.4g}, and its list says another"
        raise Failed(unparseable(said))


def check_lists(logprobs: FloatArray) -> None:
    """See that no list of ln p, shape (T, k), nan for none, sums above 1; else `Failed`."""
    masses = np.exp(np.fmax(logprobs, _NO_MASS)).sum(axis=1)
    _check_mass(masses.max(initial=0))


def check_list(logprobs: Collection[float]) -> None:
    """The same of one list, without numpy: a choice reads few."""
    _check_mass(math.fsum(map(math.exp, logprobs)))


def _check_mass(mass: float) -> None:
    if mass > MOST_MASS:
        said = f"the probabilities of the alternatives of one token sum to {mass:.3g}"
        raise Failed(unparseable(said))


def misspelled(tokens: list[bytes], text: str) -> Failure:
    """Return the failure of a text that its tokens do not spell; tokens are not shown.

    They may hold parts of the key, which nothing can find in them.
    """
    seen, same = b"".join(tokens).decode("utf-8", "replace"), 0
    while same < min(len(seen), len(text)) and seen[same] == text[same]:
        same += 1
    said = f"the tokens of the reply do not spell its text of {len(text)} characters"
    return unparseable(f"{said} from character {same + 1} on")


TOO_LONG: Final = unparseable(
    f"the answer is longer than {MAX_TEXT_BYTES >> 20} MiB or {MAX_TOKENS:,} tokens"
)


Tokens = tuple[list[Any], range, list[bytes], Way]
"""The tokens of an answer: all entries that the reply has, those of the text and their bytes.

With them the way in which tokens are written that come without their bytes.
"""


def tokens_of(answer: Answer[Any], text: str, thought: str, n_top: int) -> Tokens:
    """Return the tokens of an answer, if they spell its text; else `Failed`.

    Args:
        answer: Its thinking set aside.
        text: Of the answer.
        thought: What ended the thinking where it was in the text; else empty.
        n_top: Alternatives to read.
    """
    entries = entries_of(answer.logprobs, n_top)
    # An answer of no tokens has no log-probabilities to give.
    if not entries and (text or end_of(answer.finish_reason) != STOP):
        raise Failed(no_logprobs("the reply has no log-probabilities"))
    if len(entries) > MAX_TOKENS:
        raise Failed(TOO_LONG)
    way: Way = bytes_of
    if entries and not entries[0].utf8:
        way = way_of([one.token for one in entries], text)
    tokens = [way(one.token) if not one.utf8 else bytes(one.utf8) for one in entries]
    span = _span(tokens, answer, thought)
    own = tokens[span.start : span.stop]
    # Behind thinking they were found by the text, and ids in the place of tokens spell nothing.
    is_told = bool(span.start) or (bool(entries) and id_in(entries[0].token) != UNKNOWN_ID)
    # A stop string may end a text inside a token.
    if not is_told and not spells(own, text, whole=end_of(answer.finish_reason) == LENGTH):
        raise Failed(misspelled(own, text))
    return entries, span, own, way


def entries_of(found: Logprobs[Any] | None, n_top: int) -> list[Any]:
    """One entry for each token, of either form; empty where the reply has no log-probabilities."""
    if found is None:
        return []
    tokens, values = found.tokens, found.token_logprobs
    if found.content or found.refusal or tokens is None or values is None:
        return found.content or found.refusal or []
    listed = found.top_logprobs if n_top and found.top_logprobs else [None] * len(tokens)
    if not len(tokens) == len(values) == len(listed):
        said = f"{len(tokens)} tokens, {len(values)} log-probabilities, {len(listed)} alternatives"
        raise Failed(unparseable(said))
    return [
        ListedEntry(
            token, value, top_logprobs=[Alternative(text, p) for text, p in (others or {}).items()]
        )
        for token, value, others in zip(tokens, values, listed, strict=True)
    ]


def _span(tokens: list[bytes], answer: Answer[Any], thought: str) -> range:
    """Return the tokens of the text, without the stop token and the thinking set aside."""
    message, end = answer.message or Message(), end_of(answer.finish_reason)
    reasoned = bool(thought or message.thought)
    if not reasoned and end == LENGTH:
        return range(len(tokens))
    text = message.text.encode("utf-8", "replace")
    found = _located(tokens, text, thought.encode("utf-8", "replace"), last=reasoned)
    if reasoned and found is None:
        said = "the tokens of the reasoning cannot be told from those of the answer"
        raise Failed(Failure("no_logprobs", said, permanent=True))
    if found is not None:
        return found if reasoned else range(found.stop)
    # Some tokens are bytes of a character, so the text can't be followed; the last one still can.
    is_text = bool(tokens) and tokens[-1] != b"" and text.endswith(tokens[-1])
    return range(len(tokens) if is_text else max(len(tokens) - 1, 0))


def _located(tokens: list[bytes], text: bytes, end: bytes, *, last: bool) -> range | None:
    """The tokens that spell a text, the first or last ones; None where there are none.

    Behind what ends the thinking, where that is known, only line breaks may stand before them, and
    before the first ones only white space.
    """
    joined = b"".join(tokens)
    if last and not end:
        begin = at = joined.rfind(text)
    else:
        begin = joined.find(end)
        begin = begin if begin < 0 else begin + len(end)
        at = joined.find(text, begin) if begin >= 0 else -1
    if at < 0 or joined[begin:at].strip(b"\r\n" if end else None):
        return None
    return _covering(tokens, at, len(text))


def _covering(tokens: list[bytes], at: int, n_bytes: int) -> range:
    """The tokens that hold any of the bytes from `at` on."""
    ends = list(accumulate(map(len, tokens)))
    first = next((i for i, end in enumerate(ends) if end > at), len(tokens))
    starts = [0, *ends[:-1]]
    stop = next((i for i, start in enumerate(starts) if start >= at + n_bytes), len(tokens))
    return range(min(first, stop), stop)
