"""Reading connections: one for each thread, one for all, or the writer's."""

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import StoreError
from orchestrator.store import schema
from orchestrator.store.tables import Tables


class Reader:
    """Answers statements on the caller's thread.

    Args:
        path: The file.
        shared: Whose connection to read over; None to open one for each thread.
        at_once: Read all of one moment, whatever is written meanwhile, over one connection. SQLite
            keeps what was overwritten since in the write-ahead log until this closes.
    """

    def __init__(self, path: Path, shared: Tables | None, *, at_once: bool = False) -> None:
        self._path = path
        self._shared = shared
        self._at_once = at_once
        self._snapshot: sqlite3.Connection | None = None
        self._local = threading.local()
        self._lock = threading.Lock()
        self._opened: list[sqlite3.Connection] = []
        self._is_closed = False

    def query(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """All rows of one statement.

        Raises:
            RunDirectoryError: If the file is not a store, or of a newer schema.
            StoreError: If it can't be read.
        """
        if self._is_closed:
            raise StoreError(f"{self._path} is closed")
        try:
            if self._shared is not None:
                return self._shared.query(sql, values)
            if self._at_once:
                with self._lock:
                    return self._moment().execute(sql, values).fetchall()
            try:
                connection: sqlite3.Connection = self._local.connection
            except AttributeError:
                connection = self._local.connection = schema.connect_reader(self._path)
                with self._lock:
                    self._opened.append(connection)
            return connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise schema.explain(self._path, error) from error

    def _moment(self) -> sqlite3.Connection:
        """The connection whose transaction begins with its first statement, and is never ended."""
        if self._snapshot is None:
            self._snapshot = schema.connect_reader(self._path)
            self._opened.append(self._snapshot)
            self._snapshot.execute("BEGIN")
        return self._snapshot

    def close(self) -> None:
        """Close the connections of all threads."""
        self._is_closed = True
        with self._lock:
            opened, self._opened = self._opened, []
        for connection in opened:
            connection.close()
