"""A connection that breaks has its server compared, and nobody else waits for that."""

import asyncio
import dataclasses
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from orchestrator.ask import GenerateAsk
from orchestrator.errors import ServerChangedError
from orchestrator.records import Failure, Generation, Message, Sampling
from orchestrator.runner.servers.connections import Doubts
from orchestrator.runner.servers.fleet import Fleet
from orchestrator.store import Store
from tests.fake.main import serving
from tests.runner.servers.test_fleet import model

ASK = GenerateAsk("judge", (Message("user", "x"),), Sampling(max_tokens=4))
RESETS = [{"route": "chat", "fault": "reset"}]


@pytest.mark.looptime
async def test_a_server_is_compared_once_at_a_time_and_then_left_alone_for_a_while():
    said: list[Any] = []

    def errand(call):
        group.create_task(call())

    async def compare():
        said.append(("compared", asyncio.get_running_loop().time() - since))
        await asyncio.sleep(1.0)

    since = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        doubts = Doubts(errand)
        for _ in range(3):
            doubts.doubt(("m", 0), lambda on: said.append(on), compare)
        await asyncio.sleep(2.0)
        doubts.doubt(("m", 0), lambda on: said.append(on), compare)
    assert said == [True, True, ("compared", 0.0), False, True, ("compared", 6.0), False]


def spec(name, *urls):
    several = urls if len(urls) > 1 else ()
    made = model(base_url=urls[0], base_urls=several, backend="fake")
    return dataclasses.replace(made, name=name, model="fake:0.5")


class Told:
    """Hears of models that are held and of errors; waits for either."""

    def __init__(self):
        self.held = []
        self.errors = []
        self.released = asyncio.Event()
        self.failed = asyncio.Event()

    def hold(self, name, on):
        self.held.append((name, on))
        if not on:
            self.released.set()

    def fail(self, error):
        self.errors.append(error)
        self.failed.set()


@asynccontextmanager
async def connected(path, *specs):
    """A fleet that mends, its judge with both servers there, and who is told."""
    identities = {one.name: one.name.encode() for one in specs}
    told = Told()
    with Store.open(path / "store.sqlite") as store:
        fleet = Fleet(specs, identities, lambda name: path / name, store)
        both = asyncio.Event()

        def count(_model, n_there):
            if n_there == 2:
                both.set()

        fleet.listener.counted = count  # type: ignore[method-assign]
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            mending = group.create_task(fleet.mend(told.fail))
            judge = await fleet.connect("judge")
            assert not isinstance(judge, Failure)
            await both.wait()
            yield fleet, judge, told
            await judge.close()
            mending.cancel()


async def broken(fleet, judge):
    """Ask until a connection broke, which costs no request its answer."""
    doubted: list[str] = []
    fleet.listener.doubted = doubted.append
    for seed in range(4):
        assert isinstance(await judge.generate(ASK, seed), Generation)
        if doubted:
            assert doubted == ["judge"]
            return
    raise AssertionError("no connection broke")


async def test_a_bad_replica_is_compared_while_its_model_goes_on(tmp_path):
    async with (
        serving(RESETS, models=["fake:0.5"]) as (bad, _),
        serving(models=["fake:0.5"]) as (good, _),
        connected(tmp_path, spec("judge", bad, good), spec("m", bad), spec("n", good)) as found,
    ):
        fleet, judge, told = found
        await broken(fleet, judge)
        fleet.doubt("judge", told.hold)
        # Who has but this server waits; the judge does not.
        assert told.held == [("m", True)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(judge.generate(ASK, seed)) for seed in range(8)]
        assert all(isinstance(task.result(), Generation) for task in tasks)
        await told.released.wait()
        assert told.errors == []


async def test_a_replica_that_comes_back_as_another_is_refused_and_ends_the_run(tmp_path):
    async with serving(models=["fake:0.5"]) as (good, _), AsyncExitStack() as stack:
        bad, _ = await stack.enter_async_context(serving(RESETS, models=["fake:0.5"]))
        async with connected(tmp_path, spec("judge", bad, good)) as (fleet, judge, told):
            await broken(fleet, judge)
            await stack.aclose()
            port = int(bad.rpartition(":")[2])
            async with serving(models=["fake:0.9"], port=port):
                fleet.doubt("judge", told.hold)
                await told.failed.wait()
            assert isinstance(told.errors[0], ServerChangedError)
            assert told.held == []
            assert isinstance(await judge.generate(ASK, 0), Generation)
