"""Tokens as servers write them: bytes that spell the text, texts alone, and places of ids.

Most servers write what a token adds to the text. Some write it as the vocabulary does: GPT-2 and
its like have a letter for each byte, SentencePiece a low line for a space. Which of these a reply
is written in shows by the text that its tokens must spell.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from orchestrator.records import UNKNOWN_ID, IntArray

# Ids that stand in a token's place, as `token_id:123`: what servers write that were asked for ids.


_PLACEHOLDER: Final = re.compile("token_id:([0-9]{1,9})")
"""Nine digits fit int32; no vocabulary is larger."""
_LONGEST: Final = len("token_id:") + 9


def id_in(token: str) -> int:
    """The id that a token names; -1 where it names none."""
    # What is remembered must be short: a reply may name tokens by megabytes.
    return _id_in(token) if len(token) <= _LONGEST else UNKNOWN_ID


@lru_cache(maxsize=1 << 14)
def _id_in(token: str) -> int:
    """The same; remembered, for the same few are named again and again."""
    found = _PLACEHOLDER.fullmatch(token)
    return int(found[1]) if found else UNKNOWN_ID


# Tokens that a server names by their texts alone: each text once, and places in that list.
#
# A place n is written as the id -2 - n, since ids from 0 on are a server's own and -1 is none.


_FIRST: Final = -2
# How servers write a token that is no whole character: as OpenAI's completions and its chat do.
_ESCAPED: Final = re.compile(r"(?:bytes:)?((?:\\x[0-9a-fA-F]{2})+)")


def named(texts: Iterable[bytes]) -> tuple[IntArray, tuple[bytes, ...]]:
    """Number texts in the order they come.

    Returns:
        An id for each: -2 - n for the n-th of the distinct ones; and these.
    """
    places: dict[bytes, int] = {}
    ids = [_FIRST - places.setdefault(text, len(places)) for text in texts]
    return np.array(ids, dtype=np.int32), tuple(places)


def bytes_of(token: str) -> bytes:
    """The bytes of a token that a server writes as a text."""
    escaped = _ESCAPED.fullmatch(token) if "\\x" in token else None
    if escaped is not None:
        return bytes.fromhex(escaped[1].replace("\\x", ""))
    return token.encode("utf-8", "replace")


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
