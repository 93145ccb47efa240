"""Stores of other runs, which are only read: those that have ended, and outcomes lent by them.

What is lent is what a store held when the first key was looked up: its keys are known from then
on, so that a key that it lacks costs no query, however many runs there are.
"""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from orchestrator.disk import files
from orchestrator.errors import OrchestratorError, RunDirectoryError
from orchestrator.records import Failure, Generation, Outcome
from orchestrator.store import codec, lookup, reading, schema, values
from orchestrator.store.codec import Packed
from orchestrator.store.connections import Reader
from orchestrator.store.entries import OutcomeEntry, tally_of
from orchestrator.store.interning import is_numbered, texts_of, with_names
from orchestrator.store.reading import StoredServer
from orchestrator.store.rundir import RunDirectory

_COUNTS: Final = "SELECT (SELECT count(*) FROM outcome), (SELECT coalesce(sum(n), 0) FROM tally)"
_LENT: Final = "server, attempts, latency_s, at_ms, prompt_hash, head, arrays"
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
    status = run.status()
    if owner.is_here or status is None or status.is_alive:
        raise RunDirectoryError(
            f"{run.path} is in use by {owner}: wait until it ends, or stop it; if it was killed, "
            "try again in a minute"
        )


@contextlib.contextmanager
def opened(run: Path, folder: Path) -> Iterator[EndedStore]:
    """Open the store of a run that has ended; nothing is written into the run.

    A new folder is made in `folder` if the run was killed: SQLite reads the log that was left
    behind by an index, which it would make beside it.

    Raises:
        RunDirectoryError: If there is no store, or it is another version's.
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
    with (
        schema.explained(path),
        contextlib.closing(schema.connect_uri(uri, sqlite3.Connection)) as connection,
    ):
        schema.check_store(connection, path)

        def query(sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
            return connection.execute(sql, values).fetchall()

        ((n, n_counted),) = query(_COUNTS, ())
        if n != n_counted:
            raise schema.damaged_file(path, f"it has {n:,} of {n_counted:,} outcomes")
        return EndedStore(run, uri, query)


Lent = tuple[Outcome, OutcomeEntry]
"""A good outcome of another run, decoded, and as that run holds it: `server` has its number there,
other numbers are 0."""


class Lender:
    """The store of another run.

    Nothing is written there.

    Attributes:
        path: Its run directory.
        meta: Values of the run.

    Raises:
        RunDirectoryError: If it is no run, or its store is of another schema.
        StoreError: If the store can't be opened.
    """

    def __init__(self, run: Path) -> None:
        path = RunDirectory.open(run).store_path
        self.path = run
        self._reader = Reader(path, None)
        try:
            self.meta = values.read(self._reader.query)
        except OrchestratorError:
            self._reader.close()
            raise

    def close(self) -> None:
        """Close its connections."""
        self._reader.close()

    def find(self, key: bytes) -> Lent | None:
        """Its outcome of a key; None where there is none, or a failure.

        Raises:
            StoreError: If it can't be read.
        """
        unsorted, known, _ = self._held
        if key not in known:
            return None
        found = lookup.stored(self._reader.query, _LENT, key, unsorted.get(key))
        if found is None:
            return None
        server, attempts, latency_s, at_ms, prompt_hash, head, arrays = found
        outcome = codec.decode(head, arrays, key)
        if isinstance(outcome, Failure):
            return None
        if isinstance(outcome, Generation) and is_numbered(outcome):
            outcome = with_names(outcome, self.tokens())
        entry = OutcomeEntry(
            key, 0, 0, server, 0, attempts, latency_s, at_ms, prompt_hash, Packed(head, arrays),
            None, tally_of(outcome, attempts, latency_s), None,
        )  # fmt: skip
        return outcome, entry

    def tokens(self, server: int | None = None) -> Mapping[int, bytes]:
        """Texts of a server's tokens by id, and of those that the run has numbered."""
        return texts_of(self._reader.query, [] if server is None else [server])

    def servers(self) -> Mapping[int, StoredServer]:
        """All servers by number, in the order they were met.

        Raises:
            StoreError: If they can't be read.
        """
        return self._held[2]

    @cached_property
    def _held(self) -> tuple[dict[bytes, int], lookup.KeyFilter, dict[int, StoredServer]]:
        """Rows of keys that are not sorted, all keys, and servers, read at the first question."""
        query = self._reader.query
        # These first: what is sorted meanwhile is found in its row all the same.
        unsorted: dict[bytes, int] = dict(query("SELECT key, row FROM outcome_key_new", ()))
        known = lookup.KeyFilter.of(query)
        # These last: a server is committed before what it answered.
        return unsorted, known, reading.servers(query)
