"""Drives the coroutines of methods by hand: no task, no future, no event loop, no I/O.

A unit is opened, its coroutine yields asks, each ask is looked up in the store, joined to the same
request in flight, or handed out to be sent. Outcomes are sent back into the coroutines as they
come. What was sent belongs to the driver, not to the unit that asked first: a unit that fails
cancels nothing that others wait for.
"""

import sys
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

import msgspec

from orchestrator.ask import (
    AnyAsk,
    Ask,
    AskFailed,
    GenerateAsk,
    Request,
    Several,
    SimilarityAsk,
    fault_of,
    messages_digest,
    seed_of,
)
from orchestrator.contracts.rows import Fault, failed_row
from orchestrator.errors import MethodError
from orchestrator.records import (
    DONE,
    FAILED,
    FAILED_FOR_NOW,
    FAULTY,
    Failure,
    Generation,
    Message,
    Outcome,
    Row,
)
from orchestrator.units import Plan, Work

_PENDING: Any = object()
_CLOSES = 5


class Finished(msgspec.Struct, frozen=True):
    """The end of a unit: its rows, or one row with the cause.

    `server_epoch` is the highest among the outcomes that it was given; `fault` is what its method
    did wrong.
    """

    position: int
    status: int
    frame: str
    rows: list[Row]
    fault: Fault | None = None
    server_epoch: int = 0


class _Running(msgspec.Struct, eq=False):
    position: int
    work: Work
    coroutine: Coroutine[Any, Any, Row | list[Row]]
    answers: list[Any]
    several: bool = False
    n_missing: int = 0
    n_bytes: int = 0
    waits_for: list[str] = []
    begun: bool = False
    server_epoch: int = 0


_Keyed = tuple[bytes, AnyAsk]
"""A request with its key; b"" where the answer is given."""

Lookup = Callable[[bytes], Outcome | Failure | None]
Reuse = Callable[[bytes, str, str], Outcome | None]
Trace = Callable[[bytes, AnyAsk, int, Outcome | Failure], None]


class Driver:
    """Opens units, resolves their asks, and hands out what must be sent.

    Args:
        plan: Gives the units.
        lookup: The store: an outcome by key, a permanent failure, or None.
        systems: System prompts by model; they become part of what is asked.
        reuse: What other runs hold, by key, kind and model; asked where the store has nothing.
        epoch_of: The epoch of the server that gave the outcome of a key.
        trace: Called with each ask that is answered at once, after its key and before the position
            of its unit and the answer; the key is b"" where the answer is given.
        is_interruptible: True where Ctrl-C may raise KeyboardInterrupt in a method's code; else
            it is the method's own.

    Attributes:
        outbox: Requests to send, oldest first; the caller empties it.
        finished: Units that ended; the caller empties it.
        waiting: Number of open units that wait for each model.
        n_open: Units that are open.
        n_bytes: Memory of their items' texts and of the texts they were given.
        n_found: Asks that the store answered, or another run.
        n_joined: Asks that joined a request already in flight.
        absent: Models that can't be asked in this wave. A unit that asks one is closed, to be
            opened again when the model is there; what it was told so far is in the store.
        set_aside: Such units, each with the model that it needs; the caller empties it.
    """

    def __init__(  # noqa: PLR0913 (what it is connected to, most by keyword)
        self,
        plan: Plan,
        lookup: Lookup,
        systems: Mapping[str, str],
        *,
        reuse: Reuse | None = None,
        epoch_of: Callable[[bytes], int] = lambda key: 0,  # noqa: ARG005
        trace: Trace | None = None,
        is_interruptible: bool = True,
    ) -> None:
        self._plan = plan
        self._is_interruptible = is_interruptible
        self._trace = trace
        self._lookup = lookup
        self._reuse = reuse
        self._epoch_of = epoch_of
        self._systems = dict(systems)
        self._in_flight: dict[bytes, Request] = {}
        self._ask = Ask()
        self.outbox: deque[Request] = deque()
        self.finished: deque[Finished] = deque()
        self.waiting: dict[str, int] = dict.fromkeys(plan.identities, 0)
        self.n_open = 0
        self.n_bytes = 0
        self.n_found = 0
        self.n_joined = 0
        self.absent: Collection[str] = ()
        self.set_aside: deque[tuple[int, str]] = deque()

    def open(self, position: int) -> None:
        """Start the unit at a position; it ends at once where the store holds all it asks."""
        work = self._plan.work(position)
        unit = _Running(position, work, _evaluated(work, self._ask), [])
        self.n_open += 1
        item = work.unit.item
        texts = [message.content for message in item.messages]
        self._hold(unit, sum(map(sys.getsizeof, texts)) + sys.getsizeof(item.reference))
        self._advance(unit, None)

    def models_asked(self) -> set[str]:
        """Return the models of requests that have not ended."""
        return {request.ask.model for request in self._in_flight.values()}

    def deliver(self, request: Request, outcome: Outcome | Failure) -> None:
        """Give the end of a request to all units that wait for it."""
        del self._in_flight[request.key]
        ready = []
        n_bytes = bytes_of(outcome)
        epoch = self._epoch_of(request.key)
        for unit, slot in request.waiters:
            unit.answers[slot] = outcome
            unit.server_epoch = max(unit.server_epoch, epoch)
            unit.n_missing -= 1
            self._hold(unit, n_bytes)
            if unit.n_missing == 0:
                ready.append(unit)
        for unit in ready:
            unit.begun = True
            for model in unit.waits_for:
                self.waiting[model] -= 1
            self._advance(unit, _given(unit))

    def _advance(self, unit: _Running, value: object) -> None:
        """Run the coroutine until it waits for something that is not here yet, or ends.

        What the coroutine raises is the method's own fault; what looking up an outcome raises is
        not, and ends the run.
        """
        while value is not _PENDING:
            try:
                if isinstance(value, Exception):
                    asked = unit.coroutine.throw(value)
                else:
                    asked = unit.coroutine.send(value)
            except StopIteration as end:
                self._end(unit, end.value)
                return
            except AskFailed as failed:
                self._fail(unit, failed)
                return
            # The boundary around a method's own faults: `sys.exit` and a cancellation of its own
            # end its unit, not the run.
            except BaseException as error:  # noqa: BLE001
                self._fault(unit, error)
                return
            try:
                keyed = self._keyed(unit, asked)
            except Exception as error:  # noqa: BLE001 (a wrong ask: raised where it was awaited)
                value = error
            else:
                value = self._resolve(unit, keyed)

    def _keyed(self, unit: _Running, asked: object) -> list[_Keyed]:
        """Return the requests with their keys; register none before all are valid."""
        unit.several = isinstance(asked, Several)
        asks = asked.asks if isinstance(asked, Several) else (asked,)
        found = []
        for ask in asks:
            if not isinstance(ask, AnyAsk):
                raise MethodError(
                    f"awaited {type(ask).__name__}; a method may await only requests of "
                    "`orchestrator.ask`"
                )
            if fault := fault_of(ask):
                raise MethodError(f"awaited a {type(ask).__name__} with wrong values: {fault}")
            found.append(self._key(ask))
        return found

    def _key(self, ask: AnyAsk) -> _Keyed:
        identity = self._plan.identities.get(ask.model)
        if identity is None:
            raise MethodError(f"queried {ask.model!r}, which is not a model of its unit")
        system = self._systems.get(ask.model)
        if system and not isinstance(ask, SimilarityAsk) and ask.messages[0].role != "system":
            messages = (Message("system", system), *ask.messages)
            ask = msgspec.structs.replace(ask, messages=messages)
        if isinstance(ask, GenerateAsk):
            wanted = self._plan.observed_top.get(ask.model, 0)
            if wanted > ask.top_logprobs:
                ask = msgspec.structs.replace(ask, top_logprobs=wanted)
        # Nothing is looked up or sent where the answer is given, so nobody needs its address.
        is_given = ask.model in self._plan.given
        return b"" if is_given else ask.key(identity, self._plan.seed), ask

    def _resolve(self, unit: _Running, asked: list[_Keyed]) -> object:
        """Return the results of the requests, or `_PENDING`."""
        lacking = self._lacking(asked) if self.absent else None
        if lacking is not None:
            for key, ask in asked:
                if ask.model in self.absent or ask.model in self._plan.given:
                    continue
                if key not in self._in_flight and self._known(key, ask) is None:
                    self._send(unit.position, key, ask, [], begun=False)
            _close(unit)
            self.n_open -= 1
            self.n_bytes -= unit.n_bytes
            self.set_aside.append((unit.position, lacking))
            return _PENDING
        unit.answers = [None] * len(asked)
        waits_for = []
        for slot, (key, ask) in enumerate(asked):
            answer = self._answer(unit, slot, key, ask)
            if answer is None:
                waits_for.append(ask.model)
                continue
            unit.answers[slot] = answer
            self._hold(unit, bytes_of(answer))
            if self._trace is not None:
                self._trace(key, ask, unit.position, answer)
        unit.waits_for = waits_for
        unit.n_missing = len(waits_for)
        if not waits_for:
            return _given(unit)
        for model in waits_for:
            self.waiting[model] += 1
        return _PENDING

    def _answer(
        self, unit: _Running, slot: int, key: bytes, ask: AnyAsk
    ) -> Outcome | Failure | None:
        """The outcome of one ask where it is known; else the unit waits for it."""
        given = self._plan.given.get(ask.model)
        if given is not None:
            return given(unit.work.unit.item, ask)
        flying = self._in_flight.get(key)
        if flying is not None:
            self.n_joined += 1
            flying.waiters.append((unit, slot))
            return None
        known = self._known(key, ask)
        if known is not None:
            self.n_found += 1
            unit.server_epoch = max(unit.server_epoch, self._epoch_of(key))
            return known
        self._send(unit.position, key, ask, [(unit, slot)], begun=unit.begun)
        return None

    def _known(self, key: bytes, ask: AnyAsk) -> Outcome | Failure | None:
        """Look up a key in the store, then in other runs."""
        found = self._lookup(key)
        if found is None and self._reuse is not None:
            return self._reuse(key, ask.kind, ask.model)
        return found

    def _lacking(self, asked: list[_Keyed]) -> str | None:
        """The first absent model whose answer is not known yet."""
        for key, ask in asked:
            is_asked = ask.model in self.absent and ask.model not in self._plan.given
            if is_asked and key not in self._in_flight and self._known(key, ask) is None:
                return ask.model
        return None

    def _send(
        self, position: int, key: bytes, ask: AnyAsk, waiters: list[Any], *, begun: bool
    ) -> None:
        seed = seed_of(key, self._plan.seed) if isinstance(ask, GenerateAsk) else 0
        group = position // self._plan.n_per_item
        # Here, because the prompt's address was needed for the key a moment ago and is still known.
        prompt_hash = messages_digest(getattr(ask, "messages", ()))
        request = Request(key, ask, seed, position, 0, waiters, group, begun, prompt_hash)
        self._in_flight[key] = request
        self.outbox.append(request)

    def _hold(self, unit: _Running, n_bytes: int) -> None:
        unit.n_bytes += n_bytes
        self.n_bytes += n_bytes

    def _end(self, unit: _Running, returned: object) -> None:
        try:
            rows = unit.work.part.rows.check(returned, unit.work.unit)
        except BaseException as error:  # noqa: BLE001 (the values' own code may run)
            self._fault(unit, error)
        else:
            self._finish(unit, DONE, rows)

    def _fail(self, unit: _Running, failed: AskFailed) -> None:
        failure = failed.failure
        try:
            row = unit.work.part.rows.failed(unit.work.unit, failure)
            status = FAILED if failure.permanent else FAILED_FOR_NOW
        except BaseException as error:  # noqa: BLE001 (the boundary around a method's own faults)
            self._fault(unit, error)
        else:
            self._finish(unit, status, [row])

    def _fault(self, unit: _Running, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt) and self._is_interruptible:
            raise error
        work = unit.work
        fault = Fault.of(error, work.part.kind, work.unit)
        failure = Failure("method", fault.said)
        try:
            row = work.part.rows.failed(work.unit, failure)
        except BaseException:  # noqa: BLE001 (its `identify` is at fault, too)
            row = failed_row(failure)
        self._finish(unit, FAULTY, [row], fault)

    def _finish(
        self, unit: _Running, status: int, rows: list[Row], fault: Fault | None = None
    ) -> None:
        self.n_open -= 1
        self.n_bytes -= unit.n_bytes
        frame = unit.work.part.frame
        end = Finished(unit.position, status, frame, rows, fault, unit.server_epoch)
        self.finished.append(end)

    def close(self) -> None:
        """Close the coroutines of units that still wait."""
        for request in self._in_flight.values():
            for unit, _ in request.waiters:
                _close(unit)
        self._in_flight.clear()


async def _evaluated(work: Work, ask: Ask) -> Any:  # noqa: ANN401
    """Evaluate a unit; whatever is wrong with the function is raised inside."""
    return await work.part.method.evaluate(work.unit, ask)


def _close(unit: _Running) -> None:
    """Close a coroutine that still waits; what it raises on that is its own affair."""
    for _ in range(_CLOSES):
        try:
            unit.coroutine.close()
        except BaseException:  # noqa: BLE001, S112 (it awaits in `finally`, or raises there)
            continue
        return


def _given(unit: _Running) -> Any:  # noqa: ANN401
    """Return the value to send into the coroutine, or an exception to throw into it."""
    if unit.several:
        return unit.answers
    answer = unit.answers[0]
    return AskFailed(answer) if isinstance(answer, Failure) else answer


def bytes_of(outcome: Outcome | Failure) -> int:
    """Memory of an outcome's text; numbers are let go as soon as a method has read them."""
    return sys.getsizeof(outcome.text) if isinstance(outcome, Generation) else 0
