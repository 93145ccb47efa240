"""Entries that are queued for the writer, and the statements that write them."""

import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import add
from typing import Final

import msgspec
from msgspec.structs import astuple

from orchestrator.records import Choice, Failure, Generation, Outcome, PairScores
from orchestrator.store import blobs, codec, reading, values
from orchestrator.store.blobs import Content, printable
from orchestrator.store.codec import Packed


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


NAME: Final = "INSERT INTO name VALUES (?,?)"
"""Gives a number to a model, kind of ask, frame or cause: the number and the text."""
SERVER: Final = """INSERT INTO server VALUES (?,?,?,?,?)
    ON CONFLICT(id) DO UPDATE SET last_turn=excluded.last_turn"""
"""Says that a server answers for a model now: its number, that of the model, provenance as JSON,
milliseconds since 1970, and its turn, which orders who did last."""
TOKENS: Final = "INSERT INTO token (server, texts) VALUES (?,?)"
"""Keeps texts of a server's tokens; see `store.interning`."""
FAILURE: Final = """INSERT INTO failure VALUES (?,?,?,?,1,?,?,?) ON CONFLICT DO UPDATE SET n=n+1,
    last_key=excluded.last_key, last_message=excluded.last_message,
    last_at_ms=excluded.last_at_ms"""
"""Counts one more failure: permanent, model, cause, status; then key, message and time."""
FRAMES: Final = "frames"
"""The value of a run that holds its frames by name, as JSON."""
ROLES: Final = "roles"
"""The value of a run that holds the roles of its frames' columns, as JSON."""
# What an entry and its place in the queue take beside its blobs, bytes.
_OVERHEAD_BYTES = 400
_MAX_MESSAGE = 500


class RowEntry(msgspec.Struct, frozen=True, gc=False):
    """A row for a statement: `NAME`, `SERVER`, `TOKENS` or `FAILURE`, with its values in order."""

    sql: str
    values: tuple[object, ...]


class MetaEntry(msgspec.Struct, frozen=True, gc=False):
    """A value of the run."""

    key: str
    value: str


class OutcomeEntry(msgspec.Struct, frozen=True, gc=False):
    """An outcome with where it came from; `failure` where it is one.

    `content` is what its arrays are compressed from (see `store.codec`), `tally` of `tally_of`.
    """

    key: bytes
    kind: int
    model: int
    server: int
    cause: int
    attempts: int
    latency_s: float
    at_ms: int
    prompt_hash: bytes
    packed: Packed
    content: Content | None
    tally: tuple[float, ...]
    failure: RowEntry | None


class UnitEntry(msgspec.Struct, frozen=True, gc=False):
    """The end of a unit at its position in a plan."""

    unit_hash: bytes
    plan: int
    position: int
    status: int
    frame: int
    cause: int
    rows: bytes


Entry = OutcomeEntry | UnitEntry | RowEntry | MetaEntry
"""Something to write."""


def bytes_of(entry: Entry) -> int:
    """Return the memory that an entry holds, roughly."""
    match entry:
        case OutcomeEntry():
            held: Iterable[object] = (*entry.packed, *(entry.content or ()))
        case UnitEntry():
            held = (entry.rows,)
        case RowEntry():
            held = entry.values
        case _:
            held = ()
    return _OVERHEAD_BYTES + sum(len(one) for one in held if isinstance(one, bytes))


def tally_of(outcome: Outcome | Failure, attempts: int, latency_s: float) -> tuple[float, ...]:
    """Return what an outcome adds to the sums of its table `tally`, in the order of the columns.

    That is 1 outcome, its requests, attempts, tokens read, cached and generated, as far as it
    records them, and seconds.
    """
    match outcome:
        case Failure():
            spent = (1, attempts, 0, 0, 0)
        case PairScores():
            spent = (0, attempts, 0, 0, 0)
        case _:
            n = outcome.n_requests if isinstance(outcome, Choice) else 1
            made = outcome.n_completion_tokens if isinstance(outcome, Generation) else 0
            spent = (n, attempts, outcome.n_prompt_tokens, outcome.n_cached_tokens, made)
    return 1, *spent, latency_s


def failure_entry(
    number: Callable[[str], int], key: bytes, model: str, failure: Failure
) -> RowEntry:
    """The entry of a failure; `number` gives names theirs."""
    group = (failure.permanent, number(model), number(failure.cause), failure.status)
    message = printable(failure.message, _MAX_MESSAGE)
    return RowEntry(FAILURE, (*group, key, message, wall_ms()))


# The statements of one transaction.
#
# Each statement lets go of Python's lock and has to wait for it afterwards, so there are few: rows
# are put in many at a time, and what is only summed is written at the end.


# Rows that one statement has room for: few forms of it, so that each is compiled once.
_ROWS: Final = (1, 4, 16, 64, 256)
# From here on a unit may be evaluated again: it failed for the moment, or its method did.
_FIRST_OPEN: Final = 2

_OUTCOME_COLUMNS: Final = (
    "id", "key", "kind", "model", "server", "cause", "attempts", "latency_s", "at_ms",
    "prompt_hash", "head", "arrays",
)  # fmt: skip
_UNIT_COLUMNS: Final = ("id", "hash", "status", "frame", "cause", "rows")
_PLACE_COLUMNS: Final = ("plan", "position", "unit")
_NEW_KEYS: Final = """INSERT INTO outcome_key_new (row, key)
    SELECT id, key FROM outcome WHERE id BETWEEN ? AND ?"""

ADD_UP: Final = """INSERT INTO tally VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET
    n=n+excluded.n, n_requests=n_requests+excluded.n_requests,
    n_attempts=n_attempts+excluded.n_attempts,
    n_prompt_tokens=n_prompt_tokens+excluded.n_prompt_tokens,
    n_cached_tokens=n_cached_tokens+excluded.n_cached_tokens,
    n_completion_tokens=n_completion_tokens+excluded.n_completion_tokens,
    latency_s=latency_s+excluded.latency_s"""
"""Adds to the sums of outcomes: model, kind, cause, then what is added in the table's order."""
_AT_PLACES: Final = """SELECT p.position, u.id, u.status FROM place p JOIN unit u ON u.id=p.unit
    WHERE p.plan=? AND p.position IN (SELECT value FROM json_each(?))"""
_AGAIN: Final = "UPDATE unit SET status=?, frame=?, cause=?, rows=? WHERE id=?"


class Batches:
    """Writes entries over a connection that is in a transaction.

    Attributes:
        rows: The outcomes that were written last, by key.
        n_outcomes: The number that the last outcome was given; 0 before the first.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self.n_outcomes: int
        self._n_units: int
        self.n_outcomes, self._n_units = connection.execute(
            "SELECT (SELECT coalesce(max(id), 0) FROM outcome), "
            "(SELECT coalesce(max(id), 0) FROM unit)"
        ).fetchone()
        self.rows: list[tuple[bytes, int]] = []

    def write(self, entries: Iterable[Entry]) -> None:
        """Write entries; those of one unit in their order."""
        self.rows = []
        outcomes: list[OutcomeEntry] = []
        units: list[UnitEntry] = []
        changed: dict[str, str] = {}
        for entry in entries:
            match entry:
                case OutcomeEntry():
                    outcomes.append(entry)
                case UnitEntry():
                    units.append(entry)
                case RowEntry():
                    self._execute(entry.sql, entry.values)
                case MetaEntry():
                    changed[entry.key] = entry.value
        if outcomes:
            self._add_outcomes(outcomes)
        if units:
            self._add_units(units)
        if changed:
            values.put(self._connection, changed)

    # -- outcomes --------------------------------------------------------------------------------

    def _add_outcomes(self, entries: Sequence[OutcomeEntry]) -> None:
        first = self.n_outcomes + 1
        stored = codec.compress((entry.packed, entry.content, entry.key) for entry in entries)
        # The fields of an entry up to its blobs are columns in the same order.
        n_plain = len(_OUTCOME_COLUMNS) - 3
        rows = [
            (number, *astuple(entry)[:n_plain], *packed)
            for number, (entry, packed) in enumerate(zip(entries, stored, strict=True), first)
        ]
        self.rows = [(row[1], row[0]) for row in rows]
        self._insert("outcome", _OUTCOME_COLUMNS, rows)
        self.n_outcomes += len(rows)
        self._execute(_NEW_KEYS, (first, self.n_outcomes))
        tallies: dict[tuple[int, int, int], list[float]] = defaultdict(lambda: [0] * 7)
        for entry in entries:
            sums = tallies[entry.model, entry.kind, entry.cause]
            sums[:] = map(add, sums, entry.tally)
            if entry.failure is not None:
                self._execute(entry.failure.sql, entry.failure.values)
        for group, sums in tallies.items():
            self._execute(ADD_UP, (*group, *sums))

    # -- units -----------------------------------------------------------------------------------

    def _add_units(self, entries: Sequence[UnitEntry]) -> None:
        """Put in units that are new at their position; others only if they may end once more."""
        stored = self.stored(entries)
        new: dict[tuple[int, int], tuple[UnitEntry, bytes]] = {}
        n_ended: dict[int, int] = defaultdict(int)
        packed = blobs.shorten([entry.rows for entry in entries])
        for entry, rows in zip(entries, map(blobs.checked, packed), strict=True):
            place = (entry.plan, entry.position)
            n_ended[entry.plan] += 1
            unit, status = stored.get(place, (0, _FIRST_OPEN))
            if status < _FIRST_OPEN:
                continue
            stored[place] = (unit, entry.status)
            if unit:
                self._execute(_AGAIN, (entry.status, entry.frame, entry.cause, rows, unit))
            else:
                new[place] = (entry, rows)
        first = self._n_units + 1
        self._insert(
            "unit",
            _UNIT_COLUMNS,
            [
                (number, entry.unit_hash, entry.status, entry.frame, entry.cause, rows)
                for number, (entry, rows) in enumerate(new.values(), first)
            ],
        )
        places = [(*place, number) for number, place in enumerate(new, first)]
        self._insert("place", _PLACE_COLUMNS, places)
        self._n_units += len(new)
        for plan, n in n_ended.items():
            self._execute("UPDATE plan SET stamp=stamp+? WHERE id=?", (n, plan))

    def stored(self, entries: Sequence[UnitEntry]) -> dict[tuple[int, int], tuple[int, int]]:
        """Number and status of the units that stand at these places."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for plan in {entry.plan for entry in entries}:
            positions = [entry.position for entry in entries if entry.plan == plan]
            rows = self._execute(_AT_PLACES, (plan, json.dumps(positions)))
            found |= {(plan, position): (unit, status) for position, unit, status in rows}
        return found

    def _insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        for part in reading.in_slices(rows, _ROWS[-1]):
            size = next(size for size in _ROWS if size >= len(part))
            values = [value for row in part for value in row]
            values += [None] * (len(columns) * size - len(values))
            self._execute(_insertion(table, columns, size), values)


@cache
def _insertion(table: str, columns: Sequence[str], n_rows: int) -> str:
    """A statement that inserts rows, but none whose first column is NULL."""
    row = "(" + ",".join("?" * len(columns)) + ")"
    return (
        f"INSERT INTO {table} ({','.join(columns)}) "  # noqa: S608 (our own text)
        f"SELECT * FROM (VALUES {','.join([row] * n_rows)}) WHERE column1 IS NOT NULL"
    )
