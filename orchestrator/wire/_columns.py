"""The alternatives of a long answer, read from the reply's text all at once.

A position lists twenty of them and an answer has hundreds of positions: thousands of objects, of
which two arrays are made. vLLM and its like write all of them alike and without spaces,

    {"token":"the","logprob":-0.25,"bytes":[116,104,101],"top_logprobs":[{"token":"the", …},{"token

so that the quotes say where everything stands. What is written in another way is left to the
decoder of objects, which reads the same. Lists that are read here are cut out of the reply, and the
rest is decoded and checked as any other; of the lists all is checked but what they say of `bytes`,
which is not used, and the texts of tokens, which may be any bytes.
"""

import re
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.records import UNKNOWN_ID, IntArray
from orchestrator.wire.spelling import (
    PLACEHOLDER,
    WORD_BYTES,
    Bytes,
    Mask,
    Places,
    Words,
    ids_between,
    named_between,
    numbers_before,
    words_of,
)

LEAST_BYTES: Final = 2**17
"""Shorter replies are decoded faster by objects."""

_BEGINNING: Final = b'"logprobs":{"content":[{'
_NEXT: Final = b'}]},{"token":'
_LAST: Final = b'"bytes":'
_END: Final = b"}]}"
_QUOTE, _BACKSLASH, _MINUS, _POINT = b'"\\-.'
# Quotes around the three keys of an alternative and its token; a drawn token has a fourth key.
_N_LISTED: Final = 8
_N_DRAWN: Final = 10
_TOKEN, _LOGPROB, _BYTES, _LIST, _KEY_END, _FIRST = np.frombuffer(
    b'"token":logprob""bytes":"top_logogprobs"":[{"tok', "<u8"
)
# What ends the alternative before, where one follows another and where a drawn token follows.
_AFTER_LISTED: Final = np.frombuffer(b"]},{    l},{    ", "<u8")
_AFTER_DRAWN: Final = np.frombuffer(b"]}]},{  l}]},{  ", "<u8")

_NUMBER: Final = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|NaN")
_NULL: Final = b"null"
_MOST_WHOLE: Final = 3
_MOST_FRACTION: Final = 2 * WORD_BYTES
_TENS: Final = 10 ** np.arange(_MOST_FRACTION + 1, dtype=np.uint64)
# The bits of a float64 that a float32 has no room for: a half of them is rounded to either side.
_LOST: Final = np.uint64(2**29 - 1)
_HALF: Final = 2**28
_NEAR: Final = 8


class Columns(NamedTuple):
    """Alternatives as they are listed: arrays of shape (T, k).

    Attributes:
        logprobs: As the server writes them, float64 whose float32 is that of the number written;
            nan for null and for none.
        ids: Below -1 where tokens are named by their texts: see `wire.spelling`.
        names: The distinct texts of those.
    """

    logprobs: NDArray[np.float64]
    ids: IntArray
    names: tuple[bytes, ...] = ()


def cut(body: bytes) -> tuple[bytes, Columns] | None:
    """A chat reply with empty lists of alternatives, and what the lists held.

    None where they are not written as above, not all as long, or ids for some tokens only.
    """
    begin = body.find(_BEGINNING) + len(_BEGINNING)
    last = body.rfind(_LAST)
    end = body.find(_END, last)
    if begin < len(_BEGINNING) or last < begin or end < 0:
        return None
    text = np.frombuffer(body, np.uint8)
    words = words_of(text)
    quotes = _quotes(text, begin, end)
    second = body.find(_NEXT, begin)
    n_of_row = len(quotes) if second < 0 else int(np.searchsorted(quotes, second))
    n_listed, odd = divmod(n_of_row - _N_DRAWN, _N_LISTED)
    if n_listed < 1 or odd or len(quotes) % n_of_row:
        return None
    grid = quotes.reshape(-1, n_of_row)
    drawn, listed = grid[:, :_N_DRAWN], grid[:, _N_DRAWN:].reshape(len(grid), n_listed, _N_LISTED)
    if not _well_formed(words, drawn, listed) or body[end - 1] not in b"]l":
        return None
    found = _columns(body, text, words, np.moveaxis(listed, 2, 0))
    if found is None:
        return None
    opened = (drawn[:, 9] + len('":[')).tolist()
    closed = [*(drawn[1:, 0] - len("]},{")).tolist(), end + 1]
    kept = [body[a:b] for a, b in zip(closed[:-1], opened[1:], strict=True)]
    return b"".join((body[: opened[0]], *kept, body[closed[-1] :])), found


def _quotes(text: Bytes, begin: int, end: int) -> Places:
    """Return bounds of the strings in a part of a text that does not begin inside of one."""
    places = np.flatnonzero(text[begin:end] == _QUOTE)
    behind = text[begin - 1 :][places] == _BACKSLASH
    places += begin
    if behind.any():
        behind[behind] = [_is_escaped(text, place) for place in places[behind].tolist()]
        places = places[~behind]
    return places


def _is_escaped(text: Bytes, place: int) -> bool:
    """Return True if an odd number of backslashes stands before a place."""
    first = place
    while text[first - 1] == _BACKSLASH:
        first -= 1
    return (place - first) % 2 == 1


def _well_formed(words: Words, drawn: Places, listed: Places) -> bool:
    """Return True if all keys are present in order, and each alternative in its own list."""
    return (
        _has_keys(words, drawn)
        and _has_keys(words, listed.reshape(-1, _N_LISTED))
        and bool((words[drawn[:, 8]] == _LIST).all())
        and bool((words[drawn[:, 8] + 6] == _KEY_END).all())
        and bool((words[drawn[:, 9]] == _FIRST).all())
        and bool((listed[:, 0, 0] == drawn[:, 9] + 4).all())
        and _follows(words, listed[:, 1:, 0], _AFTER_LISTED, 4)
        and _follows(words, drawn[1:, 0], _AFTER_DRAWN, 6)
    )


def _has_keys(words: Words, at: Places) -> bool:
    return bool(
        (words[at[:, 0]] == _TOKEN).all()
        # From the third character after the token's end on, which only a comma can make so.
        and (words[at[:, 3] + 3] == _LOGPROB).all()
        and (words[at[:, 6]] == _BYTES).all()
    )


def _follows(words: Words, places: Places, endings: Words, n_bytes: int) -> bool:
    """Return True if one of two endings stands before each place."""
    unused = np.uint64(8 * (WORD_BYTES - n_bytes))
    before = words[places - n_bytes] << unused
    return bool(((before == endings[0] << unused) | (before == endings[1] << unused)).all())


def _columns(body: bytes, text: Bytes, words: Words, at: Places) -> Columns | None:
    shape = at.shape[1:]
    at = np.ascontiguousarray(at).reshape(_N_LISTED, -1)
    logprobs = _numbers(text, words, at[5] + len('":'), at[6] - len(","))
    begins, ends = at[2] + 1, at[3]
    if logprobs is None:
        return None
    if body.startswith(PLACEHOLDER.encode(), begins[0]):
        ids = ids_between(text, words, begins, ends)
        return None if ids is None else Columns(logprobs.reshape(shape), ids.reshape(shape))
    named = named_between(body, words, begins, ends)
    if named is None:
        return None
    named.ids[np.isnan(logprobs)] = UNKNOWN_ID
    return Columns(logprobs.reshape(shape), named.ids.reshape(shape), named.names)


def _numbers(text: Bytes, words: Words, begins: Places, ends: Places) -> NDArray[np.float64] | None:
    """The numbers that stand between places; None where something else does."""
    is_negative = text[begins] == _MINUS
    points = begins - 1
    for place in range(1, _MOST_WHOLE + 2):
        points[text[begins + place] == _POINT] += place + 1
    n_whole = points - begins - is_negative
    n_fraction = ends - points - 1
    odd = (n_whole < 1) | (n_whole > _MOST_WHOLE) | (n_fraction < 1) | (n_fraction > _MOST_FRACTION)
    n_whole[odd] = n_fraction[odd] = 0
    whole, is_whole_odd = numbers_before(words, points, n_whole)
    low, is_low_odd = numbers_before(words, ends, np.minimum(n_fraction, WORD_BYTES))
    n_high = np.maximum(n_fraction - WORD_BYTES, 0)
    high, is_high_odd = numbers_before(words, ends - WORD_BYTES, n_high)
    scale = _TENS[n_fraction]
    values = (whole * scale + high * _TENS[WORD_BYTES] + low) / scale
    np.negative(values, out=values, where=is_negative)
    odd |= is_whole_odd | is_low_odd | is_high_odd | _is_on_an_edge(values)
    for place in np.flatnonzero(odd).tolist():
        said = text[begins[place] : ends[place]].tobytes()
        if said != _NULL and not _NUMBER.fullmatch(said):
            return None
        values[place] = np.nan if said == _NULL else float(said)
    return None if np.isinf(values).any() else values


def _is_on_an_edge(values: NDArray[np.float64]) -> Mask:
    """Return a mask of numbers whose last bits decide which float32 they become.

    Digits of which there are more than a float64 holds are rounded twice on their way, so that
    the last of these bits may not be those of the number that is written.
    """
    lost = values.view(np.uint64) & _LOST
    return (lost - np.uint64(_HALF - _NEAR)) <= np.uint64(2 * _NEAR)
