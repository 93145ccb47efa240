"""Untrusted text (model names, messages, answers) made safe, and plain text written to a stream.

Nothing is hidden: what a terminal would obey, or show as nothing, is written out as an escape, as
Python writes it. Callers put the result in `rich.text.Text`, where markup has no meaning.
"""

import errno
import html
import re
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from os.path import commonprefix
from typing import Final, TextIO

from rich.cells import cell_len

from orchestrator.errors import UsageError

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
    # Of pictures and lists, one character each.
    "•": "-", "●": "O", "○": "o", "✕": "X",
    "━": "-", "╺": "-", "╸": "-", "◀": "<", "▶": ">", "╍": "=", "┅": "x", "─": ".",
})  # fmt: skip

_BLANKS: Final = re.compile(r"[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029 ]+")
# Control, format (bidi, zero-width, tags), surrogate, private and unassigned characters.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_MARKS: Final = frozenset({"Mn", "Me"})
# Real scripts put up to three marks on a letter; towers of them draw over neighbouring lines.
_MAX_MARKS: Final = 3
# Characters that a cut name keeps before the place where names differ.
_CONTEXT: Final = 4
# Zero-width joiners and non-joiners: spelling in several scripts, and in emoji.
_JOINERS: Final = "\u200c\u200d"
# From Arabic to Sinhala, and symbols with their modifiers and variation selectors.
_FIRST_JOINING: Final = "\u0600"
_LAST_JOINING: Final = "\u0dff"
_EMOJI: Final = frozenset({"So", "Sk", "Mn"})
# First-strong isolate and its end, and the classes of characters that run from right to left.
_ISOLATE: Final = "\u2068"
_END: Final = "\u2069"
_RIGHT_TO_LEFT: Final = frozenset({"R", "AL", "AN"})
# More than any terminal line shows; keeps the cost of a megabyte of answer small.
_MAX_LENGTH: Final = 4096


def safe_line(
    text: str, width: int | None = None, *, ascii_only: bool = False, joined: bool = False
) -> str:
    """`text` on one line, without anything a terminal would obey.

    Args:
        text: From anywhere.
        width: Columns it may take; the end is cut where it takes more.
        ascii_only: Whether the output can show ASCII only.
        joined: Keep joiners between letters and between emoji, as pages can show them; terminals
            differ in the columns that they take for those.
    """
    line = _line(text, ascii_only=ascii_only, joined=joined)
    return line if width is None else _cut(line, width, ascii_only=ascii_only)


page_line: Final = partial(safe_line, joined=True)
"""The same for pages, which can show what joins letters and emoji."""


def safe_name(
    name: str, width: int | None = None, *, ascii_only: bool = False, joined: bool = False
) -> str:
    """Like `safe_line`, but cut in the middle: names differ at their ends."""
    line = _line(name, ascii_only=ascii_only, joined=joined)
    if width is None or cell_len(line) <= width:
        return line
    dots = _dots(ascii_only=ascii_only)
    room = width - len(dots)
    if room < 2:
        return _cut(line, width, ascii_only=ascii_only)
    tail = _fitting(line[::-1], room // 2)[::-1]
    return _fitting(line, room - cell_len(tail)) + dots + tail


def safe_names(
    names: Iterable[str], width: int, *, ascii_only: bool = False, joined: bool = False
) -> dict[str, str]:
    """Names cut to a width so that no two become the same: each keeps what it differs in.

    All names are cut in one way where one is enough: in the middle, else at the beginning, else at
    the end, else around the place where they differ. Names that no cut keeps apart are numbered.

    Args:
        names: From anywhere; equal ones are one name.
        width: Columns that a name may take, at least 8.
        ascii_only: Whether the output can show ASCII only.
        joined: As for `safe_line`.
    """
    lines = {
        name: _line(name, ascii_only=ascii_only, joined=joined) for name in dict.fromkeys(names)
    }
    long = {name for name, line in lines.items() if cell_len(line) > width}
    if not long and len(set(lines.values())) == len(lines):
        return lines
    # Some characters before the difference are left, for a number that begins there.
    same = commonprefix([lines[name] for name in long])  # noqa: RUF071 (by characters)
    begin = max(0, len(same) - _CONTEXT)
    dots = _dots(ascii_only=ascii_only)
    cuts: tuple[Callable[[str], str], ...] = (
        lambda line: safe_name(line, width, ascii_only=ascii_only, joined=joined),
        lambda line: dots + _fitting(line[::-1], width - len(dots))[::-1],
        lambda line: _cut(line, width, ascii_only=ascii_only),
        lambda line: _cut(dots + line[begin:], width, ascii_only=ascii_only),
    )
    for cut in cuts:
        shown = {name: cut(line) if name in long else line for name, line in lines.items()}
        if len(set(shown.values())) == len(shown):
            return shown
    numbered: dict[str, str] = {}
    taken: set[str] = set()
    for name, line in lines.items():
        found, n = cuts[0](line), 1
        while found in taken:
            n += 1
            end = f" ({n})"
            room = width - len(end)
            found = safe_name(line, room, ascii_only=ascii_only, joined=joined) + end
        taken.add(found)
        numbered[name] = found
    return numbered


def isolated(line: str) -> str:
    """A name set apart from what stands around it, if it is written from right to left.

    Terminals that order such text would else show the numbers behind the name before it. The
    isolating characters take no column.
    """
    is_rightward = any(
        one > "\u0590" and unicodedata.bidirectional(one) in _RIGHT_TO_LEFT for one in line
    )
    return f"{_ISOLATE}{line}{_END}" if is_rightward else line


_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()#+!|~@:-])")
_HARMLESS: Final = re.compile(r"(?<=\w)\\([-_:])(?=\w)")


def escaped(text: str, width: int | None = None) -> str:
    """Text from outside as one line that Markdown shows as it is."""
    # HTML first: its entities hold characters that Markdown would escape.
    marked = _SPECIAL.sub(r"\\\1", safe_line(text, width))
    plain = _HARMLESS.sub(r"\1", marked).replace("\\: ", ": ")
    return html.escape(plain, quote=False)


def own_words(text: str, *, ascii_only: bool = False) -> str:
    """Our own text for this encoding; not for text from outside."""
    # A command has the folder of a run in it, which may be named in any script.
    return (
        text.translate(_OURS).encode("ascii", "backslashreplace").decode() if ascii_only else text
    )


def _line(text: str, *, ascii_only: bool, joined: bool = False) -> str:
    line = _BLANKS.sub(" ", text[:_MAX_LENGTH]).strip(" ")
    more = _dots(ascii_only=ascii_only) if len(text) > _MAX_LENGTH else ""
    return _visible(line, ascii_only=ascii_only, joined=joined) + more


def _visible(text: str, *, ascii_only: bool = False, joined: bool = False, kept: str = "") -> str:
    """The text with escapes for what is hidden, and without what draws over other lines.

    Args:
        text: From anywhere.
        ascii_only: As for `safe_line`.
        joined: As for `safe_line`.
        kept: Characters that stand as they are.
    """
    shown: list[str] = []
    marks = 0
    for place, character in enumerate(text):
        if " " <= character <= "~" or character in kept:
            marks = 0
            shown.append(character)
            continue
        category = unicodedata.category(character)
        if character in _JOINERS and joined and not ascii_only and _joins(text, place):
            shown.append(character)
            continue
        marks = marks + 1 if category in _MARKS else 0
        if marks > _MAX_MARKS:
            continue
        shown.append(ascii(character)[1:-1] if ascii_only or category in _HIDDEN else character)
    return "".join(shown)


MAX_CHARACTERS: Final = 2400
"""Of one text in a report; what is cut is counted."""
_NEW_LINES: Final = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
_PLAIN: Final = re.compile(r"[\n\t -~]*\Z")


def safe_block(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Text from outside as a page may show it, lines kept; the end of a long one is cut.

    Jinja escapes what HTML would obey. Here characters that reorder, hide or overprint their
    neighbours are written out as escapes.
    """
    shown = _NEW_LINES.sub("\n", text[:limit])
    if not _PLAIN.match(shown):
        shown = _visible(shown, kept=f"\n\t{_JOINERS}")
    more = len(text) - limit
    return shown if more <= 0 else f"{shown}… ({more:,} more characters)"


def _joins(line: str, place: int) -> bool:
    """Return True if a joiner stands between two letters or emoji, where it is spelling."""
    if not 0 < place < len(line) - 1:
        return False
    around = line[place - 1], line[place + 1]
    is_emoji = all(unicodedata.category(one) in _EMOJI and not one.isascii() for one in around)
    return is_emoji or all(_FIRST_JOINING <= one <= _LAST_JOINING for one in around)


def _dots(*, ascii_only: bool) -> str:
    return "..." if ascii_only else ELLIPSIS


def _cut(line: str, width: int, *, ascii_only: bool) -> str:
    if cell_len(line) <= width:
        return line
    dots = _dots(ascii_only=ascii_only)
    if width < len(dots):
        return _fitting(line, max(0, width))
    return _fitting(line, width - len(dots)) + dots


def _fitting(line: str, width: int) -> str:
    """The longest beginning that takes at most `width` columns."""
    lengths = range(1, len(line) + 1)
    return line[: bisect_right(lengths, width, key=lambda length: cell_len(line[:length]))]


# A pipe without a reader, and a terminal that was closed.
_GONE: Final = frozenset({errno.EPIPE, errno.EIO})
_QUIET: Final[ContextVar[bool]] = ContextVar("quiet", default=False)


@contextmanager
def quiet(*, wanted: bool) -> Iterator[None]:
    """Inside this block, print no progress, notes and confirmations, if that is wanted."""
    token = _QUIET.set(wanted)
    try:
        yield
    finally:
        _QUIET.reset(token)


def is_quiet() -> bool:
    """Return whether progress, notes and confirmations are left out."""
    return _QUIET.get()


def in_command(run: str) -> str:
    """Return a quoted folder as a command in a sentence shows it; "RUN" if it can't be shown."""
    return run if run == safe_line(run) and "`" not in run else "RUN"


def say(text: str) -> None:
    """Print on stdout, on a line."""
    write_to(sys.stdout, f"{safe_line(text)}\n")


def confirm(text: str) -> None:
    """Print on stdout, on a line, what a command has done; `--quiet` leaves it out."""
    if not is_quiet():
        say(text)


def agreed(question: str, instead: str) -> bool:
    """Ask on the terminal; True for "y" or "yes".

    Raises:
        UsageError: If stdin is no terminal. It says what to do instead.
    """
    if not sys.stdin.isatty():
        raise UsageError(f"stdin is no terminal, so nobody can be asked; {instead}")
    try:
        return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:
        return False


def write_to(stream: TextIO, text: str) -> bool:
    """Write to a stream whatever its encoding; False if the reader is gone."""
    if stream.closed:
        return False
    encoding = stream.encoding or "utf-8"
    shown = text.encode(encoding, "backslashreplace").decode(encoding)
    return printed(lambda: (stream.write(shown), stream.flush()))


def printed(write: Callable[[], object]) -> bool:
    """Call `write`; return False if the reader is gone before the end."""
    try:
        write()
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return False
    return True
