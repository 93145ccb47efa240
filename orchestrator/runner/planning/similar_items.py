"""Items that ask the same, or nearly, where the recipe does not say that they belong together."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice, takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator import numbers
from orchestrator.ask import GenerateAsk
from orchestrator.dataset import Dataset
from orchestrator.dataset.fields import set_fields
from orchestrator.errors import UsageError
from orchestrator.recipe.schema import Recipe
from orchestrator.records import Failure, Item, Sampling
from orchestrator.statistics.multiple import connected
from orchestrator.units import Given

if TYPE_CHECKING:
    import polars as pl

    from orchestrator.runner.planning.prepare import Prepared

Hashes = NDArray[np.uint64]
Text = NDArray[np.uint32]


def shown_of(recipe: Recipe, given: Mapping[str, Given]) -> Callable[[Item], object]:
    """Return a function that gives what a run shows of an item beside its content.

    These are the answers that exist already, and the columns that a setting names. Other columns
    are never asked about, so that rows which differ only there are copies.
    """
    named = set(_texts([one.method.config.model_dump() for one in recipe.methods]))

    def shown(item: Item) -> object:
        columns = [(name, item.fields[name]) for name in sorted(named & item.fields.keys())]
        answers = [list(_answers(item, model, find)) for model, find in given.items()]
        return columns, answers

    return shown


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple | set):
        for part in value:
            yield from _texts(part)


def _answers(item: Item, model: str, find: Given) -> Iterator[str]:
    """Yield the given answers to an item, turn by turn and sample by sample."""
    for turn in range(1, len(item.followups) + 2):
        asks = (
            GenerateAsk(model, item.messages, Sampling(), item.key, repeat=repeat, turn=turn)
            for repeat in count()
        )
        found = (find(item, ask) for ask in asks)
        for answer in takewhile(lambda one: not isinstance(one, Failure), found):
            yield "" if isinstance(answer, Failure) else answer.text


# Items that are nearly the same although the dataset names no clusters: passages and templates.
#
# Questions on one passage, and fillings of one template, depend on each other, and nothing but
# their text shows it. What most texts share is found first. Texts that are little else are fillings
# of one template; otherwise it is an instruction, and the rest is compared: texts that share a long
# passage there, or nearly all of it, are alike.


MOST_ITEMS: Final = 5_000
"""Items that are looked at, from the first on."""
PASSAGE: Final = 200
"""Characters of a passage that is found wherever it stands; some shorter ones are, too."""

# Fewer may be chance: a question that was asked twice.
_LEAST_ITEMS: Final = 4
_LEAST_SHARE: Final = 0.1
_NAMED: Final = 3
# Of longer texts the beginning and the end are read, so that the work is bounded.
_MOST_CHARACTERS: Final = 5_000_000
_MOST_OF_ONE: Final = 8_000
# Texts of which few characters differ: short ones may do so by chance, and a question of its own
# behind a long instruction takes more.
_LEAST_LENGTH: Final = 40
_MOST_OWN: Final = 100
_MOST_OWN_SHARE: Final = 0.3
_LEAST_ALIKE: Final = 0.6
_SAMPLE: Final = 60
# Windows of text are compared by a hash: those of 128 characters by the least of each 64
# neighbours, so that two texts which share 191 characters have one in common (winnowing: Schleimer,
# Wilkerson and Aiken 2003), those of 8 by the 64 least of a text (bottom-k: Broder 1997).
_LONG: Final = 7
_NEIGHBOURS: Final = 6
_SHORT: Final = 3
_WIDTH: Final = 1 << _SHORT
_SKETCH: Final = 64
_LOOKED_UP: Final = 16
_MOST_LEADERS: Final = 8

_FACTORS: Final = np.random.default_rng(0).integers(1, 2**64 - 1, _LONG, np.uint64) | np.uint64(1)


class NearCopies(NamedTuple):
    """Items that are nearly the same as others.

    Attributes:
        groups: Keys of the items of each group, the largest group first.
        n_items: Items that were looked at.
    """

    groups: list[list[str]]
    n_items: int

    @property
    def n_alike(self) -> int:
        """Items that are nearly the same as another one."""
        return sum(map(len, self.groups))

    def words(self) -> str:
        """Describe the finding and its remedy in a sentence or two."""
        largest = self.groups[0]
        names = ", ".join(largest[:_NAMED])
        more = ", …" if len(largest) > _NAMED else ""
        n_alone = self.n_items - self.n_alike
        n_clusters = n_alone + len(self.groups)
        # The root of Kish's design effect, the mean size of an item's cluster: for items of a group
        # that are always equal.
        size = (n_alone + sum(len(group) ** 2 for group in self.groups)) / self.n_items
        groups = "1 group" if len(self.groups) == 1 else f"{len(self.groups):,} groups"
        return (
            f"{self.n_alike:,} of {self.n_items:,} items are near-copies of others: they share a "
            f"passage of about {PASSAGE} characters or more, or all but a few words ({groups}; the "
            f"largest has {len(largest):,}: {names}{more}), and no cluster is named. If they "
            f"belong together, such as questions on one passage, {self.n_items:,} prompts are "
            f"{n_clusters:,} clusters, and intervals have to be up to {math.sqrt(size):.2g} "
            "times as wide. Name the column that "
            "says which do by dataset: {fields: {cluster: COLUMN}}, or say that none do by "
            "cluster: null"
        )


def text_of(item: Item) -> str:
    """All that is said before the first answer."""
    return "\n".join(message.content for message in item.messages)


def near_copies(texts: Iterable[tuple[str, str]]) -> NearCopies | None:
    """The items that are nearly the same as others, where these are many; None where few.

    Texts come by key; the first 5,000 are looked at.
    """
    looked_at = list(islice(texts, MOST_ITEMS))
    if len(looked_at) < _LEAST_ITEMS:
        return None
    most = min(_MOST_OF_ONE, _MOST_CHARACTERS // len(looked_at))
    texts_read = [_read(text, most) for _, text in looked_at]
    own = _without_common(texts_read)
    found = connected(_by_template(texts_read, own), _by_passage(own), _by_words(own))
    members: dict[int, list[str]] = {}
    for (key, _), code in zip(looked_at, found.tolist(), strict=True):
        members.setdefault(code, []).append(key)
    groups = sorted((group for group in members.values() if len(group) > 1), key=len, reverse=True)
    alike = NearCopies(groups, len(looked_at))
    if alike.n_alike < max(_LEAST_ITEMS, _LEAST_SHARE * len(looked_at)):
        return None
    return alike


def _read(text: str, most: int) -> Text:
    """The characters of a text without case and layout; of a long one its beginning and its end."""
    if len(text) > 2 * most:
        text = text[:most] + text[-most:]
    text = " ".join(text.casefold().split())
    if len(text) > most:
        text = text[: most // 2] + text[-(most // 2) :]
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _without_common(texts: Sequence[Text]) -> list[Text]:
    """Return the texts without the words that most of them share."""
    sample = [texts[at] for at in np.unique(np.linspace(0, len(texts) - 1, _SAMPLE).astype(int))]
    hashes, counts = np.unique(
        np.concatenate([np.unique(_windows(text, _SHORT)) for text in sample]), return_counts=True
    )
    common = hashes[counts > len(sample) / 2]
    own = []
    for text in texts:
        is_common = np.isin(_windows(text, _SHORT), common)
        # A character is common if any window over it is.
        ends = np.r_[np.zeros(1, np.int64), np.cumsum(is_common)]
        at = np.arange(len(text))
        first, last = np.maximum(at - _WIDTH + 1, 0), np.minimum(at + 1, is_common.size)
        own.append(text[ends[last] <= ends[np.minimum(first, last)]])
    return own


def _by_template(texts: Sequence[Text], own: Sequence[Text]) -> NDArray[np.int64]:
    """Return a code for each text, shape (n,): the same for texts that are little of their own."""
    n, n_own = (np.array([len(text) for text in part], np.int64) for part in (texts, own))
    is_filled = (n >= _LEAST_LENGTH) & (n_own <= np.minimum(_MOST_OWN, _MOST_OWN_SHARE * n))
    return np.where(is_filled, -1, np.arange(n.size)) + 1


def _by_passage(texts: Sequence[Text]) -> NDArray[np.int64]:
    """Return a code for each text, shape (n,): the same for texts that share a passage."""
    chosen = []
    for text in texts:
        # The least of each 2 ** _NEIGHBOURS neighbours, each value once.
        found = _windows(text, _LONG)
        for width in (1 << doubling for doubling in range(_NEIGHBOURS)):
            found = np.minimum(found[:-width], found[width:]) if len(found) > width else found
        chosen.append(np.unique(found))
    hashes = np.concatenate(chosen)
    owners = np.repeat(np.arange(len(texts)), [len(one) for one in chosen])
    passages = np.unique(hashes, return_inverse=True)[1].reshape(-1)
    codes = len(hashes) + np.arange(len(texts))
    codes[owners] = connected(owners, passages)
    return codes


def _by_words(texts: Sequence[Text]) -> NDArray[np.int64]:
    """Return a code for each text, shape (n,): the same for texts of which few words differ.

    Each text is compared with the first of the groups found so far that have parts in common.
    """
    codes = np.arange(len(texts))
    leaders: dict[int, list[int]] = {}
    sketches: dict[int, Hashes] = {}
    for place, text in enumerate(texts):
        if len(text) < _LEAST_LENGTH:
            continue
        sketch = np.unique(_windows(text, _SHORT))[:_SKETCH]
        keys = sketch[:_LOOKED_UP].tolist()
        known = Counter(leader for key in keys for leader in leaders.get(key, ()))
        alike = (
            leader
            for leader, _ in known.most_common(2)
            if _is_alike((text, sketch), (texts[leader], sketches[leader]))
        )
        codes[place] = next(alike, place)
        if codes[place] == place:
            sketches[place] = sketch
            for key in keys:
                if len(of_key := leaders.setdefault(key, [])) < _MOST_LEADERS:
                    of_key.append(place)
    return codes


def _is_alike(one: tuple[Text, Hashes], two: tuple[Text, Hashes]) -> bool:
    """Compare two texts, each with its least hashes."""
    # These tell whether comparing all of them may be worth it.
    least = np.union1d(one[1], two[1])[:_SKETCH]
    both = np.isin(least, one[1]) & np.isin(least, two[1])
    if both.mean() <= _LEAST_ALIKE - 0.2:
        return False
    a, b = (np.unique(_windows(text, _SHORT)) for text, _ in (one, two))
    n_both = np.intersect1d(a, b, assume_unique=True).size
    alike = n_both / (a.size + b.size - n_both)
    return bool(alike >= _LEAST_ALIKE and max(a.size, b.size) - n_both <= _MOST_OWN)


def _windows(text: Text, doublings: int) -> Hashes:
    """Hashes of all windows of 2 ** doublings characters of a text."""
    found = _mix(text.astype(np.uint64) + np.uint64(1))
    for doubling in range(doublings):
        width = 1 << doubling
        if len(found) <= width:
            return found[:0]
        found = found[:-width] + _FACTORS[doubling] * found[width:]
    return _mix(found)


def _mix(hashes: Hashes) -> Hashes:
    """Spread hashes over all values (the finalizer of SplitMix64)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = hashes ^ (hashes >> np.uint64(31))
    return mixed


_TEXTS: Final = ("item", "prompt", "messages")


def notes_on_items(prepared: "Prepared") -> list[str]:
    """Return notes on the items of a dataset, a sentence or two each."""
    dataset, n = prepared.dataset, len(prepared.dataset)
    n_prompts = n if dataset.copies is None else len(set(dataset.copies.codes.tolist()))
    fields, named = prepared.recipe.dataset.resolved().get("fields"), dataset.clusters
    said = _said(n, n_prompts, _near_copies(dataset, fields))
    if named is not None and named.names and _is_open(fields):
        clusters = numbers.counted(len(set(named.codes.tolist())), "cluster")
        said.append(
            f"{numbers.counted(n, 'item')} in {clusters} by the column 'cluster'; if its items do "
            f"not belong together, {set_fields(cluster=None)}"
        )
    return said


def notes_on_frame(items: "pl.LazyFrame", settings: Mapping[str, Any]) -> list[str]:
    """The same of the items that a run has kept, but for their clusters, which tables tell.

    Only the texts that are looked at are read.
    """
    counts = items.select("item", "cluster", "same_as").count().collect(engine="streaming")
    n_items, n_named, n_copies = counts.row(0)
    fields = (settings.get("dataset") or {}).get("fields")
    found = None
    if _is_open(fields) and not n_named:
        rows = items.select(*_TEXTS, "same_as").head(MOST_ITEMS + n_copies).collect()
        rows = rows.filter(rows["same_as"].is_null()).select(_TEXTS).head(MOST_ITEMS)
        found = near_copies(
            (
                key,
                prompt if messages is None else "\n".join(text for _, text in json.loads(messages)),
            )
            for key, prompt, messages in rows.iter_rows()
        )
    return _said(n_items, n_items - n_copies, found)


def check_stopping(recipe: Recipe, dataset: Dataset) -> None:
    """See that a rule which takes prompts for independent draws may do so.

    Raises:
        UsageError: If many items are nearly the same, and the recipe does not say which belong
            together.
    """
    found = _near_copies(dataset, recipe.dataset.resolved().get("fields"))
    if found is not None:
        raise UsageError(
            "statistics.stop_when would declare wrong orders: it takes prompts for independent, "
            f"but {found.words()}"
        )


def _near_copies(dataset: Dataset, fields: object) -> NearCopies | None:
    is_told = dataset.clusters is not None and dataset.clusters.names
    if not _is_open(fields) or is_told:
        return None
    first = None if dataset.copies is None else dataset.copies.is_first()
    items = (dataset.item(at) for at in range(len(dataset)) if first is None or first[at])
    return near_copies((item.key, text_of(item)) for item in items)


def _is_open(fields: object) -> bool:
    """Tell whether a recipe could say which items belong together, and does not."""
    return isinstance(fields, Mapping) and "cluster" not in fields


def _said(n_items: int, n_prompts: int, found: NearCopies | None) -> list[str]:
    said = []
    if n_prompts < n_items:
        said.append(
            f"{numbers.count(n_items - n_prompts)} of {numbers.counted(n_items, 'item')} ask the "
            f"same as an item before: they count as {numbers.counted(n_prompts, 'prompt')}"
        )
    return said if found is None else [*said, found.words()]
