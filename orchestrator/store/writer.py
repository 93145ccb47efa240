"""The one thread that writes: entries in, group commits out, in the order they came."""

import asyncio
import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar, cast

import msgspec

from orchestrator.errors import StoreError

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


class Target(Protocol):
    """The destination of the thread's writes."""

    def write(self, entries: Sequence[Entry]) -> None:
        """Commit the entries in one transaction, in order."""
        ...

    def run(self, job: Callable[[sqlite3.Connection], object]) -> object:
        """The result of a job in a transaction of its own."""
        ...

    def rest(self) -> None:
        """Tidy up while nothing is to be written."""
        ...

    @property
    def rest_s(self) -> float:
        """Seconds after the last write at which to call `rest`."""
        ...

    def explain(self, error: Exception) -> StoreError:
        """Return the error that tells the user of a failed write."""
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

    def __init__(self, target: Target) -> None:
        self._target = target
        self._queue: deque[Entry] = deque()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._ended = threading.Condition(self._lock)
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
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

    async def wait_room(self, max_bytes: int) -> None:
        """Wait until fewer than `max_bytes` are queued.

        Raises:
            StoreError: If a write failed.
        """
        loop = asyncio.get_running_loop()
        while True:
            with self._lock:
                self._raise_error()
                if self.pending_bytes < max_bytes:
                    return
                future = loop.create_future()
                self._waiters.append((loop, future))
            await future

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
                    self._target.rest()
                elif isinstance(batch[0], _Job):
                    batch[0].result = self._target.run(batch[0].run)
                else:
                    self._target.write(batch)
            # The thread's boundary: whatever ends it must reach the callers.
            except Exception as error:  # noqa: BLE001
                self._end(batch, self._target.explain(error))
                return
            self._end(batch, None)

    def _next_batch(self) -> list[Entry] | None:
        """Return the entries to commit together; none when it is time to rest, None at the end."""
        with self._lock:
            patience = None if self._rests else self._target.rest_s
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
            waiters, self._waiters = self._waiters, []
        for loop, future in waiters:
            # The loop may have ended meanwhile.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_wake, future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
