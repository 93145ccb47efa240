"""Tokens as pieces of the text that they spell together."""

import re
from collections.abc import Sequence
from typing import Final

_UNKNOWN: Final = "\N{REPLACEMENT CHARACTER}".encode()
# Tokens that a model reads and writes, but that are no part of a text.
_SPECIAL: Final = re.compile(rb"<[^<>]+>|\[[A-Z_/]+\]", re.DOTALL)


def spelled(token: bytes) -> str:
    """Return a token as it stands alone; bytes that are no character are written `<0xE2>`."""
    try:
        return token.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return "".join(
            f"<0x{ord(one) - 0xDC00:02X}>" if "\udc80" <= one <= "\udcff" else one
            for one in token.decode("utf-8", "surrogateescape")
        )


def pieces(tokens: Sequence[bytes | None], text: str) -> list[str]:
    """Return the piece of a text that each token adds.

    A character that several tokens make belongs to the one that completes it; the others add "". A
    special token, which is no part of the text, is its own piece.

    Args:
        tokens: Their bytes; None where unknown, and U+FFFD where it is part of a character.
        text: What they spell, "" if nobody knows.
    """
    whole = text.encode("utf-8", "surrogatepass")
    if not text:
        whole = b"".join(one for one in tokens if one and not _SPECIAL.fullmatch(one))
    cuts = _cuts(tokens, whole)
    if cuts is None:
        return ["" if one is None else spelled(one) for one in tokens]
    found = []
    done = 0
    for token, end in zip(tokens, cuts, strict=True):
        if end is None:
            found.append(spelled(token or b""))
            continue
        # Bytes 10xxxxxx go on with a character, which is then left to a later token.
        while done < end < len(whole) and whole[end] & 0xC0 == 0x80:
            end -= 1
        found.append(spelled(whole[done:end]) if end > done else "")
        done = max(done, end)
    return found


def _cuts(tokens: Sequence[bytes | None], whole: bytes) -> list[int | None] | None:
    """Return where each token ends in a text; None for special ones, None if they do not fit."""
    cuts: list[int | None] = []
    at, n_open = 0, 0
    for token in tokens:
        if token is None or _UNKNOWN in token:
            n_open += 1
            cuts.append(at)
            continue
        begin = whole.find(token, at) if n_open else at
        if begin < 0 or not whole.startswith(token, begin):
            if _SPECIAL.fullmatch(token):
                cuts.append(None)
                continue
            # Servers strip the white space at both ends of an answer.
            stripped = token.lstrip() if not at else token
            fits = whole.startswith(stripped, at) and not n_open
            if not fits and whole[at:] != token[: len(whole) - at]:
                return None
            token, begin = (stripped, at) if fits else (whole[at:], at)
        if n_open:
            _give(cuts, begin)
            n_open = 0
        at = begin + len(token)
        cuts.append(at)
    if n_open:
        _give(cuts, len(whole))
    return cuts


def _give(cuts: list[int | None], end: int) -> None:
    """Let the last token with a place end there: what is between is of those of unknown bytes."""
    place = max(place for place, cut in enumerate(cuts) if cut is not None)
    cuts[place] = end
