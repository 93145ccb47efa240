"""Texts that begin alike although the dataset names no clusters: passages and templates.

Several questions on one passage depend on each other, and nothing but their text shows it. What
nearly all texts begin with is an instruction and says nothing of the kind; so the common beginning
is left out first, and what most of the others share after it.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from orchestrator.records import Item

OPENING: Final = 200
"""Characters that two texts share at the least, after what all of them begin with."""

MOST_ITEMS: Final = 10_000
"""Items that are looked at, from the first on."""

# Fewer may be chance: a question that was asked twice.
_LEAST_ITEMS: Final = 4
_LEAST_SHARE: Final = 0.1
_NAMED: Final = 3


class Alike(NamedTuple):
    """Items that begin as others do.

    Attributes:
        groups: Keys of the items of each group, the largest group first.
        n_items: Items that were looked at.
    """

    groups: list[list[str]]
    n_items: int

    def words(self) -> str:
        """Describe the finding and its remedy in a sentence."""
        n = sum(map(len, self.groups))
        names = ", ".join(self.groups[0][:_NAMED])
        more = ", …" if len(self.groups[0]) > _NAMED else ""
        return (
            f"{n:,} of {self.n_items:,} items share a beginning of {OPENING} characters or more "
            f"with others ({len(self.groups):,} groups; the largest has {len(self.groups[0]):,}: "
            f"{names}{more}) and no cluster is named: if they belong together, such as questions "
            "on one passage, intervals are too short; name the column that says which do by "
            "dataset: {fields: {cluster: COLUMN}}, or say that none do by cluster: null"
        )


def text_of(item: Item) -> str:
    """All that is said before the first answer."""
    return "\n".join(message.content for message in item.messages)


def alike_openings(texts: Iterable[tuple[str, str]]) -> Alike | None:
    """The items that begin alike, where these are many; None where they are few.

    Args:
        texts: Key and text of each item; the first 10,000 are looked at.
    """
    looked_at = list(islice(texts, MOST_ITEMS))
    groups = sorted(_groups(looked_at, 0), key=len, reverse=True)
    n = sum(map(len, groups))
    if n < max(_LEAST_ITEMS, _LEAST_SHARE * len(looked_at)):
        return None
    return Alike(groups, len(looked_at))


def _groups(texts: Sequence[tuple[str, str]], begin: int) -> list[list[str]]:
    """Keys of texts that go on alike after a beginning that all of them share."""
    begin = max(begin, _n_shared([text for _, text in texts]))
    found: dict[str, list[tuple[str, str]]] = {}
    for key, text in texts:
        if len(text) >= begin + OPENING:
            found.setdefault(text[begin : begin + OPENING], []).append((key, text))
    groups: list[list[str]] = []
    for group in found.values():
        if 2 * len(group) > len(texts):
            # An instruction to most of them.
            groups += _groups(group, begin + OPENING)
        elif len(group) > 1:
            groups.append([key for key, _ in group])
    return groups


def _n_shared(texts: Sequence[str]) -> int:
    """Return the number of characters at the beginning that all texts share."""
    if not texts:
        return 0
    # What the first and the last in their order share is shared by all between.
    low, high = min(texts), max(texts)
    return next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
