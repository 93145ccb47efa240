"""Writing to the tables of a store: the statements behind the entries."""

import logging
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import StoreError
from orchestrator.store import codec, schema
from orchestrator.store.entries import (
    FailureEntry,
    MetaEntry,
    NameEntry,
    OutcomeEntry,
    ServerEntry,
    UnitEntry,
)
from orchestrator.store.writer import Entry

logger = logging.getLogger(__name__)

WAL_WARNING_BYTES: Final = 256 << 20
# A log that is too long is begun again as soon as no reader needs it: how long to wait for that,
# and how often.
_RESTART_WAIT_MS: Final = 200
_RESTART_S: Final = 10.0
# How often a run on a network file system publishes a copy, seconds, and how many times longer
# than the copy itself takes that has to be at least.
_PUBLISH_S: Final = 60.0
_PUBLISH_RATIO: Final = 20.0

_OUTCOME: Final = """INSERT OR IGNORE INTO outcome
    (key, kind, model, server, cause, attempts, latency_s, at_ms, prompt_hash, head, arrays)
    VALUES (?,?,?,?,?,?,?,?,?,?,?)"""
_TALLY: Final = """INSERT INTO tally VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET
    n=n+excluded.n, n_requests=n_requests+excluded.n_requests,
    n_attempts=n_attempts+excluded.n_attempts,
    n_prompt_tokens=n_prompt_tokens+excluded.n_prompt_tokens,
    n_cached_tokens=n_cached_tokens+excluded.n_cached_tokens,
    n_completion_tokens=n_completion_tokens+excluded.n_completion_tokens,
    latency_s=latency_s+excluded.latency_s"""
_FAILURE: Final = """INSERT INTO failure VALUES (?,?,?,?,1,?,?,?) ON CONFLICT DO UPDATE SET n=n+1,
    last_key=excluded.last_key, last_message=excluded.last_message,
    last_at_ms=excluded.last_at_ms"""
# A unit that is done, or failed for good, stays as it is.
_UNIT: Final = """INSERT INTO unit (hash, status, frame, cause, rows) VALUES (?,?,?,?,?)
    ON CONFLICT(hash) DO UPDATE SET status=excluded.status, frame=excluded.frame,
    cause=excluded.cause, rows=excluded.rows WHERE unit.status > 1"""
PLACE: Final = "INSERT OR REPLACE INTO place SELECT ?, ?, id FROM unit WHERE hash=?"
_SERVER: Final = """INSERT INTO server VALUES (?,?,?,?,?)
    ON CONFLICT(id) DO UPDATE SET last_turn=excluded.last_turn"""


class Tables:
    """The writing connection of a store, used by the writer's thread.

    Args:
        path: The file.
        exclusive: Whether this connection is the only one there can be; others then share it.
        forget: Called with the keys of outcomes that were committed.
    """

    def __init__(self, path: Path, *, exclusive: bool, forget: Callable[[bytes], object]) -> None:
        self._path = path
        self._forget = forget
        self._lock = threading.Lock() if exclusive else nullcontext()
        self.is_exclusive = exclusive
        self._connection = schema.connect_writer(path, exclusive=exclusive)
        self._wal_is_long = False
        self._next_restart = float("-inf")
        self._next_publish = time.monotonic() + _PUBLISH_S
        if exclusive:
            logger.warning(
                "%s is kept locked, as its (network) file system needs: other commands see a copy "
                "that is a minute old or more",
                path,
            )

    def write(self, entries: Sequence[Entry]) -> None:
        """Commit entries in one transaction, in order."""
        shorter = {
            id(entry): codec.compress(entry.packed)
            for entry in entries
            if isinstance(entry, OutcomeEntry)
        }
        with self._transaction() as connection:
            batch = _Batch(connection)
            for entry in entries:
                batch.add(entry, shorter.get(id(entry)))
            batch.end()
        for entry in entries:
            if isinstance(entry, OutcomeEntry):
                self._forget(entry.key)
        self._look_after()

    def run(self, job: Callable[[sqlite3.Connection], object]) -> object:
        """The result of a job in a transaction of its own."""
        with self._transaction() as connection:
            return job(connection)

    def query(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Read over this connection; only for an exclusive one."""
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    def explain(self, error: Exception) -> StoreError:
        """What a failed write means to the user."""
        if isinstance(error, sqlite3.Error):
            return schema.explain(self._path, error)
        return StoreError(f"{self._path}: writing failed: {error!r}")

    def publish(self, target: Path) -> None:
        """Copy the store into one file that others can read; it is replaced as a whole.

        Raises:
            StoreError: If it can't be written.
        """
        temporary = target.with_suffix(".part")
        try:
            temporary.unlink(missing_ok=True)
            with self._lock:
                self._connection.execute("VACUUM INTO ?", (str(temporary),))
            temporary.replace(target)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{target}: the copy can't be written: {error}") from error

    def close(self) -> None:
        """Close the connection; the last one moves the write-ahead log into the file."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        with self._lock:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _look_after(self) -> None:
        wal_bytes = schema.file_size(schema.wal_path(self._path))
        if wal_bytes > WAL_WARNING_BYTES and not self._wal_is_long:
            logger.warning(
                "%s: the write-ahead log is %d MB long: a reader keeps it from being moved into "
                "the file, or the disk is slow",
                self._path,
                wal_bytes >> 20,
            )
        self._wal_is_long = wal_bytes > WAL_WARNING_BYTES
        if self._wal_is_long and time.monotonic() >= self._next_restart:
            self._restart_wal()
        if self.is_exclusive and time.monotonic() >= self._next_publish:
            self._publish_for_others()

    def _restart_wal(self) -> None:
        """Wait a moment for readers to let go, so that the log can begin again."""
        with self._lock:
            self._connection.execute(f"PRAGMA busy_timeout={_RESTART_WAIT_MS}")
            self._connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
            self._connection.execute(f"PRAGMA busy_timeout={round(schema.BUSY_S * 1000)}")
        self._next_restart = time.monotonic() + _RESTART_S

    def _publish_for_others(self) -> None:
        started = time.monotonic()
        try:
            self.publish(schema.snapshot_path(self._path))
        except StoreError as error:
            logger.warning("%s", error)
        now = time.monotonic()
        self._next_publish = now + max(_PUBLISH_S, _PUBLISH_RATIO * (now - started))


class _Batch:
    """The statements of one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._n_units: dict[int, int] = defaultdict(int)
        self._tallies: dict[tuple[int, int, int], list[float]] = defaultdict(lambda: [0] * 7)

    def add(self, entry: Entry, shorter: codec.Packed | None) -> None:
        """Write one entry."""
        match entry:
            case OutcomeEntry():
                self._add_outcome(entry, shorter or entry.packed)
            case UnitEntry():
                self._add_unit(entry)
            case FailureEntry():
                self._add_failure(entry)
            case NameEntry():
                self._execute("INSERT INTO name VALUES (?,?)", (entry.number, entry.text))
            case MetaEntry():
                self._execute("INSERT OR REPLACE INTO meta VALUES (?,?)", (entry.key, entry.value))
            case ServerEntry():
                row = (entry.number, entry.model, entry.provenance, entry.at_ms, entry.turn)
                self._execute(_SERVER, row)
            case _:
                raise TypeError(f"no table for {type(entry).__name__}")

    def end(self) -> None:
        """Write what was summed."""
        for plan, n in self._n_units.items():
            self._execute("UPDATE plan SET stamp=stamp+? WHERE id=?", (n, plan))
        for group, sums in self._tallies.items():
            self._execute(_TALLY, (*group, *sums))

    def _add_outcome(self, entry: OutcomeEntry, packed: codec.Packed) -> None:
        written = self._execute(
            _OUTCOME,
            (
                entry.key,
                entry.kind,
                entry.model,
                entry.server,
                entry.cause,
                entry.attempts,
                entry.latency_s,
                entry.at_ms,
                entry.prompt_hash,
                packed.head,
                packed.arrays,
            ),
        )
        if written.rowcount != 1:
            return
        sums = self._tallies[entry.model, entry.kind, entry.cause]
        spent = entry.spent
        added = (1, spent.n_requests, entry.attempts, *spent[1:], entry.latency_s)
        for column, value in enumerate(added):
            sums[column] += value
        if entry.failure is not None:
            self._add_failure(entry.failure)

    def _add_unit(self, entry: UnitEntry) -> None:
        row = (entry.unit_hash, entry.status, entry.frame, entry.cause, entry.rows)
        self._execute(_UNIT, row)
        self._n_units[entry.plan] += 1
        self._execute(PLACE, (entry.plan, entry.position, entry.unit_hash))

    def _add_failure(self, entry: FailureEntry) -> None:
        group = (entry.permanent, entry.model, entry.cause, entry.status)
        self._execute(_FAILURE, (*group, entry.key, entry.message, entry.at_ms))
