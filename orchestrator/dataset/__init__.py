"""The seam to datasets: the base class of dataset kinds, and the items that they give.

A file in `datasets/` holds a class derived from `DatasetKind`.
"""

import math
import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from orchestrator.ask import KEY_BYTES, digest, item_digest
from orchestrator.disk import paths
from orchestrator.errors import DatasetError
from orchestrator.plugins.base import ConfigT, Plugin, Settings
from orchestrator.records import Item
from orchestrator.statistics.multiple import Places, connected

Codes = NDArray[np.int32]
Digests = NDArray[np.uint8]
Hashes = NDArray[np.uint64]

NO_ITEMS: Final = "has no items"


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A published file.

    Attributes:
        name: Under the kind's folder, also where a user puts it by hand.
        path: Its address, or, without a scheme, its path on the Hugging Face hub.
        sha256: Where known; else it is recorded at the first download.
        others: Other names under which it is found in a user's folder.
    """

    name: str
    path: str
    sha256: str = ""
    others: tuple[str, ...] = ()

    @property
    def is_on_hub(self) -> bool:
        """True if it comes from the hub, or from the mirror that `HF_ENDPOINT` names."""
        return "://" not in self.path


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a published dataset to know before it is fetched.

    Attributes:
        licence: As its publisher states it, or that none is stated.
        size: In words, such as "100 kB".
        source: Where it is published.
        files: Of the kind with its usual settings.
    """

    licence: str
    size: str
    source: str
    files: tuple[File, ...] = ()


class FileSettings(Settings):
    """Settings of a dataset that is a file, which must be there when the recipe is checked."""

    path: str = Field(description="Path of the file, relative to the recipe.", min_length=1)


class FolderSettings(Settings):
    """Settings of a dataset that is a folder, which must be there when the recipe is checked."""

    path: str = Field(description="Path of the folder, relative to the recipe.", min_length=1)


class Dataset:
    """Items by index. Keeps 16 to 28 bytes an item; the items themselves are read each time.

    Args:
        name: Shown in tables and messages.
        read: Makes the item at an index; with an empty key where its content is to be the key.
        digests: Content hash of every item, shape (n, 16), uint8.
        ordinals: Which of the items with the same content key an item is, shape (n,); None where
            no two have the same.
        has_keys: Whether every item has a key of its own.
        clusters: Which items belong together; None where each stands alone.
        order: Place of each item in the source, shape (n,); None where they are in its order.
        asked: `asked_hash` of every item, shape (n,); None where no two are equal.
        copies: Which items ask the same; None where this is not known, or no two do.

    Attributes:
        clusters: As given.
        copies: As given.
        read_as: What its file was taken for, as a sentence, where that is not the usual.
        fingerprint: Hash of all items in their order, the same for the same content wherever it
            lies.
    """

    def __init__(  # noqa: PLR0913 (what it is made of, by keyword)
        self,
        name: str,
        read: Callable[[int], Item],
        digests: Digests,
        ordinals: NDArray[np.int32] | None = None,
        *,
        has_keys: bool,
        clusters: "ClusterCodes | None" = None,
        order: Places | None = None,
        asked: Hashes | None = None,
        copies: "ClusterCodes | None" = None,
    ) -> None:
        self.name = name
        self.read_as = ""
        self._order = order
        self._asked = asked
        self.clusters = clusters
        self.copies = copies
        self._has_keys = has_keys
        self._read = read
        self._digests = digests
        self._ordinals = ordinals
        self.fingerprint = digest("dataset", digests.tobytes())

    def __len__(self) -> int:
        return len(self._digests)

    def item(self, index: int) -> Item:
        """The item at a 0-based index.

        Raises:
            DatasetError: If the data changed since the dataset was opened.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} has {len(self)} items, no item {index}")
        item = self._read(self.place(index))
        if item_digest(item) != self._digests[index].tobytes():
            raise DatasetError(
                f"{self.name}: item {index + 1} changed while it was in use; run the command again"
            )
        if item.key:
            return item
        ordinal = 0 if self._ordinals is None else int(self._ordinals[index])
        key = f"{key_hash(item):016x}{f'-{ordinal + 1}' if ordinal else ''}"
        return msgspec.structs.replace(item, key=key)

    def keys(self) -> frozenset[str]:
        """The keys of all items; each is read.

        Raises:
            DatasetError: If the data changed since the dataset was opened.
        """
        return frozenset(self.item(index).key for index in range(len(self)))

    def place(self, index: int) -> int:
        """The 0-based place in the source of the item at an index."""
        return index if self._order is None else int(self._order[index])

    @property
    def order_digest(self) -> bytes:
        """Hash of the places of all items; empty where they are in the order of the source."""
        return b"" if self._order is None else digest("places of items", self._order.tobytes())

    def content(self, index: int) -> bytes | None:
        """`item_digest` of the item at an index; None where only reading it would tell."""
        return self._digests[index].tobytes() if self._has_keys else None

    def limit(self, n: int) -> "Dataset":
        """The first `n` items; all if there are fewer."""
        chosen = self._chosen(range(len(self))[:n])
        if self._order is None:
            chosen._order = None  # noqa: SLF001 (of its own class)
        return chosen

    def with_copies(self, shown: Callable[[Item], object]) -> "Dataset":
        """The same items, of which those that ask the same are one cluster.

        Args:
            shown: Gives what else requests about an item show, such as given answers, as values
                that `digest` takes; it is called for items of equal content only.

        Raises:
            DatasetError: If the data changed since the dataset was opened.
        """
        if self._asked is None:
            return self
        _, again, counts = np.unique(self._asked, return_inverse=True, return_counts=True)
        codes = np.arange(len(self), dtype=np.int32)
        first: dict[bytes, int] = {}
        for index in np.flatnonzero(counts[again.reshape(-1)] > 1).tolist():
            item = self.item(index)
            codes[index] = first.setdefault(digest(_asked(item), shown(item)), index)
        every = np.arange(len(self))
        copies = ClusterCodes(codes, b"").of(every)
        if copies is None:
            return self
        clusters = copies
        if self.clusters is not None:
            joined = connected(self.clusters.codes, codes).astype(np.int32)
            clusters = ClusterCodes(joined, self.clusters.names)
        found = copy(self)
        found.clusters, found.copies = clusters.of(every), copies
        return found

    def subset(self, wanted: int | str, seed: int) -> "Dataset":
        """A random part of the items, in the order in which they are here.

        Items are drawn without replacement; whole clusters are, where there are any. A larger
        subset by the same seed holds every item of a smaller one.

        Args:
            wanted: Number of items, or a share of them such as "10%", rounded up. The last cluster
                is taken whole, so that there may be more.
            seed: Of the draw.
        """
        least = n_of_share(wanted, len(self))
        order = self._drawn(seed, by_cluster=True)
        if least < len(order) and self.clusters is not None:
            codes = self.clusters.codes
            while least < len(order) and codes[order[least]] == codes[order[least - 1]]:
                least += 1
        return self._chosen(sorted(order[:least]))

    def shard(self, part: int, n_parts: int, seed: int) -> "Dataset":
        """One of `n_parts` parts that have each item once, in the order in which they are here.

        Items, or whole clusters where there are any, are dealt in turn in the order of `shuffled`.

        Args:
            part: Number of the part, from 1 to `n_parts`.
            n_parts: Number of parts.
            seed: Of the order.

        Raises:
            DatasetError: If there is no such part, or there are more parts than clusters.
        """
        if not 1 <= part <= n_parts:
            raise DatasetError(f"there is no shard {part} of {n_parts}")
        order = self._drawn(seed, by_cluster=True)
        codes = self.clusters.codes[order] if self.clusters is not None else np.arange(len(order))
        turns = np.cumsum(np.diff(codes, prepend=codes[:1]) != 0)
        if n_parts > (n := int(turns[-1]) + 1):
            what = "items" if self.clusters is None else "clusters of items"
            raise DatasetError(f"{n_parts} shards of {n} {what}: some are empty; use at most {n}")
        own = (at for at, turn in zip(order, turns, strict=True) if turn % n_parts == part - 1)
        return self._chosen(sorted(own))

    def shuffled(self, seed: int, *, by_cluster: bool = False) -> "Dataset":
        """The same items in an order that follows from `seed` and their content alone.

        Args:
            seed: Of the order.
            by_cluster: Shuffle whole clusters, so that the items of each stand together.
        """
        return self._chosen(self._drawn(seed, by_cluster=by_cluster))

    def _drawn(self, seed: int, *, by_cluster: bool) -> list[int]:
        """Indices of all items in the order of `shuffled`."""
        seen: dict[bytes, int] = {}
        marks = []
        for index in range(len(self)):
            content = self._digests[index].tobytes()
            # Copies of an item must not end up next to each other.
            seen[content] = seen.get(content, 0) + 1
            marks.append(digest("order of items", seed, content, seen[content]))
        order = sorted(range(len(self)), key=marks.__getitem__)
        if by_cluster and self.clusters is not None:
            order = self._together(order, self.clusters.codes, seed)
        return order

    def _chosen(self, order: Sequence[int]) -> "Dataset":
        """The items at these indices, in this order."""
        places = np.array(order, np.int64)
        return Dataset(
            self.name,
            self._read,
            self._digests[places],
            None if self._ordinals is None else self._ordinals[places],
            has_keys=self._has_keys,
            clusters=None if self.clusters is None else self.clusters.of(places),
            order=places if self._order is None else self._order[places],
            asked=None if self._asked is None else self._asked[places],
            copies=None if self.copies is None else self.copies.of(places),
        )

    def _together(self, order: Sequence[int], codes: Codes, seed: int) -> list[int]:
        """An order of items with each cluster at one place, drawn for the cluster as a whole."""
        members: dict[int, list[int]] = {}
        for index in order:
            members.setdefault(int(codes[index]), []).append(index)
        seen: dict[bytes, int] = {}

        def mark(cluster: list[int]) -> bytes:
            # One draw a cluster: by the first of its items' marks, large clusters would come first.
            content = min(self._digests[index].tobytes() for index in cluster)
            seen[content] = seen.get(content, 0) + 1
            return digest("order of clusters", seed, content, seen[content])

        placed = sorted((mark(cluster), cluster) for cluster in members.values())
        return [index for _, cluster in placed for index in cluster]


def n_of_share(wanted: int | str, n: int) -> int:
    """The number of `n` items that is wanted: from 1 to n.

    It is a number of items, or a share such as "12.5%", which is rounded up.
    """
    if isinstance(wanted, str):
        # As written: 10 % of 30 items are 3, and binary fractions would make them 4.
        wanted = math.ceil(Fraction(wanted.removesuffix("%")) * n / 100)
    return max(1, min(wanted, n))


class DatasetKind(Plugin[ConfigT], ABC):
    """A kind of dataset: how its items are made or read.

    The type in brackets is the model of its settings, at `dataset:` in a recipe. Settings that
    derive from `FileSettings` name a file, from `FolderSettings` a folder.

    Attributes:
        suffixes: Of file names that tell the kind where a recipe names none, such as (".csv",).
        about: Licence, size and files of a dataset that is published by others.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()
    about: ClassVar[About | None] = None

    @abstractmethod
    def open(self, base: Path) -> Dataset:
        """Open the dataset and check every item.

        Args:
            base: Folder that relative paths in the settings start from.

        Raises:
            DatasetError: If it is missing or malformed, with everything that is wrong.
        """


def from_items(name: str, items: Sequence[Item]) -> Dataset:
    """A dataset of items that are in memory, each with a key of its own.

    Raises:
        DatasetError: If there are none.
    """
    if not items:
        raise DatasetError(f"{name} {NO_ITEMS}")
    digests = b"".join(item_digest(item) for item in items)
    stacked = np.frombuffer(digests, dtype=np.uint8).reshape(-1, KEY_BYTES)
    return Dataset(
        name,
        items.__getitem__,
        stacked,
        has_keys=all(item.key for item in items),
        clusters=find_clusters([item.cluster for item in items]),
        asked=repeated(np.array([asked_hash(item) for item in items], np.uint64)),
    )


class ClusterCodes(NamedTuple):
    """The cluster of each of n items by its place in a dataset.

    Results have clusters by the keys of items instead: `orchestrator.clusters.Clusters`.

    Attributes:
        codes: Shape (n,), the cluster of each item, from 0 on in the order in which they come; an
            item without one is a cluster of its own.
        names: Hash of the names, by which a renamed cluster is noticed; empty for copies, which
            have none.
    """

    codes: Codes
    names: bytes

    def is_first(self) -> NDArray[np.bool_]:
        """Return whether each item is the first of its cluster, shape (n,)."""
        found = np.zeros(len(self.codes), np.bool_)
        found[np.unique(self.codes, return_index=True)[1]] = True
        return found

    def of(self, chosen: NDArray[np.intp]) -> "ClusterCodes | None":
        """Those of the items at these indices, in this order; None where each stands alone."""
        _, first, again = np.unique(self.codes[chosen], return_index=True, return_inverse=True)
        if first.size == again.size:
            return None
        places = np.empty(first.size, np.int32)
        places[np.argsort(first, kind="stable")] = np.arange(first.size, dtype=np.int32)
        return ClusterCodes(places[again.reshape(-1)], self.names)


def find_clusters(names: Iterable[str | None]) -> ClusterCodes | None:
    """The clusters of items by their names; None where each item stands alone."""
    known: dict[str, int] = {}
    codes = array("i")
    n = 0
    for name in names:
        code = n if name is None else known.setdefault(name, n)
        codes.append(code)
        n += code == n
    if n == len(codes):
        return None
    return ClusterCodes(np.frombuffer(codes, np.int32), digest("clusters", tuple(known)))


def repeated(hashes: Hashes) -> Hashes | None:
    """The hashes, shape (n,); None where all differ."""
    return None if np.unique(hashes).size == hashes.size else hashes


def key_hash(item: Item) -> int:
    """64 bits of the key; without one, of what a model and a judge see of the item.

    Other columns play no part, so they may be added to a file without changing its keys.
    """
    return _hash(item.key) if item.key else asked_hash(item)


def asked_hash(item: Item) -> int:
    """64 bits of what a model and a judge see of an item."""
    return _hash(*_asked(item))


def _asked(item: Item) -> tuple[object, ...]:
    return item.messages, item.followups, item.reference, item.references, item.category


def _hash(*parts: object) -> int:
    return int.from_bytes(digest("key", *parts)[:8], "little")


DATA_VARIABLE: Final = "ORCHESTRATOR_DATA"


def is_here(kind: str, file: File) -> bool:
    """Return True if the file can be used without a network."""
    folders = [folder for folder in (data_folder(), cache_folder()) if folder is not None]
    names = (file.name, *file.others)
    return any((folder / kind / name).is_file() for folder in folders for name in names)


def data_folder() -> Path | None:
    """The folder of files that the user put there by hand."""
    given = os.environ.get(DATA_VARIABLE)
    return Path(given).expanduser() if given else None


def cache_folder() -> Path:
    """The folder of what was fetched."""
    return paths.cache_folder() / "datasets"
