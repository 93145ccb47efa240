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
    assert (load.running, load.waiting) == (1, 0)
