"""The gate between readers of alternatives and requests for given ids, in a virtual time."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.vllm.gate import MOST_WAIT_S, SHARE, Gate, gate_of

pytestmark = pytest.mark.looptime


class Server:
    """Counts who is inside, and how often both kinds were."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.inside = {"reading": 0, "exact": 0}
        self.mixed = 0
        self.ended: list[str] = []

    async def send(self, kind: str, seconds: float) -> None:
        async with self.gate.reading() if kind == "reading" else self.gate.exact():
            self.inside[kind] += 1
            self.mixed += all(self.inside.values())
            try:
                await asyncio.sleep(seconds)
            finally:
                self.inside[kind] -= 1
        self.ended.append(kind)


@pytest.fixture
async def server() -> Server:
    return Server(Gate())


async def test_readers_go_in_together(server):
    async with asyncio.timeout(1.5), asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(server.send("reading", 1.0))


async def test_requests_for_ids_go_in_together(server):
    async with asyncio.timeout(1.5), asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(server.send("exact", 1.0))
    assert server.gate.n_phases <= 2


async def test_a_request_for_ids_waits_for_readers_and_they_for_it(server):
    async with asyncio.TaskGroup() as group:
        group.create_task(server.send("reading", 1.0))
        await asyncio.sleep(0.1)
        group.create_task(server.send("exact", 1.0))
        await asyncio.sleep(0.1)
        group.create_task(server.send("reading", 1.0))
    assert server.ended == ["reading", "exact", "reading"]
    assert server.mixed == 0


async def test_time_in_which_readers_wait_is_counted(server):
    async with asyncio.TaskGroup() as group:
        group.create_task(server.send("exact", 1.0))
        await asyncio.sleep(0.25)
        group.create_task(server.send("reading", 1.0))
    assert server.gate.lost_s == pytest.approx(0.75)


async def test_idle_time_is_not_counted_as_lost(server):
    await server.send("exact", 1.0)
    await server.send("reading", 1.0)
    assert server.gate.lost_s == 0


async def test_no_more_than_a_share_of_the_time_is_lost_to_requests_for_ids(server):
    """Readers without end, and requests for ids all the time."""
    loop = asyncio.get_running_loop()
    start, seconds = loop.time(), 15.0

    async def keep(kind: str, pause_s: float) -> None:
        while loop.time() - start < seconds:
            await server.send(kind, 0.02)
            await asyncio.sleep(pause_s)

    async with asyncio.TaskGroup() as group:
        for n in range(4):
            group.create_task(keep("reading", 0.0001 * n))
        group.create_task(keep("exact", 0.0))
    assert server.mixed == 0
    assert server.gate.n_phases > 3
    assert server.gate.lost_s <= 1.5 * SHARE * seconds


async def test_a_request_for_ids_does_not_wait_for_ever(server):
    loop = asyncio.get_running_loop()

    async def keep() -> None:
        start = loop.time()
        while loop.time() - start < 5 * MOST_WAIT_S:
            await server.send("reading", 3.0)

    async with asyncio.TaskGroup() as group:
        for n in range(5):
            group.create_task(keep())
            await asyncio.sleep(0.1 * n)
        for _ in range(2):
            begun = loop.time()
            await server.send("exact", 3.0)
            assert loop.time() - begun <= MOST_WAIT_S + 3 * 3.0


async def test_one_that_is_cancelled_while_it_waits_holds_up_nobody(server):
    async with asyncio.TaskGroup() as group:
        group.create_task(server.send("reading", 1.0))
        await asyncio.sleep(0.1)
        waiting = group.create_task(server.send("exact", 1.0))
        await asyncio.sleep(0.1)
        held = group.create_task(server.send("reading", 1.0))
        await asyncio.sleep(0.1)
        waiting.cancel()
        async with asyncio.timeout(1.5):
            await asyncio.wait([held])
    assert server.inside == {"reading": 0, "exact": 0}


async def test_one_that_is_cancelled_inside_lets_the_others_in(server):
    async with asyncio.TaskGroup() as group:
        inside = group.create_task(server.send("exact", 100.0))
        await asyncio.sleep(0.1)
        held = group.create_task(server.send("reading", 1.0))
        await asyncio.sleep(0.1)
        inside.cancel()
        async with asyncio.timeout(1.5):
            await asyncio.wait([held])


async def test_connections_to_one_server_share_a_gate():
    one, same, other = gate_of("http://a"), gate_of("http://a"), gate_of("http://b")
    assert one is same
    assert one is not other


Event = tuple[str, float, float, bool]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["reading", "exact"]),
        st.floats(0, 3),
        st.floats(0.01, 2),
        st.booleans(),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(EVENTS)
def test_whatever_comes_both_kinds_are_never_inside_and_all_get_in(events: list[Event]):
    async def live() -> Server:
        server = Server(Gate())

        async def one(event: Event) -> None:
            kind, start, seconds, gives_up = event
            await asyncio.sleep(start / 100)
            task = asyncio.ensure_future(server.send(kind, seconds / 100))
            if gives_up:
                await asyncio.sleep(seconds / 200)
                task.cancel()
            await asyncio.wait([task])

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            for event in events:
                group.create_task(one(event))
        return server

    server = asyncio.run(live())
    assert server.mixed == 0
    assert server.inside == {"reading": 0, "exact": 0}
    assert len(server.ended) >= sum(not gives_up for *_, gives_up in events)
