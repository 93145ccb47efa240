"""Decimal digits of many numbers at once: eight characters are one word of 64 bits."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

WORD_BYTES: Final = 8

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Of a word of eight decimal characters: what makes digits of them, what carries into a byte's upper
# half where it is no digit, and the weights of its four pairs of digits.
_ZEROS: Final = np.uint64(0x3030303030303030)
_SIXES: Final = np.uint64(0x0606060606060606)
_HIGH_HALVES: Final = np.uint64(0xF0F0F0F0F0F0F0F0)
_PAIR: Final = np.uint64(0x000000FF000000FF)
_EVEN_PAIRS: Final = np.uint64(100 + (10**6 << 32))
_ODD_PAIRS: Final = np.uint64(1 + (10**4 << 32))
_BITS: Final = 8


def words_of(text: Bytes) -> Words:
    """The eight characters from each place on, the first in the lowest byte; no copy."""
    return np.ndarray(len(text) - WORD_BYTES + 1, "<u8", text, strides=(1,))


def numbers_before(words: Words, ends: Places, n_digits: Places) -> tuple[Words, Mask]:
    """The numbers that the last `n_digits` of the eight characters before `ends` write.

    Returns:
        The numbers, 0 for no digits, and where a character is no digit: there they say nothing.
    """
    unused = (_BITS * (WORD_BYTES - n_digits)).astype(np.uint64)
    digits = words[ends - WORD_BYTES] ^ _ZEROS
    digits >>= unused
    digits <<= unused
    spoilt = (((digits + _SIXES) | digits) & _HIGH_HALVES) != 0
    # Digits to pairs, pairs to fours, fours to all eight, each with its neighbour in one product.
    pairs = digits * np.uint64(10) + (digits >> np.uint64(8))
    even = (pairs & _PAIR) * _EVEN_PAIRS
    odd = ((pairs >> np.uint64(16)) & _PAIR) * _ODD_PAIRS
    return (even + odd) >> np.uint64(32), spoilt
