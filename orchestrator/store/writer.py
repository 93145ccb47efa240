"""The one thread that writes: entries in, group commits out, in the order they came."""

import sqlite3
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import add
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

import msgspec

from orchestrator.errors import StoreError
from orchestrator.store import blobs, codec, reading, values
from orchestrator.store.entries import (
    FailureEntry,
    MetaEntry,
    NameEntry,
    OutcomeEntry,
    ServerEntry,
    TokensEntry,
    UnitEntry,
)

if TYPE_CHECKING:
    from orchestrator.store.connections import Tables

COMMIT_RECORDS: Final = 1024
COMMIT_S: Final = 0.1
# Bounds one transaction when the disk is behind.
_MAX_BATCH: Final = 4096

T = TypeVar("T")


class Entry(Protocol):
    """Something to write."""

    @property
    def n_bytes(self) -> int:
        """Memory it holds, roughly."""
        ...


class _Job(msgspec.Struct, eq=False):
    run: Callable[[sqlite3.Connection], object]
    n_bytes: int = 0
    done: bool = False
    result: object = None


class Writer:
    """Queues entries without blocking and commits them from a thread of its own.

    After a failed write nothing more is accepted: every later call raises its `StoreError`.
    """

    def __init__(self, tables: "Tables") -> None:
        self._tables = tables
        self._queue: deque[Entry] = deque()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._ended = threading.Condition(self._lock)
        self._n_submitted = 0
        self._n_ended = 0
        self._n_urgent = 0
        self._closing = False
        self._rests = True
        self._error: StoreError | None = None
        self._error_met = False
        self.pending_bytes = 0
        # Daemon: a program that ends without closing must not hang. It loses what a kill loses.
        self._thread = threading.Thread(target=self._loop, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, entry: Entry) -> None:
        """Queue an entry; never waits.

        Raises:
            StoreError: If an earlier write failed, or the writer is closed.
        """
        with self._lock:
            self._check_open()
            self._append(entry)
            if len(self._queue) in {1, COMMIT_RECORDS}:
                self._work.notify()

    def call(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a job that runs after all that is queued; waits for it.

        Raises:
            StoreError: If it or an earlier write failed.
        """
        queued = _Job(job)
        with self._lock:
            self._check_open()
            self._append(queued)
            self._wait_for(self._n_submitted)
        return cast("T", queued.result)

    def flush(self) -> None:
        """Wait until everything submitted so far is on the disk.

        Raises:
            StoreError: If it could not be written.
        """
        with self._lock:
            self._wait_for(self._n_submitted)

    def close(self) -> None:
        """Write what is queued and end the thread. May be called twice.

        Raises:
            StoreError: If a write failed and nobody was told yet.
        """
        with self._lock:
            self._closing = True
            self._work.notify()
        self._thread.join()
        with self._lock:
            if not self._error_met:
                self._raise_error()

    def _append(self, entry: Entry) -> None:
        self._queue.append(entry)
        self._n_submitted += 1
        self.pending_bytes += entry.n_bytes

    def _wait_for(self, n: int) -> None:
        self._n_urgent = max(self._n_urgent, n)
        self._work.notify()
        self._ended.wait_for(lambda: self._n_ended >= n or self._error is not None)
        self._raise_error()

    def _check_open(self) -> None:
        self._raise_error()
        if self._closing:
            raise StoreError("the store is closed")

    def _raise_error(self) -> None:
        if self._error is not None:
            self._error_met = True
            # A new one each time: a raised exception keeps the frames it went through.
            raise StoreError(str(self._error)) from self._error

    def _loop(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                if not batch:
                    self._tables.rest()
                elif isinstance(batch[0], _Job):
                    batch[0].result = self._tables.run(batch[0].run)
                else:
                    self._tables.write(batch)
            # The thread's boundary: whatever ends it must reach the callers.
            except Exception as error:  # noqa: BLE001
                self._end(batch, self._tables.explain(error))
                return
            self._end(batch, None)

    def _next_batch(self) -> list[Entry] | None:
        """Return the entries to commit together; none when it is time to rest, None at the end."""
        with self._lock:
            patience = None if self._rests else self._tables.rest_s
            if not self._work.wait_for(lambda: self._closing or bool(self._queue), patience):
                self._rests = True
                return []
            self._rests = False
            self._work.wait_for(
                lambda: (
                    self._closing
                    or self._n_urgent > self._n_ended
                    or len(self._queue) >= COMMIT_RECORDS
                ),
                COMMIT_S,
            )
            if not self._queue:
                return None
            if isinstance(self._queue[0], _Job):
                return [self._queue.popleft()]
            batch: list[Entry] = []
            while self._queue and len(batch) < _MAX_BATCH:
                if isinstance(self._queue[0], _Job):
                    break
                batch.append(self._queue.popleft())
            return batch

    def _end(self, batch: list[Entry], error: StoreError | None) -> None:
        with self._lock:
            self._error = error
            if error is None:
                self._n_ended += len(batch)
                self.pending_bytes -= sum(entry.n_bytes for entry in batch)
            self._ended.notify_all()


# The statements of one transaction.
#
# Each statement lets go of Python's lock and has to wait for it afterwards, so there are few: rows
# are put in many at a time, and what is only summed is written at the end.


# Rows that one statement has room for: few forms of it, so that each is compiled once.
_ROWS: Final = (1, 4, 16, 64, 256)
# Numbers of places that one statement asks for: few forms of it, so that each is compiled once.
_PLACES: Final = (4, 16, 64, 256, 1024)
# From here on a unit may be evaluated again: it failed for the moment, or its method did.
_FIRST_OPEN: Final = 2

_OUTCOME_COLUMNS: Final = (
    "id", "key", "kind", "model", "server", "cause", "attempts", "latency_s", "at_ms",
    "prompt_hash", "head", "arrays",
)  # fmt: skip
_UNIT_COLUMNS: Final = ("id", "hash", "status", "frame", "cause", "rows")
_PLACE_COLUMNS: Final = ("plan", "position", "unit")
_NEW_KEYS: Final = """INSERT INTO outcome_key_new (row, key)
    SELECT id, key FROM outcome WHERE id BETWEEN ? AND ?"""

ADD_UP: Final = """INSERT INTO tally VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET
    n=n+excluded.n, n_requests=n_requests+excluded.n_requests,
    n_attempts=n_attempts+excluded.n_attempts,
    n_prompt_tokens=n_prompt_tokens+excluded.n_prompt_tokens,
    n_cached_tokens=n_cached_tokens+excluded.n_cached_tokens,
    n_completion_tokens=n_completion_tokens+excluded.n_completion_tokens,
    latency_s=latency_s+excluded.latency_s"""
"""Adds to the sums of outcomes: model, kind, cause, then what is added in the table's order."""
_FAILURE: Final = """INSERT INTO failure VALUES (?,?,?,?,1,?,?,?) ON CONFLICT DO UPDATE SET n=n+1,
    last_key=excluded.last_key, last_message=excluded.last_message,
    last_at_ms=excluded.last_at_ms"""
_SERVER: Final = """INSERT INTO server VALUES (?,?,?,?,?)
    ON CONFLICT(id) DO UPDATE SET last_turn=excluded.last_turn"""
_AGAIN: Final = "UPDATE unit SET status=?, frame=?, cause=?, rows=? WHERE id=?"


class Batches:
    """Writes entries over a connection that is in a transaction.

    Attributes:
        rows: The outcomes that were written last, by key.
        n_outcomes: The number that the last outcome was given; 0 before the first.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self.n_outcomes, self._n_units = (
            _highest(connection, name) for name in ("outcome", "unit")
        )
        self.rows: list[tuple[bytes, int]] = []

    def write(self, entries: Iterable[Entry]) -> None:
        """Write entries; those of one unit in their order."""
        self.rows = []
        outcomes: list[OutcomeEntry] = []
        units: list[UnitEntry] = []
        changed: dict[str, str] = {}
        for entry in entries:
            match entry:
                case OutcomeEntry():
                    outcomes.append(entry)
                case UnitEntry():
                    units.append(entry)
                case FailureEntry():
                    self._add_failure(entry)
                case NameEntry():
                    self._execute("INSERT INTO name VALUES (?,?)", (entry.number, entry.text))
                case MetaEntry():
                    changed[entry.key] = entry.value
                case ServerEntry():
                    row = (entry.number, entry.model, entry.provenance, entry.at_ms, entry.turn)
                    self._execute(_SERVER, row)
                case TokensEntry():
                    tokens = (entry.server, entry.texts)
                    self._execute("INSERT INTO token (server, texts) VALUES (?,?)", tokens)
                case _:
                    raise TypeError(f"no table stores {type(entry).__name__}")
        if outcomes:
            self._add_outcomes(outcomes)
        if units:
            self._add_units(units)
        if changed:
            values.put(self._connection, changed)

    def _add_failure(self, entry: FailureEntry) -> None:
        group = (entry.permanent, entry.model, entry.cause, entry.status)
        self._execute(_FAILURE, (*group, entry.key, entry.message, entry.at_ms))

    # -- outcomes --------------------------------------------------------------------------------

    def _add_outcomes(self, entries: Sequence[OutcomeEntry]) -> None:
        first = self.n_outcomes + 1
        stored = codec.compress((entry.packed, entry.content, entry.key) for entry in entries)
        rows = [
            (
                number,
                entry.key,
                entry.kind,
                entry.model,
                entry.server,
                entry.cause,
                entry.attempts,
                entry.latency_s,
                entry.at_ms,
                entry.prompt_hash,
                *packed,
            )
            for number, (entry, packed) in enumerate(zip(entries, stored, strict=True), first)
        ]
        self.rows = [(row[1], row[0]) for row in rows]
        self._insert("outcome", _OUTCOME_COLUMNS, rows)
        self.n_outcomes += len(rows)
        self._execute(_NEW_KEYS, (first, self.n_outcomes))
        tallies: dict[tuple[int, int, int], list[float]] = defaultdict(lambda: [0] * 7)
        for entry in entries:
            sums = tallies[entry.model, entry.kind, entry.cause]
            sums[:] = map(add, sums, entry.tally)
            if entry.failure is not None:
                self._add_failure(entry.failure)
        for group, sums in tallies.items():
            self._execute(ADD_UP, (*group, *sums))

    # -- units -----------------------------------------------------------------------------------

    def _add_units(self, entries: Sequence[UnitEntry]) -> None:
        """Put in units that are new at their position; others only if they may end once more."""
        stored = self._stored(entries)
        new: dict[tuple[int, int], tuple[UnitEntry, bytes]] = {}
        n_ended: dict[int, int] = defaultdict(int)
        packed = blobs.shorten([entry.rows for entry in entries])
        for entry, rows in zip(entries, map(blobs.checked, packed), strict=True):
            place = (entry.plan, entry.position)
            n_ended[entry.plan] += 1
            unit, status = stored.get(place, (0, _FIRST_OPEN))
            if status < _FIRST_OPEN:
                continue
            stored[place] = (unit, entry.status)
            if unit:
                self._execute(_AGAIN, (entry.status, entry.frame, entry.cause, rows, unit))
            else:
                new[place] = (entry, rows)
        first = self._n_units + 1
        self._insert(
            "unit",
            _UNIT_COLUMNS,
            [
                (number, entry.unit_hash, entry.status, entry.frame, entry.cause, rows)
                for number, (entry, rows) in enumerate(new.values(), first)
            ],
        )
        places = [(*place, number) for number, place in enumerate(new, first)]
        self._insert("place", _PLACE_COLUMNS, places)
        self._n_units += len(new)
        for plan, n in n_ended.items():
            self._execute("UPDATE plan SET stamp=stamp+? WHERE id=?", (n, plan))

    def _stored(self, entries: Sequence[UnitEntry]) -> dict[tuple[int, int], tuple[int, int]]:
        """Number and status of the units that stand at these places."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for plan in {entry.plan for entry in entries}:
            positions = [entry.position for entry in entries if entry.plan == plan]
            for part in reading.in_slices(positions, _PLACES[-1]):
                size = next(size for size in _PLACES if size >= len(part))
                rest = [None] * (size - len(part))
                sql = (
                    "SELECT p.position, u.id, u.status FROM place p JOIN unit u ON u.id=p.unit "  # noqa: S608
                    f"WHERE p.plan=? AND p.position IN ({','.join('?' * size)})"
                )
                for position, unit, status in self._execute(sql, (plan, *part, *rest)):
                    found[plan, position] = (unit, status)
        return found

    def _insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        for part in reading.in_slices(rows, _ROWS[-1]):
            size = next(size for size in _ROWS if size >= len(part))
            values = [value for row in part for value in row]
            values += [None] * (len(columns) * size - len(values))
            self._execute(_insertion(table, columns, size), values)


@cache
def _insertion(table: str, columns: Sequence[str], n_rows: int) -> str:
    """A statement that inserts rows, but none whose first column is NULL."""
    row = "(" + ",".join("?" * len(columns)) + ")"
    return (
        f"INSERT INTO {table} ({','.join(columns)}) "  # noqa: S608 (our own text)
        f"SELECT * FROM (VALUES {','.join([row] * n_rows)}) WHERE column1 IS NOT NULL"
    )


def _highest(connection: sqlite3.Connection, table: str) -> int:
    (number,) = connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()  # noqa: S608 (our own text)
    return int(number)
