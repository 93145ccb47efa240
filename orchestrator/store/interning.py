"""Numbers for what repeats: names, frames, causes, servers, and texts of tokens.

A new number is queued before whatever uses it, so it is committed with it or before.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Final
from urllib.parse import quote

import msgspec
import numpy as np

from orchestrator.backend import Provenance
from orchestrator.errors import StoreError
from orchestrator.records import UNKNOWN_ID, Generation, IntArray, Scored, TopLogprobs
from orchestrator.store import blobs, reading
from orchestrator.store.blobs import printable
from orchestrator.store.entries import NAME, SERVER, TOKENS, RowEntry, wall_ms
from orchestrator.store.reading import Query, StoredServer
from orchestrator.wire import failures

_MAX_NAME: Final = 200

Submit = Callable[[RowEntry], object]


class Names:
    """Numbers of names; `submit` queues a new one."""

    def __init__(self, query: reading.Query, submit: Submit) -> None:
        found = query("SELECT id, text FROM name", ())
        self._numbers: dict[str, int] = {text: number for number, text in found}
        self._submit = submit
        self._lock = threading.Lock()

    def number(self, text: str) -> int:
        """The number of a name, of which 200 characters count."""
        number = self._numbers.get(text)
        if number is not None:
            return number
        name = printable(text, _MAX_NAME)
        with self._lock:
            number = self._numbers.get(name)
            if number is None:
                number = len(self._numbers) + 1
                self._submit(RowEntry(NAME, (number, name)))
                self._numbers[name] = number
        return number


class Servers:
    """Numbers of the servers that answered for a model, and who did last.

    The servers of a model have epochs, 0, 1, … in the order they were met; one that also answered
    another run has one epoch.

    Attributes:
        numbers: By server.
        are_several: Whether some model had more than one.
        last_turn: The highest turn that one has had.
    """

    def __init__(self, query: reading.Query, submit: Submit) -> None:
        self.numbers: dict[StoredServer, int] = {}
        self._of_model: dict[str, dict[Provenance, int]] = {}
        self._epochs: dict[int, int] = {}
        self.are_several = False
        for number, server in reading.servers(query).items():
            self._meet(server, number)
        ((self.last_turn,),) = query("SELECT coalesce(max(last_turn), 0) FROM server", ())
        self._submit = submit
        self._lock = threading.Lock()

    def number(self, server: StoredServer, model_number: int) -> int:
        """The number of a server, which answers for its model from now on.

        One that answered another run takes no turn: it does not answer now.
        """
        with self._lock:
            known = self.numbers.get(server)
            if known is not None and server.run:
                return known
            turn = 0 if server.run else self.last_turn + 1
            return self.put(server, model_number, wall_ms(), turn)

    def put(self, server: StoredServer, model_number: int, at_ms: int, turn: int) -> int:
        """Write a server's row, with a new number if it has none; return the number."""
        # Of damaged ones `repair` leaves gaps.
        number = self.numbers.get(server) or max(self.numbers.values(), default=0) + 1
        self.last_turn = max(self.last_turn, turn)
        row = (number, model_number, server.encode(), at_ms, turn)
        self._submit(RowEntry(SERVER, row))
        self._meet(server, number)
        return number

    def known(self, model: str) -> list[Provenance]:
        """The servers that answered for a model, lent ones included, by epoch."""
        with self._lock:
            return list(self._of_model.get(model, ()))

    def epoch(self, number: int) -> int:
        """The epoch of a server by its number; 0 where there is none."""
        return self._epochs.get(number, 0)

    def _meet(self, server: StoredServer, number: int) -> None:
        self.numbers[server] = number
        epochs = self._of_model.setdefault(server.model, {})
        self._epochs[number] = epochs.setdefault(server.provenance, len(epochs))
        self.are_several |= len(epochs) > 1


# Texts of the tokens that outcomes hold as numbers, each written down once a run.
#
# A server that names tokens by ids is asked for the texts of the ids that occurred; they are kept
# by the server, since another one may have another tokenizer. A server that names tokens by their
# texts alone gives no ids, so that a run numbers those texts itself: -2, -3, … in the order they
# came (-1 is `records.UNKNOWN_ID`), for all its servers together. Both stand in rows of the table
# `token`, many tokens to a row, with the checksums that outcomes have.


NUMBERED: Final = 0
"""Stands for the server where a run has numbered texts itself."""
MOST_BYTES: Final = 1024
"""The longest text of a token that is kept."""
MOST_TOKENS: Final = 2**20
"""The most tokens of a server, and the most texts that a run numbers."""
FIRST_NUMBER: Final = -2
"""The number of the first text."""
# Shorter parts of a key may well be words.
_LEAST_PART: Final = 8
# Where a row is lost, numbers go on below all that it may have held: none is given to two texts.
_BLOCK: Final = MOST_TOKENS

_Tokens = dict[int, bytes]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[list[int], list[bytes]]).decode


def encode(server: int, texts: Mapping[int, bytes]) -> bytes:
    """The blob of a row."""
    (blob,) = blobs.shorten([blobs.seal(_encode((list(texts), list(texts.values()))))])
    return blobs.checked(blob, _belonging(server))


def decode(server: int, blob: bytes) -> _Tokens:
    """The texts of a row by number.

    Raises:
        StoreError: If the row is damaged.
    """
    try:
        body = blobs.open_blob(blob)
        blobs.check_belonging(blob, _belonging(server))
        numbers, texts = _decode(body)
        return dict(zip(numbers, texts, strict=True))
    except (msgspec.MsgspecError, ValueError) as error:
        raise blobs.damaged("stored token texts are", error) from error


def next_number(numbers: Iterable[int], *, is_whole: bool) -> int:
    """The number of the next text that a run numbers."""
    lowest = min(numbers, default=None)
    if is_whole:
        return FIRST_NUMBER if lowest is None else lowest - 1
    block = 0 if lowest is None else (FIRST_NUMBER - lowest) // _BLOCK
    return FIRST_NUMBER - _BLOCK * (block + 1)


def texts_of(query: Query, servers: Iterable[int]) -> _Tokens:
    """The texts of servers' tokens, and those that the run numbered; damaged rows are left out.

    An id to which two of the servers give different texts is left out, too.
    """
    found: _Tokens = {}
    differing: set[int] = set()
    for server in (NUMBERED, *servers):
        for number, text in _read(query, server)[0].items():
            if found.setdefault(number, text) != text:
                differing.add(number)
    return {number: text for number, text in found.items() if number not in differing}


def is_numbered(outcome: object) -> bool:
    """Return True if an outcome holds tokens by numbers that its run gave to their texts."""
    if not isinstance(outcome, Generation):
        return False
    is_listed = outcome.top is not None and bool((outcome.top.token_ids < UNKNOWN_ID).any())
    return is_listed or outcome.named is not None


class Vocabulary:
    """The texts that a run has written down, for the one who writes.

    `query` reads what is committed, `submit` queues new texts.
    """

    def __init__(self, query: Query, submit: Submit) -> None:
        self._query = query
        self._submit = submit
        self._lock = threading.Lock()
        self._numbers: dict[bytes, int] | None = None
        self._next = FIRST_NUMBER
        self._known: dict[int, set[int]] = {}
        self._secrets: set[bytes] = set()

    def keep_out(self, secret: str) -> None:
        """Write no text of a token from now on that holds a key, or a long part of it.

        A server is given the key, and may draw it as tokens.
        """
        for one in secret.split("\n"):
            if len(one) >= failures.LONG_SECRET:
                ways = (one, json.dumps(one)[1:-1], quote(one, safe=""))
                self._secrets |= {way.encode() for way in ways}

    def _may_keep(self, text: bytes) -> bool:
        if len(text) > MOST_BYTES:
            return False
        part = text.strip()
        return not any(
            secret in text or (len(part) >= _LEAST_PART and part in secret)
            for secret in self._secrets
        )

    def numbered(self, made: Generation) -> Generation:
        """Return a draw whose tokens are named by the run's numbers instead of its own texts."""
        found = self.numbers_of(made.names)
        numbers = np.array([UNKNOWN_ID, UNKNOWN_ID, *found], dtype=np.int32)
        top, named = made.top, made.named
        # In the place of -2 - n, the n-th name; others become unknown.
        if top is not None:
            top = TopLogprobs(numbers[np.maximum(-top.token_ids, 0)], top.logprobs)
        if named is not None:
            named = numbers[np.maximum(-named, 0)]
        return msgspec.structs.replace(made, top=top, named=named, names=())

    def put(self, server: int, texts: Mapping[int, bytes]) -> None:
        """Keep the texts of a server's tokens; those that are known stay as they are."""
        with self._lock:
            known = self._known_of(server)
            new = {
                number: text
                for number, text in texts.items()
                if number >= 0 and number not in known and self._may_keep(text)
            }
            if new and server != NUMBERED and len(known) + len(new) <= MOST_TOKENS:
                known.update(new)
                self._submit(RowEntry(TOKENS, (server, encode(server, new))))

    def known(self, server: int) -> frozenset[int]:
        """The ids of a server's tokens whose texts are kept."""
        with self._lock:
            return frozenset(self._known_of(server))

    def _known_of(self, server: int) -> set[int]:
        if server not in self._known:
            self._known[server] = set(_read(self._query, server)[0])
        return self._known[server]

    def numbers_of(self, names: Sequence[bytes]) -> list[int]:
        """The numbers of texts, which are written down if they are new.

        -1 stands for a text that is not kept: longer than what is, part of a key, or without room.
        """
        with self._lock:
            if self._numbers is None:
                stored, is_whole = _read(self._query, NUMBERED)
                self._numbers = {text: number for number, text in stored.items()}
                self._next = next_number(stored, is_whole=is_whole)
            known = self._numbers
            found = list(map(known.get, names, repeat(UNKNOWN_ID)))
            if UNKNOWN_ID in found:
                self._number(names, known)
                found = list(map(known.get, names, repeat(UNKNOWN_ID)))
        return found

    def _number(self, names: Sequence[bytes], known: dict[bytes, int]) -> None:
        """Give numbers to the texts that have none, and write them down."""
        new: _Tokens = {}
        for name in names:
            # Without the limits a server could fill the disk with tokens that it makes up.
            if name not in known and len(known) < MOST_TOKENS and self._may_keep(name):
                known[name] = self._next
                new[self._next] = name
                self._next -= 1
        if new:
            self._submit(RowEntry(TOKENS, (NUMBERED, encode(NUMBERED, new))))


def with_names(made: Generation, texts: Mapping[int, bytes]) -> Generation:
    """Return a stored draw with the texts of its tokens, as a server gave it; see `numbered`."""
    held = [] if made.named is None else [made.named]
    if made.top is not None:
        held.append(made.top.token_ids.ravel())
    numbers = np.unique(np.concatenate(held))
    known = [number for number in numbers.tolist() if number < UNKNOWN_ID and number in texts]
    place_of = {number: FIRST_NUMBER - place for place, number in enumerate(known)}

    def place(array: IntArray) -> IntArray:
        places = [
            number if number >= UNKNOWN_ID else place_of.get(number, UNKNOWN_ID)
            for number in array.ravel().tolist()
        ]
        return np.array(places, dtype=np.int32).reshape(array.shape)

    top = made.top and TopLogprobs(place(made.top.token_ids), made.top.logprobs)
    named = None if made.named is None else place(made.named)
    return msgspec.structs.replace(
        made, top=top, named=named, names=tuple(texts[number] for number in known)
    )


def ids_of(outcome: object) -> IntArray | None:
    """Return the ids in an outcome, alternatives included; None if it has none."""
    if not isinstance(outcome, Generation | Scored):
        return None
    found = [] if outcome.token_ids is None else [outcome.token_ids]
    if outcome.top is not None:
        found.append(outcome.top.token_ids.ravel())
    ids = np.concatenate(found) if found else None
    return ids if ids is not None and ids.size else None


def _read(query: Query, server: int) -> tuple[_Tokens, bool]:
    """The texts of a server's tokens by number, and whether all rows of them are whole."""
    found: _Tokens = {}
    is_whole = True
    for (blob,) in query("SELECT texts FROM token WHERE server=? ORDER BY id", (server,)):
        try:
            found.update(decode(server, blob))
        except StoreError:
            # The texts of some tokens: nothing that a number rests on.
            is_whole = False
    return found, is_whole


def _belonging(server: int) -> bytes:
    return server.to_bytes(8, "little", signed=True)
