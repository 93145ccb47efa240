"""Early ends of a session: stores, connections and methods that fail, and stops."""

import asyncio
import re
import time
from typing import Any

import pytest

from orchestrator.contracts.method import Combination
from orchestrator.errors import LaunchError, MethodError, StoreError
from orchestrator.recipe import schema
from orchestrator.records import Failure
from orchestrator.runner.event_loop import unwrapped
from orchestrator.runner.planning.budget import Budget, Spent
from orchestrator.scheduler.core import Core, Limits
from tests.core.fakes import REFUSED, generation, plan
from tests.runner.session.parts import Fleet, Parts
from tests.runner.session.test_session import MemoryStore, Server, pair

TIMEOUT = Failure("timeout", "no complete reply within 10 s")


class FullStore(MemoryStore):
    """Has room for some writes."""

    def __init__(self, room):
        super().__init__()
        self.room = room

    def _write(self):
        self.room -= 1
        if self.room < 0:
            raise StoreError("the disk is full")

    def put_outcome(self, *args, **more):
        self._write()
        super().put_outcome(*args, **more)

    def put_attempt(self, *args):
        self._write()
        super().put_attempt(*args)


class Full(MemoryStore):
    """Holds an outcome for every key."""

    def get(self, key):
        return generation("stored")


def make(connect, *, names=("a",), n_items=60, method=pair, store=None, limits=None, **more):
    p = plan(method, names, n_items, [Combination((name,)) for name in names])
    settings: dict[str, Any] = {
        "plan": p,
        "store": store or MemoryStore(),
        "core": Core(dict.fromkeys(names, limits or Limits(max_in_flight=8, max_attempts=3))),
        "budget": Budget(schema.Budget(), Spent(), {}),
        "fleet": Fleet(connect),
        **more,
    }
    parts = Parts(**settings)
    return parts, parts.session()


def to(servers):
    async def connect(model):
        return servers[model]

    return connect


async def error_of(session):
    try:
        await session.run()
    except BaseExceptionGroup as group:
        return unwrapped(group)
    except (StoreError, MethodError) as error:
        return error
    return None


@pytest.mark.looptime
@pytest.mark.parametrize("room", [0, 1, 5])
async def test_a_store_that_is_full_ends_the_session_with_its_words(room):
    _, session = make(to({"a": Server()}), store=FullStore(room))
    assert "the disk is full" in str(await error_of(session))


@pytest.mark.looptime
async def test_a_store_that_is_full_ends_a_session_whose_only_model_is_dead():
    async def connect(model):
        return Failure("not_found", "no such model", permanent=True)

    # The first eight are told by a worker, those after them by the event loop.
    _, session = make(connect, store=FullStore(20))
    error = await asyncio.wait_for(error_of(session), 1000)
    assert "the disk is full" in str(error)


@pytest.mark.looptime
async def test_an_error_of_a_backend_ends_the_session_with_that_error():
    class Broken(Server):
        async def generate(self, ask, seed):
            raise KeyError("a programming error")

    _, session = make(to({"a": Broken()}))
    assert isinstance(await error_of(session), KeyError)


@pytest.mark.looptime
async def test_a_server_that_died_for_good_ends_the_session_at_the_next_trial():
    server = Server(failure=REFUSED)
    n_connects = 0

    async def connect(model):
        nonlocal n_connects
        n_connects += 1
        if n_connects > 1:
            raise LaunchError("the server ended with exit code -9")
        return server

    _, session = make(connect)
    start = asyncio.get_running_loop().time()
    assert isinstance(await error_of(session), LaunchError)
    assert asyncio.get_running_loop().time() - start < 2


def refusing_b(wait_s=1.0, latency_s=10.0):
    """Model a answers after a while; the server of b is refused."""
    servers = {"a": Server(latency_s=latency_s)}

    async def connect(model):
        if model == "a":
            return servers["a"]
        await asyncio.sleep(wait_s)
        raise LaunchError("b is not what it was")

    parts, session = make(connect, names=("a", "b"), limits=Limits(max_in_flight=4))
    return parts, session, servers["a"]


@pytest.mark.looptime
async def test_what_others_have_in_flight_is_recorded_before_a_refusal_ends_the_session(caplog):
    parts, session, a = refusing_b()
    start = asyncio.get_running_loop().time()
    assert "b is not what it was" in str(await error_of(session))
    assert a.n_asked == 4
    assert len(parts.store.outcomes) == 4
    assert asyncio.get_running_loop().time() - start == pytest.approx(10.0, abs=0.1)
    assert "ending after requests in flight: b is not" in caplog.text


@pytest.mark.looptime
async def test_a_refusal_is_not_announced_where_nothing_is_in_flight(caplog):
    async def connect(model):
        raise LaunchError(f"{model} is not what it was")

    _, session = make(connect)
    assert "is not what it was" in str(await error_of(session))
    assert "in flight" not in caplog.text


@pytest.mark.looptime
async def test_a_session_that_is_given_up_while_it_ends_still_says_why():
    parts, session, _ = refusing_b()
    running = asyncio.ensure_future(error_of(session))
    await asyncio.sleep(5.0)
    running.cancel()
    assert "b is not what it was" in str(await running)
    assert not parts.store.outcomes


@pytest.mark.looptime
async def test_a_model_in_doubt_is_not_waited_for_and_not_recorded():
    parts, session, _ = refusing_b(wait_s=100.0)
    running = asyncio.ensure_future(error_of(session))
    await asyncio.sleep(15.0)
    parts.core.models["a"].is_held = True
    n = len(parts.store.outcomes)
    session.scheduler.fail(LaunchError("another server answers for a"))
    start = asyncio.get_running_loop().time()
    assert "another server" in str(await running)
    assert asyncio.get_running_loop().time() - start < 0.1
    assert len(parts.store.outcomes) == n == 4


@pytest.mark.looptime
async def test_three_faults_of_a_method_end_the_session_with_method_and_line():
    async def broken(unit, ask, config):
        rows = await pair(unit, ask, config)
        return rows[7]

    _, session = make(to({"a": Server()}), method=broken)
    error = await error_of(session)
    assert isinstance(error, MethodError)
    assert re.match(rf"method 'fake' raised IndexError at {__file__}:\d+: list index", str(error))


@pytest.mark.looptime
async def test_stopping_gives_up_connecting_at_once():
    cancelled = []

    async def connect(model):
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            cancelled.append(model)
            raise

    parts, session = make(connect)
    loop = asyncio.get_running_loop()
    loop.call_later(1.0, session.stop, "interrupted")
    start = loop.time()
    await session.run()
    assert loop.time() - start < 1.1
    assert cancelled == ["a"]
    assert parts.store.units == {}


@pytest.mark.looptime
async def test_workers_in_line_do_not_each_try_a_server_that_hangs():
    n_connects = 0

    async def connect(model):
        nonlocal n_connects
        n_connects += 1
        await asyncio.sleep(10)
        return TIMEOUT

    parts, session = make(connect, limits=Limits(max_in_flight=64, dead_after_s=30.0))
    start = asyncio.get_running_loop().time()
    await session.run()
    assert asyncio.get_running_loop().time() - start < 60
    assert n_connects <= 5
    assert {status for status, _ in parts.store.units.values()} == {2}


@pytest.mark.looptime
async def test_after_an_outage_the_whole_queue_is_sent_at_full_width():
    server = Server(latency_s=1.0)
    is_up = False

    async def connect(model):
        return server if is_up else REFUSED

    def come_up():
        nonlocal is_up
        is_up = True

    loop = asyncio.get_running_loop()
    loop.call_later(10.0, come_up)
    _, session = make(connect, n_items=80)
    await session.run()
    # 80 requests, 8 at a time, a second each; and up to 5 s until somebody looks again.
    assert loop.time() < 10 + 5 + 1 + 80 / 8 + 2
    assert server.most_at_once == 8


@pytest.mark.looptime
async def test_each_trial_after_an_outage_connects_anew_and_closes_the_old_connection():
    closed = []

    class Closing(Server):
        async def close(self):
            closed.append(self)

    servers = [Closing(failure=REFUSED), Closing()]
    given = iter(servers)

    async def connect(model):
        return next(given)

    parts, session = make(connect)
    await session.run()
    assert closed == servers
    assert {status for status, _ in parts.store.units.values()} == {0}


@pytest.mark.looptime
async def test_units_that_the_store_answers_leave_room_for_everything_else():
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    _, session = make(to({}), n_items=2000, store=Full())
    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count())
        await session.run()
        counting.cancel()
    assert turns > 20
    assert session.progress({}).units_done == 2000


@pytest.mark.looptime
async def test_texts_of_open_units_are_bounded():
    seen = []

    class Watching(Server):
        async def generate(self, ask, seed):
            seen.append(self.n_now)
            return await super().generate(ask, seed)

    parts, session = make(to({"a": Watching()}), max_bytes=1.0)
    await session.run()
    assert set(seen) == {0}
    assert len(parts.store.units) == 60


@pytest.mark.looptime
async def test_the_hours_of_a_call_are_counted_to_its_end():
    parts, session = make(to({"a": Server(latency_s=1800.0)}), n_items=8)
    await session.run()
    assert parts.budget.spent.hours == pytest.approx(0.5)


@pytest.mark.looptime
async def test_the_latency_of_an_outcome_does_not_hold_the_start_of_its_server():
    latencies = []

    class Noting(MemoryStore):
        def put_outcome(self, key, kind, model, outcome, **more):
            latencies.append(more["latency_s"])

    async def connect(model):
        await asyncio.sleep(100)
        return Server(latency_s=2.0)

    _, session = make(connect, n_items=4, store=Noting())
    await session.run()
    assert latencies == pytest.approx([2.0] * 4)


async def stop_when(is_so, session):
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 (it is seen from outside only)
            await asyncio.sleep(0.01)
    session.stop("interrupted")


async def test_stopping_does_not_wait_for_a_rate_cap():
    server = Server(latency_s=0.001)
    _, session = make(to({"a": server}), per_minute={"a": 0.6})
    start = time.monotonic()
    async with asyncio.TaskGroup() as group:
        group.create_task(stop_when(lambda: server.n_asked, session))
        await session.run()
    # The next may be sent after a hundred.
    assert time.monotonic() - start < 50
    assert server.n_asked == 1


async def test_a_rate_cap_holds_up_its_own_model_only():
    servers = {"capped": Server(latency_s=0.001), "free": Server(latency_s=0.001)}
    parts, session = make(
        to(servers), names=("capped", "free"), n_items=20, per_minute={"capped": 0.6}
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(stop_when(lambda: len(parts.store.units) == 21, session))
        await session.run()
    assert servers["capped"].n_asked == 1
    assert servers["free"].n_asked == 20
    assert len(parts.store.units) == 21
