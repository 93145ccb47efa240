"""A tiny plan, method and store for tests of the driver and the scheduler."""

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, cast

from orchestrator.ask import AskFailed, Request, Several, digest
from orchestrator.methods._base import STATUS_COLUMNS, Combination, Method, Stage
from orchestrator.methods._rows import RowContract
from orchestrator.records import (
    Choice,
    Failure,
    Generation,
    Item,
    Message,
    Outcome,
    Row,
    Sampling,
    Scored,
    Unit,
)
from orchestrator.settings import Settings
from orchestrator.units import Part, Plan, make_part

SAMPLING = Sampling(max_tokens=8)


class Items:
    def __init__(self, n: int) -> None:
        self._n = n

    @property
    def fingerprint(self) -> bytes:
        return digest("items", self._n)

    def __len__(self) -> int:
        return self._n

    def content(self, index: int) -> bytes | None:
        """Not known without reading the item."""

    def item(self, index: int) -> Item:
        return Item(key=f"i{index}", messages=(Message("user", f"question {index}"),))


class Config(Settings):
    candidates: tuple[str, ...] | None = None
    judges: tuple[str, ...] = ()


def columns(unit: Unit) -> Row:
    return {"item": unit.item.key, "models": "/".join(unit.models)}


def row(unit: Unit, value: str = "") -> Row:
    """A good row of a unit."""
    return {**columns(unit), "value": value, "status": "ok"}


def method(
    evaluate: Callable[..., object],
    combinations: Sequence[Combination] | None = None,
) -> types.SimpleNamespace:
    """A method made of one coroutine function; by default one unit a candidate."""

    def combine(candidates: Sequence[str], config: Config) -> list[Combination]:
        return list(combinations or (Combination((name,)) for name in candidates))

    return types.SimpleNamespace(
        Config=Config,
        VERSION=1,
        FRAME="rows",
        SCHEMA={"item": "str", "models": "str", "value": "str", **STATUS_COLUMNS},
        combinations=combine,
        columns=columns,
        companions=lambda config: [],
        stages=lambda candidates, config: [
            Stage("answers", name, "generate", 1, max_tokens=8) for name in candidates
        ],
        evaluate=evaluate,
    )


def contract(**changes: Any) -> RowContract:
    """The contract of a method's rows, with parts of the method exchanged."""
    changed = method(lambda unit, ask, config: [])
    vars(changed).update(changes)
    return RowContract("fake", changed)


def plan(
    evaluate: Callable[..., object],
    models: Sequence[str] = ("m",),
    n_items: int = 3,
    combinations: Sequence[Combination] | None = None,
) -> Plan:
    part: Part = make_part("fake", method(evaluate, combinations), Config(), models)
    return Plan([part], Items(n_items), {name: digest(name) for name in models}, seed=0)


def generation(text: str) -> Generation:
    return Generation(text, "stop", n_prompt_tokens=3, n_completion_tokens=2)


def answer(request: Request) -> Outcome:
    """A deterministic outcome of any request."""
    if request.kind == "generate":
        return generation(f"{request.ask.model} says {request.key.hex()[:6]}")
    if request.kind == "choose":
        n = len(request.ask.labels)  # type: ignore[union-attr]
        return Choice((-1.0,) * n, (-1.0,) * n, "fake")
    raise AssertionError(request.kind)


def answered(coroutine: Any, respond: Callable[[Any], Any]) -> Any:
    """Drive a method's coroutine to its end, each ask answered by `respond`, which may give a
    Failure; asks are not joined and nothing is kept. Rows must keep the method's contract."""
    made_in = sys.modules[coroutine.cr_frame.f_globals["__name__"]]
    value: Any = None
    try:
        while True:
            if isinstance(value, Failure):
                asked = coroutine.throw(AskFailed(value))
            else:
                asked = coroutine.send(value)
            if isinstance(asked, Several):
                value = [respond(ask) for ask in asked.asks]
            else:
                value = respond(asked)
    except StopIteration as end:
        if hasattr(made_in, "SCHEMA"):
            unit = Unit(Items(1).item(0), ("m",))
            return RowContract(made_in.__name__, cast("Method", made_in)).check(end.value, unit)
        return end.value


REFUSED = Failure("refused", "nobody listens")
BUSY = Failure("rate_limited", "slow down", status=429)
BAD = Failure("bad_request", "no", permanent=True, status=400)

__all__ = [
    "BAD",
    "BUSY",
    "REFUSED",
    "SAMPLING",
    "Config",
    "Items",
    "Scored",
    "answer",
    "answered",
    "columns",
    "contract",
    "digest",
    "generation",
    "make_part",
    "method",
    "plan",
    "row",
]
