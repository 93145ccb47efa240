"""Ids that stand in a token's place, as `token_id:123`: what servers write that were asked for ids.

A long answer has thousands of them, so they are read all at once where all are well formed.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from orchestrator.records import IntArray
from orchestrator.wire._digits import WORD_BYTES, Bytes, Places, Words, numbers_before, words_of

PLACEHOLDER: Final = "token_id:"
# Nine digits fit int32; no vocabulary is larger.
_MOST_DIGITS: Final = 9
_SEPARATOR: Final = "\n"
_WORD: Final = np.frombuffer(PLACEHOLDER[:WORD_BYTES].encode(), "<u8")[0]
_COLON: Final = ord(PLACEHOLDER[WORD_BYTES:])


def id_in(token: str) -> int | None:
    """The id that one token names; None where it names none."""
    digits = token[len(PLACEHOLDER) :] if token.startswith(PLACEHOLDER) else ""
    is_id = digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS
    return int(digits) if is_id else None


def ids_in(tokens: Sequence[str]) -> IntArray | None:
    """The ids that tokens name, shape (len(tokens),); None where one of them names none."""
    joined = _SEPARATOR.join(tokens)
    if not tokens or not joined.isascii():
        return None
    # Room for a whole word behind the last token's beginning.
    text = np.frombuffer((joined + _SEPARATOR * WORD_BYTES).encode(), np.uint8)
    ends = np.flatnonzero(text[: len(joined) + 1] == ord(_SEPARATOR))
    if len(ends) != len(tokens):
        return None
    begins = np.concatenate(([0], ends[:-1] + 1))
    return ids_between(text, words_of(text), begins, ends)


def ids_between(text: Bytes, words: Words, begins: Places, ends: Places) -> IntArray | None:
    """The ids that the tokens between places of a text name; None where one of them names none.

    A word must have room behind each beginning.
    """
    n_digits = ends - begins - len(PLACEHOLDER)
    if n_digits.min() < 1 or n_digits.max() > _MOST_DIGITS:
        return None
    if not (words[begins] == _WORD).all() or not (text[begins + WORD_BYTES] == _COLON).all():
        return None
    found, spoilt = numbers_before(words, ends, np.minimum(n_digits, WORD_BYTES))
    if spoilt.any():
        return None
    ids = found.astype(np.int32)
    long = n_digits > WORD_BYTES
    if long.any():
        first = text[ends[long] - _MOST_DIGITS] - np.uint8(ord("0"))
        if first.max() > 9:
            return None
        ids[long] += first.astype(np.int32) * np.int32(10**WORD_BYTES)
    return ids
