"""Limits that are found, through a whole session under virtual time."""

import asyncio
from collections import deque
from typing import Any, cast

import msgspec
import pytest

from orchestrator.backend import ServerLoad
from orchestrator.runner.session.adaptive import META, Adaptive, decoded
from orchestrator.scheduler.core import Limits
from orchestrator.scheduler.limits import Controller
from tests.answering import Answering
from tests.core.fakes import BUSY, generation
from tests.runner.session.test_session import MemoryStore, make

pytestmark = pytest.mark.looptime


class Server(Answering):
    """Computes so many requests at a time, each in a second; others wait, or are refused."""

    def __init__(self, capacity, *, publishes=True, refuses=False):
        self.capacity = capacity
        self.publishes = publishes
        self.refuses = refuses
        self.prompts_each = 1
        self.n_running = 0
        self.most_at_once = 0
        self.n_refused = 0
        self.queue: deque[asyncio.Future[None]] = deque()

    async def generate(self, ask, seed):
        self.most_at_once = max(self.most_at_once, self.n_running + len(self.queue) + 1)
        if self.n_running >= self.capacity:
            if self.refuses:
                self.n_refused += 1
                return BUSY
            turn = asyncio.get_running_loop().create_future()
            self.queue.append(turn)
            await turn  # the place of who ended is handed on
        else:
            self.n_running += 1
        await asyncio.sleep(1.0)
        if self.queue:
            self.queue.popleft().set_result(None)
        else:
            self.n_running -= 1
        return generation(f"{ask.model} {ask.messages[0].content}")

    async def load(self):
        if not self.publishes:
            return None
        n = self.prompts_each
        in_flight = self.n_running + len(self.queue)
        # As vLLM has it: a prompt that is answered within one step is never seen running.
        running = self.n_running if n == 1 else 0
        return ServerLoad(running=running, waiting=n * len(self.queue), n_extra=(n - 1) * in_flight)

    async def close(self):
        pass


class Store(MemoryStore):
    def __init__(self):
        super().__init__()
        self.meta = {}

    def set_meta(self, key, value):
        self.meta[key] = value


async def run(server, n_items, *, start=64, fix_at=None):
    store = Store()
    _, parts, _ = make(
        {"m": server}, n_items=n_items, limits=Limits(start), store=store, max_open=2000
    )
    limits = Adaptive(
        cast("Any", store), controllers={"m": Controller(start)}, labels={"m": "m 1234"}
    )
    session = msgspec.structs.replace(parts, limits=limits).session()
    if fix_at is not None:
        asyncio.get_running_loop().call_later(fix_at, session.adaptive.set_limit, "m", 3)
    started = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(session.adaptive.run())
        await session.run()
        following.cancel()
    elapsed = asyncio.get_running_loop().time() - started
    return session.progress({}).models[0], store, n_items / elapsed


def changes_of(caplog):
    return [vars(record) for record in caplog.records if "before" in vars(record)]


async def test_a_run_uses_what_a_large_server_can_do():
    server = Server(200)
    _, _, pace = await run(server, 4000)
    assert server.most_at_once >= 200
    assert pace >= 0.85 * 200


async def test_a_small_server_gets_no_long_queue():
    model, _, pace = await run(Server(4), 400)
    assert model.limit <= 12
    assert pace >= 0.95 * 4


async def test_a_server_that_counts_several_prompts_of_a_request_is_understood(caplog):
    caplog.set_level("INFO", "orchestrator.runner.session.adaptive")
    server = Server(48)
    server.prompts_each = 7
    await run(server, 2000)
    assert not changes_of(caplog)


async def test_a_server_that_refuses_gets_less_and_nothing_is_lost(caplog):
    caplog.set_level("INFO", "orchestrator.runner.session.adaptive")
    server = Server(16, publishes=False, refuses=True)
    model, store, _ = await run(server, 400)
    assert len(store.units) == 400
    assert model.limit < 64
    assert "overloaded" in caplog.text


async def test_each_change_is_logged_and_the_last_limit_begins_the_next_call(caplog):
    caplog.set_level("INFO", "orchestrator.runner.session.adaptive")
    model, store, _ = await run(Server(4), 400)
    assert decoded(store.meta[META]) == {"m 1234": model.limit}
    changes = changes_of(caplog)
    assert changes[-1]["after"] == model.limit
    assert changes[0]["before"] == 64


async def test_a_limit_that_was_set_by_hand_stays(caplog):
    caplog.set_level("INFO", "orchestrator.runner.session.adaptive")
    server = Server(4)
    model, store, _ = await run(server, 300, fix_at=1.0)
    assert model.limit == 3
    assert decoded(store.meta[META]) == {"m 1234": 64}
    assert caplog.messages[-1].endswith("by hand")


async def test_with_a_lowered_limit_idle_workers_sleep_on():
    server = Server(100)
    model, _, pace = await run(server, 300, fix_at=1.5)
    assert model.limit == 3
    assert server.n_running == 0
    assert pace < 10


@pytest.mark.parametrize(
    "text", [None, "", "[]", '{"m": "x"}', '{"m": {"limit": 7, "changes": []}}']
)
def test_what_can_t_be_read_is_as_if_it_were_not_there(text):
    assert decoded(text) == {}


def test_what_is_kept_is_read_again():
    kept = {"m": 7}
    assert decoded(msgspec.json.encode(kept).decode()) == kept


async def test_servers_that_come_and_go_take_their_share_of_the_limit_along():
    store = Store()
    _, parts, _ = make({"m": Server(64)}, limits=Limits(64), store=store)
    first = Adaptive(cast("Any", store), n_servers={"m": 4}, labels={"m": "m 1234"})
    session = msgspec.structs.replace(parts, limits=first).session()
    limits = []
    for n_there in (1, 1, 3, 4):
        session.adaptive.servers("m", n_there)
        limits.append(parts.core.limit("m"))
    assert limits == [16, 16, 48, 64]
    session.adaptive.set_limit("m", 7)
    session.adaptive.servers("m", 2)
    assert parts.core.limit("m") == 7, "what was said by hand stays"


async def test_a_small_window_holds_nobody_up_where_servers_take_more(monkeypatch):
    monkeypatch.setattr("orchestrator.runner.session.session.DEFAULT_UNITS", 60)
    servers = {name: Server(128) for name in "abcdef"}
    _, parts, _ = make(servers, n_items=400, limits=Limits(128), max_open=None)
    session = parts.session()
    await session.run()
    assert [server.most_at_once for server in servers.values()] == [128] * 6
