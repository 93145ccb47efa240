"""Tokens as servers write them: bytes that spell the text, texts alone, and places of ids.

Most servers write what a token adds to the text. Some write it as the vocabulary does: GPT-2 and
its like have a letter for each byte, SentencePiece a low line for a space. Which of these a reply
is written in shows by the text that its tokens must spell.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from orchestrator.records import IntArray

Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Places = NDArray[np.int64]
Words = NDArray[np.uint64]

WORD_BYTES: Final = 8


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


# Ids that stand in a token's place, as `token_id:123`: what servers write that were asked for ids.
#
# A long answer has thousands of them, so they are read all at once where all are well formed.


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


# Tokens that a server names by their texts alone: each text once, and places in that list.
#
# A place n is written as the id -2 - n, since ids from 0 on are a server's own and -1 is none.


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


def named_between(body: bytes, words: Words, begins: Places, ends: Places) -> Named | None:
    """Number the strings of a JSON text that stand between places; None where one is no JSON.

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
    names = _strings(np.frombuffer(body, np.uint8), begins[firsts], ends[firsts])
    return None if names is None else Named(np.int32(_FIRST + 1) - numbers, tuple(names))


def _strings(text: Bytes, begins: Places, ends: Places) -> list[bytes] | None:
    """The strings of a JSON text between places, all cut out at once.

    They are put on a line each, as JSON writes no line break in a string; None where one has one.
    """
    lengths = ends - begins + 1
    stops = np.cumsum(lengths)
    lines = text[np.repeat(begins - stops + lengths, lengths) + np.arange(stops[-1])]
    lines[stops - 1] = ord(_SEPARATOR)
    found: list[bytes] = lines.tobytes().split(_SEPARATOR.encode())[:-1]
    if len(found) != len(begins):
        return None
    escaped = np.searchsorted(stops, np.flatnonzero(lines == ord("\\")), side="right")
    for place in {*escaped.tolist()}:
        found[place] = _unquoted(found[place])
    return found


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


class Continuation(NamedTuple):
    """Tokens of a text in its context.

    Attributes:
        ids: The tokens.
        boundary: "separate" where the text has the same tokens alone and after its context, else
            "joint"; "merged" where the context's last token would merge with the text: then the
            text's own tokens are taken, which is what a model that generates would meet.
    """

    ids: tuple[int, ...]
    boundary: str


class Context(NamedTuple):
    """The end of a prompt: its text, its ids, and whether the text alone has these ids."""

    text: str
    ids: tuple[int, ...]
    whole: bool

    def followed(self, alone: tuple[int, ...], joint: tuple[int, ...]) -> Continuation:
        """Return the tokens of a text behind it, by those of the text alone and of both."""
        n_known = len(self.ids)
        if joint[:n_known] == self.ids:
            ids = joint[n_known:]
            return Continuation(ids, "separate" if ids == alone else "joint")
        return Continuation(alone, "merged" if self.whole else "separate")


Way: TypeAlias = Callable[[str], bytes]
"""Makes bytes of a token as it is written."""

_UNKNOWN: Final = "\ufffd"
_OPENING: Final = (b"<", b"[")
_EMPTY: Final = _UNKNOWN.encode()
_BYTE: Final = re.compile("<0x([0-9A-Fa-f]{2})>")
# Tokens that a decoder leaves out: <|im_end|>, </s>, [INST].
_CONTROL: Final = re.compile(rb"<[^<>\s]{1,60}>|\[/?[A-Z_]{1,20}\]")


def byte_letters() -> dict[int, str]:
    """The letter by which byte-level tokenizers (GPT-2's) spell each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in plain}
    others = (byte for byte in range(256) if byte not in letters)
    letters.update({byte: chr(256 + place) for place, byte in enumerate(others)})
    return letters


_BYTES: Final = {letter: byte for byte, letter in byte_letters().items()}


def _by_letters(token: str) -> bytes:
    try:
        return bytes(map(_BYTES.__getitem__, token))
    except KeyError:
        return token.encode("utf-8", "replace")


def _by_pieces(token: str) -> bytes:
    if byte := _BYTE.fullmatch(token):
        return bytes.fromhex(byte[1])
    return token.replace("\u2581", " ").encode("utf-8", "replace")


_MARKS: Final = ("\u0120", "\u010a", "\u2581")
"""Letters for a space and a line break, which texts seldom hold and vocabularies do."""


def way_of(tokens: Sequence[str], text: str) -> Way:
    """The way in which tokens are written that spell a text; as they stand where none does."""
    joined = "".join(tokens)
    if joined.isascii() and "<0x" not in joined:
        return bytes_of
    ways: tuple[Way, ...] = (_by_letters, _by_pieces)
    if _MARKS[-1] in joined:
        ways = ways[::-1]
    if not any(mark in joined and mark not in text for mark in _MARKS):
        ways = (bytes_of, *ways)
    wanted = _visible(text)
    for way in ways:
        if wanted in _visible(b"".join(map(way, tokens)).decode("utf-8", "replace")):
            return way
    return bytes_of


def is_in(token: bytes, text: str) -> bool:
    """Return True if a token may be part of a text, as far as that can be told."""
    said, wanted = _visible(token.decode("utf-8", "replace")), _visible(text)
    is_known = bool(said and wanted) and _UNKNOWN not in said + wanted
    return not is_known or said in wanted or said.startswith(wanted) or is_control(token)


def is_control(token: bytes) -> bool:
    """Return True if a token is one that decoders leave out of texts."""
    return _CONTROL.fullmatch(token) is not None


def spells(tokens: Sequence[bytes], text: str, *, whole: bool) -> bool:
    """Return True if tokens spell a text, as far as that can be told.

    Args:
        tokens: Bytes of each. U+FFFD and no bytes at all stand for some that are not known.
        text: Drawn.
        whole: False if the text may end before its tokens do, at a stop string.
    """
    joined, raw = b"".join(tokens), text.encode("utf-8", "replace")
    if joined == raw:
        return True
    if b"<" in joined or b"[" in joined:
        tokens = [
            one for one in tokens if one[:1] not in _OPENING or one in raw or not is_control(one)
        ]
    joined = b"".join(one or _EMPTY for one in tokens)
    said, wanted = _visible(joined.decode("utf-8", "replace")), _visible(text)
    first, *others = said.split(_UNKNOWN)
    if not others and _UNKNOWN not in wanted:
        return said == wanted or (not whole and said.startswith(wanted))
    # What is between the unknown must be there, in order.
    wanted = wanted.replace(_UNKNOWN, "")
    if not wanted.startswith(first):
        return not whole and first.startswith(wanted)
    at = len(first)
    for part in others:
        found = wanted.find(part, at)
        if found < 0:
            return not whole and part.startswith(wanted[at:])
        at = found + len(part)
    return True


def _visible(text: str) -> str:
    """A text without its white space, which decoders add and leave out."""
    return "".join(text.split())
