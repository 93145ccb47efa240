"""Short ways to put things into a store."""

from orchestrator.ask import digest
from orchestrator.records import Choice, Failure, Outcome
from orchestrator.store import Store


def key(number: int) -> bytes:
    return digest("test", number)


def choice(number: float = 0.0) -> Choice:
    return Choice((-number, -1.0), (-number, -1.0), "top_logprobs", 10, 4, 1)


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
