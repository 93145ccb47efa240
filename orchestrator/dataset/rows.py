"""Rows of a file made into a dataset: one pass that keeps 16 bytes a row, then random access."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from orchestrator.ask import KEY_BYTES, item_digest
from orchestrator.dataset import (
    NO_ITEMS,
    Dataset,
    Digests,
    asked_hash,
    find_clusters,
    key_hash,
    repeated,
)
from orchestrator.dataset.fields import FieldNames, RowError, find_columns, make_item
from orchestrator.errors import DatasetError

MAX_FAULTS: Final = 10


class Rows(Protocol):
    """Random access to the rows of a file.

    Attributes:
        file: As shown in messages.
        columns: Every column that any row has.
    """

    file: str
    columns: tuple[str, ...]

    def __len__(self) -> int: ...

    def row(self, index: int) -> Mapping[str, Any]:
        """The values of a row by column."""
        ...

    def where(self, index: int) -> str:
        """Return file and line of the row, for messages."""
        ...


class Faults:
    """Collects what is wrong with a file, so that all is said at once."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def add(self, where: str, message: str) -> None:
        """Remember a fault; only the first few are shown."""
        self._n += 1
        if len(self._found) < MAX_FAULTS:
            self._found.append(f"{where}: {message}")

    def check(self) -> None:
        """Do nothing if there are none.

        Raises:
            DatasetError: With what was found.
        """
        if not self._n:
            return
        more = self._n - len(self._found)
        lines = [*self._found, f"and {more:,} more"] if more else self._found
        raise DatasetError("\n".join(lines))


def from_rows(rows: Rows, names: FieldNames) -> Dataset:
    """A dataset of rows.

    Raises:
        DatasetError: With every row that can't be an item, or every key that is given twice.
    """
    if len(rows) == 0:
        raise DatasetError(f"{rows.file} {NO_ITEMS}")
    columns = find_columns(names, rows.columns, rows.file)
    hashes = np.zeros(len(rows), dtype=np.uint64)
    # Without a key, an item is known by what it asks.
    asked = hashes if columns.key is None else np.zeros_like(hashes)
    contents = bytearray()
    clusters: list[str | None] = []
    faults = Faults()
    for index in range(len(rows)):
        try:
            item = make_item(rows.row(index), columns)
        except RowError as error:
            faults.add(rows.where(index), str(error))
            continue
        hashes[index] = key_hash(item)
        if columns.key is not None:
            asked[index] = asked_hash(item)
        contents += item_digest(item)
        if columns.cluster is not None:
            clusters.append(item.cluster)
    faults.check()
    digests = np.frombuffer(contents, dtype=np.uint8).reshape(-1, KEY_BYTES)
    ordinals = _ordinals(hashes, digests)
    if columns.key is not None and ordinals is not None:
        faults = Faults()
        for twin in np.flatnonzero(ordinals).tolist():
            key = make_item(rows.row(twin), columns).key
            same = [
                index
                for index in np.flatnonzero(hashes == hashes[twin]).tolist()
                if index != twin and make_item(rows.row(index), columns).key == key
            ]
            if same:
                first, second = sorted((twin, same[0]))
                what = f"the {columns.key} {key!r} was already given at {rows.where(first)}"
                faults.add(rows.where(second), what)
            if len(faults) == MAX_FAULTS:
                break
        faults.check()
    return Dataset(
        rows.file,
        lambda index: make_item(rows.row(index), columns),
        digests,
        ordinals,
        has_keys=columns.key is not None,
        clusters=find_clusters(clusters),
        asked=repeated(asked),
    )


def _ordinals(hashes: NDArray[np.uint64], digests: Digests) -> NDArray[np.int32] | None:
    """Number the rows with the same hash from 0; return None if all hashes differ.

    Equal hashes are counted in the order of their content, not of the file, so that the order of
    rows decides no key.
    """
    halves = digests.view(np.uint64)
    order = np.lexsort((halves[:, 1], halves[:, 0], hashes))
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = hashes[order][1:] != hashes[order][:-1]
    if begins.all():
        return None
    places = np.arange(len(order))
    first = np.maximum.accumulate(np.where(begins, places, 0))
    ordinals = np.empty(len(order), dtype=np.int32)
    ordinals[order] = places - first
    return ordinals
