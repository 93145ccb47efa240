"""Looking up many outcomes, pending ones included.

Pending ones are looked at first: one that is committed meanwhile is then met in the file.
"""

from collections.abc import Iterable, Mapping

from orchestrator.records import Failure, Outcome
from orchestrator.store import codec, reading
from orchestrator.store.entries import OutcomeEntry

Pending = Mapping[bytes, OutcomeEntry]


def get_many(
    query: reading.Query, pending: Pending, keys: Iterable[bytes]
) -> dict[bytes, Outcome | Failure]:
    """The outcomes that are held of several keys."""
    outcomes: dict[bytes, Outcome | Failure] = {}
    for part in reading.in_slices(keys, reading.KEYS_AT_ONCE):
        for key in part:
            if (entry := pending.get(key)) is not None:
                outcomes[key] = codec.decode(*entry.packed)
        missing = [key for key in part if key not in outcomes]
        for key, head, arrays in reading.select_keys(query, "key, head, arrays", missing):
            outcomes[key] = codec.decode(head, arrays)
    return outcomes


def n_outcomes(query: reading.Query, pending: Pending, keys: Iterable[bytes]) -> int:
    """How many of these keys, each counted once, have an outcome."""
    n = 0
    seen: set[bytes] = set()
    for part in reading.in_slices(keys, reading.KEYS_AT_ONCE):
        new = set(part) - seen
        seen |= new
        waiting = {key for key in new if key in pending}
        n += len(waiting)
        n += len(reading.select_keys(query, "1", list(new - waiting)))
    return n
