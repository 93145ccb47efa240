"""Batches at endpoints that say odd things, or fail for a while: nothing is paid twice."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from backends.openai import batch
from backends.openai.batch_files import Folder, Replies, Work
from orchestrator.records import SERVER, Failure
from tests.backends.batching import (
    answers,
    asks,
    begin,
    connect,
    connected,
    killed_at,
    until,
)


@asynccontextmanager
async def left_behind(url: str, server, folder: Path, point: str, n: int = 2):
    """A call that was killed at a point, and another one."""
    first = connect(url, folder)
    await killed_at(point, server, first, asks(n))
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
        async with asyncio.timeout(60):
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
    backend = connect(url, tmp_path, query={"api-version": "1"})
    await killed_at("batches", server, backend, asks(2))
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
    async with connected(url, tmp_path) as backend, asyncio.timeout(60):
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
    async with connected(url, tmp_path) as backend, asyncio.timeout(60):
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
    async with connected(url, tmp_path) as backend, asyncio.timeout(60):
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
        async with asyncio.timeout(60):
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
        async with asyncio.timeout(60):
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
    work = Work(id="x", status="completed", output_file_id="file")
    replies = Replies(["a"], work.lacking)
    assert await replies.read(Lines(stranger, "{", "null", said), work) is None
    assert isinstance(replies.take("b", ""), Failure)
    found = replies.take("a", "")
    replies.close()
    assert found.status == status
    assert message in (found.message if isinstance(found, Failure) else found.body.decode())
