"""Tokens that a server names by their texts alone: each text once, and places in that list.

A place n is written as the id -2 - n, since ids from 0 on are a server's own and -1 is none.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
import numpy as np

from orchestrator.records import IntArray
from orchestrator.wire._digits import WORD_BYTES, Places, Words

_FIRST: Final = -2
# Masks of the first n bytes of a word.
_MASKS: Final = np.array([2 ** (8 * n) - 1 for n in range(WORD_BYTES + 1)], dtype=np.uint64)
# An odd factor that spreads the bits of a word upwards; the upper ones choose a slot.
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_SLOT_BITS: Final = 16
_SHIFT: Final = np.uint64(64 - _SLOT_BITS)
# How servers write a token that is no whole character: as OpenAI's completions and its chat do.
_ESCAPED: Final = re.compile(r"(?:bytes:)?((?:\\x[0-9a-fA-F]{2})+)")
_decode: Final = msgspec.json.Decoder(str).decode


class Named(NamedTuple):
    """Tokens by their texts.

    Attributes:
        ids: One for each token: -2 - n for the n-th of `names`.
        names: The distinct texts, in bytes.
    """

    ids: IntArray
    names: tuple[bytes, ...]


def named(texts: Iterable[bytes]) -> Named:
    """Number texts in the order they come."""
    places: dict[bytes, int] = {}
    ids = [_FIRST - places.setdefault(text, len(places)) for text in texts]
    return Named(np.array(ids, dtype=np.int32), tuple(places))


def bytes_of(token: str) -> bytes:
    """The bytes of a token that a server writes as a text."""
    escaped = _ESCAPED.fullmatch(token) if "\\x" in token else None
    if escaped is not None:
        return bytes.fromhex(escaped[1].replace("\\x", ""))
    return token.encode("utf-8", "replace")


def named_between(body: bytes, words: Words, begins: Places, ends: Places) -> Named:
    """Number the strings of a JSON text that stand between places.

    Args:
        body: The JSON text.
        words: From each place on; two words must have room behind each beginning.
        begins: First characters.
        ends: The characters after the last.
    """
    places = np.arange(len(begins))
    firsts_of = _first_equal(body, words, begins, ends)
    is_first = firsts_of == places
    firsts = places[is_first]
    numbers = np.cumsum(is_first, dtype=np.int32)[firsts_of]
    cuts = zip(begins[firsts].tolist(), ends[firsts].tolist(), strict=True)
    names = [body[a:b] for a, b in cuts]
    for place in [place for place, name in enumerate(names) if b"\\" in name]:
        names[place] = _unquoted(names[place])
    return Named(np.int32(_FIRST + 1) - numbers, tuple(names))


def _first_equal(body: bytes, words: Words, begins: Places, ends: Places) -> Places:
    """The place of the first string that equals each.

    A hash table of all strings at once, since sorting them takes several times as long. A string
    whose slot another one has, or that is longer than two words, is looked up by itself.
    """
    lengths = ends - begins
    low = words[begins] & _MASKS[np.minimum(lengths, WORD_BYTES)]
    high = words[begins + WORD_BYTES] & _MASKS[np.clip(lengths - WORD_BYTES, 0, WORD_BYTES)]
    slot = ((low ^ (high * _MIX)) * _MIX) >> _SHIFT
    slots = np.empty(2**_SLOT_BITS, dtype=np.int64)
    # Of several that are put into a slot the last stays: the first of all, since they go backwards.
    slots[slot[::-1]] = np.arange(len(slot))[::-1]
    found: Places = slots[slot]
    is_found = (low[found] == low) & (high[found] == high) & (lengths[found] == lengths)
    is_found &= lengths <= 2 * WORD_BYTES
    firsts: dict[bytes, int] = {}
    for place in np.flatnonzero(~is_found).tolist():
        found[place] = firsts.setdefault(body[begins[place] : ends[place]], place)
    return found


def _unquoted(raw: bytes) -> bytes:
    """The bytes of a token that stands in JSON as these, without the quotes."""
    try:
        return bytes_of(_decode(b'"' + raw + b'"'))
    except msgspec.DecodeError:
        return raw
