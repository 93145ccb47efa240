"""Reading connections: one for each thread, or the writer's where there can be no other."""

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
    """

    def __init__(self, path: Path, shared: Tables | None) -> None:
        self._path = path
        self._shared = shared
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
            try:
                connection: sqlite3.Connection = self._local.connection
            except AttributeError:
                connection = self._local.connection = schema.connect_reader(self._path)
                with self._lock:
                    self._opened.append(connection)
            return connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise schema.explain(self._path, error) from error

    def close(self) -> None:
        """Close the connections of all threads."""
        self._is_closed = True
        with self._lock:
            opened, self._opened = self._opened, []
        for connection in opened:
            connection.close()
