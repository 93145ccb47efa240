"""A call whose loop is cancelled or stopped from inside ends with an error, never in silence."""

import asyncio

import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.runner.event_loop import CANCELLED, event_loop


def cancel_this_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def cancel_all_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()


@pytest.mark.parametrize("act", [cancel_this_task, cancel_all_tasks, stop_the_loop])
def test_code_that_ends_the_loop_is_said(act):
    async def work():
        act()
        await asyncio.sleep(1)
        return "done"

    with (
        pytest.raises(OrchestratorError, match=r"cancelled tasks of its event loop"),
        event_loop() as (to_end, _),
    ):
        to_end(work())
    assert "resume with the same command" in CANCELLED


def test_other_errors_pass():
    async def work():
        raise RuntimeError("own")

    with pytest.raises(RuntimeError, match="own"), event_loop() as (to_end, _):
        to_end(work())
