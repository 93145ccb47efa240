"""Stores changed in bulk: those of several runs put together, and what no plan asks for dropped.

Outcomes, units and names are copied by SQLite from file to file, so that an outcome takes some
microseconds and memory stays flat; Python looks at checksums and at duplicates only. The new file
is built without a log, beside the one that it replaces: a merge that is cut off changes nothing.

To collect garbage is to count and drop the outcomes that the current plan does not ask for.
Dropping is one transaction; then SQLite writes the file anew without the room that became free.
Where either is cut off, the store is as it was before it.
"""

import contextlib
import os
import sqlite3
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence, Set
from itertools import accumulate
from operator import sub
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from orchestrator.backend import Provenance
from orchestrator.disk.files import sync_folder
from orchestrator.disk.paths import STORE_NAME
from orchestrator.errors import StoreError, on_disk_error
from orchestrator.records import Failure
from orchestrator.store import codec, schema
from orchestrator.store.copying import Copying, is_same
from orchestrator.store.entries import ADD_UP, tally_of
from orchestrator.store.lending import EndedStore
from orchestrator.store.owner import is_network_fs

# Rows that one statement copies.
_COPIED_AT_ONCE: Final = 20_000
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
_OF_KEY: Final = """SELECT n.text<>'', at_ms, latency_s, head, arrays
    FROM main.outcome o JOIN main.name n ON n.id=o.cause WHERE o.id=?"""
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
_UNITS: Final = """INSERT INTO main.unit
    SELECT u.id+:offset, u.hash, u.status, f.new, c.new, whole_rows(u.rows) FROM source.unit u
    LEFT JOIN work.name_of f ON f.old=u.frame LEFT JOIN work.name_of c ON c.old=u.cause
    WHERE u.id BETWEEN :first AND :last ORDER BY u.id"""
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
        made = schema.connect_uri(target.absolute().as_uri(), sqlite3.Connection)
        with contextlib.closing(made) as opened:
            found = _Merge(opened, sources, work, advance).all(plan)
        with target.open("rb") as file:
            os.fsync(file.fileno())
    except sqlite3.Error as error:
        raise schema.explain(target, error) from error
    return found


def put_in_place(new: Path, path: Path) -> None:
    """Give a store that was made anew its name; that of a run which nobody has open.

    Raises:
        StoreError: If it can't be renamed.
    """
    with on_disk_error(f"{path} cannot be replaced", StoreError):
        if schema.file_size(schema.wal_path(path)):
            raise StoreError(f"{path} has a log, which would be taken for the new file's")
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        new.replace(path)
        sync_folder(path.parent)


class _Merge:
    """One merge, over a connection to the new store."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        sources: Sequence[EndedStore],
        work: Path,
        advance: Advance,
    ) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._copying = Copying(connection, work.absolute().as_uri())
        self._sources = sources
        self._advance = advance
        self._found = [FromRun(source.run) for source in sources]
        # Outcomes that two sources hold as copies of one.
        self._copies: Counter[frozenset[int]] = Counter()
        # What is added to the numbers of a source, so that none is given twice.
        self._first_outcome = [0, *accumulate(source.last_outcome for source in sources)][:-1]
        self._first_unit = [0, *accumulate(source.last_unit for source in sources)][:-1]

    def all(self, plan: bytes | None) -> list[FromRun]:
        """Copy everything."""
        execute = self._execute
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
        for first in range(1, source.last_outcome + 1, _COPIED_AT_ONCE):
            last = first + _COPIED_AT_ONCE - 1
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
        if first[0] and not second[0]:
            self._execute("UPDATE main.outcome_key SET row=? WHERE key=?", (row, key))
            lost = kept
        of_lost = self._found[_place(self._first_outcome, lost)]
        if is_same(first[3:], second[3:], key):
            of_lost.n_same += 1
            if first[1:3] == second[1:3]:
                pair = frozenset(_place(self._first_outcome, one) for one in (kept, row))
                self._copies[pair] += 1
        else:
            of_lost.n_conflicts += 1
        return lost

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
        # Rows name the epochs of servers, which may be others in the new store.
        there: defaultdict[str, dict[Provenance, None]] = defaultdict(dict)
        for server in source.servers.values():
            there[server.model][server.provenance] = None
        known = self._copying.servers.known
        are_others = any(known(model)[: len(met)] != [*met] for model, met in there.items())
        if found.n_conflicts or are_others:
            found.n_units_left = n_units
            return
        n = 0
        for first in range(1, source.last_unit + 1, _COPIED_AT_ONCE):
            last = first + _COPIED_AT_ONCE - 1
            n += self._execute(_UNITS, {"offset": offset, "first": first, "last": last}).rowcount
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


def _place(firsts: Sequence[int], number: int) -> int:
    """The source of a number, by what is added to the numbers of each."""
    return bisect_right(firsts, number - 1) - 1


Group = tuple[str, str]
"""Model and kind of ask."""

_AT_ONCE: Final = 1000
_OUTCOMES: Final = """SELECT o.id, o.key, model.text, kind.text, length(o.head) + length(o.arrays)
    FROM outcome o JOIN name model ON model.id=o.model JOIN name kind ON kind.id=o.kind
    ORDER BY o.id"""
_WHOLE: Final = """SELECT key, model, kind, cause, attempts, latency_s, head, arrays
    FROM outcome WHERE id=?"""
_FAILED: Final = """SELECT o.id FROM outcome o JOIN name cause ON cause.id=o.cause
    WHERE cause.text=?1 OR (?1='all' AND cause.text<>'')"""
_OPEN_AGAIN: Final = ("DELETE FROM place", "DELETE FROM unit", "UPDATE plan SET stamp=stamp+1")
_STALE_UNITS: Final = """unit WHERE id NOT IN
    (SELECT unit FROM place WHERE plan IN (SELECT id FROM plan WHERE current))"""
_STALE: Final = (
    _STALE_UNITS, "place WHERE plan NOT IN (SELECT id FROM plan WHERE current)",
    "plan WHERE NOT current",
)  # fmt: skip
_OUT_OF_LEVELS: Final = """DELETE FROM outcome_key_level
    WHERE level IN (1, 2, 3) AND key=? AND row=?"""
_FEWER_FAILURES: Final = """UPDATE failure SET n=n-?
    WHERE permanent=1 AND model=? AND cause=? AND status=?"""


class Unplanned(NamedTuple):
    """Outcomes that are not asked for: how many by model and kind of ask, and what else is there.

    Attributes:
        outcomes: How many, by model and kind of ask.
        n_kept: Outcomes that are asked for.
        n_units: Units of earlier plans, with their rows.
        n_bytes: Of outcomes and rows, as they are stored.
    """

    outcomes: dict[Group, int]
    n_kept: int
    n_units: int
    n_bytes: int


def unplanned(path: Path, keys: Set[bytes], *, drop: bool = False) -> Unplanned:
    """Find what is neither asked for by one of the keys nor of the current plan, or drop it.

    What is dropped gives its room back. Nobody else may write meanwhile.

    Raises:
        RunDirectoryError: If there is no store.
        StoreError: If it can't be written, or what is to be dropped is damaged.
    """
    if not drop:
        with contextlib.closing(schema.connect_reader(path)) as reader, schema.explained(path):
            return _find(reader, keys)[0]
    writer = schema.connect_writer(path, exclusive=is_network_fs(path))
    with contextlib.closing(writer) as connection, schema.explained(path):
        with schema.transaction(connection):
            found, rows = _find(connection, keys)
            drop_outcomes(connection, rows)
            for stale in _STALE:
                connection.execute(f"DELETE FROM {stale}")  # noqa: S608 (no text of others)
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return found


def drop_failures(path: Path, cause: str) -> int:
    """Drop the failures of a cause, or of all where it is "all"; return how many there were.

    All units are open then, of earlier plans too, and are evaluated from the outcomes that are
    kept: a method may have gone on without what failed, and no table says where one did. Nobody
    else may write meanwhile.

    Raises:
        StoreError: If it can't be written, or what is to be dropped is damaged.
    """
    writer = schema.connect_writer(path, exclusive=is_network_fs(path))
    with contextlib.closing(writer) as connection, schema.explained(path):
        with schema.transaction(connection):
            rows = [row for (row,) in connection.execute(_FAILED, (cause,))]
            drop_outcomes(connection, rows)
            if rows:
                for statement in _OPEN_AGAIN:
                    connection.execute(statement)
        return len(rows)


def _find(connection: sqlite3.Connection, keys: Set[bytes]) -> tuple[Unplanned, list[int]]:
    outcomes: Counter[Group] = Counter()
    rows: list[int] = []
    n_kept = n_bytes = 0
    for number, key, model, kind, size in connection.execute(_OUTCOMES):
        if key in keys:
            n_kept += 1
            continue
        rows.append(number)
        outcomes[model, kind] += 1
        n_bytes += size
    count = f"SELECT count(*), ifnull(sum(length(rows)), 0) FROM {_STALE_UNITS}"  # noqa: S608
    ((n_units, row_bytes),) = connection.execute(count).fetchall()
    return Unplanned(dict(outcomes), n_kept, n_units, n_bytes + row_bytes), rows


def drop_outcomes(connection: sqlite3.Connection, rows: Sequence[int]) -> None:
    """Take outcomes out of their table, of the index of keys, and of what is summed.

    A key that the index gives to another row stays.

    Raises:
        StoreError: If one is damaged.
    """
    sums: defaultdict[tuple[int, int, int], list[float]] = defaultdict(lambda: [0] * 7)
    failures: Counter[tuple[int, int, int]] = Counter()
    for first in range(0, len(rows), _AT_ONCE):
        part = [(number,) for number in rows[first : first + _AT_ONCE]]
        gone = []
        for number in part:
            row = connection.execute(_WHOLE, number).fetchone()
            key, model, kind, cause, attempts, latency_s, head, arrays = row
            outcome = codec.decode(head, arrays, key)
            group = sums[model, kind, cause]
            group[:] = map(sub, group, tally_of(outcome, attempts, latency_s))
            if isinstance(outcome, Failure):
                failures[model, cause, outcome.status] += 1
            gone.append((key, *number))
        connection.executemany("DELETE FROM outcome_key WHERE key=? AND row=?", gone)
        connection.executemany(_OUT_OF_LEVELS, gone)
        connection.executemany("DELETE FROM outcome_key_new WHERE row=?", part)
        connection.executemany("DELETE FROM outcome WHERE id=?", part)
    connection.executemany(ADD_UP, [(*group, *less) for group, less in sums.items()])
    connection.executemany(_FEWER_FAILURES, [(n, *group) for group, n in failures.items()])
    connection.execute("DELETE FROM tally WHERE n<=0")
    connection.execute("DELETE FROM failure WHERE n<=0")
