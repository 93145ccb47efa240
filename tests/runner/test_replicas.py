"""Several servers as one: shared out by load, one that is lost is left out and brought back."""

import asyncio

import pytest

from orchestrator.ask import GenerateAsk
from orchestrator.backend import ServerLoad
from orchestrator.records import Failure, Generation, Message, Sampling
from orchestrator.runner.replicas import Replicas

REFUSED = Failure("refused", "nobody listens")
BROKEN = Failure("connection", "the connection broke")
ASK = GenerateAsk("m", (Message("user", "x"),), Sampling())


class Server:
    """Answers with its name, or with what went wrong; waits at a gate where it has one."""

    def __init__(self, name, failure=None, gate=None):
        self.name = name
        self.failure = failure
        self.gate = gate
        self.n = 0
        self.closed = False

    async def generate(self, ask, seed):
        self.n += 1
        if self.gate is not None:
            await self.gate.wait()
        return self.failure or Generation(self.name, "stop")

    async def load(self):
        return ServerLoad(running=self.n, waiting=None)

    async def close(self):
        self.closed = True


class Fleet:
    """Runs what brings servers back when told, and connects to what it is given."""

    def __init__(self, *comebacks):
        self.errands = []
        self.comebacks = list(comebacks)
        self.connected = []

    def lost(self, errand):
        self.errands.append(errand)

    async def connect(self, number):
        self.connected.append(number)
        return self.comebacks.pop(0)


def replicas(*servers, fleet=None):
    fleet = fleet or Fleet()
    return Replicas("m", servers, fleet.lost, fleet.connect)


async def test_requests_go_to_the_least_loaded():
    gate = asyncio.Event()
    servers = [Server(name, gate=gate) for name in "abc"]
    both = replicas(*servers)
    async with asyncio.TaskGroup() as group:
        for _ in range(9):
            group.create_task(both.generate(ASK, 0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [server.n for server in servers] == [3, 3, 3]
        gate.set()


async def test_a_refused_request_goes_to_another_server_and_the_lost_one_is_sought():
    fleet = Fleet()
    lost, there = Server("a", REFUSED), Server("b")
    both = replicas(lost, there, fleet=fleet)
    assert (await both.generate(ASK, 0)).text == "b"
    assert lost.closed
    assert len(fleet.errands) == 1
    await both.generate(ASK, 0)
    assert (lost.n, there.n) == (1, 2)


async def test_a_broken_connection_is_the_requests_own_attempt():
    lost, there = Server("a", BROKEN), Server("b")
    both = replicas(lost, there)
    assert await both.generate(ASK, 0) is BROKEN
    assert there.n == 0


async def test_when_none_is_left_the_model_is_out_of_reach():
    fleet = Fleet()
    both = replicas(Server("a", REFUSED), Server("b", REFUSED), fleet=fleet)
    outcome = await both.generate(ASK, 0)
    assert isinstance(outcome, Failure)
    assert outcome.cause == "refused"
    assert len(fleet.errands) == 1


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr("orchestrator.runner.replicas._FIRST_WAIT_S", 0.0)


async def test_a_lost_server_is_asked_for_until_it_answers_again(at_once):
    fleet = Fleet(REFUSED, Server("a again"))
    both = replicas(Server("a", REFUSED), Server("b"), fleet=fleet)
    await both.generate(ASK, 0)
    await fleet.errands[0]()
    assert fleet.connected == [0, 0]
    texts = {(await both.generate(ASK, 0)).text for _ in range(2)}
    assert "a again" in texts


async def test_one_that_is_gone_for_good_is_sought_no_more(at_once):
    fleet = Fleet(Failure("dead_server", "gone", permanent=True))
    both = replicas(Server("a", REFUSED), Server("b"), fleet=fleet)
    await both.generate(ASK, 0)
    await fleet.errands[0]()
    assert fleet.connected == [0]


async def test_one_that_could_not_be_reached_at_first_is_sought_from_the_start(at_once):
    fleet = Fleet(Server("late"))
    both = replicas(None, Server("b"), fleet=fleet)
    await fleet.errands[0]()
    assert (await both.generate(ASK, 0)).text == "late"


async def test_after_closing_nothing_is_brought_back(at_once):
    fleet = Fleet(Server("late"))
    there = Server("b")
    both = replicas(None, there, fleet=fleet)
    await both.close()
    await fleet.errands[0]()
    assert there.closed
    assert fleet.connected == []


async def test_loads_are_added_up():
    both = replicas(Server("a"), Server("b"))
    await both.generate(ASK, 0)
    load = await both.load()
    assert (load.running, load.waiting) == (1, None)


class CachingServer(Server):
    """Keeps the beginnings of its last few items, as a prefix cache does."""

    def __init__(self, name, n_kept=8):
        super().__init__(name)
        self.kept = []
        self.n_kept = n_kept
        self.n_hits = 0
        self.n_now = 0

    async def generate(self, ask, seed):
        self.n += 1
        item = ask.item_key
        self.n_hits += item in self.kept
        others = [other for other in self.kept if other != item]
        self.kept = [*others[1 - self.n_kept :], item]
        self.n_now += 1
        await asyncio.sleep(0.01)
        self.n_now -= 1
        return Generation(self.name, "stop")


async def judge_items(both, n_items=200, each=12, at_a_time=64):
    """All requests of each item after one another, so many at a time; who got how many."""
    asked = iter([item for item in range(n_items) for _ in range(each)])

    async def work():
        for item in asked:
            ask = GenerateAsk("m", (Message("user", "x"),), Sampling(), item_key=str(item))
            await both.for_group(item).generate(ask, 0)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_a_time):
            group.create_task(work())


@pytest.mark.looptime
async def test_an_item_goes_to_the_server_that_has_it_and_the_load_stays_even():
    servers = [CachingServer("a"), CachingServer("b")]
    await judge_items(replicas(*servers))
    n, hits = sum(s.n for s in servers), sum(s.n_hits for s in servers)
    assert n == 200 * 12
    # Each item must be read once by some server; some are read by both.
    assert n - hits <= 200 * 1.25
    assert max(s.n for s in servers) <= 0.55 * n


@pytest.mark.looptime
async def test_an_item_goes_to_a_second_server_when_its_first_has_too_much():
    servers = [CachingServer("a"), CachingServer("b")]
    await judge_items(replicas(*servers), n_items=1, each=200, at_a_time=16)
    assert min(s.n for s in servers) >= 0.35 * 200


async def test_an_item_whose_server_is_lost_goes_to_another():
    lost, there = Server("a", REFUSED), Server("b")
    both = replicas(lost, there)
    assert [(await both.for_group(1).generate(ASK, 0)).text for _ in range(3)] == ["b"] * 3


async def test_a_load_that_one_does_not_say_is_not_summed():
    class Silent(Server):
        async def load(self):
            return ServerLoad(running=1)

    load = await replicas(Server("a"), Silent("b")).load()
    assert load.waiting is None
