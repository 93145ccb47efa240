"""Outcomes of other runs: found in their stores, which are only read, and copied byte for byte.

What is lent is what a store held when the first key was looked up: its keys are known from then
on, so that a key that it lacks costs no query, however many runs there are.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

from orchestrator.errors import OrchestratorError
from orchestrator.records import Failure, Generation, Outcome
from orchestrator.store import blobs, codec, compression, held, lookup, reading, values
from orchestrator.store.codec import Packed
from orchestrator.store.connections import Reader
from orchestrator.store.entries import OutcomeEntry, StoredServer, spent_on
from orchestrator.store.rundir import RunDirectory
from orchestrator.store.vocabulary import is_numbered, texts_of, with_names


class Lent(NamedTuple):
    """A good outcome as another run holds it.

    Attributes:
        outcome: Decoded.
        packed: As it is stored, with its checksums.
        server: Number of the server that gave it, in the store that lends.
        attempts: HTTP tries.
        latency_s: Of the last.
        at_ms: When it was recorded there, milliseconds since 1970.
        prompt_hash: Of the prompt as it was sent.
    """

    outcome: Outcome
    packed: Packed
    server: int
    attempts: int
    latency_s: float
    at_ms: int
    prompt_hash: bytes

    def entry(self, key: bytes, kind: int, model: int, server: int, cause: int) -> OutcomeEntry:
        """Return the entry for the store that borrows; the numbers are its own."""
        return OutcomeEntry(
            key, kind, model, server, cause, self.attempts, self.latency_s, self.at_ms,
            self.prompt_hash, self.packed, None, spent_on(self.outcome), None,
        )  # fmt: skip

    def as_new(self, outcome: Outcome, key: bytes) -> Self:
        """Return the same of an outcome whose tokens the store that borrows has numbered."""
        return self._replace(outcome=outcome, packed=compression.encode(outcome, key))


class Lender:
    """The store of another run.

    Args:
        run: Its directory; nothing is written there.

    Raises:
        RunDirectoryError: If it is no run, or its store is of another schema.
        StoreError: If the store can't be opened.
    """

    def __init__(self, run: Path) -> None:
        path = RunDirectory.open(run).store_path
        self.path = run
        self._reader = Reader(path, None)
        self._known: held.KeyFilter | None = None
        self._unsorted: dict[bytes, int] = {}
        self._servers: dict[int, StoredServer] = {}
        try:
            self._meta = values.read(self._reader.query)
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
        if key not in (self._known or self._read()):
            return None
        row = self._unsorted.get(key)
        if row is None:
            found = self._reader.query(lookup.LENT_OF_INDEXED, (key,))
        else:
            found = self._reader.query(lookup.LENT_OF_ROW, (key, row))
        if not found:
            return None
        *where, head, arrays = found[0]
        outcome = codec.decode(head, arrays, key)
        if isinstance(outcome, Failure):
            return None
        packed = as_stored(outcome, head, arrays, key)
        if isinstance(outcome, Generation) and is_numbered(outcome):
            outcome = with_names(outcome, self.tokens())
        return Lent(outcome, packed, *where)

    def tokens(self, server: int | None = None) -> Mapping[int, bytes]:
        """Texts of a server's tokens by id, and of those that the run has numbered."""
        return texts_of(self._reader.query, [] if server is None else [server])

    def server(self, number: int) -> StoredServer | None:
        """A server by its number there; None where it is not known."""
        return self.servers().get(number)

    def servers(self) -> Mapping[int, StoredServer]:
        """All servers by number, in the order they were met.

        Raises:
            StoreError: If they can't be read.
        """
        if self._known is None:
            self._read()
        return self._servers

    def get_meta(self, key: str) -> str | None:
        """A value of that run."""
        return self._meta.get(key)

    def _read(self) -> held.KeyFilter:
        query = self._reader.query
        # These first: what is sorted meanwhile is found in its row all the same.
        self._unsorted = dict(query("SELECT key, row FROM outcome_key_new", ()))
        self._known = held.known_keys(query)
        # These last: a server is committed before what it answered.
        self._servers = reading.servers(query)
        return self._known


def as_stored(outcome: Outcome | Failure, head: bytes, arrays: bytes, key: bytes) -> Packed:
    """Two stored blobs as they are, or made anew where they are of the time before checksums."""
    return Packed(head, arrays) if blobs.is_checked(head) else compression.encode(outcome, key)
