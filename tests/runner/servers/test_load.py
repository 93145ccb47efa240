"""Servers' own queues and caches, as displays are told of them."""

import asyncio

import pytest

from orchestrator.backend import ServerLoad
from orchestrator.runner.servers.health import Loads

pytestmark = pytest.mark.looptime


class Server:
    def __init__(self, *loads):
        self.loads = list(loads)
        self.n_asked = 0

    async def load(self):
        self.n_asked += 1
        found = self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]
        if found == "hangs":
            await asyncio.sleep(1e6)
        return found


def load(waiting, queries, hits):
    return ServerLoad(waiting=waiting, prefix_queries=queries, prefix_hits=hits)


async def looked(server, seconds):
    loads = Loads(["m"], lambda model: server)
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(loads.run())
        await asyncio.sleep(seconds)
        looking.cancel()
    return loads


async def test_the_hit_rate_is_that_of_this_call():
    loads = await looked(Server(load(3, 1000, 900), load(5, 1100, 960)), 6.0)
    assert loads.waiting("m") == 5
    assert loads.cache_hits("m") == 0.6


async def test_a_server_that_was_started_anew_counts_from_zero():
    server = Server(load(0, 1000, 900), load(0, 10, 2), load(0, 110, 52))
    loads = await looked(server, 11.0)
    assert loads.cache_hits("m") == 0.5


@pytest.mark.parametrize("said", [None, "hangs", ServerLoad()])
async def test_what_is_not_published_is_unknown_and_not_zero(said):
    loads = await looked(Server(said), 30.0)
    assert loads.waiting("m") is None
    assert loads.cache_hits("m") is None


async def test_a_model_without_a_connection_is_not_asked():
    loads = await looked(None, 6.0)
    assert loads.waiting("m") is None


async def looked_at_often(server, n_looks):
    loads = Loads(["m"], lambda model: server)
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(loads.run())
        for _ in range(n_looks):
            await asyncio.sleep(1.0)
            await loads.look("m")
        looking.cancel()
    return loads


async def test_a_server_that_is_looked_at_often_is_not_asked_for_displays_too():
    server = Server(load(3, 1000, 900), load(5, 1100, 960))
    loads = await looked_at_often(server, 20)
    assert server.n_asked == 1 + 20
    assert loads.waiting("m") == 5
