"""Several servers as one: shared out by load, one that is lost is left out and brought back."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from orchestrator.ask import GenerateAsk, Request
from orchestrator.backend import ServerLoad
from orchestrator.errors import LaunchError, ServerChangedError
from orchestrator.records import Failure, Generation, Message, Sampling
from orchestrator.runner.servers.replicas import Listener, Replicas
from tests.answering import Answering

REFUSED = Failure("refused", "nobody listens")
BROKEN = Failure("connection", "the connection broke")
ASK = GenerateAsk("m", (Message("user", "x"),), Sampling())


def of_group(group):
    return Request(b"", ASK, 0, group, group=group)


def of(both, group):
    return both.for_request(of_group(group)).generate(ASK, 0)


class Server(Answering):
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


class Fleet(Listener):
    """Runs what brings servers back when told, and connects to what it is given."""

    def __init__(self, *comebacks):
        self.errands = []
        self.comebacks = list(comebacks)
        self.connected = []
        self.counts = []
        self.n_again = 0

    def asked_again(self):
        self.n_again += 1

    def counted(self, model, n_there):
        self.counts.append(n_there)

    async def connect(self, number):
        self.connected.append(number)
        comeback = self.comebacks.pop(0)
        if isinstance(comeback, Exception):
            raise comeback
        return comeback


def replicas(*servers, fleet=None):
    fleet = fleet or Fleet()
    return Replicas("m", servers, fleet.errands.append, fleet.connect, fleet)


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


async def test_a_request_that_goes_to_other_servers_is_counted_for_each():
    fleet = Fleet()
    servers = [Server("a", REFUSED), Server("b", REFUSED), Server("c")]
    asked = replicas(*servers, fleet=fleet).for_request(of_group(0))
    assert (await asked.generate(ASK, 0)).text == "c"
    assert fleet.n_again == sum(server.n for server in servers) - 1 == 2
    await asked.generate(ASK, 0)
    assert fleet.n_again == 2


async def test_a_request_that_no_other_server_can_take_is_counted_once():
    fleet = Fleet()
    assert (
        await replicas(Server("a", REFUSED), fleet=fleet).for_request(of_group(0)).generate(ASK, 0)
        is REFUSED
    )
    assert fleet.n_again == 0


@pytest.mark.parametrize("cause", ["refused", "unreachable"])
async def test_what_is_in_flight_at_a_server_that_goes_is_asked_elsewhere(cause):
    """The first failure closes its connections, which fails the other requests that it has."""
    gate = asyncio.Event()
    fleet = Fleet()

    class Going(Server):
        async def generate(self, ask, seed):
            self.n += 1
            if self.n == 1:
                await asyncio.sleep(0)
                return Failure(cause, "no route to host")
            await gate.wait()
            return Failure("connection", "the connection was closed")

        async def close(self):
            gate.set()

    going = Going("a")
    both = replicas(going, Server("b", gate=gate), fleet=fleet)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(both.generate(ASK, 0)) for _ in range(8)]
    assert going.n == 4
    assert {task.result().text for task in tasks} == {"b"}
    assert both.broken == set()
    assert fleet.counts == [1]


async def test_a_request_whose_connection_broke_goes_to_another_server():
    lost, there = Server("a", BROKEN), Server("b")
    both = replicas(lost, there)
    assert (await both.generate(ASK, 0)).text == "b"
    assert both.broken == {0}


async def test_a_request_that_breaks_two_connections_is_sent_to_no_third_server_at_once():
    servers = [Server(name, BROKEN) for name in "abc"]
    assert await replicas(*servers).generate(ASK, 0) is BROKEN
    assert sum(server.n for server in servers) == 2


async def test_when_none_is_left_the_model_is_out_of_reach():
    fleet = Fleet()
    both = replicas(Server("a", REFUSED), Server("b", REFUSED), fleet=fleet)
    outcome = await both.generate(ASK, 0)
    assert isinstance(outcome, Failure)
    assert outcome.cause == "refused"
    assert len(fleet.errands) == 1


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr("orchestrator.runner.servers.replicas._FIRST_WAIT_S", 0.0)


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


async def test_after_closing_nothing_is_brought_back(at_once):
    fleet = Fleet(Server("late"))
    there = Server("b")
    both = replicas(Server("a", REFUSED), there, fleet=fleet)
    await both.generate(ASK, 0)
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
            await both.for_request(of_group(item)).generate(ask, 0)

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
    assert [(await both.for_request(of_group(1)).generate(ASK, 0)).text for _ in range(3)] == [
        "b"
    ] * 3


async def test_a_load_that_one_does_not_say_is_not_summed():
    class Silent(Server):
        async def load(self):
            return ServerLoad(running=1)

    load = await replicas(Server("a"), Silent("b")).load()
    assert load.waiting is None


# -- beginning -------------------------------------------------------------------------------------


class Hosts(Listener):
    """Servers that come after their seconds, or fail; runs errands as the fleet does."""

    def __init__(self, *fates):
        self.fates = [list(fate) for fate in fates]
        self.group = asyncio.TaskGroup()
        self.counts = []
        self.cancelled = 0

    def counted(self, model, n_there):
        self.counts.append(n_there)

    async def connect(self, number):
        after_s, what = self.fates[number].pop(0)
        try:
            await asyncio.sleep(after_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(what, Exception):
            raise what
        return what

    def replicas(self):
        def errand(call):
            self.group.create_task(call())

        nobody = [None] * len(self.fates)
        return Replicas("m", nobody, errand, self.connect, self)


@asynccontextmanager
async def begun(*fates, n=1):
    """Replicas that have begun, or the failure; and their hosts."""
    hosts = Hosts(*fates)
    async with hosts.group:
        both = hosts.replicas()
        failure = await both.begin(n)
        yield both, hosts, failure
        await both.close()


def now():
    return asyncio.get_running_loop().time()


@pytest.mark.looptime
async def test_asking_begins_with_the_first_server_and_later_ones_are_welcomed():
    since = now()
    async with begun([(1.0, Server("a"))], [(200.0, Server("b"))]) as (both, hosts, failure):
        assert failure is None
        assert now() - since == 1.0
        assert {(await both.generate(ASK, 0)).text for _ in range(4)} == {"a"}
        await asyncio.sleep(200.0)
        assert {(await both.for_request(of_group(n)).generate(ASK, 0)).text for n in range(4)} >= {
            "a"
        }
        assert hosts.counts == [1, 2]


@pytest.mark.looptime
async def test_asking_waits_for_as_many_servers_as_it_must():
    since = now()
    fates = [[(1.0, Server("a"))], [(5.0, Server("b"))], [(9.0, Server("c"))]]
    async with begun(*fates, n=2) as (_, hosts, _):
        assert now() - since == 5.0
        # What was there before anything could be asked is no change of limits.
        assert hosts.counts == [2]


@pytest.mark.looptime
async def test_one_that_dies_in_its_first_start_is_tried_again_and_the_run_goes_on(caplog):
    fates = [[(9.0, Server("a"))], [(1.0, LaunchError("out of memory")), (1.0, Server("b"))]]
    async with begun(*fates) as (_, hosts, failure):
        assert failure is None
        assert "server 2 of 2 is unreachable" in caplog.text
        assert "out of memory" in caplog.text
        await asyncio.sleep(5.0)
        assert hosts.counts == [1, 2]


@pytest.mark.looptime
async def test_where_all_fail_to_start_it_is_an_error():
    fates = [[(1.0, LaunchError("no weights"))], [(2.0, LaunchError("no weights"))]]
    with pytest.raises(ExceptionGroup) as raised:
        async with begun(*fates):
            pass
    assert "no weights" in str(raised.value.exceptions[0])


@pytest.mark.looptime
async def test_where_none_can_be_reached_it_is_a_failure_and_nothing_is_sought():
    dead = Failure("dead_server", "gone", permanent=True)
    async with begun([(1.0, dead)], [(2.0, REFUSED)]) as (_, hosts, failure):
        assert failure is REFUSED
        await asyncio.sleep(100.0)
        assert hosts.counts == []


@pytest.mark.looptime
async def test_another_server_than_before_ends_the_beginning_at_once():
    since = now()
    with pytest.raises(ExceptionGroup) as raised:
        async with begun([(1.0, ServerChangedError("x"))], [(100.0, Server("b"))]):
            pass
    assert isinstance(raised.value.exceptions[0], ServerChangedError)
    assert now() - since == 1.0


@pytest.mark.looptime
async def test_closing_ends_servers_that_are_still_starting():
    async with begun([(1.0, Server("a"))], [(200.0, Server("b"))]) as (both, hosts, _):
        await both.close()
        await asyncio.sleep(1.0)
        assert hosts.cancelled == 1


# -- one bad server --------------------------------------------------------------------------------


async def test_a_server_in_doubt_is_passed_over_and_its_model_goes_on():
    servers = [Server("a"), Server("b")]
    both = replicas(*servers)
    both.hold(0, on=True)
    assert {(await both.generate(ASK, 0)).text for _ in range(4)} == {"b"}
    both.hold(0, on=False)
    assert "a" in {(await of(both, n)).text for n in range(4)}


@pytest.mark.looptime
async def test_where_all_are_in_doubt_requests_wait_until_one_is_not():
    both = replicas(Server("a"), Server("b"))
    both.hold(0, on=True)
    both.hold(1, on=True)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(both.generate(ASK, 0))
        await asyncio.sleep(5.0)
        assert not task.done()
        both.hold(1, on=False)
    assert task.result().text == "b"


async def test_no_answer_is_taken_from_a_server_that_was_replaced():
    gate = asyncio.Event()
    both = replicas(Server("another", gate=gate), Server("b"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(both.generate(ASK, 0))
        await asyncio.sleep(0)
        both.hold(0, on=True)
        await both.refuse(0)
        gate.set()
    assert isinstance(task.result(), Failure)
    assert (await both.generate(ASK, 0)).text == "b"
