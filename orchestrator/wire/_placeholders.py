"""Ids that stand in a token's place, as `token_id:123`: what servers write that were asked for ids.

A long answer has thousands of them, so they are read all at once where all are well formed.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from orchestrator.records import IntArray

PLACEHOLDER: Final = "token_id:"
# Nine digits fit int32; no vocabulary is larger.
_MOST_DIGITS: Final = 9
_SEPARATOR: Final = "\n"
_WORD_BYTES: Final = 8
_WORD: Final = np.frombuffer(PLACEHOLDER[:_WORD_BYTES].encode(), "<u8")[0]
_COLON: Final = ord(PLACEHOLDER[_WORD_BYTES:])


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
    text = np.frombuffer((joined + _SEPARATOR * _WORD_BYTES).encode(), np.uint8)
    ends = np.flatnonzero(text[: len(joined) + 1] == ord(_SEPARATOR))
    if len(ends) != len(tokens):
        return None
    begins = np.concatenate(([0], ends[:-1] + 1))
    n_digits = ends - begins - len(PLACEHOLDER)
    if n_digits.min() < 1 or n_digits.max() > _MOST_DIGITS:
        return None
    words = np.ndarray(len(text) - _WORD_BYTES + 1, "<u8", text, strides=(1,))
    if not (words[begins] == _WORD).all() or not (text[begins + _WORD_BYTES] == _COLON).all():
        return None
    ids = np.zeros(len(tokens), np.int32)
    for place in range(int(n_digits.max())):
        digits = text[ends - 1 - place] - np.uint8(ord("0"))
        digits[n_digits <= place] = 0
        if digits.max() > 9:
            return None
        ids += digits.astype(np.int32) * np.int32(10**place)
    return ids
