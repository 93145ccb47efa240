"""Whole sessions under virtual time: an hour's waiting passes at once, so pace can be asserted."""

import asyncio
from itertools import combinations

import msgspec
import pytest

from orchestrator.contracts.method import Combination
from orchestrator.recipe import schema
from orchestrator.records import Failure
from orchestrator.runner.planning.budget import Budget, Spent
from orchestrator.scheduler.core import Core, Limits
from tests.answering import Answering
from tests.core.fakes import BUSY, REFUSED, SAMPLING, generation, plan, row
from tests.runner.session.parts import Fleet, Parts

pytestmark = pytest.mark.looptime


class MemoryStore:
    """The part of a store that a session needs, with the time at which each unit ended."""

    pending_bytes = 0

    def __init__(self):
        self.outcomes = {}
        self.attempts = []
        self.units = {}
        self.ended_at = {}

    def get(self, key):
        return self.outcomes.get(key)

    def epoch(self, key):
        return 0

    def put_outcome(self, key, kind, model, outcome, **more):
        self.outcomes.setdefault(key, outcome)

    def put_attempt(self, key, model, failure):
        self.attempts.append((model, failure.cause))

    def put_unit(self, unit_hash, plan_id, position, status, frame, rows, *, cause=""):
        self.units[position] = (status, rows)
        self.ended_at[position] = asyncio.get_running_loop().time()


class Server(Answering):
    """Answers each request after a while, or with a failure."""

    def __init__(self, latency_s=0.1, failure=None, n_failures=10**9):
        self.latency_s = latency_s
        self.failure = failure
        self.n_failures = n_failures
        self.n_asked = 0
        self.n_now = 0
        self.most_at_once = 0

    async def generate(self, ask, seed):
        self.n_asked += 1
        number = self.n_asked
        self.n_now += 1
        self.most_at_once = max(self.most_at_once, self.n_now)
        try:
            await asyncio.sleep(self.latency_s)
        finally:
            self.n_now -= 1
        if self.failure is not None and number <= self.n_failures:
            return self.failure
        return generation(f"{ask.model} {ask.messages[0].content}")

    async def close(self):
        pass


async def pair(unit, ask, config):
    await ask.all(*(ask.generate(name, unit.item.messages, SAMPLING) for name in unit.models))
    return [row(unit)]


def make(servers, *, n_items=60, combos=None, bounds=None, max_open=200, limits=None, store=None):
    names = tuple(servers)
    p = plan(pair, names, n_items, combos or [Combination((name,)) for name in names])

    async def connect(model):
        return servers[model]

    limit = limits or Limits(max_in_flight=8, dead_after_s=30.0)
    parts = Parts(
        plan=p,
        store=store or MemoryStore(),
        core=Core(dict.fromkeys(names, msgspec.structs.replace(limit, max_attempts=3))),
        budget=Budget(bounds or schema.Budget(), Spent(), {}),
        fleet=Fleet(connect),
        max_open=max_open,
    )
    return p, parts, parts.session()


def last_end(p, store, models):
    return max(
        at
        for position, at in store.ended_at.items()
        if set(p.work(position).unit.models) <= set(models)
    )


async def test_every_unit_ends_and_the_limit_is_kept_and_used():
    servers = {"a": Server()}
    _, parts, session = make(servers)
    await session.run()
    assert len(parts.store.units) == 60
    assert servers["a"].most_at_once == 8


async def test_fast_models_keep_their_pace_beside_a_slow_and_a_dead_one():
    fast = ("f1", "f2", "f3")

    def everybody(names):
        singles = [Combination((name,)) for name in names]
        return singles + [Combination(two) for two in combinations(names, 2)]

    p, parts, session = make({name: Server() for name in fast}, n_items=200, combos=everybody(fast))
    start = asyncio.get_running_loop().time()
    await session.run()
    alone = last_end(p, parts.store, fast) - start

    servers = {name: Server() for name in fast}
    servers |= {"slow": Server(latency_s=20.0), "dead": Server(failure=REFUSED)}
    p, parts, session = make(servers, n_items=200, combos=everybody(servers))
    start = asyncio.get_running_loop().time()
    await session.run()
    beside = last_end(p, parts.store, fast) - start
    assert beside <= alone / 0.95
    assert len(parts.store.units) == len(p)


async def test_units_of_a_dead_model_fail_for_now_and_are_counted():
    servers = {"ok": Server(), "dead": Server(failure=REFUSED)}
    p, parts, session = make(servers, n_items=10)
    await session.run()
    statuses = [parts.store.units[position][0] for position in range(len(p))]
    assert statuses == [0, 2] * 10
    assert session.progress({}).failures == {"dead_server": 10}


async def test_a_server_that_comes_back_is_asked_everything():
    servers = {"a": Server(failure=REFUSED, n_failures=3)}
    _, parts, session = make(servers)
    await session.run()
    assert {status for status, _ in parts.store.units.values()} == {0}


async def test_failures_of_the_moment_are_tried_again():
    servers = {"a": Server(failure=BUSY, n_failures=5)}
    _, parts, session = make(servers)
    await session.run()
    assert {status for status, _ in parts.store.units.values()} == {0}
    assert parts.store.attempts == [("a", "rate_limited")] * 5


async def test_no_more_requests_are_sent_than_the_budget_allows():
    servers = {"a": Server()}
    _, parts, session = make(servers, bounds=schema.Budget(requests=21))
    await session.run()
    assert servers["a"].n_asked == 21
    assert len(parts.store.units) == 21
    assert "budget.requests" in session.stopping


@pytest.mark.parametrize("disk_is_behind_at", [0.13, 1.0])
async def test_stopping_records_what_is_in_flight_and_sends_nothing_more(disk_is_behind_at):
    servers = {"a": Server(latency_s=0.12)}
    _, parts, session = make(servers)
    loop = asyncio.get_running_loop()
    loop.call_later(disk_is_behind_at, setattr, parts.store, "pending_bytes", 10**12)
    loop.call_later(0.35, session.stop, "interrupted")
    await session.run()
    assert servers["a"].n_asked == len(parts.store.outcomes) == len(parts.store.units) == 24


async def test_a_permanent_failure_is_an_outcome():
    bad = Failure("bad_request", "no", permanent=True, status=400)
    _, parts, session = make({"a": Server(failure=bad)}, n_items=2)
    await session.run()
    assert list(parts.store.outcomes.values()) == [bad, bad]


async def test_the_window_bounds_how_many_units_are_open():
    _, _, session = make({"a": Server()}, max_open=5)
    seen = []

    def look():
        seen.append(session.progress({}).units_open)
        asyncio.get_running_loop().call_later(0.01, look)

    look()
    await session.run()
    assert 0 < max(seen) <= 5


async def test_a_paused_session_sends_nothing_until_it_goes_on():
    servers = {"a": Server()}
    _, parts, session = make(servers)
    loop = asyncio.get_running_loop()
    counted = []

    def hold():
        session.scheduler.pause()
        loop.call_later(1.0, lambda: counted.append(servers["a"].n_asked))
        loop.call_later(100.0, lambda: counted.append(servers["a"].n_asked))
        loop.call_later(100.0, session.scheduler.resume)

    loop.call_later(0.25, hold)
    await session.run()
    assert counted[0] == counted[1] < 60
    assert len(parts.store.units) == 60


async def test_a_session_paused_before_its_first_request_goes_on_at_full_width():
    servers = {"a": Server()}
    _, _, session = make(servers)
    session.scheduler.pause()
    asyncio.get_running_loop().call_later(5.0, session.scheduler.resume)
    start = asyncio.get_running_loop().time()
    await session.run()
    assert servers["a"].most_at_once == 8
    assert asyncio.get_running_loop().time() - start < 5.0 + 60 / 8 * 0.1 + 0.2


async def test_a_raised_limit_is_used_at_once_and_a_lowered_one_kept():
    servers = {"a": Server()}
    _, _, session = make(servers, limits=Limits(max_in_flight=2), n_items=400)
    loop = asyncio.get_running_loop()
    most = []

    def note():
        most.append(servers["a"].most_at_once)
        servers["a"].most_at_once = 0

    for at, change in ((1.05, 16), (2.05, 4)):
        loop.call_later(at, note)
        loop.call_later(at, session.adaptive.set_limit, "a", change)
    # What was in flight when the limit was lowered has ended by then.
    loop.call_later(2.25, note)
    await session.run()
    assert most[:2] == [2, 16]
    assert servers["a"].most_at_once == 4
