r"""Text from outside (answers, prompts, names) as a page may show it, lines kept.

Jinja escapes what HTML would obey. Here goes what is left: characters that reorder, hide or
overprint their neighbours are written out as escapes such as `\u202e`, and what is endless is cut.
"""

import re
import unicodedata
from typing import Final

MAX_CHARACTERS: Final = 2400
"""Of one text in a report; what is cut is counted."""

_MAX_MARKS: Final = 3
_NEW_LINES: Final = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
_PLAIN: Final = re.compile(r"[\n\t -~]*\Z")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
# A zero-width joiner between letters is spelling in several scripts, and in emoji.
_JOINERS: Final = "\u200c\u200d"
_MARKS: Final = frozenset({"Mn", "Me"})


def safe_block(text: str, limit: int = MAX_CHARACTERS) -> str:
    """The text without anything that a browser would draw elsewhere or not at all."""
    shown = _NEW_LINES.sub("\n", text[:limit])
    if not _PLAIN.match(shown):
        visible: list[str] = []
        marks = 0
        for character in shown:
            category = unicodedata.category(character)
            marks = marks + 1 if category in _MARKS else 0
            if marks > _MAX_MARKS:
                continue
            hidden = category in _HIDDEN and character not in "\n\t" and character not in _JOINERS
            visible.append(ascii(character)[1:-1] if hidden else character)
        shown = "".join(visible)
    more = len(text) - limit
    return shown if more <= 0 else f"{shown}… ({more:,} more characters)"
