"""Short ways to put things into a store, and to see where they came from."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing

from orchestrator.ask import digest
from orchestrator.records import Choice, Failure, Outcome
from orchestrator.store import Store


def key(number: int) -> bytes:
    return digest("test", number)


def choice(number: float = 0.0) -> Choice:
    return Choice((-number, -1.0), (-number, -1.0), "top_logprobs", 10, 4, 1)


def outcomes_of(store: Store, keys: Iterable[bytes]) -> dict[bytes, Outcome | Failure]:
    """The outcomes that a store holds of some keys."""
    return {key: found for key in keys if (found := store.get(key)) is not None}


def origin(store: Store, number: int) -> tuple[str, str, int, float, bytes]:
    """Kind, model, attempts, seconds of the last one and hash of the prompt of an outcome."""
    store.flush()
    with closing(sqlite3.connect(store.path)) as connection:
        [[kind, model, attempts, latency_s, prompt_hash]] = connection.execute(
            """SELECT kind.text, model.text, o.attempts, o.latency_s, o.prompt_hash FROM outcome o
            JOIN name kind ON kind.id=o.kind JOIN name model ON model.id=o.model WHERE o.key=?""",
            (key(number),),
        )
    return kind, model, attempts, latency_s, prompt_hash


def put(
    store: Store, number: int, outcome: Outcome | Failure | None = None, *, server: int = 0
) -> None:
    store.put_outcome(
        key(number),
        "choose",
        "judge",
        choice(number) if outcome is None else outcome,
        server=server,
        prompt_hash=key(-number),
        attempts=1,
        latency_s=0.25,
    )
