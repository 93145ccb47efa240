"""Sessions whose servers don't all run at the same time, under virtual time."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from orchestrator.contracts.method import Combination
from orchestrator.placement import GIB, Gpu, Inventory, Share
from orchestrator.records import Failure, Message
from orchestrator.runner.planning.budget import Bounds, Budget, Spent
from orchestrator.runner.servers.waves import PlacedServer, Waves
from orchestrator.runner.session.session import Session
from orchestrator.runner.session.wiring import Wiring
from orchestrator.scheduler.core import Core, Limits
from orchestrator.scheduler.retry import RetryPolicy
from tests.core.fakes import BUSY, SAMPLING, generation, plan
from tests.runner.session.test_session import MemoryStore

pytestmark = pytest.mark.looptime


class Machine:
    """Runs a bounded number of servers; starting one takes a minute."""

    def __init__(self, names, at_most, failures=None):
        self.names = names
        self.at_most = at_most
        self.failures = failures or {}
        self.running: set[str] = set()
        self.starts: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.closed: list[str] = []

    async def connect(self, model):
        assert model not in self.running
        self.running.add(model)
        assert len(self.running) <= self.at_most
        self.starts.append(model)
        await asyncio.sleep(60)
        return _Backend(self, model)

    async def rest(self, models):
        await asyncio.sleep(5)
        self.running -= set(models)


class _Backend:
    def __init__(self, machine, model):
        self.machine = machine
        self.model = model

    async def generate(self, ask, seed):
        assert self.model in self.machine.running
        text = ask.messages[0].content
        self.machine.asked.append((self.model, text))
        await asyncio.sleep(0.1)
        return self.machine.failures.get(self.model) or generation(f"{self.model}({text})")

    async def close(self):
        self.machine.closed.append(self.model)


async def chain(unit, ask, config):
    """Each model in turn is asked about what the one before said."""
    text = unit.item.messages[0].content
    for name in (*unit.models, unit.judge):
        if name:
            text = (await ask.generate(name, (Message("user", text),), SAMPLING)).text
    return [{"item": unit.item.key, "models": "/".join(unit.models), "value": text, "status": "ok"}]


async def together(unit, ask, config):
    found = await ask.all(
        *(ask.generate(name, unit.item.messages, SAMPLING) for name in unit.models)
    )
    text = " ".join(one.text for one in found)
    return [{"item": unit.item.key, "models": "", "value": text, "status": "ok"}]


async def settling(unit, ask, config):
    """Goes on after failures, to and fro between two models."""
    texts = []
    for name in (*unit.models, *unit.models):
        (found,) = await ask.settle(ask.generate(name, unit.item.messages, SAMPLING))
        texts.append(found.cause if isinstance(found, Failure) else found.text)
    return [{"item": unit.item.key, "models": "", "value": " ".join(texts), "status": "ok"}]


def servers(*names):
    return [PlacedServer(name, (name,), (Share(),)) for name in names]


def make(evaluate, combos, waves, *, n_items=3, at_most=None, failures=None, max_open=200):
    names = tuple(dict.fromkeys(name for wave in waves for name in wave))
    at_most = at_most or max(map(len, waves))
    machine = Machine(names, at_most, failures)
    p = plan(evaluate, names, n_items, combos)
    store = MemoryStore()
    wiring = Wiring(
        plan=p,
        plan_id=1,
        done=bytearray(len(p)),
        store=cast("Any", store),
        core=Core(dict.fromkeys(names, Limits(8, 30.0)), RetryPolicy(max_attempts=2)),
        budget=Budget(Bounds(), Spent(), {}),
        connect=machine.connect,
        server_of={},
        systems={},
        per_minute={},
        max_open=max_open,
        run_dir="here",
        waves=Waves([servers(*wave) for wave in waves], Inventory(max_servers=at_most)),
        rest=machine.rest,
    )
    return machine, store, Session(wiring)


def values(store):
    """The column `value` of each unit's row, which stands after method, item and models."""
    return [store.units[position][1][0][3] for position in sorted(store.units)]


async def test_each_server_is_started_once_where_each_wave_feeds_the_next():
    machine, store, session = make(chain, [Combination(("a", "b"), "j")], [["a"], ["b"], ["j"]])
    await session.run()
    assert machine.starts == ["a", "b", "j"]
    assert values(store) == [f"j(b(a(question {n})))" for n in range(3)]


async def test_nothing_is_asked_twice_when_units_are_played_again():
    machine, _, session = make(chain, [Combination(("a", "b"), "j")], [["a"], ["b"], ["j"]])
    await session.run()
    assert len(machine.asked) == len(set(machine.asked)) == 9


async def test_models_that_need_each_other_come_again():
    machine, store, session = make(chain, [Combination(("a", "b"), "a")], [["a"], ["b"]])
    await session.run()
    assert machine.starts == ["a", "b", "a"]
    assert values(store) == [f"a(b(a(question {n})))" for n in range(3)]


async def test_what_a_wave_can_answer_of_several_asks_is_asked_in_it():
    machine, store, session = make(together, [Combination(("a", "b"))], [["a"], ["b"]])
    await session.run()
    assert sorted(machine.starts) == ["a", "b"]
    assert values(store) == [f"a(question {n}) b(question {n})" for n in range(3)]


async def test_a_server_stays_where_there_is_room_for_it():
    combos = [Combination(("a",)), Combination(("b", "c"), "a"), Combination(("c", "a"))]
    machine, store, session = make(chain, combos, [["a", "b"], ["c"]], at_most=2)
    await session.run()
    assert machine.starts == ["a", "b", "c"]
    assert len(store.units) == 9


async def test_the_rows_are_those_of_a_run_in_one_wave():
    combos = [Combination(("a", "b"), "c"), Combination(("b", "a"), "a"), Combination(("c",))]
    found = []
    for waves in ([["a", "b", "c"]], [["a", "b"], ["c"]], [["a"], ["b"], ["c"]]):
        _, store, session = make(chain, combos, waves, n_items=7)
        await session.run()
        found.append(values(store))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 21


async def test_more_units_than_the_window_holds_pass_through_the_waves():
    combos = [Combination(("a", "b"))]
    machine, store, session = make(chain, combos, [["a"], ["b"]], n_items=700, max_open=5)
    await session.run()
    assert machine.starts == ["a", "b"]
    assert len(store.units) == 700


async def test_a_model_that_fails_for_the_moment_is_not_started_again_and_again():
    machine, store, session = make(
        settling, [Combination(("a", "b"))], [["a"], ["b"]], failures={"a": BUSY}
    )
    await session.run()
    assert machine.starts == ["a", "b"]
    one = "rate_limited b(question {n})"
    assert values(store) == [f"{one} {one}".format(n=n) for n in range(3)]


async def test_a_server_that_does_not_come_up_fails_its_units_only():
    machine, store, session = make(
        chain, [Combination(("a",)), Combination(("b",))], [["a"], ["b"]]
    )
    connect = machine.connect

    async def refusing(model):
        if model == "a":
            return Failure("refused", "nobody listens")
        return await connect(model)

    session._scheduler._connect = refusing
    await session.run()
    assert machine.starts == ["b"]
    assert [store.units[position][0] for position in sorted(store.units)] == [2, 0] * 3


async def test_a_stop_between_waves_starts_no_other_server():
    machine, _, session = make(chain, [Combination(("a", "b"))], [["a"], ["b"]])
    rest = machine.rest

    async def stopping(models):
        if machine.starts:
            session.stop("interrupted")
        await rest(models)

    session._w = msgspec.structs.replace(session._w, rest=stopping)
    await session.run()
    assert machine.starts == ["a"]
    assert machine.closed == ["a"]


def test_the_next_wave_is_the_next_one_with_something_to_do():
    waves = Waves([servers("a"), servers("b"), servers("c")], Inventory(max_servers=1))
    assert waves.turn(lambda model: model in "ac") == ()
    assert (waves.number, waves.absent) == (1, frozenset("bc"))
    assert waves.turn(lambda model: model == "c") == ("a",)
    assert (waves.number, waves.absent) == (3, frozenset("ab"))
    assert waves.turn(lambda model: False) is None


def test_on_gpus_a_server_stays_only_where_its_memory_is_free():
    gpus = tuple(Gpu(index, "made", 80 * GIB, 80 * GIB) for index in "01")
    one, other, wide = (
        PlacedServer("one", ("one",), (Share(("0",), 70 * GIB, 0.9),)),
        PlacedServer("other", ("other",), (Share(("1",), 70 * GIB, 0.9),)),
        PlacedServer("wide", ("wide",), (Share(("0",), 60 * GIB, 0.9),)),
    )
    waves = Waves([[one, other], [wide]], Inventory(gpus))
    waves.turn(lambda model: model == "one")
    assert waves.turn(lambda model: model == "wide") == ("one",)
    assert waves.present == ("wide", "other")
