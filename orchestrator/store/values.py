"""Values and plans of a run, each with a checksum, and rows of frames to bytes and back.

SQLite has none, so one more row of the table holds those of all others by their keys; it is written
together with them.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec
import numpy as np

from orchestrator.errors import StoreError
from orchestrator.store import blobs
from orchestrator.store.blobs import damaged

CHECKSUMS: Final = "checksums"
"""The key of the row that holds the checksums of the others."""
_DIFFERS: Final = "its checksum differs"
_PUT: Final = "INSERT OR REPLACE INTO meta VALUES (?,?)"


def read(query: Callable[[str, Sequence[object]], list[tuple[Any, ...]]]) -> dict[str, str]:
    """All values of the run.

    Raises:
        StoreError: If one is not as it was written.
    """
    found: dict[str, str] = dict(query("SELECT key, value FROM meta", ()))
    for key in faulty(found):
        raise damaged(f"the value {key!r} of the run is", _DIFFERS)
    found.pop(CHECKSUMS, None)
    return found


def put(connection: sqlite3.Connection, values: Mapping[str, str]) -> None:
    """Write values and their checksums, within a transaction.

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
        raise damaged(f"the value {CHECKSUMS!r} of the run is", _DIFFERS)
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


def _sum(value: str) -> str:
    return f"{crc32(value.encode('utf-8', 'surrogatepass')):08x}"


# Plans in the store: which is the current one, and where stored units stand in it.
#
# Units are stored by their hash, once for all plans; a plan only says at which of its positions a
# unit stands. Each step here is one transaction; a plan whose adoption was cut off is not
# `adopted`, and adopting it again goes on.


UNITS_AT_ONCE: Final = 20_000

_CURRENT: Final = "SELECT adopted FROM plan WHERE current AND hash=?"
_OPEN: Final = """INSERT INTO plan (hash, n_units, adopted, current, stamp) VALUES (?,?,?,1,0)
    ON CONFLICT(hash) DO UPDATE SET n_units=excluded.n_units, adopted=excluded.adopted, current=1"""
# Units are found by hash only here, so the index of their hashes lives only as long.
_BY_HASH: Final = "CREATE INDEX IF NOT EXISTS unit_by_hash ON unit (hash, status)"
_NO_MORE: Final = "DROP INDEX IF EXISTS unit_by_hash"
# Most units of a changed plan stand where they stood in the one before.
_BEFORE: Final = """SELECT p.position, u.hash, p.unit FROM place p JOIN unit u ON u.id=p.unit
    WHERE p.plan=(SELECT max(id) FROM plan WHERE id<>?) AND p.position BETWEEN ? AND ?
    AND u.status=0 ORDER BY p.position"""
_ALL_STAY: Final = """INSERT OR REPLACE INTO place SELECT ?1, position, unit FROM place
    WHERE plan=(SELECT max(id) FROM plan WHERE id<>?1) AND position BETWEEN ?2 AND ?3"""
_STAY: Final = "INSERT OR REPLACE INTO place (plan, position, unit) VALUES (?,?,?)"
_PLACE: Final = """INSERT OR REPLACE INTO place
    SELECT ?, ?, id FROM unit WHERE hash=? AND status<2 ORDER BY status LIMIT 1"""
_FORGET: Final = """DELETE FROM place
    WHERE plan=? AND unit IN (SELECT id FROM unit WHERE status>=2)"""
_UNPLACED: Final = "DELETE FROM unit WHERE status>=2 AND id NOT IN (SELECT unit FROM place)"


def open_plan(
    connection: sqlite3.Connection, plan_hash: bytes, n_units: int, values: Mapping[str, str]
) -> int:
    """Number of the plan, which is the current one from now on, with its values of the run."""
    found = connection.execute(_CURRENT, (plan_hash,)).fetchone()
    # What other plans ended meanwhile is not in this one: it has to adopt again.
    adopted = found[0] if found is not None else not has_units(connection)
    connection.execute("UPDATE plan SET current=0 WHERE current")
    connection.execute(_OPEN, (plan_hash, n_units, adopted))
    put(connection, values)
    (number,) = connection.execute("SELECT id FROM plan WHERE hash=?", (plan_hash,)).fetchone()
    # Units that failed for the moment are evaluated again by this call. If it ends before it does,
    # they are units that remain, not units with a cause of an earlier call, which may be gone.
    if connection.execute(_FORGET, (number,)).rowcount:
        connection.execute(_UNPLACED)
        connection.execute("UPDATE plan SET stamp=stamp+1 WHERE id=?", (number,))
    return int(number)


def has_units(connection: sqlite3.Connection) -> bool:
    """Return True if any unit is stored."""
    return connection.execute("SELECT 1 FROM unit LIMIT 1").fetchone() is not None


def place(connection: sqlite3.Connection, plan_id: int, units: Sequence[tuple[int, bytes]]) -> None:
    """Give those of the units that are stored their positions in the plan.

    Units are neighbours in the plan: position and hash, in order.
    """
    span = units[0][0], units[-1][0]
    found = connection.execute(_BEFORE, (plan_id, *span)).fetchall()
    if [row[:2] for row in found] == list(units):
        connection.execute(_ALL_STAY, (plan_id, *span))
        return
    before = {(position, unit_hash): unit for position, unit_hash, unit in found}
    stay = [(plan_id, unit[0], before[unit]) for unit in units if unit in before]
    connection.executemany(_STAY, stay)
    if len(stay) < len(units):
        connection.execute(_BY_HASH)
        moved = [(plan_id, *unit) for unit in units if unit not in before]
        connection.executemany(_PLACE, moved)


def end_adoption(connection: sqlite3.Connection, plan_id: int) -> None:
    """Mark a plan as having adopted all."""
    connection.execute(_NO_MORE)
    connection.execute("UPDATE plan SET adopted=1, stamp=stamp+1 WHERE id=?", (plan_id,))


_SURROGATE_TEXT: Final = 1


def encode(rows: Sequence[Sequence[object]]) -> bytes:
    """Rows of plain values (numpy scalars become Python's) as one blob, uncompressed.

    Raises:
        StoreError: If a value is of a type that can't be stored, or they are too long.
    """
    try:
        try:
            body = _encode(rows)
        except UnicodeEncodeError:
            body = _encode([[_surrogates_to_ext(value) for value in row] for row in rows])
        return blobs.seal(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(f"a row cannot be stored: {error}") from error


def decode(blob: bytes) -> list[tuple[object, ...]]:
    """The rows of a blob; sequences inside a row come back as lists.

    Raises:
        StoreError: If the blob is damaged or of an unknown version.
    """
    try:
        return _decode(blobs.open_blob(blob))
    except (msgspec.MsgspecError, ValueError) as error:
        raise blobs.damaged("stored rows are", error) from error


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"values of type {type(value).__name__} are not storable")


def _surrogates_to_ext(value: object) -> object:
    match value:
        case str():
            return msgspec.msgpack.Ext(_SURROGATE_TEXT, blobs.text_to_bytes(value))
        case list() | tuple():
            return [_surrogates_to_ext(inner) for inner in value]
        case dict():
            return {key: _surrogates_to_ext(inner) for key, inner in value.items()}
        case _:
            return value


def _ext_to_text(code: int, data: memoryview) -> str:
    if code != _SURROGATE_TEXT:
        raise msgspec.ValidationError(f"unknown extension {code}")
    return blobs.bytes_to_text(bytes(data))


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
_decode = msgspec.msgpack.Decoder(list[tuple[Any, ...]], ext_hook=_ext_to_text).decode
