"""Requests in batches: each is answered as it would be by itself, once, however a call ends."""

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.backend import LOCAL, Batch
from orchestrator.errors import RunDirectoryError
from orchestrator.records import SERVER, Choice, Failure, Generation
from tests.backends.batching import (
    KEY,
    QUICK,
    answer,
    answers,
    asks,
    begin,
    connect,
    connected,
    killed_at,
    one_by_one,
    told,
    until,
)
from tests.fake.batches import WINDOW_S, serving_batches
from tests.fake.main import serving


@pytest.mark.parametrize("most", [2, 5, 50])
async def test_answers_are_those_of_single_requests(endpoint, tmp_path, most):
    url, server = endpoint
    asked = asks(12)
    # Full files are sent at once; others wait for more requests.
    settings = {"most": most, "wait_s": 600 if 12 % most == 0 else QUICK.wait_s}
    async with connected(url, tmp_path, QUICK.model_copy(update=settings)) as backend:
        found = await answers(backend, asked)
    assert list(map(told, found)) == await one_by_one(url, tmp_path, asked)
    assert len(server.batches) == -(-12 // most)
    assert set(server.worked_on.values()) == {1}
    assert len(server.worked_on) == 12


@given(
    n=st.integers(1, 9),
    lost=st.sets(st.integers(0, 8)),
    broken=st.sets(st.integers(0, 8)),
    expires_after=st.none() | st.integers(0, 8),
    most=st.integers(1, 9),
)
async def test_no_reply_is_another_request_s_and_none_is_waited_for_in_vain(
    n, lost, broken, expires_after, most
):
    asked = asks(n)
    with TemporaryDirectory() as folder:
        async with serving_batches("m", key=KEY) as (url, server):
            right = await one_by_one(url, Path(folder), asked)

            def drops(line) -> bool:
                return any(f"Question {i}?" in json.dumps(line["body"]) for i in lost)

            server.drops = drops
            plain = server.answer_line

            def spoilt(batch, line):
                if any(f"Question {i}?" in json.dumps(line["body"]) for i in broken):
                    server.reply(batch, line, {"status_code": 500, "body": {"error": "broken"}})
                else:
                    plain(batch, line)

            server.answer_line = spoilt  # type: ignore[method-assign]
            if expires_after is not None:
                server.per_look = max(1, expires_after)
                server.after_work = lambda: setattr(server, "clock", server.clock + WINDOW_S)
            settings = QUICK.model_copy(update={"most": most})
            async with connected(url, Path(folder), settings) as backend:
                found = await answers(backend, asked)
    for i, (outcome, known) in enumerate(zip(found, right, strict=True)):
        if isinstance(outcome, Failure):
            assert outcome.retriable
            assert outcome.cause in {"server_error", "timeout"}
            assert i < 2 or i in lost | broken or expires_after is not None
        else:
            assert told(outcome) == known


POINTS = ("before files", "files", "batches", "look", "content")


@pytest.mark.parametrize("point", POINTS)
async def test_a_call_that_is_killed_pays_nothing_twice(endpoint, tmp_path, point):
    url, server = endpoint
    asked = asks(6)
    first = connect(url, tmp_path)
    await killed_at(point, server, first, asked)
    async with connected(url, tmp_path) as second:
        # Some are asked before, some after the batch has been read.
        found = [
            *await answers(second, asked, range(2)),
            *await answers(second, asked, range(2, 6)),
        ]
    assert list(map(told, found)) == await one_by_one(url, tmp_path, asked)
    assert set(server.worked_on.values()) == {1}, server.worked_on
    assert len(server.worked_on) == 6


@pytest.mark.parametrize("step", ["files", "batches", "look", "content"])
async def test_a_reply_that_is_lost_on_its_way_pays_nothing_twice(endpoint, tmp_path, step):
    url, server = endpoint
    server.breaks = [step]
    async with connected(url, tmp_path) as backend:
        found = await answers(backend, asks(4))
    assert not any(isinstance(one, Failure) for one in found), found
    assert set(server.worked_on.values()) == {1}
    assert len(server.batches) == 1


async def test_a_batch_is_found_behind_pages_of_others(endpoint, tmp_path):
    url, server = endpoint
    first = connect(url, tmp_path)
    await killed_at("batches", server, first, asks(2))
    ours = next(iter(server.batches.values()))
    for i in range(250):
        server.batches[f"other{i}"] = {**ours, "id": f"other{i}", "metadata": None}
    async with connected(url, tmp_path) as second:
        await answers(second, asks(2))
    assert set(server.worked_on.values()) == {1}


async def test_what_failed_in_a_batch_is_asked_in_another(endpoint, tmp_path):
    url, server = endpoint
    server.drops = lambda _: len(server.batches) == 1
    asked = asks(3)
    async with connected(url, tmp_path) as backend:
        assert all(isinstance(one, Failure) for one in await answers(backend, asked))
        found = await answers(backend, asked)
    right = await one_by_one(url, tmp_path, asked)
    assert list(map(told, found)) == right
    # A further call reads the newest batch, and sends none.
    async with connected(url, tmp_path) as backend:
        assert list(map(told, await answers(backend, asked))) == right
    assert len(server.batches) == 2


async def test_files_become_smaller_where_few_may_wait(endpoint, tmp_path):
    url, server = endpoint
    server.most_waiting = 3
    asked = asks(10)
    async with connected(url, tmp_path) as backend:
        found = await answers(backend, asked)
    assert list(map(told, found)) == await one_by_one(url, tmp_path, asked)
    assert set(server.worked_on.values()) == {1}


async def test_a_line_that_is_refused_takes_no_other_along(endpoint, tmp_path):
    url, server = endpoint
    server.refuses = lambda line: "Question 3?" in json.dumps(line["body"])
    asked = asks(6)
    async with connected(url, tmp_path) as backend:
        found = await answers(backend, asked)
    assert [i for i, one in enumerate(found) if isinstance(one, Failure)] == [3]
    assert found[3].permanent
    assert "refused" in found[3].message


async def test_withdrawing_cancels_and_reads_what_was_answered(endpoint, tmp_path):
    url, server = endpoint
    server.per_look = 1
    asked = asks(5)
    backend = connect(url, tmp_path, Batch(wait_s=0.02, poll_s=0.05))
    asking = [begin(answer(backend, i, ask)) for i, ask in enumerate(asked)]
    await until(lambda: server.worked_on)
    async with asyncio.timeout(60):
        await backend.withdraw()
    await asyncio.sleep(0)
    done = [task for task in asking if task.done()]
    assert len(done) == len(server.worked_on) < 5
    assert all(isinstance(task.result(), Generation | Choice) for task in done)
    assert {batch["status"] for batch in server.batches.values()} == {"cancelled"}
    for task in asking:
        task.cancel()
    await asyncio.wait(asking)
    await backend.close()


async def test_a_batch_that_somebody_else_cancelled_is_not_sent_again(endpoint, tmp_path):
    url, server = endpoint
    server.per_look = 1
    server.after_work = lambda: [one.update(status="cancelling") for one in server.batches.values()]
    async with connected(url, tmp_path) as backend:
        found = await answers(backend, asks(4))
    failed = [one for one in found if isinstance(one, Failure)]
    assert failed
    assert not any(one.retriable or one.permanent for one in failed)
    assert len(server.batches) == 1


async def test_an_endpoint_without_batches_is_said_to_have_none(tmp_path):
    async with serving(models=["m"], key=KEY) as (url, _), connected(url, tmp_path) as backend:
        found = await answers(backend, asks(2))
    for one in found:
        assert one.scope == SERVER
        assert "no batches are taken" in one.message


async def test_what_is_no_request_of_a_run_is_asked_at_once(endpoint, tmp_path):
    url, server = endpoint
    async with connected(url, tmp_path) as backend:
        ask = asks(1)[0]
        assert isinstance(await backend.generate(ask, 1), Generation)
        await answer(backend, 1, ask)
        # In the same task: the key of the request before is forgotten.
        assert isinstance(await backend.generate(ask, 2), Generation)
    assert len(server.worked_on) == 1


async def test_neither_key_nor_texts_are_kept_in_the_ledger(endpoint, tmp_path):
    url, _ = endpoint
    async with connected(url, tmp_path) as backend:
        await answers(backend, asks(2))
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*.json"))
    assert kept
    assert b"Question" not in kept
    assert KEY.encode() not in kept


@pytest.mark.parametrize("is_killed", [False, True])
async def test_files_are_answered_by_somebody_else_in_a_folder(tmp_path, is_killed):
    folder = tmp_path / "requests"
    batch = QUICK.model_copy(update={"folder": str(folder)})
    asked = asks(5)
    async with serving_batches("m") as (url, server):

        async def work() -> None:
            """Write replies in two pieces, the first of which ends within a line."""
            await until(lambda: any(folder.glob("*.jsonl")))
            (written,) = folder.glob("*.jsonl")
            lines = written.read_text().splitlines()
            whole = b"".join(server.line(json.loads(line)) for line in reversed(lines))
            target = written.with_suffix(".replies.jsonl")
            for piece in (whole[: len(whole) // 2], whole[len(whole) // 2 :]):
                with target.open("ab") as file:
                    file.write(piece)
                await asyncio.sleep(0.05)

        if is_killed:
            first = connect(LOCAL, tmp_path, batch)
            killed = begin(answers(first, asked))
            await until(lambda: any(folder.glob("*.jsonl")))
            killed.cancel()
            await asyncio.wait([killed])
            await first.close()
        async with connected(LOCAL, tmp_path, batch) as backend, asyncio.TaskGroup() as group:
            group.create_task(work())
            found = await answers(backend, asked)
        assert not isinstance(await backend.provenance(), Failure)
        assert list(map(told, found)) == await one_by_one(url, tmp_path, asked)
    assert len(list(folder.glob("*.replies.jsonl"))) == 1


async def test_a_disk_that_takes_no_entry_ends_all_that_wait(endpoint, tmp_path):
    url, server = endpoint
    (tmp_path / "file").write_text("in the way")
    async with connected(url, tmp_path / "file") as backend:
        found = await asyncio.gather(  # noqa: TID251 (all of them fail)
            *(answer(backend, i, ask) for i, ask in enumerate(asks(3))), return_exceptions=True
        )
    assert all(isinstance(one, RunDirectoryError) for one in found)
    assert not server.batches
