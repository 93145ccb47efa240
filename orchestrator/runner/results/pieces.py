"""Tokens as pieces of the text that they spell together."""

import re
from collections.abc import Sequence
from itertools import accumulate, groupby
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
    """Return where each token ends in a text; None for special ones, None if they do not fit.

    Tokens of known bytes are found as runs, between which those of unknown bytes take what is left:
    the first place is right for every run but the last one, which ends with the text.
    """
    cuts: list[int | None] = []
    at = 0
    runs = [(known, list(run)) for known, run in groupby(tokens, _is_known)]
    for number, (known, run) in enumerate(runs):
        is_last = number == len(runs) - 1
        if not known:
            cuts += [at] * len(run)
            if is_last:
                cuts[-1] = len(whole)
            continue
        texts = [one or b"" for one in run]
        found = _placed(texts, whole, at, floats=number > 0, is_last=is_last)
        if found is None:
            return None
        begin, ends = found
        if number:
            # What is between is the last unknown one's.
            cuts[-1] = begin
        cuts += ends
        at = max((end for end in ends if end is not None), default=begin)
    return cuts


def _is_known(token: bytes | None) -> bool:
    return token is not None and _UNKNOWN not in token


def _placed(
    run: Sequence[bytes], whole: bytes, at: int, *, floats: bool, is_last: bool
) -> tuple[int, list[int | None]] | None:
    """Return where a run begins in a text, and where its tokens end; None if it is not there."""
    all_of_it = [True] * len(run)
    for is_part in (all_of_it, [_SPECIAL.fullmatch(one) is None for one in run]):
        own = [one if part else b"" for one, part in zip(run, is_part, strict=True)]
        joined = b"".join(own)
        begin = _begin(joined, whole, at, floats=floats, is_last=is_last)
        if begin is not None:
            ends = [begin + length for length in accumulate(map(len, own))]
            kept = [min(max(end, at), len(whole)) for end in ends]
            fits = zip(kept, is_part, strict=True)
            return max(begin, at), [end if part else None for end, part in fits]
    return None


def _begin(joined: bytes, whole: bytes, at: int, *, floats: bool, is_last: bool) -> int | None:
    """Return where a run begins; before `at` if its first white space was stripped."""
    stripped = len(joined) - len(joined.lstrip()) if not at and not floats else 0
    left = len(whole) - at
    if floats and not is_last:
        found = whole.find(joined, at)
        return None if found < 0 else found
    if floats:
        # The end may have been stripped, or cut off with a stop string.
        for kept in (joined, joined.rstrip()):
            if len(kept) <= left and whole.endswith(kept):
                return len(whole) - len(kept)
        return None
    for begin, text in ((at, joined), (at - stripped, joined[stripped:])):
        if whole.startswith(text, at) and (not is_last or len(text) == left):
            return begin
        if is_last and text.startswith(whole[at:]):
            return begin
    return None
