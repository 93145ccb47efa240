"""Finding outcomes by key, without asking the file where possible.

Keys are hashes: an index of them that is kept up to date touches another page for every record. So
the keys of the newest outcomes stand in the order in which they came (`outcome_key_new`), and are
sorted into the index (`outcome_key`) many at a time, where that is large by way of smaller ones
(`outcome_key_level`). A key only moves in this direction, and is in one of them.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from threading import RLock
from typing import Any, Final, Self

import numpy as np

from orchestrator.ask import KEY_BYTES
from orchestrator.store import reading
from orchestrator.store.blobs import damaged
from orchestrator.store.entries import OutcomeEntry

# Sorting keys into their index by way of smaller indexes, so that few pages are written for each.
#
# Keys are hashes: a batch of them that is sorted into a large index touches nearly a page each. A
# log-structured merge-tree (O'Neil et al. 1996) avoids that. A batch is sorted into the first
# level; then a slice of each level, a range of keys as large as a batch, moves on to the next one.
# Level l is a cycle of 16^l slices, so it holds at most as many batches, and a batch always meets a
# range of the next level in which many of its keys share a page. After the last level comes the
# index itself.


LEVELS: Final = (1, 2, 3)
FAN_OUT: Final = 16
"""Factor by which each level has more slices than the one before it."""
# Of a key, enough to tell the slices of the last level apart.
_PREFIX_BYTES: Final = 2
# Greater than every key.
_END: Final = b"\xff" * 17

_SORT: Final = """INSERT OR IGNORE INTO outcome_key (key, row)
    SELECT key, row FROM outcome_key_new ORDER BY key, row"""
_SORT_INTO_LEVEL: Final = """INSERT OR IGNORE INTO outcome_key_level (level, key, row)
    SELECT 1, key, row FROM outcome_key_new ORDER BY key, row"""
_SLICE: Final = "FROM outcome_key_level WHERE level=?1 AND key>=?2 AND key<?3"
_MOVE: Final = f"""INSERT OR IGNORE INTO outcome_key (key, row)
    SELECT key, row {_SLICE} ORDER BY key"""
_MOVE_ON: Final = f"""INSERT OR IGNORE INTO outcome_key_level (level, key, row)
    SELECT ?1+1, key, row {_SLICE} ORDER BY key"""
_TAKE_OUT: Final = f"DELETE {_SLICE}"


def n_levels(n: float, n_batch: int) -> int:
    """Return how many levels come before an index of n keys: none while it is small."""
    return sum(n >= n_batch * FAN_OUT**level for level in LEVELS)


def sort_keys(connection: sqlite3.Connection, n: int, turns: range, n_batch: int) -> None:
    """Sort the newest keys in, within a transaction.

    Each of the `turns` moves a slice of each level.
    """
    ((deepest,),) = connection.execute("SELECT ifnull(max(level), 0) FROM outcome_key_level")
    last = max(n_levels(n, n_batch), deepest)
    size = _PREFIX_BYTES
    # The last level first: what moves out of one makes room for what moves in.
    for level in range(last, 0, -1):
        n_slices = FAN_OUT**level
        width = 256**size // n_slices
        for turn in turns:
            first = turn % n_slices * width
            # The first key of the slice, and the first one after it.
            is_last = first + width == 256**size
            after = _END if is_last else (first + width).to_bytes(size, "big")
            part = (level, first.to_bytes(size, "big"), after)
            connection.execute(_MOVE if level == last else _MOVE_ON, part)
            connection.execute(_TAKE_OUT, part)
    connection.execute(_SORT_INTO_LEVEL if last else _SORT)
    connection.execute("DELETE FROM outcome_key_new")


_LOADED_AT_ONCE: Final = 50_000

_LEVELS: Final = ",".join(map(str, LEVELS))
_IN_LEVELS: Final = f"SELECT row FROM outcome_key_level WHERE level IN ({_LEVELS}) AND key=?1"  # noqa: S608 (our own text)
# The row of a key that is sorted, or NULL.
_SORTED: Final = f"coalesce((SELECT row FROM outcome_key WHERE key=?1), ({_IN_LEVELS}))"  # noqa: S608 (our own text)
_IS_INDEXED: Final = f"SELECT 1 WHERE {_SORTED} IS NOT NULL"
# The row of a key wherever it stands, for who does not know where to look.
_ROW: Final = f"coalesce({_SORTED}, (SELECT row FROM outcome_key_new WHERE key=?1))"  # noqa: S608 (our own text)
_KEYS_OF_LEVEL: Final = """SELECT key FROM outcome_key_level WHERE level=? AND key>?
    ORDER BY key LIMIT ?"""
_INDEXED_KEYS: Final = "SELECT key FROM outcome_key WHERE key>? ORDER BY key LIMIT ?"


def stored(
    query: reading.Query,
    columns: str,
    key: bytes,
    row: int | None = None,
    *,
    anywhere: bool = False,
) -> tuple[Any, ...] | None:
    """Columns of a committed outcome; None where there is none.

    It is looked for in its row, by default the one that the index says; `anywhere` also among the
    keys that are not sorted.
    """
    at = "?2" if row is not None else _ROW if anywhere else _SORTED
    # An outcome of another key, as a damaged index would give, is none.
    sql = f"SELECT {columns} FROM outcome WHERE id={at} AND key=?1"  # noqa: S608 (our own text)
    found = query(sql, (key,) if row is None else (key, row))
    return found[0] if found else None


def _in_order(query: reading.Query, sql: str, *values: int) -> Iterator[list[bytes]]:
    last = b""
    while found := query(sql, (*values, last, _LOADED_AT_ONCE)):
        yield [key for (key,) in found]
        last = reading.grown(last, found[-1][0])


# Keys with an outcome, looked up without asking the file where possible.
#
# Most keys that are looked up are new. A filter of fixed size answers for these; what waits for the
# disk and what was written last is found by a dictionary; only the rest is a query.


# 4 MiB. Of keys that are not held, 3 % pass among a million and cost a query each.
_FILTER_BITS: Final = 25
_MASK: Final = (1 << _FILTER_BITS) - 1


class KeyFilter:
    """A set of keys that never forgets one, and seldom takes another for it.

    Keys are hashes, so that their first bytes are as good as any hash of them.
    """

    def __init__(self) -> None:
        self._bits = bytearray(1 << (_FILTER_BITS - 3))

    @classmethod
    def of(cls, query: reading.Query) -> Self:
        """A filter of all keys that are committed.

        Raises:
            StoreError: If outcomes have no key any more: they would be asked again.
        """
        known, n_keys = cls(), 0
        # Counted first: what is committed meanwhile is then no key that is missing.
        ((n_outcomes,),) = query("SELECT coalesce(sum(n), 0) FROM tally", ())
        # These first: they may be moved into the index meanwhile.
        new = [key for (key,) in query("SELECT key FROM outcome_key_new", ())]
        levels = (_in_order(query, _KEYS_OF_LEVEL, level) for level in LEVELS)
        for keys in chain([new], *levels, _in_order(query, _INDEXED_KEYS)):
            if {*map(type, keys)} - {bytes} or {*map(len, keys)} - {KEY_BYTES}:
                raise damaged("the index of outcomes is", "an entry is not a key")
            known.update(keys)
            n_keys += len(keys)
        if n_keys < n_outcomes:
            raise damaged("the index of outcomes is", f"{n_keys:,} of {n_outcomes:,} keys")
        return known

    def add(self, key: bytes) -> None:
        """Add a key."""
        bit = int.from_bytes(key[:4], "little") & _MASK
        self._bits[bit >> 3] |= 1 << (bit & 7)

    def update(self, keys: Sequence[bytes]) -> None:
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
        rows: Those that are, until the index has them: their row by key.
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


class Held:
    """The outcomes of a store that this process alone writes to."""

    def __init__(self, query: reading.Query, recent: Recent) -> None:
        self._query = query
        self._recent = recent
        self._lock = RLock()
        self._filter: KeyFilter | None = None

    def blobs(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Head and arrays of an outcome; None where there is none."""
        entry = self._recent.pending.get(key)
        if entry is not None:
            return entry.packed
        if key not in self._known():
            return None
        return stored(self._query, "head, arrays", key, self._recent.rows.get(key))

    def server(self, key: bytes) -> int:
        """Number of the server that gave an outcome; 0 where there is none."""
        entry = self._recent.pending.get(key)
        if entry is not None:
            return entry.server
        found = stored(self._query, "server", key, self._recent.rows.get(key))
        return int(found[0]) if found else 0

    def add(self, entry: OutcomeEntry) -> bool:
        """Make an outcome visible; False where its key has one, which stays."""
        key = entry.key
        with self._lock:
            known, recent = self._known(), self._recent
            if key in recent.pending or key in recent.rows:
                return False
            if key in known and self._query(_IS_INDEXED, (key,)):
                return False
            recent.pending[key] = entry
            known.add(key)
        return True

    def _known(self) -> KeyFilter:
        """All keys, read at the first question: a complete run asks none."""
        if self._filter is None:
            with self._lock:
                if self._filter is None:
                    self._filter = KeyFilter.of(self._query)
        return self._filter
