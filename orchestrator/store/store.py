"""The durable store of one run: outcomes by key, and units by their place in a plan.

What is put is visible at once, committed within 100 ms, and never overwritten. Entries are
committed in the order they came, so a unit's rows never precede the outcomes they rest on.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from orchestrator.backend import Provenance
from orchestrator.errors import OrchestratorError, StoreError
from orchestrator.records import Failure, Generation, Outcome
from orchestrator.store import blobs, codec, lookup, reading, schema, values
from orchestrator.store.connections import Reader, Tables, Writer
from orchestrator.store.entries import (
    Entry,
    MetaEntry,
    OutcomeEntry,
    UnitEntry,
    failure_entry,
    tally_of,
    wall_ms,
)
from orchestrator.store.interning import Names, Servers, Vocabulary, texts_of
from orchestrator.store.lending import Lent
from orchestrator.store.lookup import Held
from orchestrator.store.owner import Check, is_network_fs
from orchestrator.store.reading import Readings, StoredServer
from orchestrator.store.values import UNITS_AT_ONCE, end_adoption, has_units, open_plan, place


class Store(Readings):
    """The store of one run. Open it with `Store.open`.

    One process may write; that is for `RunDirectory.lock` to see to.

    All methods may be called from any thread. `put_*`, `server_id` and `set_meta` never wait;
    point reads take about 0.01 ms; the others are for start, end and displays.

    Attributes:
        servers: Servers that answered, also those of other runs that lent outcomes.
        vocabulary: Texts of tokens.
        meta: Values of the run (seed, versions, …), which `set_meta` sets.
    """

    def __init__(self, path: Path, tables: Tables | None) -> None:
        self.path = path
        self._tables = tables
        shared = tables if tables is not None and tables.is_exclusive else None
        self._reader = Reader(path, shared, at_once=tables is None)
        self._query = self._reader.query
        self._names = Names(self._query, self.submit)
        self.servers = Servers(self._query, self.submit)
        self.vocabulary = Vocabulary(self._query, self.submit)
        self.meta = values.read(self._query)
        # Others may write while this one only reads, so nothing is known without asking.
        self._held = None if tables is None else Held(self._query, tables.recent)
        self._writer = None if tables is None else Writer(tables)

    @classmethod
    def open(
        cls, path: Path, *, read_only: bool = False, check_owned: Check = lambda: None
    ) -> Self:
        """Open the store at `path`, which is made where there is none.

        Args:
            path: The file; its folder exists.
            read_only: Only read, all of one moment; others may write meanwhile. On network file
                systems no other process can read while one writes.
            check_owned: Called before each write; raises `StoreError` where another process has
                taken over the run, and then nothing more is written.

        Raises:
            RunDirectoryError: If the file is not a store, or of a newer schema.
        """
        if read_only:
            return cls(path, None)
        tables = Tables(path, exclusive=is_network_fs(path), check_owned=check_owned)
        try:
            return cls(path, tables)
        except OrchestratorError:
            tables.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The first error is what matters; that of closing would hide it.
        with nullcontext() if kind is None else suppress(StoreError):
            self.close()
        if isinstance(error, StoreError) and blobs.REPAIR in str(error):
            raise blobs.located(error, self.path) from error

    def close(self) -> None:
        """Write what is pending and close the file. May be called twice.

        Raises:
            StoreError: If a write failed and nobody was told yet.
        """
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._reader.close()
            # The last: what closes last moves the write-ahead log into the file.
            if self._tables is not None:
                self._tables.close()

    # -- outcomes ----------------------------------------------------------------------------------

    def get(self, key: bytes) -> Outcome | Failure | None:
        """The outcome of a key, also one that is not committed yet; None where there is none.

        Raises:
            StoreError: If the store can't be read.
        """
        if self._held is None:
            found = lookup.stored(self._query, "head, arrays", key, anywhere=True)
        else:
            found = self._held.blobs(key)
        if found is None:
            return None
        head, arrays = found
        return codec.decode(head, arrays, key)

    def put_outcome(  # noqa: PLR0913 (the columns of one row)
        self,
        key: bytes,
        ask_kind: str,
        model: str,
        outcome: Outcome | Failure,
        *,
        server: int,
        prompt_hash: bytes,
        attempts: int,
        latency_s: float,
    ) -> None:
        """Keep an outcome; a key that has one keeps its first.

        Args:
            key: Content address of what was asked.
            ask_kind: "generate", "score", "choose", "similarity" or "reward".
            model: Name in the recipe.
            outcome: A failure must be a permanent one.
            server: From `server_id`; 0 where it is not known.
            prompt_hash: Hash of the prompt as it was sent.
            attempts: HTTP tries, the last one included.
            latency_s: Of the last try, seconds.

        Raises:
            StoreError: If it can't be stored, or an earlier write failed.
        """
        if isinstance(outcome, Generation) and outcome.names:
            outcome = self.vocabulary.numbered(outcome)
        number, packed = self._names.number, codec.pack(outcome)
        failure, content = None, codec.compressible(packed)
        if isinstance(outcome, Failure):
            if not outcome.permanent:
                raise StoreError(
                    f"transient failures cannot be stored as outcomes: {outcome.cause}"
                )
            failure = failure_entry(number, key, model, outcome)
        cause = number(outcome.cause if isinstance(outcome, Failure) else "")
        tally = tally_of(outcome, attempts, latency_s)
        self._put(
            OutcomeEntry(
                key, number(ask_kind), number(model), server, cause, attempts, latency_s,
                wall_ms(), prompt_hash, packed, content, tally, failure,
            )
        )  # fmt: skip

    def copy_outcome(self, ask_kind: str, model: str, lent: Lent, server: int) -> None:
        """Keep an outcome of another run, byte for byte; otherwise as `put_outcome`.

        One whose tokens that run has numbered gets this run's numbers.
        """
        outcome, entry = lent
        packed = entry.packed
        if isinstance(outcome, Generation) and outcome.names:
            packed = codec.encode(self.vocabulary.numbered(outcome), entry.key)
        kind, named, cause = map(self._names.number, (ask_kind, model, ""))
        self._put(replace(entry, kind=kind, model=named, server=server, cause=cause, packed=packed))

    def put_attempt(self, key: bytes, model: str, failure: Failure) -> None:
        """Count an attempt that failed for the moment.

        Raises:
            StoreError: If an earlier write failed.
        """
        self.submit(failure_entry(self._names.number, key, model, failure))

    # -- servers -----------------------------------------------------------------------------------

    def server_id(self, model: str, provenance: Provenance, *, run: str = "") -> int:
        """Number of the server that answers for a model from now on, or that answered `run`.

        Raises:
            StoreError: If an earlier write failed.
        """
        server = StoredServer(model, provenance, run)
        return self.servers.number(server, self._names.number(model))

    def epoch(self, key: bytes) -> int:
        """Return the number of the server that gave an outcome, from 0; 0 also if it is unknown."""
        if self._held is None or not self.servers.are_several:
            return 0
        return self.servers.epoch(self._held.server(key))

    def tokens(self, model: str) -> dict[int, bytes]:
        """The texts of a model's tokens, by the numbers in its outcomes; see `store.interning`."""
        query = self._flushed()
        found = reading.servers(query).items()
        return texts_of(query, [number for number, server in found if server.model == model])

    # -- values ------------------------------------------------------------------------------------

    def set_meta(self, key: str, value: str) -> None:
        """Keep a value of the run.

        Raises:
            StoreError: If an earlier write failed.
        """
        if self.meta.get(key) != value:
            self.submit(MetaEntry(key, value))
            self.meta[key] = value

    # -- plans and units ---------------------------------------------------------------------------

    def open_plan(self, plan_hash: bytes, n_units: int, values: Mapping[str, str] = {}) -> int:
        """Make a plan the current one and return its number; waits for the disk.

        Unless `is_current_plan` said so before, call `adopt` next. `values` of the run belong to
        the plan: no reader sees one without the other.

        Raises:
            StoreError: If it can't be written.
        """
        number = self._writing().call(lambda c: open_plan(c, plan_hash, n_units, values))
        self.meta |= values
        return number

    def adopt(self, plan_id: int, units: Iterable[tuple[int, bytes]]) -> None:
        """Give units that earlier plans ended their positions in this one; waits for the disk.

        `units` has every position with the hash of its unit; it is not read where no unit is
        stored.

        Raises:
            StoreError: If it can't be written.
        """
        writer = self._writing()
        if writer.call(has_units):
            for part in reading.in_slices(units, UNITS_AT_ONCE):
                writer.call(partial(place, plan_id=plan_id, units=part))
        writer.call(lambda c: end_adoption(c, plan_id))

    def put_unit(  # noqa: PLR0913 (the columns of one row)
        self,
        unit_hash: bytes,
        plan_id: int,
        position: int,
        status: int,
        frame: str,
        rows: Sequence[tuple[object, ...]],
        *,
        cause: str = "",
    ) -> None:
        """Keep the end of a unit; one that is done or failed for good stays as it is.

        Args:
            unit_hash: Fingerprint of all that decides the rows.
            plan_id: From `open_plan`.
            position: In that plan.
            status: 0 done, 1 failed for good, 2 failed for the moment, 3 fault of the method;
                the last two are evaluated again by the next call.
            frame: Name of the frame the rows belong to.
            rows: Plain values in the order of the frame's columns.
            cause: Why it failed.

        Raises:
            StoreError: If a value can't be stored, or an earlier write failed.
        """
        names = self._names.number(frame), self._names.number(cause)
        self.submit(UnitEntry(unit_hash, plan_id, position, status, *names, values.encode(rows)))

    # -- the file ----------------------------------------------------------------------------------

    @property
    def writes(self) -> bool:
        """True if it was opened for writing."""
        return self._writer is not None

    @property
    def pending_bytes(self) -> int:
        """Memory that is held by what is not committed yet."""
        return 0 if self._writer is None else self._writer.pending_bytes

    @property
    def last_outcome(self) -> int:
        """Number of the outcome that is on the disk last, counted from 1 as they were put."""
        if self._tables is not None:
            return self._tables.last_outcome
        ((number,),) = self._query("SELECT coalesce(max(id), 0) FROM outcome", ())
        return int(number)

    def flush(self) -> None:
        """Wait until all that was put is on the disk; a `StoreError` says that it can't be."""
        if self._writer is not None:
            self._writer.flush()

    @property
    def wal_bytes(self) -> int:
        """Bytes of the write-ahead log on the disk."""
        return schema.file_size(schema.wal_path(self.path))

    def check(self) -> None:
        """Read the whole file; damage is a `StoreError`."""
        reading.check(self._query, self.path)

    # -- inside ------------------------------------------------------------------------------------

    def _writing(self) -> Writer:
        if self._writer is not None:
            return self._writer
        raise StoreError(f"{self.path} was opened for reading only")

    def _put(self, entry: OutcomeEntry) -> None:
        # Visible before it is queued: the writer forgets it once it is committed.
        if self._held is None or self._held.add(entry):
            self.submit(entry)

    def submit(self, entry: Entry) -> None:
        """Queue an entry for the writer's thread."""
        self._writing().submit(entry)
