"""Stores of several runs put together into a new one, in bulk.

Outcomes, units and names are copied by SQLite from file to file, so that an outcome takes some
microseconds and memory stays flat; Python looks at checksums and at duplicates only. The new file
is built without a log, beside the one that it replaces: a merge that is cut off changes nothing.
"""

import contextlib
import os
import sqlite3
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

from orchestrator.disk.files import sync_folder
from orchestrator.disk.paths import STORE_NAME
from orchestrator.errors import StoreError
from orchestrator.store import schema
from orchestrator.store.copying import AT_ONCE, UNITS, Copying, is_same
from orchestrator.store.gc import drop_outcomes
from orchestrator.store.lending import EndedStore
from orchestrator.store.writer import ADD_UP

_DUPLICATES_AT_ONCE: Final = 1000
_CACHE_KB: Final = 32 << 10
# Deleted rows leave room: from this share of the file on, it is written anew without it.
_MOST_FREE: Final = 0.1

_WORK: Final = (
    "CREATE TABLE work.entry (row INTEGER PRIMARY KEY, key BLOB NOT NULL)",
    "CREATE TABLE work.twice (row INTEGER PRIMARY KEY, key BLOB NOT NULL)",
    """CREATE TABLE work.placed (
        plan INTEGER NOT NULL, position INTEGER NOT NULL, unit INTEGER NOT NULL,
        rank INTEGER NOT NULL)""",
    "CREATE TABLE work.plan_of (old INTEGER PRIMARY KEY, new INTEGER NOT NULL)",
)
_ENTRIES: Final = """INSERT INTO work.entry SELECT id, key FROM main.outcome
    WHERE id BETWEEN ? AND ?"""
# Of one key the outcome of the run that was named first.
_KEYS: Final = """INSERT OR IGNORE INTO main.outcome_key (key, row)
    SELECT key, row FROM work.entry ORDER BY key, row"""
_TWICE: Final = """INSERT INTO work.twice SELECT e.row, e.key FROM work.entry e
    JOIN main.outcome_key k ON k.key=e.key WHERE k.row<>e.row"""
_OF_KEY: Final = """SELECT id, key, cause, at_ms, latency_s, head, arrays FROM main.outcome
    WHERE id=?"""
_TALLY: Final = """SELECT m.new, k.new, c.new, n, n_requests, n_attempts, n_prompt_tokens,
    n_cached_tokens, n_completion_tokens, latency_s FROM source.tally t
    LEFT JOIN work.name_of m ON m.old=t.model LEFT JOIN work.name_of k ON k.old=t.kind
    LEFT JOIN work.name_of c ON c.old=t.cause"""
_FAILURES: Final = """INSERT INTO main.failure
    SELECT f.permanent, m.new, c.new, f.status, f.n, f.last_key, f.last_message, f.last_at_ms
    FROM source.failure f LEFT JOIN work.name_of m ON m.old=f.model
    LEFT JOIN work.name_of c ON c.old=f.cause WHERE f.permanent=?
    ON CONFLICT DO UPDATE SET n=n+excluded.n,
    last_key=iif(excluded.last_at_ms>last_at_ms, excluded.last_key, last_key),
    last_message=iif(excluded.last_at_ms>last_at_ms, excluded.last_message, last_message),
    last_at_ms=max(excluded.last_at_ms, last_at_ms)"""
_PLAN: Final = """INSERT INTO main.plan (hash, n_units, adopted, current, stamp)
    VALUES (?,?,?,0,?) ON CONFLICT(hash) DO UPDATE SET stamp=stamp+excluded.stamp,
    adopted=min(adopted, excluded.adopted)"""
# A unit that is done before one that failed, and that before one to be evaluated again.
_PLACED: Final = """INSERT INTO work.placed
    SELECT p.new, place.position, u.id, min(u.status, 2) FROM source.place place
    LEFT JOIN work.plan_of p ON p.old=place.plan
    LEFT JOIN main.unit u ON u.id=place.unit+:offset"""
_PLACES: Final = """INSERT OR IGNORE INTO main.place SELECT plan, position, unit FROM work.placed
    ORDER BY plan, position, rank, unit"""
_UNITS_TWICE: Final = """SELECT a.unit, a.rank, x.hash=y.hash, x.rows=y.rows, x.status=y.status
    FROM work.placed a JOIN main.place p ON p.plan=a.plan AND p.position=a.position
    JOIN main.unit x ON x.id=a.unit JOIN main.unit y ON y.id=p.unit WHERE a.unit<>p.unit"""
_UNPLACED: Final = """DELETE FROM main.unit WHERE id IN
    (SELECT unit FROM work.placed EXCEPT SELECT unit FROM main.place)"""

Advance = Callable[[int], None]
"""Called with how many more outcomes were copied."""


class FromRun(msgspec.Struct):
    """The part of one run in a merge.

    Attributes:
        run: Its run directory.
        n_outcomes: Outcomes that it holds.
        n_same: Those that runs before it hold too, with the same reply.
        n_conflicts: Those that another run holds with a different reply, which was kept.
        n_units: Units that it holds.
        n_unit_conflicts: Those that another run holds with other rows, which were kept.
        n_units_left: Those that were left out, because they rest on outcomes that were not kept
            or are of a server that has another number now: they are evaluated again from the
            stored outcomes.
        is_contained: Whether all its outcomes are another run's too, recorded at the same moment:
            one is a copy of the other, or was merged into it, so that they were paid for once.
    """

    run: Path
    n_outcomes: int = 0
    n_same: int = 0
    n_conflicts: int = 0
    n_units: int = 0
    n_unit_conflicts: int = 0
    n_units_left: int = 0
    is_contained: bool = False


def merge(
    sources: Sequence[EndedStore], folder: Path, plan: bytes | None, advance: Advance
) -> list[FromRun]:
    """Make a store of several.

    Of two outcomes with one key, a good one is kept before a failure, otherwise that of the run
    that is named first. Of two units at one position, one that is done before one that failed.
    Sources stand in the order of their precedence; `advance` is called with how many more outcomes
    were copied.

    Raises:
        StoreError: If a store is damaged, or the new one can't be written.
    """
    target, work = folder / STORE_NAME, folder / "work.sqlite"
    try:
        schema.create(target)
        with contextlib.closing(schema.connect_uri(target.absolute().as_uri())) as opened:
            found = _Merge(opened, sources, advance).all(work, plan)
        with target.open("rb") as file:
            os.fsync(file.fileno())
    except sqlite3.Error as error:
        raise schema.explain(target, error) from error
    return found


def put_in_place(new: Path, path: Path) -> None:
    """Give a merged store its name; that of a run which nobody has open.

    Raises:
        StoreError: If it can't be renamed.
    """
    try:
        if schema.file_size(schema.wal_path(path)):
            raise StoreError(f"{path} has a log, which would be taken for the new file's")
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        new.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path} cannot be replaced: {error.strerror or error}") from error


class _Merge:
    """One merge, over a connection to the new store."""

    def __init__(
        self, connection: sqlite3.Connection, sources: Sequence[EndedStore], advance: Advance
    ) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._copying = Copying(connection)
        self._sources = sources
        self._advance = advance
        self._found = [FromRun(source.run) for source in sources]
        # Outcomes that two sources hold as copies of one.
        self._copies: Counter[frozenset[int]] = Counter()
        # What is added to the numbers of a source, so that none is given twice.
        self._first_outcome = _firsts(source.last_outcome for source in sources)
        self._first_unit = _firsts(source.last_unit for source in sources)

    def all(self, work: Path, plan: bytes | None) -> list[FromRun]:
        """Copy everything; `work` is a file for what is known meanwhile."""
        execute = self._execute
        self._copying.begin(work.absolute().as_uri())
        for name in ("main", "work"):
            execute(f"PRAGMA {name}.locking_mode=EXCLUSIVE")
            execute(f"PRAGMA {name}.journal_mode=OFF").fetchone()
            execute(f"PRAGMA {name}.synchronous=OFF")
            execute(f"PRAGMA {name}.cache_size=-{_CACHE_KB}")
        for statement in _WORK:
            execute(statement)
        for number, source in enumerate(self._sources):
            with self._copying.attached(source.path, source.uri):
                self._copy_outcomes(number, source)
        execute(_KEYS)
        self._resolve()
        for number, source in enumerate(self._sources):
            with self._copying.attached(source.path, source.uri):
                self._copying.number()
                if not self._found[number].is_contained:
                    execute(_FAILURES, (0,))
                self._copy_units(number, source)
        self._place()
        if plan is not None:
            is_whole = all(source.plan in {plan, None} for source in self._sources)
            current = "UPDATE main.plan SET current=1, adopted=adopted AND ? WHERE hash=?"
            execute(current, (is_whole, plan))
        self._end()
        return self._found

    # -- outcomes ----------------------------------------------------------------------------------

    def _copy_outcomes(self, number: int, source: EndedStore) -> None:
        self._copying.number()
        offset, found = self._first_outcome[number], self._found[number]
        for first in range(1, source.last_outcome + 1, AT_ONCE):
            last = first + AT_ONCE - 1
            n = self._copying.outcomes(offset, first, last)
            self._execute(_ENTRIES, (first + offset, last + offset))
            found.n_outcomes += n
            self._advance(n)
        self._copying.tokens(offset, offset + source.last_outcome)
        ((n_counted,),) = self._execute("SELECT coalesce(sum(n), 0) FROM source.tally").fetchall()
        if found.n_outcomes != n_counted:
            said = f"{found.n_outcomes:,} of {n_counted:,} outcomes can be read"
            raise schema.damaged_file(source.path, said)
        self._connection.executemany(ADD_UP, self._execute(_TALLY).fetchall())
        self._execute(_FAILURES, (1,))

    def _resolve(self) -> None:
        ((n, n_keys),) = self._execute(
            "SELECT (SELECT count(*) FROM work.entry), (SELECT count(*) FROM main.outcome_key)"
        ).fetchall()
        if n == n_keys:
            return
        self._execute(_TWICE)
        last = 0
        while found := self._execute(
            "SELECT row, key FROM work.twice WHERE row>? ORDER BY row LIMIT ?",
            (last, _DUPLICATES_AT_ONCE),
        ).fetchall():
            last = found[-1][0]
            with schema.transaction(self._connection):
                drop_outcomes(self._connection, [self._lost(row, key) for row, key in found])
        # The smaller ones first; of two that are equal, the later one is the copy.
        order = sorted(range(len(self._found)), key=lambda at: (self._found[at].n_outcomes, -at))
        for at in order:
            self._found[at].is_contained = any(
                self._copies[frozenset((at, other))] == self._found[at].n_outcomes > 0
                and not self._found[other].is_contained
                for other in order
                if other != at
            )

    def _lost(self, row: int, key: bytes) -> int:
        """Return the number of the one of two outcomes that is not kept."""
        ((kept,),) = self._execute("SELECT row FROM main.outcome_key WHERE key=?", (key,))
        first, second = (self._execute(_OF_KEY, (one,)).fetchone() for one in (kept, row))
        lost = row
        if self._is_failure(first[2]) and not self._is_failure(second[2]):
            self._execute("UPDATE main.outcome_key SET row=? WHERE key=?", (row, key))
            lost = kept
        of_lost = self._found[_place(self._first_outcome, lost)]
        if is_same(first[5:], second[5:], key):
            of_lost.n_same += 1
            if first[3:5] == second[3:5]:
                pair = frozenset(_place(self._first_outcome, one) for one in (kept, row))
                self._copies[pair] += 1
        else:
            of_lost.n_conflicts += 1
        return lost

    def _is_failure(self, cause: int) -> bool:
        return cause != self._copying.names.get("")

    # -- units -------------------------------------------------------------------------------------

    def _copy_units(self, number: int, source: EndedStore) -> None:
        """Copy the units of a source and their places, unless they may rest on lost outcomes."""
        found, offset = self._found[number], self._first_unit[number]
        self._execute("DELETE FROM work.plan_of")
        plans = "SELECT id, hash, n_units, adopted, stamp FROM source.plan ORDER BY id"
        for old, plan_hash, n_units, adopted, stamp in self._execute(plans).fetchall():
            self._execute(_PLAN, (plan_hash, n_units, adopted, stamp + 1))
            ((new, n_known),) = self._execute(
                "SELECT id, n_units FROM main.plan WHERE hash=?", (plan_hash,)
            ).fetchall()
            if n_known != n_units:
                said = f"a plan has {n_units:,} units, in another run {n_known:,}"
                raise schema.damaged_file(source.path, said)
            self._execute("INSERT INTO work.plan_of VALUES (?,?)", (old, new))
        ((n_units,),) = self._execute("SELECT count(*) FROM source.unit").fetchall()
        found.n_units = n_units
        if found.n_conflicts or not self._copying.keeps_epochs(source.servers.values()):
            found.n_units_left = n_units
            return
        n = 0
        for first in range(1, source.last_unit + 1, AT_ONCE):
            span = {"offset": offset, "first": first, "last": first + AT_ONCE - 1}
            n += self._execute(f"{UNITS} ORDER BY u.id", span).rowcount
        if n != n_units:
            raise schema.damaged_file(source.path, f"{n:,} of {n_units:,} units can be read")
        self._execute(_PLACED, {"offset": offset})

    def _place(self) -> None:
        self._execute(_PLACES)
        n_twice = 0
        for unit, rank, is_same_hash, is_same_rows, is_same_status in self._execute(_UNITS_TWICE):
            n_twice += 1
            at = _place(self._first_unit, unit)
            found = self._found[at]
            if not is_same_hash:
                said = "a unit has another fingerprint than in another run with the same plan"
                raise schema.damaged_file(self._sources[at].path, said)
            found.n_unit_conflicts += not rank and is_same_status and not is_same_rows
        if n_twice:
            self._execute(_UNPLACED)

    def _end(self) -> None:
        self._execute("DETACH work")
        ((n_pages,),) = self._execute("PRAGMA main.page_count").fetchall()
        ((n_free,),) = self._execute("PRAGMA main.freelist_count").fetchall()
        if n_free > _MOST_FREE * n_pages:
            self._execute("VACUUM")
        self._execute("PRAGMA journal_mode=WAL").fetchone()
        self._execute("PRAGMA synchronous=FULL")
        self._execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _firsts(lasts: Iterable[int]) -> list[int]:
    """Return the number to add to those of each source, by the last number of each."""
    return [0, *accumulate(lasts)][:-1]


def _place(firsts: Sequence[int], number: int) -> int:
    """The source of a number that `_firsts` made."""
    return bisect_right(firsts, number - 1) - 1
