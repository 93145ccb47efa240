"""Sentences that keep the names in them apart from our own words.

Each format writes names in its own way: escaped, isolated from the direction of the text around
them, or cut to a width. A sentence is therefore made once and written by each format.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from orchestrator import numbers

# Names that a sentence lists before it counts the rest.
_MOST_NAMES: Final = 4


class Name(msgspec.Struct, frozen=True):
    """A name from outside: of a model, a judge or a method."""

    text: str


class Quote(msgspec.Struct, frozen=True):
    """Another text from outside, e.g. a message of a server."""

    text: str


Part = str | Name | Quote


class Phrase(msgspec.Struct, frozen=True):
    """Our words, and texts from outside, in their order."""

    parts: tuple[Part, ...] = ()

    def __bool__(self) -> bool:
        """Return True if it says anything."""
        return any(part if isinstance(part, str) else part.text for part in self.parts)

    def text(self, name: Callable[[str], str] = str, words: Callable[[str], str] = str) -> str:
        """Return the sentence as one text.

        Args:
            name: Writes what comes from outside, e.g. escaped.
            words: Writes our own words.
        """
        return "".join(
            words(part) if isinstance(part, str) else name(part.text) for part in self.parts
        )


def phrase(*parts: Part | Phrase | Iterable[Part]) -> Phrase:
    """A sentence of texts, names and other phrases."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str | Name | Quote):
            found.append(part)
        else:
            found += part.parts if isinstance(part, Phrase) else part
    return Phrase(tuple(part for part in found if part != ""))


def names(listed: Sequence[str], most: int = _MOST_NAMES) -> list[Part]:
    """`a, b and c`; of many names the first ones, and how many more there are."""
    shown = list(listed) if len(listed) <= most else list(listed[: most - 1])
    parts: list[Part] = []
    for place, name in enumerate(shown):
        is_last = place == len(listed) - 1
        parts += [] if not place else [" and " if is_last else ", "]
        parts.append(Name(name))
    if len(shown) < len(listed):
        parts.append(f" and {numbers.count(len(listed) - len(shown))} more")
    return parts
