"""Whatever a method does wrong fails its unit with a sentence that names it, and nothing else."""

import asyncio
import gc
import itertools
import math
import sys
from typing import Any, cast

import msgspec
import pytest

from orchestrator.ask import AskFailed
from orchestrator.columns import pack_row
from orchestrator.driver import Driver
from orchestrator.errors import UsageError
from orchestrator.records import DONE, FAULTY, Failure, Label, Message, Sampling
from orchestrator.store.values import decode, encode
from orchestrator.units import Plan
from tests.core.fakes import SAMPLING, contract, plan
from tests.core.test_driver import answer_all, make, one

# What no type checker would let through.
WRONG: Any = 5
GOOD = [{"value": "x"}]


class OwnError(BaseException):
    """An error that is none of Python's ordinary ones."""


class SilentError(Exception):
    """An error whose text can't be had."""

    def __str__(self):
        raise SystemExit(0)


class Yields:
    """Awaits something that is no request."""

    def __init__(self, value):
        self._value = value

    def __await__(self):
        yield self._value


RAISED = [
    ValueError("boom"),
    KeyError("a\nb"),
    ValueError("x" * 10_000_000),
    ValueError("\x1b[31m\ud800"),
    SilentError(),
    ExceptionGroup("several", [ValueError("a")]),
    BaseExceptionGroup("several", [SystemExit(0)]),
    MemoryError(),
    RecursionError(),
    StopAsyncIteration(),
    AssertionError(),
    SystemExit(0),
    SystemExit("bye"),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError(),
    OwnError("own"),
    TimeoutError(),
    BrokenPipeError(32, "Broken pipe"),
    EOFError(),
    UsageError("mine"),
]


@pytest.mark.parametrize(
    "error", RAISED, ids=[f"{n}-{type(e).__name__}" for n, e in enumerate(RAISED)]
)
@pytest.mark.parametrize("when", ["at once", "after an answer"])
def test_what_a_method_raises_fails_its_unit(error, when):
    async def raising(unit, ask, config):
        if when == "after an answer":
            await draw(unit, ask)
        raise error

    fault_of_one(raising)


def test_a_failure_of_its_own_making_is_at_fault():
    async def wrong(unit, ask, config):
        raise AskFailed(WRONG)

    fault_of_one(wrong)


def draw(unit, ask, **changes):
    asked = {"model": "m", "messages": unit.item.messages, "sampling": SAMPLING, **changes}
    return ask.generate(**asked)


def self_containing():
    found: list[object] = []
    found.append(found)
    return found


RETURNED: list[Any] = [
    None,
    "text",
    ("row",),
    ["text"],
    (row for row in itertools.repeat({"value": "x"})),
    [{"valeu": "x"}],
    [{}],
    [{1: 2, "value": "x"}],
    [{"value": 5}],
    [{"value": b"x"}],
    [{"value": math.nan}],
    [{"value": "\ud800"}],
    [{"value": {"x"}}],
    [{"value": object()}],
    [{"value": self_containing()}],
    [{"value": "x", "status": "weird"}],
    [{"value": "x", "status": None}],
    [{"value": "x", "status": []}],
    [{"status": "failed"}],
    [{"status": "failed", "cause": 5}],
    [{"value": "x" * 100_000_000}],
    [{"value": "x" * 1000}] * 100_000,
]


@pytest.mark.parametrize("returned", RETURNED, ids=range(len(RETURNED)))
def test_what_a_method_returns_must_be_rows(returned):
    async def returning(unit, ask, config):
        return returned

    fault_of_one(returning)


@pytest.mark.parametrize("returned", [5, "x", None, [], (5 for _ in range(3))], ids=range(5))
def test_a_method_that_is_no_coroutine_is_at_fault(returned):
    def plain(unit, ask, config):
        return returned

    fault_of_one(plain)


def test_a_method_that_raises_before_it_is_awaited_is_at_fault():
    def plain(unit, ask, config):
        sys.exit(0)

    fault_of_one(plain)


AWAITED = [
    lambda unit, ask: asyncio.sleep(0),
    lambda unit, ask: Yields(None),
    lambda unit, ask: Yields(5),
    lambda unit, ask: Yields(StopIteration()),
    lambda unit, ask: 5,
    lambda unit, ask: ask.all(5),
    lambda unit, ask: ask.all(ask.all(draw(unit, ask))),
    lambda unit, ask: draw(unit, ask, model="nobody"),
    lambda unit, ask: draw(unit, ask, model=None),
    lambda unit, ask: draw(unit, ask, model=["m"]),
    lambda unit, ask: draw(unit, ask, messages="hi"),
    lambda unit, ask: draw(unit, ask, messages=()),
    lambda unit, ask: draw(unit, ask, messages=None),
    lambda unit, ask: draw(unit, ask, messages=({"role": "user", "content": "hi"},)),
    lambda unit, ask: draw(unit, ask, messages=(Message("user", WRONG),)),
    lambda unit, ask: draw(unit, ask, messages=(Message("user", "\ud800"),)),
    lambda unit, ask: draw(unit, ask, sampling=None),
    lambda unit, ask: draw(unit, ask, sampling=Sampling(temperature=cast("Any", "hot"))),
    lambda unit, ask: draw(unit, ask, sampling=Sampling(temperature=math.nan)),
    lambda unit, ask: draw(unit, ask, sampling=Sampling(max_tokens=-4)),
    lambda unit, ask: draw(unit, ask, top_logprobs=-1),
    lambda unit, ask: draw(unit, ask, top_logprobs="x"),
    lambda unit, ask: draw(unit, ask, repeat="x"),
    lambda unit, ask: draw(unit, ask, turn=[1]),
    lambda unit, ask: ask.choose("m", unit.item.messages, ()),
    lambda unit, ask: ask.choose("m", unit.item.messages, None),
    lambda unit, ask: ask.choose("m", unit.item.messages, ("A", "B")),
    lambda unit, ask: ask.choose("m", unit.item.messages, (Label("A", (WRONG,)),)),
    lambda unit, ask: ask.choose("m", unit.item.messages, (Label("A", ("A",)),), prefix="x"),
    lambda unit, ask: ask.score("m", unit.item.messages, 5),
    lambda unit, ask: ask.score("m", unit.item.messages, "a", features=("none",)),
    lambda unit, ask: ask.similarity("m", [1, 2]),
    lambda unit, ask: ask.similarity("m", ()),
    lambda unit, ask: ask.reward("m", None),
]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("awaited", AWAITED, ids=range(len(AWAITED)))
def test_what_a_method_awaits_must_be_a_request(awaited):
    async def awaiting(unit, ask, config):
        await awaited(unit, ask)
        return GOOD

    fault_of_one(awaiting)
    gc.collect()  # What was not awaited says so here, and not in another test.


CHANGED = [
    lambda unit, ask, config: setattr(unit, "models", ()),
    lambda unit, ask, config: setattr(unit.item, "key", "x"),
    lambda unit, ask, config: setattr(unit.item.messages[0], "content", "x"),
    lambda unit, ask, config: setattr(ask, "generate", None),
    lambda unit, ask, config: setattr(config, "name", "x"),
]


@pytest.mark.parametrize("change", CHANGED, ids=range(len(CHANGED)))
def test_what_a_method_is_given_can_not_be_changed(change):
    async def changing(unit, ask, config):
        change(unit, ask, config)
        return GOOD

    fault_of_one(changing)


def fault_of_one(evaluate):
    """Run a broken method on a unit, and check how that ends."""
    driver = Driver(plan(evaluate), lambda key: None, {}, is_interruptible=False)
    driver.open(0)
    answer_all(driver)
    (end,) = driver.finished
    assert end.status == FAULTY
    assert end.fault is not None
    assert end.fault.said.startswith("method 'fake'")
    assert "i0" in end.fault.said
    assert "'fake'" in end.fault.noted
    assert len(end.fault.said) < 1000
    (row,) = end.rows
    assert row["cause"] == "method"
    assert row["item"] == "i0"
    columns = driver._plan.parts[0].columns
    assert decode(encode([pack_row(columns, row)]))
    assert driver.n_open == 0
    driver.close()


def test_units_beside_a_broken_one_end_as_ever():
    async def sometimes(unit, ask, config):
        await draw(unit, ask)
        if unit.item.key == "i0":
            sys.exit(0)
        return [{"value": "x"}]

    driver = make(sometimes)
    for position in (0, 1):
        driver.open(position)
    answer_all(driver)
    assert [end.status for end in driver.finished] == [FAULTY, DONE]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("catches", [Exception, BaseException, GeneratorExit])
def test_a_method_that_does_not_let_itself_be_closed_harms_nobody(catches):
    async def clinging(unit, ask, config):
        while True:
            try:
                await draw(unit, ask, repeat=id(unit) % 7)
            except catches:
                continue

    driver = make(clinging)
    driver.open(0)
    driver.close()
    del driver
    gc.collect()


def test_ctrl_c_in_a_method_ends_what_is_not_a_run():
    async def interrupted(unit, ask, config):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(interrupted).open(0)


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), ValueError("id")])
def test_a_unit_whose_columns_raise_is_at_fault(error):
    def identify(self, unit):
        raise error

    p = plan(one)
    wrong = msgspec.structs.replace(p.parts[0], rows=contract(identify=identify))
    broken = Plan([wrong], p.items, p.identities, 0)
    driver = Driver(broken, lambda key: None, {}, is_interruptible=False)
    driver.open(0)
    driver.deliver(driver.outbox.popleft(), Failure("refused", "no", permanent=True))
    (end,) = driver.finished
    assert end.status == FAULTY
    assert end.rows[0]["cause"] == "method"
