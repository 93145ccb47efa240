"""Reading a store within bounds; and that of another user without a trace beside it."""

import atexit
import shutil
import sqlite3
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from orchestrator.disk import files

_STATEMENT_S: Final = 60.0
# A slow disk reads so many, and checking what was read takes less.
_BYTES_PER_S: Final = 1 << 20
# SQLite's own steps between two looks at the clock: some milliseconds.
_STEPS: Final = 100_000
# Longer than any stored value, which is compressed, can be.
_MOST_VALUE_BYTES: Final = 256 << 20

_held: Final = ExitStack()
atexit.register(_held.close)
_copies: dict[tuple[tuple[Path, int, int], ...], Path] = {}


def copy_of(store: Path, log: Path) -> Path:
    """Return a copy of a store and its log, made once, that goes when this process ends.

    What a killed process left goes when the next one makes a copy.

    Raises:
        OSError: If it can't be made.
    """
    stamp = tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in (store, log))
    found = _copies.get(stamp)
    if found is None:
        found = _copies[stamp] = _held.enter_context(files.temporary_folder())
        for path in (store, log):
            shutil.copyfile(path, found / path.name, follow_symlinks=False)
    return found / store.name


class BoundedConnection(sqlite3.Connection):
    """A connection whose statements end with an error after some time, and whose values are short.

    A file can be made, or damaged, so that a statement never ends.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 (those of sqlite3)
        super().__init__(*arguments, **options)
        self._began = time.monotonic()
        self._most_s = _STATEMENT_S
        self._is_interrupted = False
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE_BYTES)
        self.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self.set_progress_handler(self._is_late, _STEPS)

    def execute(self, *arguments: Any) -> sqlite3.Cursor:  # noqa: ANN401 (those of sqlite3)
        """Execute a statement within the bound."""
        self._began = time.monotonic()
        try:
            return super().execute(*arguments)
        except sqlite3.OperationalError:
            if self._is_interrupted:
                raise KeyboardInterrupt from None
            raise

    def allow(self, n_bytes: int) -> None:
        """Let a statement take a minute, and the time that reading so many bytes takes."""
        self._most_s = _STATEMENT_S + n_bytes / _BYTES_PER_S

    def _is_late(self) -> bool:
        # SQLite ends the statement, and knows nothing of the error.
        try:
            return time.monotonic() - self._began > self._most_s
        except KeyboardInterrupt:
            self._is_interrupted = True
            return True
