"""Stores that nobody writes: those of runs that have ended."""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator.disk import files
from orchestrator.errors import RunDirectoryError, StoreError
from orchestrator.store import reading, schema, values
from orchestrator.store.entries import StoredServer
from orchestrator.store.rundir import RunDirectory

_COUNTS: Final = "SELECT (SELECT count(*) FROM outcome), (SELECT coalesce(sum(n), 0) FROM tally)"
_LAST: Final = """SELECT (SELECT coalesce(max(id), 0) FROM outcome),
    (SELECT coalesce(max(id), 0) FROM unit)"""


class EndedStore:
    """A store that nobody writes; see `opened`.

    Attributes:
        run: Its run directory.
        uri: Address of the file for SQLite, read-only.
        meta: Values of the run.
        servers: Its servers by number.
        plan: Hash of the plan that was opened last; None before the first.
        last_outcome: Highest number of an outcome.
        last_unit: Highest number of a unit.
    """

    def __init__(self, run: Path, uri: str, query: reading.Query) -> None:
        self.run = run
        self.uri = uri
        self.meta = values.read(query)
        self.servers: dict[int, StoredServer] = reading.servers(query)
        found = query("SELECT hash FROM plan WHERE current", ())
        self.plan: bytes | None = found[0][0] if found else None
        ((self.last_outcome, self.last_unit),) = query(_LAST, ())

    @property
    def path(self) -> Path:
        """The file."""
        return RunDirectory(self.run).store_path


def check_ended(run: RunDirectory) -> None:
    """See that nobody writes a run.

    Raises:
        RunDirectoryError: If its process lives, or may live on another machine.
    """
    owner = run.holder()
    if owner is None:
        return
    status = run.read_status()
    if owner.is_here or status is None or status.is_alive:
        raise RunDirectoryError(
            f"{run.path} is in use by {owner}: wait until it ends, or stop it; if it was killed, "
            "try again in a minute"
        )


@contextlib.contextmanager
def opened(run: Path, folder: Path) -> Iterator[EndedStore]:
    """Open the store of a run that has ended; nothing is written into the run.

    Args:
        run: The run directory.
        folder: A new folder is made in it if the run was killed: SQLite reads the log that was
            left behind by an index, which it would make beside it.

    Raises:
        RunDirectoryError: If there is no store, or it is another version's.
        StoreError: If it is damaged.
    """
    path = RunDirectory.open(run).store_path
    schema.check_files(path)
    if not schema.file_size(path):
        raise RunDirectoryError(f"{path} does not exist or is empty: no run has been started there")
    with contextlib.ExitStack() as stack:
        file, mode = path, "ro&immutable=1"
        if schema.file_size(schema.wal_path(path)):
            apart = Path(tempfile.mkdtemp(prefix="log-", dir=folder))
            stack.callback(shutil.rmtree, apart, ignore_errors=True)
            for original in (path, schema.wal_path(path)):
                files.link_or_copy(original, apart / original.name)
            file, mode = apart / path.name, "ro"
        yield _read(run, path, f"{file.absolute().as_uri()}?mode={mode}")


def _read(run: Path, path: Path, uri: str) -> EndedStore:
    # Only what is done here is a fault of this file.
    with explained(path), contextlib.closing(schema.connect_uri(uri)) as connection:
        schema.check_store(connection, path)
        query = _querying(connection)
        ((n, n_counted),) = query(_COUNTS, ())
        if n != n_counted:
            raise schema.damaged_file(path, f"it has {n:,} of {n_counted:,} outcomes")
        return EndedStore(run, uri, query)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Name the file, what is wrong with it and the remedy where SQLite or a record is at fault."""
    try:
        yield
    except sqlite3.Error as error:
        raise schema.explain(path, error) from error
    except StoreError as error:
        if str(path) in str(error):
            raise
        raise StoreError(f"{path}: {error}") from error


def _querying(
    connection: sqlite3.Connection,
) -> Callable[[str, Sequence[object]], list[tuple[Any, ...]]]:
    return lambda sql, values: connection.execute(sql, values).fetchall()
