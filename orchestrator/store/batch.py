"""The statements of one transaction.

Each statement lets go of Python's lock and has to wait for it afterwards, so there are few: rows
are put in many at a time, and what is only summed is written at the end.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from orchestrator.store import compression, reading, values
from orchestrator.store.entries import (
    FailureEntry,
    MetaEntry,
    NameEntry,
    OutcomeEntry,
    ServerEntry,
    TokensEntry,
    UnitEntry,
)
from orchestrator.store.rows import compress_rows
from orchestrator.store.writer import Entry

# Rows that one statement has room for: few forms of it, so that each is compiled once.
_ROWS: Final = (1, 4, 16, 64, 256)
# Numbers of places that one statement asks for: few forms of it, so that each is compiled once.
_PLACES: Final = (4, 16, 64, 256, 1024)
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
_FAILURE: Final = """INSERT INTO failure VALUES (?,?,?,?,1,?,?,?) ON CONFLICT DO UPDATE SET n=n+1,
    last_key=excluded.last_key, last_message=excluded.last_message,
    last_at_ms=excluded.last_at_ms"""
_SERVER: Final = """INSERT INTO server VALUES (?,?,?,?,?)
    ON CONFLICT(id) DO UPDATE SET last_turn=excluded.last_turn"""
_AGAIN: Final = "UPDATE unit SET status=?, frame=?, cause=?, rows=? WHERE id=?"


class Counters:
    """The numbers that rows were given last, by the one who writes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.outcome = _highest(connection, "outcome")
        self.unit = _highest(connection, "unit")


class Batch:
    """Writes entries over a connection that is in a transaction.

    Attributes:
        rows: The outcomes that were written, by key.
    """

    def __init__(self, connection: sqlite3.Connection, counters: Counters) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._counters = counters
        self.rows: list[tuple[bytes, int]] = []

    def write(self, entries: Iterable[Entry]) -> None:
        """Write entries; those of one unit in their order."""
        outcomes: list[OutcomeEntry] = []
        units: list[UnitEntry] = []
        changed: dict[str, str] = {}
        for entry in entries:
            match entry:
                case OutcomeEntry():
                    outcomes.append(entry)
                case UnitEntry():
                    units.append(entry)
                case FailureEntry():
                    self._add_failure(entry)
                case NameEntry():
                    self._execute("INSERT INTO name VALUES (?,?)", (entry.number, entry.text))
                case MetaEntry():
                    changed[entry.key] = entry.value
                case ServerEntry():
                    row = (entry.number, entry.model, entry.provenance, entry.at_ms, entry.turn)
                    self._execute(_SERVER, row)
                case TokensEntry():
                    tokens = (entry.server, entry.texts)
                    self._execute("INSERT INTO token (server, texts) VALUES (?,?)", tokens)
                case _:
                    raise TypeError(f"no table stores {type(entry).__name__}")
        if outcomes:
            self._add_outcomes(outcomes)
        if units:
            self._add_units(units)
        if changed:
            values.put(self._connection, changed)

    def _add_failure(self, entry: FailureEntry) -> None:
        group = (entry.permanent, entry.model, entry.cause, entry.status)
        self._execute(_FAILURE, (*group, entry.key, entry.message, entry.at_ms))

    # -- outcomes --------------------------------------------------------------------------------

    def _add_outcomes(self, entries: Sequence[OutcomeEntry]) -> None:
        first = self._counters.outcome + 1
        stored = compression.compress((entry.packed, entry.content, entry.key) for entry in entries)
        rows = [
            (
                number,
                entry.key,
                entry.kind,
                entry.model,
                entry.server,
                entry.cause,
                entry.attempts,
                entry.latency_s,
                entry.at_ms,
                entry.prompt_hash,
                *blobs,
            )
            for number, (entry, blobs) in enumerate(zip(entries, stored, strict=True), first)
        ]
        self.rows = [(row[1], row[0]) for row in rows]
        self._insert("outcome", _OUTCOME_COLUMNS, rows)
        self._counters.outcome += len(rows)
        self._execute(_NEW_KEYS, (first, self._counters.outcome))
        tallies: dict[tuple[int, int, int], list[float]] = defaultdict(lambda: [0] * 7)
        for entry in entries:
            spent = entry.spent
            sums = tallies[entry.model, entry.kind, entry.cause]
            sums[0] += 1
            sums[1] += spent.n_requests
            sums[2] += entry.attempts
            sums[3] += spent.n_prompt_tokens
            sums[4] += spent.n_cached_tokens
            sums[5] += spent.n_completion_tokens
            sums[6] += entry.latency_s
            if entry.failure is not None:
                self._add_failure(entry.failure)
        for group, sums in tallies.items():
            self._execute(ADD_UP, (*group, *sums))

    # -- units -----------------------------------------------------------------------------------

    def _add_units(self, entries: Sequence[UnitEntry]) -> None:
        """Put in units that are new at their position; others only if they may end once more."""
        stored = self._stored(entries)
        new: dict[tuple[int, int], tuple[UnitEntry, bytes]] = {}
        n_ended: dict[int, int] = defaultdict(int)
        blobs = compress_rows([entry.rows for entry in entries])
        for entry, rows in zip(entries, blobs, strict=True):
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
        first = self._counters.unit + 1
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
        self._counters.unit += len(new)
        for plan, n in n_ended.items():
            self._execute("UPDATE plan SET stamp=stamp+? WHERE id=?", (n, plan))

    def _stored(self, entries: Sequence[UnitEntry]) -> dict[tuple[int, int], tuple[int, int]]:
        """Number and status of the units that stand at these places."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for plan in {entry.plan for entry in entries}:
            positions = [entry.position for entry in entries if entry.plan == plan]
            for part in reading.in_slices(positions, _PLACES[-1]):
                size = next(size for size in _PLACES if size >= len(part))
                rest = [None] * (size - len(part))
                sql = (
                    "SELECT p.position, u.id, u.status FROM place p JOIN unit u ON u.id=p.unit "  # noqa: S608
                    f"WHERE p.plan=? AND p.position IN ({','.join('?' * size)})"
                )
                for position, unit, status in self._execute(sql, (plan, *part, *rest)):
                    found[plan, position] = (unit, status)
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


def _highest(connection: sqlite3.Connection, table: str) -> int:
    (number,) = connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()  # noqa: S608 (our own text)
    return int(number)
