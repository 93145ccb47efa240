"""Blocks of items leased to the clients of a run, in a small SQLite table that they share.

The parent alone adds and revokes clients; a client leases blocks, says that it lives, and looks
before each write whether it was revoked. Nobody compares clocks: the parent sees that a client's
count of beats stands still. The table lasts as long as a call.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from orchestrator.errors import StoreError

_BUSY_S: Final = 30.0
_TABLES: Final = """
CREATE TABLE client (id INTEGER PRIMARY KEY, live INTEGER NOT NULL, beats INTEGER NOT NULL);
CREATE TABLE block (
    id INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL,
    client INTEGER NOT NULL, ended INTEGER NOT NULL, earlier TEXT NOT NULL);
CREATE INDEX free_block ON block (id) WHERE client=0 AND NOT ended;
"""
_FREE: Final = """SELECT id, first, last, earlier FROM block WHERE client=0 AND NOT ended
    ORDER BY id LIMIT 1"""


class Block(NamedTuple):
    """Items that one client evaluates.

    Attributes:
        number: Of the block, from 1.
        first: Index of the first item.
        last: Index after the last item.
        earlier: Clients that had it and were revoked.
    """

    number: int
    first: int
    last: int
    earlier: tuple[int, ...] = ()


class Leases:
    """The table; each thread has a connection of its own.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()

    @classmethod
    def create(cls, path: Path, blocks: Iterable[tuple[int, int]]) -> "Leases":
        """Make the table anew.

        Args:
            path: The file, which is replaced.
            blocks: First item of each block, and the one after its last.

        Raises:
            StoreError: If it can't be written.
        """
        leases = cls(path)
        path.unlink(missing_ok=True)
        with leases._explained() as connection:
            connection.executescript(_TABLES)
            rows = ((first, last) for first, last in blocks)
            with leases._transaction() as inside:
                sql = "INSERT INTO block (first, last, client, ended, earlier) VALUES (?,?,0,0,'')"
                inside.executemany(sql, rows)
        return leases

    # -- the parent --------------------------------------------------------------------------------

    def add(self, client: int) -> None:
        """Let a client lease blocks."""
        with self._transaction() as connection:
            connection.execute("INSERT INTO client VALUES (?,1,0)", (client,))

    def revoke(self, client: int) -> int:
        """Take what a client has leased from it; return how many blocks are free for others now.

        It leases nothing more, and its store writes nothing more.
        """
        with self._transaction() as connection:
            connection.execute("UPDATE client SET live=0 WHERE id=?", (client,))
            return connection.execute(
                "UPDATE block SET client=0, earlier=earlier||?||' ' WHERE client=? AND NOT ended",
                (str(client), client),
            ).rowcount

    def beats(self) -> dict[int, int]:
        """How often each client that is not revoked has said that it lives."""
        with self._explained() as connection:
            return dict(connection.execute("SELECT id, beats FROM client WHERE live").fetchall())

    @property
    def n_free(self) -> int:
        """Blocks that nobody has and that have not ended."""
        with self._explained() as connection:
            sql = "SELECT count(*) FROM block WHERE client=0 AND NOT ended"
            ((n,),) = connection.execute(sql).fetchall()
            return int(n)

    # -- a client ----------------------------------------------------------------------------------

    def lease(self, client: int) -> Block | None:
        """The next free block, which is the client's from now on; None if there is none.

        Raises:
            StoreError: If the client was revoked.
        """
        with self._transaction() as connection:
            self._check(connection, client)
            found = connection.execute(_FREE).fetchone()
            if found is None:
                return None
            number, first, last, earlier = found
            connection.execute("UPDATE block SET client=? WHERE id=?", (client, number))
            return Block(number, first, last, tuple(map(int, earlier.split())))

    def end(self, client: int, block: Block) -> None:
        """Note that all units of a block have ended."""
        with self._transaction() as connection:
            sql = "UPDATE block SET ended=1 WHERE id=? AND client=?"
            connection.execute(sql, (block.number, client))

    def beat(self, client: int) -> None:
        """Say that a client lives."""
        with self._transaction() as connection:
            connection.execute("UPDATE client SET beats=beats+1 WHERE id=?", (client,))

    def live(self) -> list[int]:
        """The clients that are not revoked, in order."""
        return sorted(self.beats())

    def check(self, client: int) -> None:
        """See that a client may write.

        Raises:
            StoreError: If it was revoked.
        """
        with self._explained() as connection:
            self._check(connection, client)

    def _check(self, connection: sqlite3.Connection, client: int) -> None:
        sql = "SELECT 1 FROM client WHERE id=? AND live"
        if connection.execute(sql, (client,)).fetchone() is None:
            raise StoreError(
                f"client {client} lost its items to another client, after it was silent for too "
                "long; it writes nothing more, and what it recorded before is kept"
            )

    # -- inside ------------------------------------------------------------------------------------

    @contextmanager
    def _explained(self) -> Iterator[sqlite3.Connection]:
        try:
            if not hasattr(self._local, "connection"):
                opened = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
                # A call begins with a new table, so it need not outlast a power cut.
                opened.execute("PRAGMA synchronous=OFF")
                self._local.connection = opened
            yield self._local.connection
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}: run the same command again") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def portion(total: int, rank: int, n: int) -> int:
    """Return a client's part of a limit: the parts of all of them are the limit, at least 1 each.

    Args:
        total: The limit.
        rank: Of the client among those that live, from 0.
        n: Clients that live.
    """
    return max(1, total // n + (rank < total % n))
