"""Reading the tables of a store: the statements behind its questions.

Every statement reads to its end before it returns; what is long is read in slices.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec
import numpy as np

from orchestrator.backend import Provenance
from orchestrator.store import values
from orchestrator.store.blobs import damaged

Query = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]
T = TypeVar("T")

_POSITIONS_AT_ONCE: Final = 50_000
_ROWS_AT_ONCE: Final = 500

_COUNTS: Final = """SELECT model.text, kind.text, cause.text, t.n, t.n_requests, t.n_attempts,
    t.n_prompt_tokens, t.n_cached_tokens, t.n_completion_tokens, t.latency_s FROM tally t
    JOIN name model ON model.id=t.model JOIN name kind ON kind.id=t.kind
    JOIN name cause ON cause.id=t.cause ORDER BY 1, 2, 3"""
_FAILURES: Final = """SELECT f.permanent, model.text, cause.text, f.status, f.n, f.last_message
    FROM failure f JOIN name model ON model.id=f.model
    JOIN name cause ON cause.id=f.cause ORDER BY f.n DESC, 2, 3, 4"""
_PLACES: Final = """SELECT position, unit FROM place
    WHERE plan=? AND position>? ORDER BY position LIMIT ?"""
_SPAN: Final = "SELECT count(*), min(position), max(position) FROM place WHERE plan=?"
_OPEN: Final = "SELECT id FROM unit WHERE status>=2 AND id>? ORDER BY id LIMIT ?"
_ASTRAY: Final = """SELECT count(*) FROM place p LEFT JOIN unit u ON u.id=p.unit
    WHERE p.plan=? AND u.id IS NULL"""
# Each page is read: a search in an order that is damaged would not find all.
_COUNTED: Final = """SELECT coalesce(sum(plan=?1), 0), (SELECT n_units FROM plan WHERE id=?1),
    coalesce(sum(plan NOT IN (SELECT id FROM plan) OR typeof(position)<>'integer'
        OR typeof(unit)<>'integer'), 0) FROM place"""
_FRAMES: Final = """SELECT DISTINCT u.frame FROM place p JOIN unit u ON u.id=p.unit
    WHERE p.plan=(SELECT id FROM plan WHERE current)"""
_ROWS: Final = """SELECT p.position, p.unit, u.status, u.rows
    FROM place p JOIN unit u ON u.id=p.unit
    WHERE p.plan=? AND p.position>? AND
    u.frame=(SELECT id FROM name WHERE text=?)
    ORDER BY p.position LIMIT ?"""


class StoredUnit(NamedTuple):
    """A unit that ended: its position in the plan, its status, and its rows of one frame."""

    position: int
    status: int
    rows: list[tuple[Any, ...]]


class StoredServer(NamedTuple):
    """A server that answered.

    Attributes:
        model: The label of the model it answered for.
        provenance: What it said it is.
        run: Path of the run that its answers were copied from; empty where it answered this run.
    """

    model: str
    provenance: Provenance
    run: str = ""

    def encode(self) -> str:
        """Return it as it is stored, without its model."""
        said = msgspec.to_builtins(self.provenance)
        return msgspec.json.encode(said | {"lent_by": self.run} if self.run else said).decode()

    @classmethod
    def decode(cls, model: str, text: str) -> Self:
        """A server of a model from what `encode` gave; damage is a `StoreError`."""
        try:
            said = msgspec.json.decode(text, type=dict[str, Any])
            run = msgspec.convert(said.get("lent_by", ""), str)
            return cls(model, msgspec.convert(said, Provenance), run)
        except msgspec.MsgspecError as error:
            raise damaged("a stored server is", error) from error


class ServerUse(NamedTuple):
    """Number of a model's outcomes that one server gave; `run` as in `StoredServer`.

    `epoch` tells the model's servers apart, 0 for the first.
    """

    provenance: Provenance
    run: str
    n: int
    epoch: int = 0


class OutcomeCount(NamedTuple):
    """Outcomes of one model, kind and cause ("" where they are no failures), summed."""

    model: str
    kind: str
    cause: str
    n: int
    n_requests: int
    n_attempts: int
    n_prompt_tokens: int
    n_cached_tokens: int
    n_completion_tokens: int
    latency_s: float


class FailureCount(NamedTuple):
    """Failed requests of one model and cause.

    `permanent` ones are outcomes, others were attempts. `last_message` is that of the latest.
    """

    permanent: bool
    model: str
    cause: str
    status: int
    n: int
    last_message: str


def in_slices(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """The values in lists of at most `size`."""
    iterator = iter(values)
    while found := list(islice(iterator, size)):
        yield found


def servers(query: Query) -> dict[int, StoredServer]:
    """The servers by number, in the order they were met."""
    found = query(
        "SELECT s.id, name.text, s.provenance FROM server s JOIN name ON name.id=s.model "
        "ORDER BY s.id",
        (),
    )
    return {number: StoredServer.decode(model, text) for number, model, text in found}


def check_frames(query: Query, frames: Collection[str]) -> None:
    """See that every unit of the current plan is in one of its frames.

    Raises:
        StoreError: If one is in none, as only damage makes it.
    """
    known = {number for number, text in query("SELECT id, text FROM name", ()) if text in frames}
    lost = {number for (number,) in query(_FRAMES, ())} - known
    if lost:
        raise damaged("units are", f"{len(lost):,} frames of units have no name")


def grown(last: T, now: T) -> T:
    """A key that was read after another one.

    Raises:
        StoreError: If it is not greater: who reads in order would never end.
    """
    if type(now) is not type(last) or not now > last:  # type: ignore[operator]  # numbers or bytes
        raise damaged("an index is", "not sorted")
    return now


def check(query: Query, path: Path) -> None:
    """Read the whole file and look for damage.

    Raises:
        StoreError: If there is some.
    """
    found = query("PRAGMA integrity_check", ())
    if found != [("ok",)]:
        raise damaged(f"{path} is", found[0][0])


class Readings:
    """The questions that a store answers from its tables, once what was put is committed."""

    _query: Query

    def flush(self) -> None:
        """Wait until all that was put is on the disk."""
        raise NotImplementedError

    def _flushed(self) -> Query:
        self.flush()
        return self._query

    def counts(self) -> list[OutcomeCount]:
        """Committed outcomes by model, kind and cause, with what they took."""
        return [OutcomeCount(*row) for row in self._query(_COUNTS, ())]

    def failures(self) -> list[FailureCount]:
        """Failed requests by model and cause, the most frequent first."""
        return [FailureCount(bool(row[0]), *row[1:]) for row in self._query(_FAILURES, ())]

    def server_of_model(self, model: str) -> StoredServer | None:
        """The server that answered last for a model, of another run where none did here."""
        found = self._flushed()(
            "SELECT provenance FROM server s JOIN name ON name.id=s.model WHERE name.text=? "
            "ORDER BY s.last_turn DESC, s.id LIMIT 1",
            (model,),
        )
        return StoredServer.decode(model, found[0][0]) if found else None

    def servers_used(self, model: str) -> list[ServerUse]:
        """The servers that answered for a model, in the order they were met, each with how often.

        Outcomes are counted only where there is more than one, or some were copied.
        """
        query = self._flushed()
        found = {n: one for n, one in servers(query).items() if one.model == model}
        if len(found) < 2 and not any(one.run for one in found.values()):
            return [ServerUse(one.provenance, one.run, 0) for one in found.values()]
        counted: dict[int, int] = dict(
            query("SELECT server, count(*) FROM outcome GROUP BY server", ())
        )
        epochs = list(dict.fromkeys(one.provenance for one in found.values()))
        return [
            ServerUse(one.provenance, one.run, counted[n], epochs.index(one.provenance))
            for n, one in found.items()
            if n in counted
        ]

    def is_current_plan(self, plan_hash: bytes) -> bool:
        """Return True if this plan was opened last and has adopted what it shares with others."""
        return bool(
            self._query("SELECT 1 FROM plan WHERE current AND adopted AND hash=?", (plan_hash,))
        )

    @property
    def current_plan(self) -> int | None:
        """Number of the plan that was opened last; None before the first."""
        found = self._query("SELECT id FROM plan WHERE current", ())
        return int(found[0][0]) if found else None

    def n_units(self, plan_id: int) -> int:
        """Units of a plan."""
        found = self._flushed()("SELECT n_units FROM plan WHERE id=?", (plan_id,))
        return int(found[0][0]) if found else 0

    def units_stamp(self, plan_id: int) -> int:
        """A number that grows whenever units of the plan end or are adopted."""
        found = self._flushed()("SELECT stamp FROM plan WHERE id=?", (plan_id,))
        return int(found[0][0]) if found else 0

    def n_ended(self, plan_id: int) -> int:
        """Units of a plan that have ended, in whatever way."""
        ((n,),) = self._flushed()("SELECT count(*) FROM place WHERE plan=?", (plan_id,))
        return int(n)

    def done_bitmap(self, plan_id: int, n_units: int) -> bytearray:
        """One byte a position: 1 for units that are done or failed for good."""
        query = self._flushed()
        # What is to be evaluated again.
        still_open: set[int] = set()
        last = 0
        while found := query(_OPEN, (last, _POSITIONS_AT_ONCE)):
            still_open.update(unit for (unit,) in found)
            last = grown(last, found[-1][0])
        if not still_open and query(_SPAN, (plan_id,)) == [(n_units, 0, n_units - 1)]:
            return bytearray(b"\x01") * n_units
        bitmap = bytearray(n_units)
        last = -1
        while found := query(_PLACES, (plan_id, last, _POSITIONS_AT_ONCE)):
            last = grown(last, found[-1][0])
            for position, unit in found:
                if position < n_units and unit not in still_open:
                    bitmap[position] = 1
        return bitmap

    def iter_rows(self, plan_id: int, frame: str) -> Iterator[StoredUnit]:
        """The units of a frame in the order of the plan, some hundred read at a time.

        Raises:
            StoreError: After the last, if a unit stands at two places, as only damage makes it.
        """
        query = self._flushed()
        last = -1
        # Eight bytes a unit, where a set of them takes sixty.
        seen = array("q")
        while found := query(_ROWS, (plan_id, last, frame, _ROWS_AT_ONCE)):
            for position, unit, status, blob in found:
                if type(status) is not int:
                    raise damaged("the status of a unit is", "no number")
                seen.append(unit)
                last = grown(last, position)
                yield StoredUnit(position, status, values.decode(blob))
        n_twice = len(seen) - len(np.unique(np.asarray(seen)))
        if n_twice:
            raise damaged("the order of units is", f"{n_twice:,} units have two positions")

    def check_places(self, plan_id: int, n_read: int | None = None) -> None:
        """See that there is a unit wherever the plan says that one stands.

        `n_read` are the units that the frames of the plan were found to have, all together: a bit
        in a unit's frame or in an index of the file hides a unit, or all.

        Raises:
            StoreError: If that is not so, as only damage makes it.
        """
        query = self._flushed()
        ((n_astray,),) = query(_ASTRAY, (plan_id,))
        if n_astray:
            raise damaged("the order of units is", f"{n_astray:,} positions have a missing unit")
        ((n_places, n_units, n_lost),) = query(_COUNTED, (plan_id,))
        if n_lost:
            raise damaged("the order of units is", f"{n_lost:,} positions are in no plan")
        if n_read not in {None, n_places} or n_places > n_units:
            said = (
                f"of {n_units:,} units {n_places:,} have a position, {n_read or 0:,} are in a frame"
            )
            raise damaged("the order of units is", said)
