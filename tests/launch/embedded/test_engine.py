"""Requests join and leave, are dropped, refused, and never left unanswered."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from launch.embedded.engine import Engine, Settings
from launch.embedded.jobs import Answer, Draw, Forced, Job, Stop
from launch.embedded.protocol import ApiError, ClientGoneError
from launch.embedded.served import Served
from tests.launch.embedded.client import drawn, run, telling


def job(n_tokens: int, *, length: int = 9, key: int = 1) -> Job:
    ids = [10 + place % 200 for place in range(length)]
    answer = Answer(Draw(key=key), Stop(n_tokens))
    return Job(ids, length, answer=answer, reuse=length - 1)


def endless(started: threading.Event) -> Job:
    return telling(job(480), started.set)


def engine_of(served: Served, **limits: Any) -> Engine:
    engine = Engine(served.runner, served.tokens, Settings(max_len=512, **limits))
    engine.start()
    return engine


def test_a_short_request_ends_while_a_long_one_runs(bos: Served) -> None:
    started = threading.Event()
    long = endless(started)
    (ended,) = run(bos.engine, long, wait=False)
    assert started.wait(30)
    short = run(bos.engine, job(1), job(3))
    assert ended.wait(60)
    assert max(one.at for one in short) < ended.at
    assert len(drawn(long).ids) == 480


def test_a_judgment_passes_by_when_all_rows_are_taken(bos: Served) -> None:
    engine = engine_of(bos, max_rows=1)
    started = threading.Event()
    (ended,) = run(engine, endless(started), wait=False)
    assert started.wait(30)
    (queued,) = run(engine, job(5), wait=False)
    (judged,) = run(engine, job(1))
    engine.close()
    assert ended.wait(60)
    assert queued.wait(60)
    assert judged.at < min(ended.at, queued.at)


def test_a_dropped_request_frees_its_row(bos: Served) -> None:
    engine = engine_of(bos, max_rows=1)
    started, dropped = threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        dropped.wait(60)

    long = telling(job(480), hold)
    errors: list[Exception | None] = []
    long.on_done = errors.append
    engine.submit(long)
    assert started.wait(30)
    engine.cancel(long)
    dropped.set()
    run(engine, job(3))
    assert isinstance(errors[0], ClientGoneError)
    assert len(drawn(long).ids) < 480
    assert (engine.n_running, engine.n_waiting) == (0, 0)
    engine.close()


def test_requests_over_the_bound_are_refused(bos: Served) -> None:
    engine = Engine(bos.runner, bos.tokens, Settings(max_len=512, max_waiting=2))
    engine.submit(job(2), job(2))
    with pytest.raises(ApiError) as caught:
        engine.submit(job(2))
    assert caught.value.status == 503
    engine.start()
    engine.close()


def test_closing_answers_what_is_under_way(bos: Served) -> None:
    engine = engine_of(bos, max_rows=1)
    jobs = [job(400), job(400), job(1)]
    events = run(engine, *jobs, wait=False)
    engine.close()
    assert all(event.wait(60) for event in events)
    assert engine.n_running == 0


class Failing:
    """A reader that fails."""

    def __init__(self) -> None:
        self.places = [0]

    def read(self, first: int, logits: torch.Tensor) -> None:
        raise ValueError("broken")


def test_a_failing_step_fails_its_requests_and_the_engine_goes_on(
    bos: Served, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_of(bos)
    broken = job(3)
    broken.reader = Failing()
    with pytest.raises(ApiError) as caught:
        run(engine, broken)
    assert caught.value.status == 500
    assert "broken" in caplog.text
    run(engine, job(3))
    assert engine.totals["failed"] == 1
    engine.close()


def test_logits_that_are_no_numbers_fail_that_request_only(bos: Served) -> None:
    engine = engine_of(bos)
    poisoned = job(1)
    head, spoilt = bos.runner.logits, [True]

    def logits(states: torch.Tensor) -> torch.Tensor:
        found = head(states)
        if spoilt:
            spoilt.clear()
            found[0] = float("nan")
        return found

    bos.runner.logits = logits  # type: ignore[method-assign]
    try:
        with pytest.raises(ApiError, match="not numbers"):
            run(engine, poisoned)
    finally:
        del bos.runner.logits
    run(engine, job(2))
    engine.close()


def test_many_requests_of_all_kinds_leave_nothing_behind(bos: Served) -> None:
    engine = engine_of(bos, max_rows=8, prefill_tokens=64, prefix_bytes=1 << 20)
    jobs = []
    for place in range(60):
        found = job(1 + place % 7, length=3 + 5 * (place % 11), key=place)
        if place % 4 == 0:
            found.reader = Forced(list(range(found.n_prompt - 1)), list(found.ids[1:]))
            found.reuse = 0
        if place % 5 == 0:
            found.answer = None
        jobs.append(found)
    run(engine, *jobs)
    for found in jobs:
        assert found.answer is None or len(found.answer.ids) == found.answer.stop.max_tokens
        if isinstance(found.reader, Forced):
            assert len(found.reader.logprobs) == found.n_prompt - 1
    assert (engine.n_running, engine.n_waiting) == (0, 0)
    engine.close()


def test_prompts_that_begin_alike_compute_their_head_once(bos: Served) -> None:
    engine = engine_of(bos)
    jobs = [job(4, length=100, key=place) for place in range(6)]
    for place, one in enumerate(jobs):
        one.ids = [*one.ids[:70], *[20 + place] * 30]
    run(engine, *jobs)
    assert sorted(one.n_cached for one in jobs) == [0, 64, 64, 64, 64, 64]
    alone = job(4, length=100, key=3)
    alone.ids, alone.reuse = jobs[3].ids, 0
    run(engine, alone)
    assert drawn(alone).ids == drawn(jobs[3]).ids
    assert drawn(jobs[3]).logprobs == pytest.approx(drawn(alone).logprobs, abs=1e-4)
    engine.close()
