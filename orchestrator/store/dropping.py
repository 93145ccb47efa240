"""Outcomes taken out of a store, with what is summed of them.

It is one transaction: where it is cut off, the store is as it was before.
"""

import contextlib
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from orchestrator.records import Failure
from orchestrator.store import codec, schema
from orchestrator.store.entries import spent_on
from orchestrator.store.filesystem import is_network_fs
from orchestrator.store.writer import ADD_UP

_AT_ONCE: Final = 1000
_WHOLE: Final = """SELECT key, model, kind, cause, attempts, latency_s, head, arrays
    FROM outcome WHERE id=?"""
_FAILED: Final = """SELECT o.id FROM outcome o JOIN name cause ON cause.id=o.cause
    WHERE cause.text=?1 OR (?1='all' AND cause.text<>'')"""
_OPEN_AGAIN: Final = ("DELETE FROM place", "DELETE FROM unit", "UPDATE plan SET stamp=stamp+1")
_OUT_OF_LEVELS: Final = """DELETE FROM outcome_key_level
    WHERE level IN (1, 2, 3) AND key=? AND row=?"""
_FEWER_FAILURES: Final = """UPDATE failure SET n=n-?
    WHERE permanent=1 AND model=? AND cause=? AND status=?"""


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
