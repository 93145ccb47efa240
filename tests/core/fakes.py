"""A tiny plan, method and store for tests of the driver and the scheduler."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, cast

from orchestrator import plugins
from orchestrator.ask import Ask, AskFailed, Request, Several, digest
from orchestrator.contracts.method import Columns, Combination, Method, MethodSettings, Stage
from orchestrator.contracts.rows import RowContract
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


class Config(MethodSettings):
    judges: tuple[str, ...] = ()


def row(unit: Unit, value: str = "") -> Row:
    """A good row of a unit."""
    return {"item": unit.item.key, "models": "/".join(unit.models), "value": value, "status": "ok"}


def method(
    evaluate: Callable[..., object],
    combinations: Sequence[Combination] | None = None,
    config: MethodSettings | None = None,
    **attributes: Any,
) -> Method[MethodSettings]:
    """A method made of one coroutine function; by default one unit a candidate.

    Args:
        evaluate: Takes unit, ask and config.
        combinations: Its units.
        config: Its settings.
        attributes: Of its class, over those that all these methods have.
    """

    class Made(Method[Config]):
        frame = "rows"
        unit_columns: ClassVar[Columns] = {"item": "str", "models": "str"}
        columns: ClassVar[Columns] = {"value": "str"}

        def combinations(self, candidates: Sequence[str]) -> list[Combination]:
            return list(combinations or (Combination((name,)) for name in candidates))

        def identify(self, unit: Unit) -> Row:
            return {"item": unit.item.key, "models": "/".join(unit.models)}

        def stages(self, candidates: Sequence[str]) -> list[Stage]:
            return [Stage("answers", name, "generate", 1, max_tokens=8) for name in candidates]

        def evaluate(self, unit: Unit, ask: Ask) -> Any:
            return evaluate(unit, ask, self.config)

    for name, value in attributes.items():
        setattr(Made, name, value)
    made: Method[MethodSettings] = cast("Any", Made)(config or Config())
    return made


PLAIN = method(lambda unit, ask, config: [])
"""A method that nobody asks for anything."""


def contract(**attributes: Any) -> RowContract:
    """The contract of a method's rows, with attributes of the method exchanged."""
    return RowContract("fake", method(lambda unit, ask, config: [], **attributes))


def method_in(module: ModuleType) -> Any:
    """The method of a module, to be made with its settings."""
    return plugins.class_in(module, cast("Any", Method))


def plan(
    evaluate: Callable[..., object],
    models: Sequence[str] = ("m",),
    n_items: int = 3,
    combinations: Sequence[Combination] | None = None,
) -> Plan:
    part: Part = make_part("fake", method(evaluate, combinations), models)
    return Plan([part], Items(n_items), {name: digest(name) for name in models}, seed=0)


def generation(text: str) -> Generation:
    return Generation(text, "stop", n_prompt_tokens=3, n_completion_tokens=2)


def answer(request: Request) -> Outcome:
    """A deterministic outcome of any request."""
    if request.ask.kind == "generate":
        return generation(f"{request.ask.model} says {request.key.hex()[:6]}")
    if request.ask.kind == "choose":
        n = len(request.ask.labels)  # type: ignore[union-attr]
        return Choice((-1.0,) * n, (-1.0,) * n, "fake")
    raise AssertionError(request.ask.kind)


def answered(coroutine: Any, respond: Callable[[Any], Any]) -> Any:
    """Drive a method's coroutine to its end, each ask answered by `respond`, which may give a
    Failure; asks are not joined and nothing is kept. Rows must keep the method's contract."""
    known = coroutine.cr_frame.f_locals
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
        if isinstance(made := known.get("self"), Method):
            return RowContract(type(made).__name__, made).check(end.value, known["unit"])
        return end.value


REFUSED = Failure("refused", "nobody listens")
BUSY = Failure("rate_limited", "slow down", status=429)
BROKEN = Failure("server_error", "it broke", status=500)
BAD = Failure("bad_request", "no", permanent=True, status=400)

__all__ = [
    "BAD",
    "BUSY",
    "PLAIN",
    "REFUSED",
    "SAMPLING",
    "Config",
    "Items",
    "Scored",
    "answer",
    "answered",
    "contract",
    "digest",
    "generation",
    "make_part",
    "method",
    "method_in",
    "plan",
    "row",
]


async def nothing(unit, ask, config):
    """Evaluate without a request and without a row."""
    return []
