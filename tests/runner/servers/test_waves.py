"""Sessions whose servers don't all run at the same time, under virtual time."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.contracts.method import Combination
from orchestrator.placement import GIB, Demand, Gpu, Inventory, Node, Share, Size, fits, place
from orchestrator.recipe import schema
from orchestrator.records import Failure, Message
from orchestrator.runner.planning.budget import Budget, Spent
from orchestrator.runner.servers.launched import PlacedServer
from orchestrator.runner.servers.placement import Waves
from orchestrator.scheduler.core import Core, Limits
from tests.answering import Answering
from tests.core.fakes import BUSY, SAMPLING, generation, plan
from tests.runner.session.parts import Fleet, Parts
from tests.runner.session.test_session import MemoryStore

pytestmark = pytest.mark.looptime


class Machine(Fleet):
    """Runs a bounded number of servers; starting one takes a minute."""

    def __init__(self, names, at_most, failures=None):
        self.names = names
        self.at_most = at_most
        self.failures = failures or {}
        self.running: set[str] = set()
        self.starts: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.closed: list[str] = []
        self.waiting: dict[str, asyncio.Event] = {}
        self.backends: dict[str, _Backend] = {}
        self.when_asked: Callable[[str], None] = lambda _: None

    def lose(self, model):
        """Have the server of a model be out of reach."""
        self.backends[model].is_lost = True
        self.running.discard(model)

    def move(self, loss):
        self.waiting |= {name: asyncio.Event() for name in loss.waiting}

    def admit(self, models):
        for name in models:
            self.waiting.pop(name, asyncio.Event()).set()

    async def connect(self, model):
        if model in self.waiting:
            await self.waiting[model].wait()
        assert model not in self.running
        self.running.add(model)
        assert len(self.running) <= self.at_most
        self.starts.append(model)
        await asyncio.sleep(60)
        self.backends[model] = _Backend(self, model)
        return self.backends[model]

    async def rest(self, models):
        await asyncio.sleep(5)
        self.running -= set(models)


class _Backend(Answering):
    def __init__(self, machine, model):
        self.machine = machine
        self.model = model
        self.is_lost = False

    async def generate(self, ask, seed):
        if self.is_lost:
            return Failure("refused", "its node is gone")
        assert self.model in self.machine.running
        text = ask.messages[0].content
        self.machine.asked.append((self.model, text))
        self.machine.when_asked(self.model)
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


def make(
    evaluate, combos, waves, *, n_items=3, at_most=None, failures=None, max_open=200, placed=None
):
    names = tuple(dict.fromkeys(name for wave in waves for name in wave))
    at_most = at_most or max(map(len, waves))
    machine = Machine(names, at_most, failures)
    p = plan(evaluate, names, n_items, combos)
    store = MemoryStore()
    parts = Parts(
        plan=p,
        store=store,
        core=Core(dict.fromkeys(names, Limits(8, 30.0, max_attempts=2))),
        budget=Budget(schema.Budget(), Spent(), {}),
        fleet=machine,
        max_open=max_open,
        waves=placed or Waves([servers(*wave) for wave in waves], Inventory(max_servers=at_most)),
    )
    return machine, store, parts.session()


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

    session.scheduler._connect = refusing
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

    machine.rest = stopping
    await session.run()
    assert machine.starts == ["a"]
    assert machine.closed == ["a"]


@pytest.mark.parametrize("waves", [[["a", "b"], ["j"]], [["a", "b"]]])
async def test_a_server_whose_node_is_lost_is_asked_on_when_there_is_room(waves):
    """Where there was one wave, there are two; what waits for the server waits that long."""
    judge = "j" if len(waves) > 1 else "a"
    node = {"a": "n1", "b": "n2", "j": "n1"}
    placed = Waves(
        [[on(name, node[name]) for name in wave] for wave in waves],
        Inventory(nodes=nodes("n1", "n2")),
    )
    machine, store, session = make(
        together, [Combination(("a", "b")), Combination((judge, "b"))], waves, n_items=40,
        placed=placed,
    )  # fmt: skip

    def lose(model):
        if model == "b" and len(machine.asked) > 20 and machine.starts.count("b") == 1:
            machine.lose("b")
            machine.when_asked = lambda _: None
            session.lost("n2")

    machine.when_asked = lose
    await session.run()
    assert machine.starts == ["a", "b", "b", *["j"] * (judge == "j")]
    assert machine.closed.index("a") < machine.starts.index("b") + 2
    assert len(machine.asked) == len(set(machine.asked))
    texts = {f"{name}(question {n}) b(question {n})" for name in {"a", judge} for n in range(40)}
    assert set(values(store)) == texts


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


# -- nodes that are lost -----------------------------------------------------------------------


def nodes(*names, gpus=2):
    return tuple(Node(name, Size(8, gpus)) for name in names)


def on(name, *where, gpus=2):
    shares = tuple(Share(node=node, size=Size(1, gpus)) for node in where)
    return PlacedServer(name, (name,), shares, len(where))


def places(waves):
    return [[(one.name, *(share.node for share in one.shares)) for one in wave] for wave in waves]


def begun(*waves, there):
    """Waves of which the first has begun."""
    made = Waves(waves, Inventory(nodes=there))
    first = {model for one in waves[0] for model in one.models}
    assert len(waves) == 1 or made.turn(lambda model: model in first) == ()
    return made


def test_a_server_whose_node_is_lost_goes_where_there_is_room():
    waves = begun([on("a", "n1"), on("b", "n2")], there=nodes("n1", "n2", "n3"))
    loss = waves.lose("n2")
    assert places(waves._waves) == [[("b", "n3"), ("a", "n1")]]
    assert {name: shares[0].node for name, shares in loss.moved.items()} == {"b": "n3"}
    assert (loss.waiting, loss.without_room, waves.absent) == ((), {}, frozenset())
    assert waves.lose("n2") is None


def test_where_there_is_no_room_it_waits_for_a_wave_after_this_one():
    waves = begun([on("a", "n1"), on("b", "n2")], [on("j", "n2")], there=nodes("n1", "n2"))
    loss = waves.lose("n2")
    assert places(waves._waves) == [[("a", "n1")], [("b", "n1")], [("j", "n1")]]
    assert loss.waiting == ("b",)
    assert (waves.present, waves.absent) == (("a",), {"b", "j"})
    assert waves.turn(lambda model: model in "bj") == ("a",)
    assert waves.present == ("b",)


def test_a_single_wave_becomes_several():
    waves = begun([on("a", "n1"), on("b", "n2")], there=nodes("n1", "n2"))
    waves.lose("n1")
    assert (len(waves), waves.present, waves.absent) == (2, ("b",), {"a"})


def test_a_later_wave_is_divided_where_its_servers_do_not_fit_any_more():
    waves = begun([on("a", "n1")], [on("b", "n1"), on("c", "n2")], there=nodes("n1", "n2"))
    loss = waves.lose("n2")
    assert sorted(places(waves._waves)) == [[("a", "n1")], [("b", "n1")], [("c", "n1")]]
    assert loss.waiting == ()
    assert waves.present == ("a",)


def test_a_server_that_fits_on_no_node_that_is_left_keeps_its_place_and_is_told():
    there = (*nodes("n1"), *nodes("big", gpus=8))
    waves = begun([on("a", "n1"), on("b", "big", gpus=8)], there=there)
    loss = waves.lose("big")
    assert places(waves._waves) == [[("a", "n1")], [("b", "big")]]
    assert loss.waiting == ("b",)
    assert "the largest node, n1, has 8 CPUs, 2 GPUs" in loss.without_room["b"]


def test_the_last_server_of_a_run_is_tried_although_it_fits_nowhere():
    waves = begun([on("a", "big", gpus=8)], there=(*nodes("n1"), *nodes("big", gpus=8)))
    loss = waves.lose("big")
    assert (loss.waiting, waves.present, waves.absent) == ((), ("a",), frozenset())
    assert loss.without_room.keys() == {"a"}


def test_where_all_nodes_are_lost_the_last_one_is_kept():
    waves = begun([on("a", "n1")], there=nodes("n1"))
    assert waves.lose("n1") is None


def test_a_server_that_loses_one_of_its_nodes_is_placed_anew_as_a_whole():
    size = Size(1, 2, nodes=2)
    big = PlacedServer("big", ("big",), (Share(node="n1,n2", size=size),))
    waves = begun([big, on("a", "n3", gpus=1)], there=nodes("n1", "n2", "n4", "n3"))
    assert {name: shares[0].node for name, shares in waves.lose("n2").moved.items()} == {
        "big": "n1,n4"
    }
    assert waves.lose("n4").waiting == ("big",), "n3 has no room beside the other"
    assert "nodes with so much: 1" in waves.lose("n3").without_room["big"]


def test_a_replica_is_lost_alone():
    waves = begun([on("a", "n1", "n2"), on("b", "n3")], there=nodes("n1", "n2", "n3"))
    loss = waves.lose("n2")
    assert [share.node for share in loss.moved["a"]] == ["n1", ""]
    assert (loss.waiting, waves.present) == ((), ("a", "b"))


@pytest.mark.parametrize("room", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "parts", [{"a": ("n1", "n1", "n2")}, {"a": ("n1", "n2"), "b": ("n2", "n1")}]
)
def test_parts_that_are_lost_together_get_a_place_each_as_far_as_there_is_room(parts, room):
    n_on = Counter(node for found in parts.values() for node in found)
    there = [Node(name, Size(9, n_gpus)) for name, n_gpus in {**n_on, "n3": room}.items()]
    waves = begun([on(name, *where, gpus=1) for name, where in parts.items()], there=tuple(there))
    loss = waves.lose("n1")
    shares = [share for moved in loss.moved.values() for share in moved]
    after = Counter(share.node for share in shares)
    assert after["n3"] == min(room, n_on["n1"])
    assert after[""] == n_on["n1"] - after["n3"]
    assert after["n2"] == n_on["n2"]


@given(
    st.lists(st.lists(st.tuples(*[st.integers(1, 3)] * 3), min_size=1), min_size=1),
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.data(),
)
def test_after_each_loss_all_servers_have_a_wave_and_each_wave_fits(asked, sizes, data):
    there = tuple(Node(f"n{n}", Size(9, gpus)) for n, gpus in enumerate(sizes))
    inventory = Inventory(nodes=there)
    demands = [
        Demand(f"{n}.{m}", replicas=copies, size=Size(1, gpus, nodes=n_nodes))
        for n, wave in enumerate(asked)
        for m, (gpus, copies, n_nodes) in enumerate(wave)
    ]
    placed = place(demands, inventory)
    assume(placed.waves)
    waves = Waves(
        [[PlacedServer(name, (name,), one) for name, one in wave.items()] for wave in placed.waves],
        inventory,
    )
    everybody = {server.name for wave in waves._waves for server in wave}
    for _ in range(len(there)):
        wanted = data.draw(st.sets(st.sampled_from(sorted(everybody)), min_size=1))
        if len(waves) > 1:
            assert waves.turn(wanted.__contains__) is not None
        node = data.draw(st.sampled_from(inventory.nodes)).name
        left = tuple(one for one in inventory.nodes if one.name != node)
        inventory = Inventory(nodes=left)
        loss = waves.lose(node)
        if not left:
            assert loss is None
            return
        assert loss is not None
        assert Counter(one.name for wave in waves._waves for one in wave) == Counter(everybody)
        for wave in waves._waves:
            shares = [share for one in wave for share in one.shares if share.node]
            names = {one.name for one in wave}
            assert names <= loss.without_room.keys() or fits(shares, inventory)
        assert set(waves.present).isdisjoint(loss.waiting)
        assert waves.absent.isdisjoint(waves.models)
        if loss.without_room:
            return
