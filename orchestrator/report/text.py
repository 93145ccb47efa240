r"""Untrusted text (model names, messages, answers) made safe for one line of a terminal.

Nothing is hidden: what a terminal would obey, or show as nothing, is written out as an escape such
as `\x1b` or `\u202e`. Callers put the result in `rich.text.Text`, where markup has no meaning.
"""

import re
import unicodedata
from typing import Final

from rich.cells import cell_len

ELLIPSIS: Final = "…"
# What our own words use beyond ASCII, and what stands for it where the encoding has nothing else.
_OURS: Final = str.maketrans({
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "·": "|",
    "…": "...",
    "≥": ">=",
    "≤": "<=",
    "\N{MULTIPLICATION SIGN}": "x",
    "→": "->",
    "≈": "~",
    "±": "+/-",
})  # fmt: skip

_BLANKS: Final = re.compile(r"[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029 ]+")
# Control, format (bidi, zero-width, tags), surrogate, private and unassigned characters.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_MARKS: Final = frozenset({"Mn", "Me"})
# Real scripts put up to three marks on a letter; towers of them draw over neighbouring lines.
_MAX_MARKS: Final = 3
# More than any terminal line shows; keeps the cost of a megabyte of answer small.
_MAX_LENGTH: Final = 4096


def safe_line(text: str, width: int | None = None, *, ascii_only: bool = False) -> str:
    """`text` on one line, without anything a terminal would obey.

    Args:
        text: From anywhere.
        width: Columns it may take; the end is cut where it takes more.
        ascii_only: Whether the output can show ASCII only.
    """
    line = _one_line(text, ascii_only=ascii_only)
    return line if width is None else _cut_end(line, width, ascii_only=ascii_only)


def safe_name(name: str, width: int | None = None, *, ascii_only: bool = False) -> str:
    """Like `safe_line`, but cut in the middle: names differ at their ends."""
    line = _one_line(name, ascii_only=ascii_only)
    if width is None or cell_len(line) <= width:
        return line
    dots = _dots(ascii_only=ascii_only)
    room = width - len(dots)
    if room < 2:
        return _cut_end(line, width, ascii_only=ascii_only)
    tail = _fitting(line[::-1], room // 2)[::-1]
    return _fitting(line, room - cell_len(tail)) + dots + tail


def own_words(text: str, *, ascii_only: bool = False) -> str:
    """Our own text for this encoding; not for text from outside."""
    return text.translate(_OURS) if ascii_only else text


def _one_line(text: str, *, ascii_only: bool) -> str:
    shown: list[str] = []
    marks = 0
    for character in _BLANKS.sub(" ", text[:_MAX_LENGTH]).strip(" "):
        if " " <= character <= "~":
            marks = 0
            shown.append(character)
            continue
        category = unicodedata.category(character)
        marks = marks + 1 if category in _MARKS else 0
        if marks > _MAX_MARKS:
            continue
        shown.append(ascii(character)[1:-1] if ascii_only or category in _HIDDEN else character)
    if len(text) > _MAX_LENGTH:
        shown.append(_dots(ascii_only=ascii_only))
    return "".join(shown)


def _dots(*, ascii_only: bool) -> str:
    return "..." if ascii_only else ELLIPSIS


def _cut_end(line: str, width: int, *, ascii_only: bool) -> str:
    if cell_len(line) <= width:
        return line
    dots = _dots(ascii_only=ascii_only)
    if width < len(dots):
        return _fitting(line, max(0, width))
    return _fitting(line, width - len(dots)) + dots


def _fitting(line: str, width: int) -> str:
    """The longest beginning that takes at most `width` columns."""
    low, high = 0, len(line)
    while low < high:
        middle = (low + high + 1) // 2
        if cell_len(line[:middle]) <= width:
            low = middle
        else:
            high = middle - 1
    return line[:low]
