"""When a launched server is taken to hang: on a faked clock."""

import asyncio

import pytest

from orchestrator.runner.servers.health import look_after

pytestmark = pytest.mark.looptime


async def looked_after(is_quiet, answers, for_s=300.0):
    """Seconds after which the server was ended."""
    ended, since = [], asyncio.get_running_loop().time()

    async def end():
        ended.append(asyncio.get_running_loop().time() - since)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(look_after(end, is_quiet, answers))
        await asyncio.sleep(for_s)
        task.cancel()
    return ended


async def never():
    await asyncio.Event().wait()


async def at_once():
    return True


async def test_one_that_answers_is_well_however_long_its_requests_take():
    assert await looked_after(lambda: True, at_once) == []


async def test_one_that_is_busy_with_requests_that_end_is_not_asked():
    assert await looked_after(lambda: False, never) == []


async def test_one_that_answers_nothing_is_ended_each_time():
    assert await looked_after(lambda: True, never, 80.0) == [35.0, 70.0]


@pytest.mark.parametrize("n_late", [1, 2])
async def test_an_answer_that_is_late_once_or_twice_is_no_end(n_late):
    late = iter([True] * n_late)

    async def answers():
        if next(late, False):
            await never()
        return True

    assert await looked_after(lambda: True, answers) == []
