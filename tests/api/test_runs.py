"""Runs from Python: in an event loop, cancelled, interrupted, and several at once."""

import asyncio
import json
import logging
import os
import signal
import threading
import time

import pytest

import orchestrator
from orchestrator import OrchestratorError, RecipeError, RunDirectoryError
from orchestrator.store import Store
from tests.api.made import recipe, slow


def n_outcomes(run):
    try:
        with Store.open(run / "store.sqlite", read_only=True) as store:
            return sum(counted.n for counted in store.counts())
    except OrchestratorError:
        return 0  # it is just beginning


async def until_answered(run, n=3):
    async with asyncio.timeout(60):
        while n_outcomes(run) < n:  # noqa: ASYNC110 (it is seen from outside only)
            await asyncio.sleep(0.02)


async def test_the_twins_do_the_same(tmp_path):
    made = recipe()
    assert await orchestrator.acheck(made) == orchestrator.check(made)
    planned = await orchestrator.aplan(made, run_dir=tmp_path / "run")
    assert planned == orchestrator.plan(made, run_dir=tmp_path / "run")
    assert planned.left == 32
    result = await orchestrator.arun(made, run_dir=tmp_path / "run")
    assert result.ok
    loaded = await orchestrator.aload(tmp_path / "run")
    assert loaded.frames["judgments"].equals(result.frames["judgments"])
    compared = await orchestrator.acompare(result, loaded)
    assert compared == orchestrator.compare(result, loaded)


async def test_the_loop_goes_on_while_a_run_does(tmp_path):
    beats = 0

    async def beat():
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    async with asyncio.TaskGroup() as group:
        beating = group.create_task(beat())
        await orchestrator.arun(recipe(), run_dir=tmp_path / "run")
        beating.cancel()
    assert beats > 10


async def test_an_error_comes_through(tmp_path):
    with pytest.raises(RecipeError, match="must be at least 1"):
        await orchestrator.arun(recipe(), run_dir=tmp_path / "run", limit=0)


async def test_cancelling_stops_softly_and_keeps_every_answer(tmp_path):
    run = tmp_path / "run"
    task = asyncio.ensure_future(orchestrator.arun(slow(), run_dir=run))
    await until_answered(run)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    kept = n_outcomes(run)
    assert kept >= 3
    left = orchestrator.load(run)
    assert 0 < left.n_left < left.completeness.total
    assert not left.ok
    planned = orchestrator.plan(slow(), run_dir=run)
    assert planned.left == 160 - kept


async def test_a_run_can_be_given_a_time_limit(tmp_path):
    run = tmp_path / "run"

    async def end_once_answered(limit):
        await until_answered(run)
        limit.reschedule(asyncio.get_running_loop().time())

    async def limited():
        async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
            group.create_task(end_once_answered(limit))
            await orchestrator.arun(slow(), run_dir=run)

    with pytest.raises(TimeoutError):
        await limited()
    assert orchestrator.load(run).n_left > 0


async def test_an_interrupt_in_a_notebook_stops_softly(tmp_path):
    # This test is a coroutine, so that a loop runs in the main thread, as in a notebook.
    run = tmp_path / "run"

    def interrupt():
        begun = time.monotonic()
        while n_outcomes(run) < 3 and time.monotonic() < begun + 60:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    sender = threading.Thread(target=interrupt)
    sender.start()
    result = orchestrator.run(slow(), run_dir=run)
    sender.join()
    assert result.ended is not None
    assert result.ended.interrupted
    assert ": interrupted, " in repr(result)
    assert result.n_left > 0
    assert n_outcomes(run) >= 3
    assert signal.getsignal(signal.SIGINT) is before


async def test_two_runs_at_once_have_their_own_numbers_and_logs(tmp_path):
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(orchestrator.arun(recipe(name=name), run_dir=tmp_path / name))
            for name in ("first", "second")
        ]
    first, second = (task.result() for task in tasks)
    assert first.ok
    assert second.ok
    assert first.frames["judgments"].equals(second.frames["judgments"])
    for name in ("first", "second"):
        lines = (tmp_path / name / "log.jsonl").read_text().splitlines()
        said = [json.loads(line)["message"] for line in lines]
        assert said.count("sending begins") == 1
        assert said.count("sending ended") == 1
    assert logging.getLogger("orchestrator").handlers == []


async def test_two_runs_at_once_in_one_directory_are_refused(tmp_path):
    run = tmp_path / "run"
    task = asyncio.ensure_future(orchestrator.arun(slow(), run_dir=run))
    await until_answered(run, 1)
    with pytest.raises(RunDirectoryError, match=str(run)):
        await orchestrator.arun(recipe(), run_dir=run)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_result_says_how_it_stands(tmp_path):
    result = orchestrator.run(recipe(), run_dir=tmp_path / "run")
    assert (result.ok, result.failed, result.n_left) == (True, 0, 0)
    assert repr(result) == f"<Result {str(tmp_path / 'run')!r}: 24 of 24 units, 0 failed>"
    assert "strong" in result.to_markdown()
    said = json.loads(result.to_json())
    assert (said["complete"], said["run"]["name"]) == (True, "made")
    assert said["rankings"]
    path = result.to_html(tmp_path / "there" / "report.html")
    assert path.read_text().startswith("<!doctype html>")
    assert result.to_html() == tmp_path / "run" / "report.html"
