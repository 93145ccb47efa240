"""Keys with an outcome, looked up without asking the file where possible.

Most keys that are looked up are new. A filter of fixed size answers for these; what waits for the
disk and what was written last is found by a dictionary; only the rest is a query.
"""

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final

import numpy as np

from orchestrator.ask import KEY_BYTES
from orchestrator.store import lookup, reading
from orchestrator.store.blobs import damaged
from orchestrator.store.entries import OutcomeEntry

# 4 MiB. Of keys that are not held, 3 % pass among a million and cost a query each.
_FILTER_BITS: Final = 25
_MASK: Final = (1 << _FILTER_BITS) - 1


class KeyFilter:
    """A set of keys that never forgets one, and seldom takes another for it.

    Keys are hashes, so that their first bytes are as good as any hash of them.
    """

    def __init__(self) -> None:
        self._bits = bytearray(1 << (_FILTER_BITS - 3))

    def add(self, key: bytes) -> None:
        """Add a key."""
        bit = int.from_bytes(key[:4], "little") & _MASK
        self._bits[bit >> 3] |= 1 << (bit & 7)

    def add_all(self, keys: Sequence[bytes]) -> None:
        """Add many keys."""
        firsts = np.frombuffer(b"".join([key[:4] for key in keys]), dtype="<u4") & _MASK
        marks = np.left_shift(1, firsts & 7).astype(np.uint8)
        np.bitwise_or.at(np.frombuffer(self._bits, dtype=np.uint8), firsts >> 3, marks)

    def __contains__(self, key: bytes) -> bool:
        bit = int.from_bytes(key[:4], "little") & _MASK
        return bool(self._bits[bit >> 3] & (1 << (bit & 7)))


class Recent:
    """Outcomes that the index does not know yet; the writer's thread moves them on.

    Attributes:
        pending: Those that are not committed.
        rows: Those that are: their row by key.
    """

    def __init__(self) -> None:
        self.pending: dict[bytes, OutcomeEntry] = {}
        self.rows: dict[bytes, int] = {}

    def committed(self, rows: Iterable[tuple[bytes, int]]) -> None:
        """Keys with their rows, which can be read from now on."""
        for key, row in rows:
            # In this order: at every moment one of the two has it.
            self.rows[key] = row
            self.pending.pop(key, None)

    def indexed(self) -> None:
        """All rows can be found by the index from now on."""
        self.rows = {}


class Held:
    """The outcomes of a store that this process alone writes to.

    Args:
        query: Reads the file.
        recent: Shared with the writer.
    """

    def __init__(self, query: reading.Query, recent: Recent) -> None:
        self._query = query
        self._recent = recent
        self._lock = Lock()
        self._loading = Lock()
        self._filter: KeyFilter | None = None

    def blobs(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Head and arrays of an outcome; None where there is none."""
        entry = self._recent.pending.get(key)
        if entry is not None:
            return entry.packed
        if key not in self._known():
            return None
        row = self._recent.rows.get(key)
        if row is not None:
            found = self._query(lookup.BLOBS_OF_ROW, (row, key))
        else:
            found = self._query(lookup.BLOBS_OF_INDEXED, (key,))
        return found[0] if found else None

    def server(self, key: bytes) -> int:
        """Number of the server that gave an outcome; 0 where there is none."""
        entry = self._recent.pending.get(key)
        if entry is not None:
            return entry.server
        row = self._recent.rows.get(key)
        if row is not None:
            found = self._query(lookup.SERVER_OF_ROW, (key, row))
        else:
            found = self._query(lookup.SERVER_OF_INDEXED, (key,))
        return int(found[0][0]) if found else 0

    def add(self, entry: OutcomeEntry) -> bool:
        """Make an outcome visible; False where its key has one, which stays."""
        key = entry.key
        with self._lock:
            if key in self._recent.pending or self._is_committed(key):
                return False
            self._recent.pending[key] = entry
            self._known().add(key)
        return True

    def __contains__(self, key: bytes) -> bool:
        return key in self._recent.pending or self._is_committed(key)

    def _is_committed(self, key: bytes) -> bool:
        if key not in self._known():
            return False
        return key in self._recent.rows or bool(self._query(lookup.IS_INDEXED, (key,)))

    def _known(self) -> KeyFilter:
        """All keys, read at the first question: a complete run asks none."""
        if self._filter is None:
            with self._loading:
                if self._filter is None:
                    self._filter = known_keys(self._query)
        return self._filter


def known_keys(query: reading.Query) -> KeyFilter:
    """A filter of all keys that are committed.

    Raises:
        StoreError: If outcomes have no key any more: they would be asked again.
    """
    known, n_keys = KeyFilter(), 0
    # Counted first: what is committed meanwhile is then no key that is missing.
    n_outcomes = lookup.n_counted(query)
    for keys in lookup.all_keys(query):
        if {*map(type, keys)} - {bytes} or {*map(len, keys)} - {KEY_BYTES}:
            raise damaged("the index of outcomes is", "an entry is not a key")
        known.add_all(keys)
        n_keys += len(keys)
    if n_keys < n_outcomes:
        raise damaged("the index of outcomes is", f"{n_keys:,} of {n_outcomes:,} keys")
    return known
