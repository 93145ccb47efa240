"""Requests in batches: each is answered as it would be by itself, once, however a call ends."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import openai
from backends.openai import batch
from backends.openai.batch_files import Folder, Replies, Work
from orchestrator.ask import ChooseAsk, GenerateAsk, Request
from orchestrator.backend import LOCAL, Batch, Endpoint, SharesOut
from orchestrator.errors import RunDirectoryError
from orchestrator.records import SERVER, Choice, Failure, Generation, Message, Sampling, labels
from tests.backends.kinds import kind_in
from tests.fake.batches import WINDOW_S, serving_batches
from tests.fake.main import serving

KEY = "sk-of-this-endpoint"
QUICK = Batch(wait_s=0.02, poll_s=0.005)
LABELS = labels("A", "B")


def asks(n: int) -> list[GenerateAsk | ChooseAsk]:
    """Requests of both kinds, two of which are equal but for their keys."""
    texts = [f"Question {i // 2 if i < 2 else i}?" for i in range(n)]
    return [
        ChooseAsk("m", (Message("user", text),), LABELS)
        if i % 3 == 2
        else GenerateAsk("m", (Message("user", text),), Sampling(max_tokens=5))
        for i, text in enumerate(texts)
    ]


def connect(url: str, folder: Path, batch: Batch | None = QUICK, **fields):
    kind = kind_in(openai)
    endpoint = Endpoint(
        base_url=url,
        model="m",
        api_key=KEY,
        batch=batch,
        kept_in=str(folder),
        timeout_s=5,
        **fields,
    )
    return kind(kind.Config()).connect(endpoint)


async def answer(backend, i: int, ask):
    request = Request(i.to_bytes(16, "big"), "generate", ask, i, i, 0, [], 0)
    asked = backend.for_request(request) if isinstance(backend, SharesOut) else backend
    return await (asked.choose(ask) if isinstance(ask, ChooseAsk) else asked.generate(ask, i))


async def answers(backend, asked, which=None):
    """The outcomes of requests that are asked together."""
    chosen = range(len(asked)) if which is None else which
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(answer(backend, i, asked[i])) for i in chosen]
    return [task.result() for task in tasks]


def told(outcome) -> object:
    """What an outcome says, without its arrays."""
    if isinstance(outcome, Generation):
        return outcome.text, repr(outcome.logprobs)
    return repr(outcome)  # nan equals nothing


def begin(work):
    """A task that its test ends."""
    return asyncio.get_running_loop().create_task(work)


async def until(is_so) -> None:
    """Wait for what is seen from outside only."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def one_by_one(url: str, folder: Path, asked) -> list[object]:
    backend = connect(url, folder, None)
    try:
        return [told(await answer(backend, i, ask)) for i, ask in enumerate(asked)]
    finally:
        await backend.close()


@asynccontextmanager
async def connected(url: str, folder: Path, batch: Batch | None = QUICK):
    backend = connect(url, folder, batch)
    try:
        yield backend
    finally:
        await backend.close()


@pytest.fixture
async def endpoint():
    async with serving_batches("m", key=KEY) as (url, server):
        yield url, server


@pytest.mark.parametrize("most", [2, 5, 50])
async def test_answers_are_those_of_single_requests(endpoint, tmp_path, most):
    url, server = endpoint
    asked = asks(12)
    async with connected(url, tmp_path, QUICK.model_copy(update={"most": most})) as backend:
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
    server.holds = point
    first = connect(url, tmp_path)
    killed = begin(answers(first, asked))
    async with asyncio.timeout(10):
        await server.held.wait()
    server.holds = ""
    killed.cancel()
    await asyncio.wait([killed])
    await first.close()
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
    server.holds = "batches"
    first = connect(url, tmp_path)
    killed = begin(answers(first, asks(2)))
    async with asyncio.timeout(10):
        await server.held.wait()
    server.holds = ""
    killed.cancel()
    await asyncio.wait([killed])
    await first.close()
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
    async with asyncio.timeout(10):
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


@asynccontextmanager
async def left_behind(url: str, server, folder: Path, point: str, n: int = 2):
    """A call that was killed at a point, and another one."""
    server.holds = point
    first = connect(url, folder)
    killed = begin(answers(first, asks(n)))
    async with asyncio.timeout(10):
        await server.held.wait()
    server.holds = ""
    killed.cancel()
    await asyncio.wait([killed])
    await first.close()
    async with connected(url, folder) as second:
        yield second


def answering(server, change) -> None:
    """Have `change` see each request for files and batches, and what is answered to it."""
    plain = server._route

    def route(request, parts, query):
        return change(request.method, parts, *plain(request, parts, query))

    server._route = route


async def test_a_status_that_nobody_knows_is_no_end(endpoint, tmp_path):
    url, server = endpoint
    server.per_look = 1
    server.after_work = lambda: [one.update(status="paused") for one in server.batches.values()]
    async with connected(url, tmp_path) as backend:
        asking = begin(answers(backend, asks(3)))
        await until(lambda: server.worked_on)
        await asyncio.sleep(0.1)
        server.after_work = lambda: None
        next(iter(server.batches.values()))["status"] = "in_progress"
        found = await asking
    assert not any(isinstance(one, Failure) for one in found)
    assert len(server.batches) == 1


@pytest.mark.parametrize("lists", ["no has_more", "no time", "other people's"])
async def test_a_batch_is_found_in_any_list(endpoint, tmp_path, lists):
    url, server = endpoint

    def change(method, parts, status, said):
        if (method, parts) != ("GET", ["batches"]):
            return status, said
        said["data"] = [dict(one) for one in said["data"]]
        if lists == "no has_more":
            del said["has_more"]
        for one in said["data"]:
            if lists == "no time":
                del one["created_at"]
            elif lists == "other people's" and one["metadata"] is None:
                one |= {"metadata": {"n": 1}, "request_counts": {"completed": None}, "errors": 3}
        return status, said

    answering(server, change)
    async with left_behind(url, server, tmp_path, "batches") as second:
        ours = next(iter(server.batches.values()))
        for i in range(250):
            server.batches[f"other{i}"] = {**ours, "id": f"other{i}", "metadata": None}
        await answers(second, asks(2))
    assert set(server.worked_on.values()) == {1}
    assert len(server.batches) == 251


async def test_a_list_that_goes_round_ends(endpoint, tmp_path):
    url, server = endpoint
    answering(server, lambda method, parts, status, said: (
        (status, said | {"has_more": True}) if (method, parts) == ("GET", ["batches"])
        else (status, said)
    ))  # fmt: skip
    plain = server._list
    server._list = lambda query: plain({})
    async with left_behind(url, server, tmp_path, "before batches") as second:
        server.batches["other"] = {"id": "other", "status": "completed", "metadata": None}
        async with asyncio.timeout(10):
            found = await answers(second, asks(2))
    assert not any(isinstance(one, Failure) for one in found)


async def test_a_query_goes_along_with_every_page(endpoint, tmp_path):
    url, server = endpoint
    queries = []
    plain = server._list

    def listed(query):
        queries.append(query)
        return plain(query)

    server._list = listed
    server.holds = "batches"
    backend = connect(url, tmp_path, query={"api-version": "1"})
    killed = begin(answers(backend, asks(2)))
    async with asyncio.timeout(10):
        await server.held.wait()
    server.holds = ""
    killed.cancel()
    await asyncio.wait([killed])
    await backend.close()
    backend = connect(url, tmp_path, query={"api-version": "1"})
    await answers(backend, asks(2))
    await backend.close()
    assert queries == [{"limit": "100", "api-version": "1"}]


@pytest.mark.parametrize("line", [0, 9, None])
async def test_a_refusal_that_blames_no_line_of_the_file_is_one_of_all(endpoint, tmp_path, line):
    url, server = endpoint

    def change(method, parts, status, said):
        if method == "GET" and parts[0] == "batches":
            fault = {"code": "x", "message": "no such thing", "line": line}
            said = said | {"status": "failed", "errors": {"data": [fault]}}
        return status, said

    answering(server, change)
    async with connected(url, tmp_path) as backend, asyncio.timeout(10):
        found = await answers(backend, asks(2))
    assert all("no such thing" in one.message for one in found)
    assert len(server.batches) == 1


@pytest.mark.parametrize("how", ["unauthorised", "html"])
@pytest.mark.parametrize("step", ["look", "content"])
async def test_replies_that_can_t_be_had_for_a_while_are_not_paid_again(
    endpoint, tmp_path, monkeypatch, step, how
):
    url, server = endpoint
    monkeypatch.setattr(batch, "_PATIENCE_S", 0.05)
    is_away = True

    def change(method, parts, status, said):
        is_look = method == "GET" and (parts[0] == "batches") == (step == "look")
        if not (is_look and is_away):
            return status, said
        return (401, {"error": {"message": "no"}}) if how == "unauthorised" else (502, b"<html>")

    answering(server, change)
    async with connected(url, tmp_path) as backend, asyncio.timeout(10):
        found = await answers(backend, asks(3))
        assert all(isinstance(one, Failure) and not one.retriable for one in found)
        is_away = False
        found = await answers(backend, asks(3))
    assert not any(isinstance(one, Failure) for one in found), found
    assert len(server.batches) == 1


@pytest.mark.parametrize("said", [{"object": "file"}, {"id": 7}, [], b"<html>", b"\xff"])
async def test_an_upload_without_an_id_is_a_failure(endpoint, tmp_path, monkeypatch, said):
    url, server = endpoint
    monkeypatch.setattr(batch, "_PATIENCE_S", 0.05)
    answering(server, lambda _, parts, status, found: (
        (200, said) if parts == ["files"] else (status, found)
    ))  # fmt: skip
    async with connected(url, tmp_path) as backend, asyncio.timeout(10):
        found = await answers(backend, asks(2))
    assert all(isinstance(one, Failure) and one.scope == SERVER for one in found)


async def test_what_was_made_may_be_said_to_be_created(endpoint, tmp_path):
    url, server = endpoint
    answering(server, lambda method, _, status, said: (201 if method == "POST" else status, said))
    async with connected(url, tmp_path) as backend:
        found = await answers(backend, asks(2))
    assert not any(isinstance(one, Failure) for one in found)
    assert len(server.batches) == 1


async def test_a_request_that_was_refused_is_asked_anew_by_a_later_call(endpoint, tmp_path):
    url, server = endpoint
    plain = server._response
    server._response = lambda _: {"status_code": 403, "body": {"error": {"message": "no"}}}
    async with connected(url, tmp_path) as backend:
        assert all(isinstance(one, Failure) for one in await answers(backend, asks(2)))
    server._response = plain
    async with connected(url, tmp_path) as backend:
        assert all(one.retriable for one in await answers(backend, asks(2)))
        found = await answers(backend, asks(2))
    assert not any(isinstance(one, Failure) for one in found)


async def test_files_are_bounded_by_their_bytes(endpoint, tmp_path, monkeypatch):
    url, server = endpoint
    monkeypatch.setattr(batch, "_MOST_BYTES", 500)
    async with connected(url, tmp_path) as backend:
        found = await answers(backend, asks(8))
    assert not any(isinstance(one, Failure) for one in found)
    assert len(server.batches) > 2


async def test_all_who_wait_for_earlier_batches_are_told_at_once(endpoint, tmp_path, monkeypatch):
    url, server = endpoint
    monkeypatch.setattr(batch, "_PATIENCE_S", 0.3)
    async with left_behind(url, server, tmp_path, "batches") as second:
        answering(server, lambda method, parts, status, said: (
            (500, b"") if (method, parts) == ("GET", ["batches"]) else (status, said)
        ))  # fmt: skip
        async with asyncio.timeout(3):
            found = await answers(second, asks(12))
    assert all(isinstance(one, Failure) and one.scope == SERVER for one in found)
    assert len(server.batches) == 1


async def test_a_batch_that_can_t_be_cancelled_is_not_waited_for(endpoint, tmp_path, monkeypatch):
    url, server = endpoint
    server.per_look = 0
    monkeypatch.setattr(batch, "_PATIENCE_S", 0.05)
    answering(server, lambda _, parts, status, said: (
        (500, b"") if parts[-1] == "cancel" else (status, said)
    ))  # fmt: skip
    async with connected(url, tmp_path) as backend:
        asking = begin(answers(backend, asks(2)))
        await until(lambda: any(one["status"] == "in_progress" for one in server.batches.values()))
        async with asyncio.timeout(5):
            await backend.withdraw()
        asking.cancel()
        await asyncio.wait([asking])


async def test_routes_right_behind_the_address_are_known_to_a_later_call(endpoint, tmp_path):
    url, server = endpoint
    plain = server._handle

    def handle(request):
        path = request.path.removeprefix("/api")
        under = "/lacks" if path.startswith("/v1/") else "/v1"
        return plain(msgspec.structs.replace(request, path=under + path))

    server._handle = handle
    async with left_behind(f"{url}/api", server, tmp_path, "content", 3) as second:
        found = await answers(second, asks(3))
    assert not any(isinstance(one, Failure) for one in found), found
    assert set(server.worked_on.values()) == {1}


class Lines(Folder):
    """An exchange that has one file of replies."""

    def __init__(self, *lines: str) -> None:
        super().__init__(Path())
        self.content = "\n".join(lines).encode() + b"\n"

    async def fetch(self, source, into) -> None:
        into.write(self.content)


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ('"response": {"status_code": "200", "body": {}}', 200, ""),
        # As vLLM's run-batch writes what it refuses.
        (
            '"response": {"status_code": 400}, "error": {"error": {"message": "too long"}}',
            400,
            "too",
        ),
        ('"response": {"status_code": 400, "body": null}, "error": "too long"', 400, "too long"),
        ('"response": null, "error": "too long"', 0, "too long"),
        ('"response": null, "error": {"code": 3}', 0, "no reply"),
        ('"response": {"status_code": 503, "body": "busy"}', 0, "busy"),
        ('"response": []', 0, "without a reply"),
    ],
)
async def test_lines_of_replies_are_read_in_any_form(line, status, message):
    said = f'{{"custom_id": "a", {line}}}'
    stranger = '{"custom_id": "b", "response": {"status_code": 200, "body": {}}}'
    replies = Replies(["a"], Work(id="x", status="completed").lacking)
    assert await replies.read(Lines(stranger, "{", "null", said), ["file"]) is None
    assert isinstance(replies.take("b", ""), Failure)
    found = replies.take("a", "")
    replies.close()
    assert found.status == status
    assert message in (found.message if isinstance(found, Failure) else found.body.decode())
