"""The values of a run, each with a checksum.

SQLite has none, so one more row of the table holds those of all others by their keys; it is written
together with them. Stores of earlier versions lack that row, and these versions leave it alone.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec

from orchestrator.errors import StoreError
from orchestrator.store.blobs import damaged

CHECKSUMS: Final = "checksums"
"""The key of the row that holds the checksums of the others."""
_PUT: Final = "INSERT OR REPLACE INTO meta VALUES (?,?)"


def read(query: Callable[[str, Sequence[object]], list[tuple[Any, ...]]]) -> dict[str, str]:
    """All values of the run.

    Raises:
        StoreError: If one is not as it was written.
    """
    found: dict[str, str] = dict(query("SELECT key, value FROM meta", ()))
    for key in faulty(found):
        raise _damaged(key)
    found.pop(CHECKSUMS, None)
    return found


def put(connection: sqlite3.Connection, values: Mapping[str, str]) -> None:
    """Write values and their checksums, within a transaction.

    The values of a store of an earlier version get theirs as they are.

    Raises:
        StoreError: If the checksums that are there can't be read.
    """
    row = connection.execute("SELECT value FROM meta WHERE key=?", (CHECKSUMS,)).fetchone()
    if row is None:
        before = connection.execute("SELECT key, value FROM meta")
        known: dict[str, str] | None = {key: _sum(value) for key, value in before}
    else:
        known = _sums(row[0])
    if known is None:
        raise _damaged(CHECKSUMS)
    sums = msgspec.json.encode(known | {key: _sum(value) for key, value in values.items()}).decode()
    connection.executemany(_PUT, {**values, CHECKSUMS: f"{_sum(sums)} {sums}"}.items())


def faulty(found: Mapping[str, str]) -> list[str]:
    """The keys whose values are not there as they were written, of all rows of the table.

    Where the row of checksums is itself damaged, that is the only one: nothing is known of others.
    """
    if CHECKSUMS not in found:
        return []
    known = _sums(found[CHECKSUMS])
    if known is None:
        return [CHECKSUMS]
    return sorted(
        key for key, said in known.items() if key not in found or _sum(found[key]) != said
    )


def _sums(row: str) -> dict[str, str] | None:
    """The checksums that the row holds, by key; None where it is damaged."""
    said, _, text = row.partition(" ")
    try:
        return msgspec.json.decode(text, type=dict[str, str]) if said == _sum(text) else None
    except msgspec.MsgspecError:
        return None


def _damaged(key: str) -> StoreError:
    return damaged(f"the value {key!r} of the run is", "its checksum differs")


def _sum(value: str) -> str:
    return f"{crc32(value.encode('utf-8', 'surrogatepass')):08x}"
