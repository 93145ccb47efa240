"""Drives the coroutines of methods by hand: no task, no future, no event loop, no I/O.

A unit is opened, its coroutine yields asks, each ask is looked up in the store, joined to the same
request in flight, or handed out to be sent. Outcomes are sent back into the coroutines as they
come. What was sent belongs to the driver, not to the unit that asked first: a unit that fails
cancels nothing that others wait for.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from traceback import format_exception
from typing import Any

import msgspec

from orchestrator.ask import (
    AnyAsk,
    Ask,
    AskFailed,
    ChooseAsk,
    GenerateAsk,
    Request,
    ScoreAsk,
    Several,
    SimilarityAsk,
    seed_of,
)
from orchestrator.errors import MethodError
from orchestrator.plan import Plan, Work
from orchestrator.records import Failure, Message, Outcome, Row

DONE, FAILED, FAILED_FOR_NOW, FAULTY = 0, 1, 2, 3

_KINDS: dict[type, str] = {
    GenerateAsk: "generate",
    ScoreAsk: "score",
    ChooseAsk: "choose",
    SimilarityAsk: "similarity",
}
_PENDING: Any = object()


class Finished(msgspec.Struct, frozen=True):
    """The end of a unit: its rows, or one row with the cause."""

    position: int
    status: int
    frame: str
    rows: list[Row]
    fault: str = ""


class _Running(msgspec.Struct, eq=False):
    position: int
    work: Work
    coroutine: Coroutine[Any, Any, list[Row]]
    answers: list[Any]
    several: bool = False
    n_missing: int = 0
    waits_for: list[str] = []


Lookup = Callable[[bytes], Outcome | Failure | None]


class Driver:
    """Opens units, resolves their asks, and hands out what must be sent.

    Args:
        plan: Gives the units.
        lookup: The store: an outcome by key, a permanent failure, or None.
        systems: System prompts by model; they become part of what is asked.
        watch: Called with key, kind and model of each ask that the store answers.

    Attributes:
        outbox: Requests to send, oldest first; the caller empties it.
        finished: Units that ended; the caller empties it.
        waiting: Number of open units that wait for each model.
        n_found: Asks that the store answered.
        n_joined: Asks that joined a request already in flight.
    """

    def __init__(
        self,
        plan: Plan,
        lookup: Lookup,
        systems: Mapping[str, str],
        *,
        watch: Callable[[bytes, str, str], None] | None = None,
    ) -> None:
        self._plan = plan
        self._watch = watch
        self._lookup = lookup
        self._systems = dict(systems)
        self._in_flight: dict[bytes, Request] = {}
        self._ask = Ask()
        self.outbox: deque[Request] = deque()
        self.finished: deque[Finished] = deque()
        self.waiting: dict[str, int] = dict.fromkeys(plan.identities, 0)
        self.n_open = 0
        self.n_found = 0
        self.n_joined = 0

    def open(self, position: int) -> None:
        """Start the unit at a position; it ends at once where the store holds all it asks."""
        work = self._plan.work(position)
        coroutine = work.part.method.evaluate(work.unit, self._ask, work.part.config)
        self.n_open += 1
        self._advance(_Running(position, work, coroutine, []), None)

    def deliver(self, request: Request, outcome: Outcome | Failure) -> None:
        """Give the end of a request to all units that wait for it."""
        del self._in_flight[request.key]
        ready = []
        for unit, slot in request.waiters:
            unit.answers[slot] = outcome
            unit.n_missing -= 1
            if unit.n_missing == 0:
                ready.append(unit)
        for unit in ready:
            for model in unit.waits_for:
                self.waiting[model] -= 1
            self._advance(unit, unit.answers if unit.several else unit.answers[0])

    def _advance(self, unit: _Running, value: Any) -> None:  # noqa: ANN401
        """Run the coroutine until it waits for something that is not here yet, or ends."""
        try:
            while True:
                if isinstance(value, Failure):
                    asked = unit.coroutine.throw(AskFailed(value))
                else:
                    asked = unit.coroutine.send(value)
                value = self._resolve(unit, asked)
                if value is _PENDING:
                    return
        except StopIteration as end:
            self._finish(unit, DONE, end.value)
        except AskFailed as failed:
            status = FAILED if failed.failure.permanent else FAILED_FOR_NOW
            self._finish(unit, status, [_failed_row(unit, failed.failure)])
        except Exception as error:  # noqa: BLE001 (the boundary around a method's own faults)
            fault = "".join(format_exception(error))
            failure = Failure("method", f"{type(error).__name__}: {error}")
            self._finish(unit, FAULTY, [_failed_row(unit, failure)], fault)

    def _resolve(self, unit: _Running, asked: object) -> Any:  # noqa: ANN401
        """What the ask gives, or `_PENDING`."""
        unit.several = isinstance(asked, Several)
        asks = asked.asks if isinstance(asked, Several) else (asked,)
        unit.answers = [None] * len(asks)
        unit.n_missing = 0
        waits_for = []
        for slot, ask in enumerate(asks):
            kind = _KINDS.get(type(ask))
            if kind is None:
                raise MethodError(
                    f"the method {unit.work.part.kind!r} awaited {type(ask).__name__}; a method "
                    f"may only await what `ask` offers"
                )
            answer = self._answer(unit, slot, ask, kind)  # type: ignore[arg-type]
            unit.answers[slot] = answer
            if answer is None:
                unit.n_missing += 1
                waits_for.append(ask.model)  # type: ignore[attr-defined]
        if unit.n_missing == 0:
            return unit.answers if unit.several else unit.answers[0]
        unit.waits_for = waits_for
        for model in waits_for:
            self.waiting[model] += 1
        return _PENDING

    def _answer(
        self, unit: _Running, slot: int, ask: AnyAsk, kind: str
    ) -> Outcome | Failure | None:
        """The outcome of one ask where it is known; else the unit waits for it."""
        plan = self._plan
        ask = self._with_system(ask)
        key = ask.key(plan.identities[ask.model], plan.seed)
        flying = self._in_flight.get(key)
        if flying is not None:
            self.n_joined += 1
            flying.waiters.append((unit, slot))
            return None
        known = self._lookup(key)
        if known is not None:
            self.n_found += 1
            if self._watch is not None:
                self._watch(key, kind, ask.model)
            return known
        request = Request(key, kind, ask, seed_of(key, plan.seed), unit.position, 0, [(unit, slot)])
        self._in_flight[key] = request
        self.outbox.append(request)
        return None

    def _with_system(self, ask: AnyAsk) -> AnyAsk:
        system = self._systems.get(ask.model)
        if not system or isinstance(ask, SimilarityAsk) or ask.messages[0].role == "system":
            return ask
        return msgspec.structs.replace(ask, messages=(Message("system", system), *ask.messages))

    def _finish(self, unit: _Running, status: int, rows: list[Row], fault: str = "") -> None:
        self.n_open -= 1
        frame = unit.work.part.method.FRAME
        self.finished.append(Finished(unit.position, status, frame, rows, fault))

    def close(self) -> None:
        """Close the coroutines of units that still wait."""
        for request in self._in_flight.values():
            for unit, _ in request.waiters:
                unit.coroutine.close()
        self._in_flight.clear()


def _failed_row(unit: _Running, failure: Failure) -> Row:
    return {
        **unit.work.part.method.columns(unit.work.unit),
        "status": "failed",
        "cause": failure.cause,
        "message": failure.message,
    }
