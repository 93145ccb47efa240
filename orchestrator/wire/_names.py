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
_BITS: Final = 8
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
        words: From each place on; a word must have room behind each beginning.
        begins: First characters.
        ends: The characters after the last.
    """
    lengths = ends - begins
    unused = np.clip(WORD_BYTES - lengths, 0, WORD_BYTES - 1).astype(np.uint64) * np.uint64(_BITS)
    # Strings of a word or less are told by it: none holds a zero, which stands for what is unused.
    keys = (words[begins] << unused) >> unused
    keys[lengths == 0] = 0
    long = np.flatnonzero(lengths > WORD_BYTES)
    if long.size:
        # Longer ones by the first of their kind, as words that no text of ASCII or UTF-8 makes.
        kinds: dict[bytes, int] = {}
        cuts = zip(begins[long].tolist(), ends[long].tolist(), strict=True)
        keys[long] = [kinds.setdefault(body[a:b], len(kinds)) for a, b in cuts]
        keys[long] |= np.uint64(0xFF << 56)
    _, firsts, kinds_of = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    firsts = firsts[order]
    cuts = zip(begins[firsts].tolist(), ends[firsts].tolist(), strict=True)
    names = tuple(_unquoted(body[a:b]) for a, b in cuts)
    return Named(_FIRST - places[kinds_of], names)


def _unquoted(raw: bytes) -> bytes:
    """The bytes of a token that stands in JSON as these, without the quotes."""
    if b"\\" not in raw:
        return raw
    try:
        return bytes_of(_decode(b'"' + raw + b'"'))
    except msgspec.DecodeError:
        return raw
