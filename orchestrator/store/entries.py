"""Entries queued for the writer, and entries read back."""

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from orchestrator.backend import Provenance
from orchestrator.records import Choice, Failure, Generation, Outcome, PairScores
from orchestrator.store.blobs import Content, printable
from orchestrator.store.codec import Packed


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


FRAMES: Final = "frames"
"""The value of a run that holds its frames by name, as JSON."""
ROLES: Final = "roles"
"""The value of a run that holds the roles of its frames' columns, as JSON."""
# What an entry and its place in the queue take beside its blobs, bytes.
_OVERHEAD_BYTES = 400
_MAX_MESSAGE = 500


class NameEntry(msgspec.Struct, frozen=True, gc=False):
    """A new number for a model, kind of ask, frame or cause."""

    number: int
    text: str
    n_bytes: int = _OVERHEAD_BYTES


class MetaEntry(msgspec.Struct, frozen=True, gc=False):
    """A value of the run."""

    key: str
    value: str
    n_bytes: int = _OVERHEAD_BYTES


class ServerEntry(msgspec.Struct, frozen=True, gc=False):
    """A server that answers for a model now; `turn` orders who did last."""

    number: int
    model: int
    provenance: str
    at_ms: int
    turn: int
    n_bytes: int = _OVERHEAD_BYTES


class TokensEntry(msgspec.Struct, frozen=True, gc=False):
    """Texts of a server's tokens; see `store.interning`."""

    server: int
    texts: bytes

    @property
    def n_bytes(self) -> int:
        """Memory it holds, roughly."""
        return _OVERHEAD_BYTES + len(self.texts)


class FailureEntry(msgspec.Struct, frozen=True, gc=False):
    """One more failure of a group."""

    permanent: bool
    model: int
    cause: int
    status: int
    key: bytes
    message: str
    at_ms: int
    n_bytes: int = _OVERHEAD_BYTES


class OutcomeEntry(msgspec.Struct, frozen=True, gc=False):
    """An outcome with where it came from; `failure` where it is one.

    `content` is what its arrays are compressed from (see `store.codec`), `tally` of `tally_of`.
    """

    key: bytes
    kind: int
    model: int
    server: int
    cause: int
    attempts: int
    latency_s: float
    at_ms: int
    prompt_hash: bytes
    packed: Packed
    content: Content | None
    tally: tuple[float, ...]
    failure: FailureEntry | None

    @property
    def n_bytes(self) -> int:
        """Memory it holds, roughly."""
        n_planes = 0 if self.content is None else len(self.content.planes)
        return _OVERHEAD_BYTES + self.packed.n_bytes + n_planes


class UnitEntry(msgspec.Struct, frozen=True, gc=False):
    """The end of a unit at its position in a plan."""

    unit_hash: bytes
    plan: int
    position: int
    status: int
    frame: int
    cause: int
    rows: bytes

    @property
    def n_bytes(self) -> int:
        """Memory it holds, roughly."""
        return _OVERHEAD_BYTES + len(self.rows)


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


def tally_of(outcome: Outcome | Failure, attempts: int, latency_s: float) -> tuple[float, ...]:
    """Return what an outcome adds to the sums of its table `tally`, in the order of the columns.

    That is 1 outcome, its requests, attempts, tokens read, cached and generated, as far as it
    records them, and seconds.
    """
    match outcome:
        case Failure():
            spent = (1, attempts, 0, 0, 0)
        case PairScores():
            spent = (0, attempts, 0, 0, 0)
        case _:
            n = outcome.n_requests if isinstance(outcome, Choice) else 1
            made = outcome.n_completion_tokens if isinstance(outcome, Generation) else 0
            spent = (n, attempts, outcome.n_prompt_tokens, outcome.n_cached_tokens, made)
    return 1, *spent, latency_s


def failure_entry(
    number: Callable[[str], int], key: bytes, model: str, failure: Failure
) -> FailureEntry:
    """The entry of a failure; `number` gives names theirs."""
    return FailureEntry(
        failure.permanent,
        number(model),
        number(failure.cause),
        failure.status,
        key,
        printable(failure.message, _MAX_MESSAGE),
        wall_ms(),
    )
