"""Connections to a store: the one that writes, with its thread, and those that read."""

import ctypes
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import msgspec

from orchestrator.errors import StoreError
from orchestrator.store import schema
from orchestrator.store.entries import Batches, Entry, bytes_of
from orchestrator.store.lookup import Recent, sort_keys
from orchestrator.store.owner import Check

logger = logging.getLogger(__name__)
T = TypeVar("T")

WAL_WARNING_BYTES: Final = 256 << 20
# A log that is too long is begun again as soon as no reader needs it: how long to wait for that,
# and how often.
_RESTART_WAIT_S: Final = 0.2
_RESTART_S: Final = 10.0
# How long to wait at the end for readers, which read all of one moment.
_CLOSE_WAIT_S: Final = 5.0
CHECKPOINT_S: Final = 5.0
"""Longest time in seconds that committed data stays out of the file while nobody reads."""
# How often a run on a network file system publishes a copy, seconds, and how many times longer
# than the copy itself takes that has to be at least.
_PUBLISH_S: Final = 60.0
_PUBLISH_RATIO: Final = 20.0

COMMIT_RECORDS: Final = 1024
COMMIT_S: Final = 0.1
# Bounds one transaction when the disk is behind.
_MAX_BATCH: Final = 4096

# Newest keys that are sorted into their index together. The more, the more of them share a written
# page; but another process that looks up a key scans them, half a millisecond for so many.
_KEYS_TOGETHER: Final = 16_384


class Tables:
    """The writing connection of a store, used by the writer's thread.

    An `exclusive` connection is the only one there can be; others then share it. `check_owned` is
    called before anything is written, and raises `StoreError` to prevent it.

    Attributes:
        recent: Outcomes that the index does not know yet.
    """

    def __init__(self, path: Path, *, exclusive: bool, check_owned: Check = lambda: None) -> None:
        self._path = path
        self._check_owned = check_owned
        self.recent = Recent()
        self._lock = threading.Lock() if exclusive else nullcontext()
        self.is_exclusive = exclusive
        self._connection = schema.connect_writer(path, exclusive=exclusive)
        try:
            self._batches = Batches(self._connection)
            self.recent.committed(self._connection.execute("SELECT key, row FROM outcome_key_new"))
        except sqlite3.Error as error:
            self._connection.close()
            raise schema.explain(path, error) from error
        self.last_outcome = self._batches.n_outcomes
        """Number of the outcome that was committed last; 0 before the first."""
        # Of the batches of keys: which slices of their levels move on.
        self._turn = self.last_outcome // _KEYS_TOGETHER
        self._wal_is_long = False
        self._next_restart = float("-inf")
        self._next_checkpoint = time.monotonic() + CHECKPOINT_S
        self._is_moved = True
        self._next_publish = time.monotonic() + _PUBLISH_S
        if exclusive:
            logger.warning(
                "%s stays locked, as its (network) file system requires: other commands read a "
                "copy, which is a minute old or more",
                path,
            )

    def write(self, entries: Sequence[Entry]) -> None:
        """Commit entries in one transaction, in order."""
        with self.transaction():
            self._batches.write(entries)
        self.last_outcome = self._batches.n_outcomes
        self.recent.committed(self._batches.rows)
        self._is_moved = False
        if len(self.recent.rows) >= _KEYS_TOGETHER:
            self.sort_keys()
        self.look_after()

    def run(self, job: Callable[[sqlite3.Connection], object]) -> object:
        """The result of a job in a transaction of its own."""
        self._is_moved = False
        with self.transaction() as connection:
            return job(connection)

    def rest(self) -> None:
        """Move what is committed into the file, if that is not done: nothing is to be written."""
        if not self._is_moved:
            self._checkpoint("PASSIVE")

    def query(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Read over this connection; only for an exclusive one."""
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    def explain(self, error: Exception) -> StoreError:
        """Return the error that tells the user of a failed write."""
        if isinstance(error, StoreError):
            return error
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
            raise StoreError(f"{target}: the copy cannot be written: {error}") from error

    def close(self) -> None:
        """Move the write-ahead log into the file and close the connection."""
        try:
            self.sort_keys()
            # SQLite would, unless another process has the file open.
            self._checkpoint("TRUNCATE", _CLOSE_WAIT_S)
        except StoreError as error:
            # Told before, to whoever waited for a write.
            logger.debug("%s", error)
            # Never closed, not even when this program ends: SQLite moves the write-ahead log into
            # the file on closing, but the file is another process's now. Python 3.11 has no way to
            # ask it not to.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
            return
        except sqlite3.Error as error:
            # They can be found where they are, and whatever is wrong was told before.
            logger.debug("%s: %s", self._path, error)
        self._connection.close()

    def sort_keys(self) -> None:
        """Sort the newest keys into their index."""
        if not self.recent.rows:
            return
        n = self.last_outcome
        turn = n // _KEYS_TOGETHER
        with self.transaction() as connection:
            sort_keys(connection, n, range(self._turn, turn), _KEYS_TOGETHER)
        self._turn = turn
        # The index has them from now on.
        self.recent.rows = {}

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is done inside, or nothing of it, by who still owns the run."""
        with self._lock:
            self._check_owned()
            with schema.transaction(self._connection) as connection:
                yield connection
                # The file server may have kept us waiting for minutes.
                self._check_owned()

    def look_after(self) -> None:
        """Shorten a long log, move what is committed into the file, publish a copy; when due."""
        wal_bytes = schema.file_size(schema.wal_path(self._path))
        if wal_bytes > WAL_WARNING_BYTES and not self._wal_is_long:
            logger.warning(
                "%s: the write-ahead log has grown to %d MB: a reader blocks checkpoints, or the "
                "disk is slow",
                self._path,
                wal_bytes >> 20,
            )
        self._wal_is_long = wal_bytes > WAL_WARNING_BYTES
        if self._wal_is_long and time.monotonic() >= self._next_restart:
            # Wait a moment for readers to let go, so that the log can begin again.
            self._checkpoint("RESTART", _RESTART_WAIT_S)
            self._next_restart = time.monotonic() + _RESTART_S
        elif time.monotonic() >= self._next_checkpoint:
            self._checkpoint("PASSIVE")
        if self.is_exclusive and time.monotonic() >= self._next_publish:
            self._check_owned()
            started = time.monotonic()
            try:
                self.publish(schema.snapshot_path(self._path))
            except StoreError as error:
                logger.warning("%s", error)
            now = time.monotonic()
            self._next_publish = now + max(_PUBLISH_S, _PUBLISH_RATIO * (now - started))

    def _checkpoint(self, how: str, wait_s: float = schema.BUSY_S) -> None:
        """Move what is committed into the file, as far as readers let go of what was before.

        Whoever copies the file alone, or loses the log beside it, then lacks some seconds only.
        """
        with self._lock:
            self._check_owned()
            self._connection.execute(f"PRAGMA busy_timeout={round(1000 * wait_s)}")
            self._connection.execute(f"PRAGMA wal_checkpoint({how})").fetchall()
            self._connection.execute(f"PRAGMA busy_timeout={round(1000 * schema.BUSY_S)}")
        self._is_moved = True
        self._next_checkpoint = time.monotonic() + CHECKPOINT_S


class _Job(msgspec.Struct, eq=False):
    run: Callable[[sqlite3.Connection], object]
    ended: Future[Any]


class Writer:
    """Queues entries without blocking and commits them from a thread of its own.

    After a failed write nothing more is accepted: every later call raises its `StoreError`.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._queue: deque[Entry | _Job] = deque()
        # Jobs in the queue: somebody waits for them.
        self._n_jobs = 0
        self._work = threading.Condition()
        self._closing = False
        self._rests = True
        self._error: StoreError | None = None
        self._error_met = False
        self.pending_bytes = 0
        # Daemon: a program that ends without closing must not hang. It loses what a kill loses.
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, entry: Entry) -> None:
        """Queue an entry; never waits.

        Raises:
            StoreError: If an earlier write failed, or the writer is closed.
        """
        with self._work:
            self._check_open()
            self._queue.append(entry)
            self.pending_bytes += bytes_of(entry)
            if len(self._queue) in {1, COMMIT_RECORDS}:
                self._work.notify()

    def call(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a job that runs after all that is queued; waits for it.

        Raises:
            StoreError: If it or an earlier write failed.
        """
        ended: Future[T] = Future()
        with self._work:
            self._check_open()
            self._queue.append(_Job(job, ended))
            self._n_jobs += 1
            self._work.notify()
        try:
            return ended.result()
        except CancelledError:
            self._raise_error()
            raise

    def flush(self) -> None:
        """Wait until everything submitted so far is on the disk.

        Raises:
            StoreError: If it could not be written.
        """
        self._raise_error()
        if self.pending_bytes:
            self.call(lambda _: None)

    def close(self) -> None:
        """Write what is queued and end the thread. May be called twice.

        Raises:
            StoreError: If a write failed and nobody was told yet.
        """
        with self._work:
            self._closing = True
            self._work.notify()
        self._thread.join()
        if not self._error_met:
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

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            try:
                if isinstance(batch, _Job):
                    batch.ended.set_result(self._tables.run(batch.run))
                elif batch:
                    self._tables.write(batch)
                else:
                    self._tables.rest()
            # The thread's boundary: whatever ends it must reach the callers.
            except Exception as error:  # noqa: BLE001
                with self._work:
                    self._error = self._tables.explain(error)
                    for left in (batch, *self._queue):
                        if isinstance(left, _Job):
                            left.ended.cancel()
                return
            if not isinstance(batch, _Job):
                with self._work:
                    self.pending_bytes -= sum(map(bytes_of, batch))

    def _next(self) -> list[Entry] | _Job | None:
        """Return entries to commit together, or a job; no entries to rest, and None at the end."""
        with self._work:
            patience = None if self._rests else CHECKPOINT_S
            if not self._work.wait_for(lambda: self._closing or bool(self._queue), patience):
                self._rests = True
                return []
            self._rests = False
            self._work.wait_for(
                lambda: self._closing or self._n_jobs or len(self._queue) >= COMMIT_RECORDS,
                COMMIT_S,
            )
            if not self._queue:
                return None
            batch: list[Entry] = []
            while self._queue and len(batch) < _MAX_BATCH:
                first = self._queue.popleft()
                if not isinstance(first, _Job):
                    batch.append(first)
                elif batch:
                    self._queue.appendleft(first)
                    break
                else:
                    self._n_jobs -= 1
                    return first
            return batch


class Reader:
    """Answers statements on the caller's thread.

    Where `shared`, over that connection, else over one for each thread. `at_once` reads all of one
    moment, whatever is written meanwhile: SQLite keeps what was overwritten since in the
    write-ahead log until this closes.
    """

    def __init__(self, path: Path, shared: Tables | None, *, at_once: bool = False) -> None:
        self._path = path
        self._shared = shared
        self._at_once = at_once
        self._local = SimpleNamespace() if at_once else threading.local()
        self._lock = threading.Lock() if at_once else nullcontext()
        self._opened: list[sqlite3.Connection] = []
        self._is_closed = False

    def query(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """All rows of one statement.

        Raises:
            RunDirectoryError: If the file is not a store, or of a newer schema.
        """
        if self._is_closed:
            raise StoreError(f"{self._path} is closed")
        try:
            if self._shared is not None:
                return self._shared.query(sql, values)
            with self._lock:
                try:
                    connection: sqlite3.Connection = self._local.connection
                except AttributeError:
                    connection = self._local.connection = self._open()
                return connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise schema.explain(self._path, error) from error

    def _open(self) -> sqlite3.Connection:
        connection = schema.connect_reader(self._path)
        self._opened.append(connection)
        if self._at_once:
            # Begins with the first statement, and is never ended.
            connection.execute("BEGIN")
        return connection

    def close(self) -> None:
        """Close the connections of all threads."""
        self._is_closed = True
        while self._opened:
            self._opened.pop().close()
