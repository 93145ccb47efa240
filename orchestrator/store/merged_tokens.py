"""Token texts of several stores put together in a new one; see `store.vocabulary`.

A server's tokens keep their ids. Texts that a run has numbered get numbers of the new store, and
outcomes that hold other ones are written anew.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from orchestrator.records import Generation
from orchestrator.store import codec, compression
from orchestrator.store.entries import TokensEntry
from orchestrator.store.vocabulary import NUMBERED, Vocabulary, is_numbered, unpacked, with_names

_IS_THERE: Final = "SELECT 1 FROM source.sqlite_master WHERE name='token'"
_TEXTS: Final = "SELECT server, texts FROM source.token ORDER BY id"
_DRAWN: Final = """SELECT id, key, head, arrays FROM main.outcome
    WHERE id>? AND id<=? AND kind=? ORDER BY id LIMIT 1000"""


class MergedTokens:
    """The token texts of a new store.

    Args:
        connection: To the new store; stores to be copied are attached as `source`.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._many = connection.executemany
        self._vocabulary = Vocabulary(lambda *asked: self._execute(*asked).fetchall(), self._put)

    def take(self, servers: Mapping[int, int], after: int, last: int, generate: int | None) -> None:
        """Copy the texts of the attached store, after its outcomes.

        Args:
            servers: Numbers of servers there, and their numbers in the new store.
            after: Number before the first of its outcomes in the new store.
            last: Of the last.
            generate: Number of the name of the asks that draw texts; None if there are none.

        Raises:
            StoreError: If a record is damaged.
        """
        texts: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
        if self._execute(_IS_THERE).fetchall():
            for server, blob in self._execute(_TEXTS):
                texts[server].update(unpacked(server, blob))
        numbered = texts.pop(NUMBERED, {})
        for server, known in texts.items():
            if server in servers:
                self._vocabulary.put(servers[server], known)
        # In the order in which they were numbered, so that the first store keeps its numbers.
        there = sorted(numbered, reverse=True)
        here = self._vocabulary.numbers_of([numbered[number] for number in there])
        if generate is not None and there != here:
            self._renumber(numbered, after, last, generate)

    def _renumber(
        self, numbered: Mapping[int, bytes], after: int, last: int, generate: int
    ) -> None:
        while rows := self._execute(_DRAWN, (after, last, generate)).fetchall():
            changed = []
            for number, key, head, arrays in rows:
                made = codec.decode(head, arrays, key)
                if isinstance(made, Generation) and is_numbered(made):
                    new = self._vocabulary.numbered(with_names(made, numbered))
                    packed = compression.encode(new, key)
                    changed.append((packed.head, packed.arrays, number))
                after = number
            self._many("UPDATE main.outcome SET head=?, arrays=? WHERE id=?", changed)

    def _put(self, entry: TokensEntry) -> None:
        insert = "INSERT INTO main.token (server, texts) VALUES (?,?)"
        self._execute(insert, (entry.server, entry.texts))
