"""An invented language: text <-> ids, and log-probabilities that are a pure function of context.

Words are two syllables of consonant and vowel, with or without a space before; every other
character is its UTF-8 bytes. How good a text is can be read off it: it is the share of words that
begin with a syllable on "a", "e" or "i". So a fake judge can tell a fake answer's quality, and a
fake model writes better the higher its quality.

A token's log-probability depends on the model, the prompt, the position and the token, not on how
the text was drawn: scoring an answer gives the numbers of its generation.
"""

import re
from functools import lru_cache
from hashlib import blake2b, shake_128
from typing import Final

import msgspec

CONSONANTS: Final = "bcdfghjklmnpqrstvwxz"
VOWELS: Final = "aeiou"
_SYLLABLES: Final = tuple(c + v for c in CONSONANTS for v in VOWELS)
_INDEX: Final = {syllable: i for i, syllable in enumerate(_SYLLABLES)}
N_BYTES: Final = 256
END: Final = 256
ASSISTANT: Final = 257
_SPACED: Final = 258
_BARE: Final = _SPACED + len(_SYLLABLES) ** 2
VOCABULARY: Final = _BARE + len(_SYLLABLES) ** 2

_WORD: Final = rf"[{CONSONANTS}][{VOWELS}][{CONSONANTS}][{VOWELS}]"
_WORDS: Final = re.compile(rf" ?(?<![A-Za-z]){_WORD}(?![A-Za-z])")
RUN: Final = re.compile(rf"(?:(?<![A-Za-z]){_WORD}(?![A-Za-z])[ ,.]*){{3,}}")
"""Three words or more of the language in a row."""

_MARKS: Final = {END: b"<|end|>", ASSISTANT: b"<|assistant|>"}
_MIX: Final = 0x9E3779B97F4A7C15
_MASK: Final = 2**64 - 1


class Token(msgspec.Struct, frozen=True):
    """A token as replies show it."""

    text: str
    utf8: bytes


def encode(text: str) -> list[int]:
    """The ids of `text`; `decode` gives the text back."""
    ids: list[int] = []
    at = 0
    for match in _WORDS.finditer(text):
        ids += text[at : match.start()].encode("utf-8", "replace")
        word = match[0].lstrip(" ")
        base = _SPACED if match[0][0] == " " else _BARE
        ids.append(base + len(_SYLLABLES) * _INDEX[word[:2]] + _INDEX[word[2:]])
        at = match.end()
    ids += text[at:].encode("utf-8", "replace")
    return ids


def count(text: str) -> int:
    """The number of ids of `text`."""
    saved = sum(len(word) - 1 for word in _WORDS.findall(text))
    return len(text.encode("utf-8", "replace")) - saved


def decode(ids: list[int]) -> str:
    """The text of `ids`, marks included."""
    return b"".join(token(i).utf8 for i in ids).decode("utf-8", "replace")


@lru_cache(maxsize=65536)
def token(token_id: int) -> Token:
    """Return the text and bytes of a token."""
    if token_id < N_BYTES:
        utf8 = bytes([max(token_id, 0)])
    elif token_id in _MARKS:
        utf8 = _MARKS[token_id]
    else:
        spaced = token_id < _BARE
        first, second = divmod((token_id - (_SPACED if spaced else _BARE)) % 10_000, 100)
        utf8 = f"{' ' * spaced}{_SYLLABLES[first]}{_SYLLABLES[second]}".encode()
    return Token(utf8.decode("utf-8", "replace"), utf8)


def is_id(value: int) -> bool:
    """Return True if there is such a token."""
    return 0 <= value < VOCABULARY


def fraction(*parts: object) -> float:
    """A number in [0, 1) that is a pure function of `parts`."""
    return number(*parts) / 2**64


def number(*parts: object) -> int:
    """A 64-bit number that is a pure function of `parts`."""
    text = "\x1f".join(map(str, parts)).encode("utf-8", "replace")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def write(key: int, quality: float, n_words: int) -> list[int]:
    """Ids of an invented text of which a share of about `quality` are good words."""
    stream = shake_128(key.to_bytes(8, "little")).digest(3 * n_words)
    ids = []
    for at in range(n_words):
        chance, first, second = stream[3 * at : 3 * at + 3]
        vowel = first % 3 if chance < quality * N_BYTES else 3 + first % 2
        consonant = first % len(CONSONANTS)
        base = _SPACED if at else _BARE
        word = len(VOWELS) * consonant + vowel
        ids.append(base + len(_SYLLABLES) * word + second % len(_SYLLABLES))
    return ids


def quality_of(text: str) -> float:
    """The share of good words in `text`; nan where it has no word of the language."""
    words = _WORDS.findall(text)
    good = sum(word.lstrip(" ")[1] in "aei" for word in words)
    return good / len(words) if words else float("nan")


def logprob(context: int, position: int, token_id: int) -> float:
    """Natural log-probability of a token, in [-2.6, -0.05], rounded to 1e-6."""
    mixed = (context ^ (token_id * _MIX) ^ ((position + 1) * 0xC2B2AE3D27D4EB4F)) & _MASK
    mixed = (mixed ^ (mixed >> 31)) * 0xBF58476D1CE4E5B9 & _MASK
    share = ((mixed ^ (mixed >> 29)) >> 11) / 2**53
    return -round(0.05 + 2.55 * share * share, 6)
