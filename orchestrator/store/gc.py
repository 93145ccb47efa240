"""Garbage collection: count and drop the outcomes that the current plan does not ask for.

Dropping is one transaction; then SQLite writes the file anew without the room that became free.
Where either is cut off, the store is as it was before it.
"""

import contextlib
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Final, NamedTuple

from orchestrator.records import Failure
from orchestrator.store import codec, schema
from orchestrator.store.entries import spent_on
from orchestrator.store.owner import is_network_fs
from orchestrator.store.writer import ADD_UP

Group = tuple[str, str]
"""Model and kind of ask."""

_AT_ONCE: Final = 1000
_ENTRIES: Final = """SELECT o.id, o.key, model.text, kind.text, length(o.head) + length(o.arrays)
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
        with contextlib.closing(schema.connect_reader(path)) as reader, _explained(path):
            return _find(reader, keys)[0]
    writer = schema.connect_writer(path, exclusive=is_network_fs(path))
    with contextlib.closing(writer) as connection, _explained(path):
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
    with contextlib.closing(writer) as connection, _explained(path):
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
    for number, key, model, kind, size in connection.execute(_ENTRIES):
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
            spent = spent_on(outcome)
            taken = (1, spent.n_requests, attempts, *spent[1:], latency_s)
            group = sums[model, kind, cause]
            group[:] = [a - b for a, b in zip(group, taken, strict=True)]
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


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise schema.explain(path, error) from error
