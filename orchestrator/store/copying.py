"""Records copied from store to store by SQLite, with their checksums looked at.

Names and servers get common numbers; outcomes and units keep theirs, raised by an offset.
"""

import contextlib
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from orchestrator.ask import KEY_BYTES
from orchestrator.records import Failure, Generation, Outcome
from orchestrator.store import blobs, codec, interning, schema
from orchestrator.store.entries import RowEntry
from orchestrator.store.interning import (
    NUMBERED,
    Names,
    Servers,
    Vocabulary,
    is_numbered,
    with_names,
)
from orchestrator.store.reading import StoredServer

_IS_THERE: Final = "SELECT 1 FROM source.sqlite_master WHERE name='token'"
_TEXTS: Final = "SELECT server, texts FROM source.token ORDER BY id"
_DRAWN: Final = """SELECT id, key, head, arrays FROM main.outcome WHERE id>? AND id<=?
    AND kind=(SELECT id FROM main.name WHERE text='generate') ORDER BY id LIMIT 1000"""

# Counts of what was used differ between servers and times; no number rests on them.
_USED: Final = ("n_prompt_tokens", "n_cached_tokens", "n_requests")
_NUMBERS: Final = tuple(
    f"CREATE TABLE work.{name}_of (old INTEGER PRIMARY KEY, new INTEGER NOT NULL)"
    for name in ("name", "server")
)
_SERVERS: Final = """SELECT s.id, n.text, s.provenance, s.first_at_ms, s.last_turn
    FROM source.server s JOIN source.name n ON n.id=s.model ORDER BY s.id"""
# A number that damage has made has no new one, which no column takes.
_OUTCOMES: Final = """INSERT INTO main.outcome
    SELECT o.id+:offset, o.key, k.new, m.new, s.new, c.new, o.attempts, o.latency_s, o.at_ms,
        o.prompt_hash, whole_outcome(o.head, o.key, o.arrays), o.arrays
    FROM source.outcome o
    LEFT JOIN work.name_of k ON k.old=o.kind LEFT JOIN work.name_of m ON m.old=o.model
    LEFT JOIN work.server_of s ON s.old=o.server LEFT JOIN work.name_of c ON c.old=o.cause
    WHERE o.id BETWEEN :first AND :last ORDER BY o.id"""


class Copying:
    """A connection to the store that is made, and the numbers of names and servers in it.

    `work` is the address of a file for what is known meanwhile.

    Attributes:
        servers: Servers of the new store.
    """

    def __init__(self, connection: sqlite3.Connection, work: str) -> None:
        self._connection = connection
        self._execute = execute = connection.execute
        self._fault: BaseException | None = None
        execute("ATTACH ? AS work", (work,))
        make = partial(connection.create_function, deterministic=True)
        make("whole_outcome", 3, partial(self._whole, _check_outcome))
        make("whole_rows", 1, partial(self._whole, blobs.check))
        for statement in _NUMBERS:
            execute(statement)

        def query(sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
            return execute(sql, values).fetchall()

        def submit(entry: RowEntry) -> None:
            execute(entry.sql, entry.values)

        self._names = Names(query, submit)
        self.servers = Servers(query, submit)
        self._vocabulary = Vocabulary(query, submit)

    @contextlib.contextmanager
    def attached(self, path: Path, uri: str) -> Iterator[None]:
        """Read a store as `source`.

        Raises:
            StoreError: If it is damaged.
        """
        with schema.explained(path):
            self._execute("ATTACH ? AS source", (uri,))
            try:
                yield
            except sqlite3.Error as error:
                fault, self._fault = self._fault, None
                if fault is not None:
                    # SQLite says no more than that a function failed.
                    raise fault from error
                raise
            finally:
                # A statement that failed may still hold the file.
                with contextlib.suppress(sqlite3.Error):
                    self._execute("DETACH source")

    def number(self) -> None:
        """Give names and servers of the source their numbers."""
        self._execute("DELETE FROM work.name_of")
        self._execute("DELETE FROM work.server_of")
        for old, text in self._execute("SELECT id, text FROM source.name ORDER BY id").fetchall():
            self._execute("INSERT INTO work.name_of VALUES (?,?)", (old, self._names.number(text)))
        self._execute("INSERT INTO work.server_of VALUES (0,0)")
        before = self.servers.last_turn
        for old, model, text, at_ms, last_turn in self._execute(_SERVERS).fetchall():
            server = StoredServer.decode(model, text)
            new = self.servers.numbers.get(server)
            if new is None:
                turn = before + last_turn if last_turn else 0
                new = self.servers.put(server, self._names.number(model), at_ms, turn)
            self._execute("INSERT INTO work.server_of VALUES (?,?)", (old, new))

    def outcomes(self, offset: int, first: int, last: int) -> int:
        """Copy the outcomes from one number to another; return how many there are."""
        span = {"offset": offset, "first": first, "last": last}
        return self._execute(_OUTCOMES, span).rowcount

    def tokens(self, after: int, last: int) -> None:
        """Copy the texts of tokens, after outcomes that hold their numbers.

        These are numbered from behind `after` up to `last` in the new store. A server's tokens keep
        their ids. Texts that a run has numbered get numbers of the new store, and outcomes that
        hold other ones are written anew.

        Raises:
            StoreError: If a record is damaged.
        """
        servers = dict(self._execute("SELECT old, new FROM work.server_of").fetchall())
        texts: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
        if self._execute(_IS_THERE).fetchall():
            for server, blob in self._execute(_TEXTS):
                texts[server].update(interning.decode(server, blob))
        numbered = texts.pop(NUMBERED, {})
        for server, known in texts.items():
            if server in servers:
                self._vocabulary.put(servers[server], known)
        # In the order in which they were numbered, so that the first store keeps its numbers.
        there = sorted(numbered, reverse=True)
        here = self._vocabulary.numbers_of([numbered[number] for number in there])
        if there != here:
            self._renumber(numbered, after, last)

    def _renumber(self, numbered: Mapping[int, bytes], after: int, last: int) -> None:
        while rows := self._execute(_DRAWN, (after, last)).fetchall():
            changed = []
            for number, key, head, arrays in rows:
                made = codec.decode(head, arrays, key)
                if isinstance(made, Generation) and is_numbered(made):
                    new = self._vocabulary.numbered(with_names(made, numbered))
                    packed = codec.encode(new, key)
                    changed.append((packed.head, packed.arrays, number))
                after = number
            self._connection.executemany(
                "UPDATE main.outcome SET head=?, arrays=? WHERE id=?", changed
            )

    # -- called by SQLite --------------------------------------------------------------------------

    def _whole(self, check: Callable[..., None], blob: bytes, *others: bytes) -> bytes | None:
        """Return a blob that is as it was written; NULL, which no column takes."""
        try:
            check(blob, *others)
        # The boundary to SQLite: also Ctrl-C must reach the caller.
        except BaseException as error:  # noqa: BLE001
            self._fault = error
            return None
        return blob


def _check_outcome(head: bytes, key: bytes, arrays: bytes) -> None:
    # Damage makes a number, a text or nothing of a blob.
    if {type(key), type(head), type(arrays)} != {bytes} or len(key) != KEY_BYTES:
        raise blobs.damaged("a stored outcome is", "a value of another type")
    if blobs.is_checked(head):
        blobs.check(head, key + arrays)
    else:
        codec.decode(head, arrays, key)


def is_same(first: tuple[bytes, bytes], second: tuple[bytes, bytes], key: bytes) -> bool:
    """Return True if two stored outcomes are the same reply, whatever they took."""
    if first == second:
        return True
    return codec.pack(_reply(codec.decode(*first, key))) == codec.pack(
        _reply(codec.decode(*second, key))
    )


def _reply(outcome: Outcome | Failure) -> Outcome | Failure:
    """An outcome without what it took, and a failure without its words."""
    if isinstance(outcome, Failure):
        return msgspec.structs.replace(outcome, message="", retry_after_s=None)
    used = {name: 0 for name in _USED if hasattr(outcome, name)}
    return msgspec.structs.replace(outcome, **used)
