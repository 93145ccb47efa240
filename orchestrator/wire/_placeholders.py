"""Ids that stand in a token's place, as `token_id:123`: what servers write that were asked for ids.

A long answer has thousands of them, so they are read all at once where all are well formed.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.records import IntArray

PLACEHOLDER: Final = "token_id:"
# Nine digits fit int32; no vocabulary is larger.
_MOST_DIGITS: Final = 9
_SEPARATOR: Final = "\n"
_WORD_BYTES: Final = 8
_WORD: Final = np.frombuffer(PLACEHOLDER[:_WORD_BYTES].encode(), "<u8")[0]
_COLON: Final = ord(PLACEHOLDER[_WORD_BYTES:])
# Of a word of eight decimal characters: what makes digits of them, what carries into a byte's upper
# half where it is no digit, and the weights of its four pairs of digits.
_ZEROS: Final = np.uint64(0x3030303030303030)
_SIXES: Final = np.uint64(0x0606060606060606)
_HIGH_HALVES: Final = np.uint64(0xF0F0F0F0F0F0F0F0)
_PAIR: Final = np.uint64(0x000000FF000000FF)
_EVEN_PAIRS: Final = np.uint64(100 + (10**6 << 32))
_ODD_PAIRS: Final = np.uint64(1 + (10**4 << 32))

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Places = NDArray[np.int64]


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
    return _numbers(text, words, ends, n_digits)


def _numbers(text: Bytes, words: Words, ends: Places, n_digits: Places) -> IntArray | None:
    """The decimal numbers that stand before `ends`; None where one has another character."""
    # The last eight characters of each as one word, the first in its lowest byte.
    unused = (_WORD_BYTES * np.maximum(_WORD_BYTES - n_digits, 0)).astype(np.uint64)
    digits = ((words[ends - _WORD_BYTES] ^ _ZEROS) >> unused) << unused
    if (((digits + _SIXES) | digits) & _HIGH_HALVES).any():
        return None
    # Digits to pairs, pairs to fours, fours to all eight, each with its neighbour in one product.
    pairs = digits * np.uint64(10) + (digits >> np.uint64(8))
    even = (pairs & _PAIR) * _EVEN_PAIRS
    odd = ((pairs >> np.uint64(16)) & _PAIR) * _ODD_PAIRS
    ids = ((even + odd) >> np.uint64(32)).astype(np.int32)
    long = n_digits > _WORD_BYTES
    if long.any():
        first = text[ends[long] - _MOST_DIGITS] - np.uint8(ord("0"))
        if first.max() > 9:
            return None
        ids[long] += first.astype(np.int32) * np.int32(10**_WORD_BYTES)
    return ids
