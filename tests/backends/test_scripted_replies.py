"""Transports against replies written byte by byte."""

import asyncio
import contextlib
import re
import socket
import time
from contextlib import asynccontextmanager

import pytest

from backends import _transport
from backends._aiohttp_transport import AiohttpTransport
from backends._transport import Repeats, Reply
from backends.openai.transport import OpenaiTransport
from orchestrator.backend import Endpoint
from orchestrator.errors import UsageError
from orchestrator.records import Failure
from tests.backends.batching import until
from tests.whole import whole

HEAD = b"HTTP/1.1 200 OK\r\n"
PLAIN = HEAD + b"content-length: 2\r\n\r\nok"
CHUNKED = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;name=value\r\nabc\r\n4\r\ndefg\r\n0\r\nretry-after: 99\r\n\r\n"
)
# For replies that come, on a machine however busy.
LONG_S = 60.0
REQUEST = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


async def read_request(reader):
    """Head and body of one request; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    found = REQUEST.search(head)
    return head + await reader.readexactly(int(found[1]) if found else 0)


@pytest.fixture
def never_late(monkeypatch):
    """A connection that is closed at once has lain idle, however late a busy machine notices."""
    monkeypatch.setattr("backends._aiohttp_transport._RACE_S", 60.0)


class Script:
    """A server whose connections do what a list says: bytes are sent, None closes.

    Each request takes the next entry: a list of parts, sent one by one. The last entry repeats.
    """

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.connections = self.n_sent = 0
        self.open = set()
        self.stopped = asyncio.Event()

    async def serve(self, reader, writer):
        self.connections += 1
        self.open.add(writer)
        with contextlib.suppress(ConnectionError):
            await self.answer(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.open.discard(writer)

    async def answer(self, reader, writer):
        while (request := await read_request(reader)) is not None:
            self.requests.append(request)
            parts = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            for part in parts:
                if part is None:
                    return
                if isinstance(part, float):
                    await self.pause(part)
                    continue
                writer.write(part)
                await writer.drain()
                self.n_sent += 1
                await asyncio.sleep(0)

    async def pause(self, seconds):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopped.wait()


@asynccontextmanager
async def scripted(
    *answers,
    limit=4,
    keepalive_s=LONG_S,
    max_body_bytes=2**20,
    host="127.0.0.1",
    path="",
    kind=AiohttpTransport,
):
    script = Script(*answers)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    url = f"http://{host}:{server.sockets[0].getsockname()[1]}{path}"
    endpoint = Endpoint(base_url=url, model="m", api_key="sk-12345", max_in_flight=limit)
    settings = {} if kind is OpenaiTransport else {"keepalive_s": keepalive_s}
    transport = kind(endpoint, max_body_bytes=max_body_bytes, **settings)
    try:
        yield transport, script
    finally:
        await transport.close()
        server.close()
        script.stopped.set()
        while script.open:  # noqa: ASYNC110 (streams have no event for it)
            await asyncio.sleep(0.001)


async def answered(*parts, timeout_s=LONG_S, **options):
    async with scripted(list(parts), **options) as (transport, _):
        return await transport.post("/x", b"{}", timeout_s, whole)


async def test_the_request_holds_what_a_server_needs():
    async with scripted([PLAIN], path="/a b/v") as (transport, script):
        await transport.post("/chat", b'{"a":1}', LONG_S, whole)
        await transport.get("/models", LONG_S)
    post, get = script.requests
    assert post.startswith(b"POST /a%20b/v/chat HTTP/1.1\r\n")
    assert post.endswith(b'\r\n\r\n{"a":1}')
    assert get.startswith(b"GET /a%20b/v/models HTTP/1.1\r\n")
    for header in (b"Host: 127.0.0.1:", b"Authorization: Bearer sk-12345\r\n"):
        assert header in post
        assert header in get


async def test_one_connection_carries_many_requests():
    async with scripted([PLAIN]) as (transport, script):
        for _ in range(5):
            assert await transport.post("/x", b"{}", LONG_S, whole) == Reply(200, {}, b"ok")
        assert script.connections == 1


async def test_a_chunked_reply_is_put_together_and_its_trailers_change_nothing():
    assert await answered(CHUNKED) == Reply(429, {"retry-after": "7"}, b"abcdefg")


async def test_what_reading_raises_is_raised_where_it_was_asked_and_harms_no_other_request():
    def read(reply):
        raise ZeroDivisionError(reply.status)

    async with scripted([PLAIN]) as (transport, script):
        with pytest.raises(ZeroDivisionError, match="200"):
            await transport.post("/x", b"{}", 5.0, read)
        assert await transport.post("/x", b"{}", LONG_S, whole) == Reply(200, {}, b"ok")
        assert script.connections == 1


async def test_a_reply_of_unknown_length_ends_with_the_connection():
    outcome = await answered(b"HTTP/1.0 200 OK\r\n\r\n", b"all ", b"of it", None)
    assert outcome == Reply(200, {}, b"all of it")


async def test_an_interim_reply_is_not_the_reply():
    outcome = await answered(b"HTTP/1.1 100 Continue\r\n\r\n", PLAIN)
    assert outcome == Reply(200, {}, b"ok")


async def test_a_reply_without_a_body_is_whole():
    assert await answered(b"HTTP/1.1 204 No Content\r\n\r\n") == Reply(204, {}, b"")


@pytest.mark.parametrize(
    "parts",
    [
        [HEAD + b"content-length: 10\r\n\r\nabc", None],
        [HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nab", None],
        [b"HTTP/1.1 20", None],
        [b"not http at all\r\n\r\n"],
        [HEAD + b"content-length: 1x\r\n\r\na"],
        [HEAD + b"content-length: -5\r\n\r\na"],
        [HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\nabc"],
        [HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n"],
        [HEAD + b"x: " + b"y" * 70_000],
    ],
)
async def test_what_is_no_whole_reply_is_a_failure_of_the_moment(parts):
    async with scripted(parts) as (transport, script):
        outcome = await transport.post("/x", b"{}", LONG_S, whole)
        assert isinstance(outcome, Failure)
        assert (outcome.cause, outcome.permanent) == ("connection", False)
        # No words of the library: a status that nobody sent, the address, names of classes.
        assert not re.search(r"\b400\b|http://|Error", outcome.message), outcome.message
        # It had begun to answer: asking again might be paid for twice.
        assert len(script.requests) == 1


@pytest.mark.parametrize(
    "parts",
    [
        [HEAD + b"content-length: 101\r\n\r\n"],
        [HEAD + b"transfer-encoding: chunked\r\n\r\n65\r\n" + b"x" * 101],
        [b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 101],
    ],
)
async def test_a_body_over_the_limit_is_refused_as_soon_as_it_shows(parts):
    outcome = await answered(*parts, max_body_bytes=100)
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("unparseable", True)


@pytest.mark.parametrize("header", [b"content-encoding: gzip", b"transfer-encoding: gzip, chunked"])
async def test_a_compressed_reply_is_not_taken_for_text(header):
    outcome = await answered(HEAD + header + b"\r\ncontent-length: 2\r\n\r\nok")
    assert isinstance(outcome, Failure)
    assert outcome.cause in {"unparseable", "connection"}


async def test_a_connection_that_the_server_closes_is_not_used_again():
    closing = HEAD + b"connection: close\r\ncontent-length: 2\r\n\r\nok"
    async with scripted([closing]) as (transport, script):
        for _ in range(3):
            assert await transport.post("/x", b"{}", LONG_S, whole) == Reply(200, {}, b"ok")
        assert script.connections == 3


async def test_bytes_after_a_reply_are_nobodys_reply():
    stale = HEAD + b"content-length: 5\r\n\r\nstale"
    async with scripted([PLAIN + stale], [PLAIN]) as (transport, script):
        assert await transport.post("/x", b"{}", LONG_S, whole) == Reply(200, {}, b"ok")
        assert await transport.post("/x", b"{}", LONG_S, whole) == Reply(200, {}, b"ok")
        assert script.connections == 2


async def test_bytes_on_an_idle_connection_close_it():
    async with scripted([PLAIN, 0.02, PLAIN], [PLAIN]) as (transport, script):
        await transport.post("/x", b"{}", LONG_S, whole)
        await until(lambda: script.n_sent == 2)
        assert await transport.post("/x", b"{}", LONG_S, whole) == Reply(200, {}, b"ok")
        assert script.connections == 2


def numbered(number, text=b"x"):
    body = b'{"id": "%d", "text": "%s"}' % (number, text)
    return HEAD + b"content-length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize("kind", [AiohttpTransport, OpenaiTransport])
async def test_a_reply_that_comes_twice_becomes_no_other_requests(kind):
    """A late duplicate on a connection that is kept, and the replies behind it one too late."""
    first, second, third, again = (numbered(n) for n in (1, 2, 3, 4))
    answers = ([first], [second], [second, third], [again])
    async with scripted(*answers, limit=1, kind=kind) as (transport, script):
        found = [await transport.post("/x", b"[%d]" % n, 30.0, whole) for n in range(4)]
    assert [one.body[8:9] for one in found if isinstance(one, Reply)] == [b"1", b"2", b"4"]
    assert isinstance(found[2], Failure)
    assert (found[2].cause, found[2].permanent) == ("connection", False)
    assert script.connections == 2


async def test_equal_replies_are_taken_where_the_server_does_not_number_them():
    for body in (numbered(7), PLAIN):
        async with scripted([body]) as (transport, _):
            for n in range(3):
                assert isinstance(await transport.post("/x", b"[%d]" % n, LONG_S, whole), Reply)


async def test_the_same_request_may_be_answered_alike():
    """By a cache, where a request is sent again."""
    async with scripted([numbered(1)], [numbered(2)], [numbered(1)]) as (transport, _):
        for request in (b"[1]", b"[2]", b"[1]"):
            assert isinstance(await transport.post("/x", request, LONG_S, whole), Reply)


async def test_what_came_before_the_loop_looked_is_no_reply_to_what_is_sent_then():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        loop = asyncio.get_running_loop()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        transport = AiohttpTransport(Endpoint(base_url=url, model="m"))
        asked = asyncio.ensure_future(transport.post("/x", b"1", LONG_S, whole))
        first, _ = await loop.run_in_executor(None, listening.accept)
        with first:
            assert (await loop.run_in_executor(None, first.recv, 9999)).endswith(b"1")
            first.sendall(PLAIN)
            assert await asked == Reply(200, {}, b"ok")
            first.sendall(HEAD + b"content-length: 5\r\n\r\nstale")
            asked = asyncio.ensure_future(transport.post("/x", b"2", LONG_S, whole))
            second, _ = await loop.run_in_executor(None, listening.accept)
            with second:
                assert (await loop.run_in_executor(None, second.recv, 9999)).endswith(b"2")
                second.sendall(PLAIN)
                assert await asked == Reply(200, {}, b"ok")
            # Closed with what came unread.
            with pytest.raises(ConnectionResetError):
                first.recv(9999)
        await transport.close()


def test_a_few_names_in_the_place_of_numbers_are_no_repeats():
    """A gateway may write one `id` in all replies of each of its servers."""
    repeats = Repeats()
    names = [b"a", b"a", b"b", b"a", b"b", b"b", b"a"]
    replies = [b'{"id": "%b", "text": "A"}' % name for name in names]
    found = [repeats.is_repeat(b"%d" % n, reply) for n, reply in enumerate(replies)]
    assert not any(found)


@pytest.mark.usefixtures("never_late")
async def test_a_connection_closed_while_idle_is_replaced_without_a_failure():
    async with scripted([PLAIN, None], [PLAIN]) as (transport, script):
        await transport.post("/x", b"{}", LONG_S, whole)
        # In the same turn of the loop: the end of the connection has not been read yet.
        assert await transport.post("/x", b"{}", LONG_S, whole) == Reply(200, {}, b"ok")
        assert script.connections == 2


async def test_what_is_closed_while_it_is_answered_is_not_asked_again_unseen():
    """Another server may be there by then."""
    async with scripted([0.1, None], [PLAIN]) as (transport, script):
        outcome = await transport.post("/x", b"{}", LONG_S, whole)
        assert isinstance(outcome, Failure)
        assert (outcome.cause, outcome.permanent) == ("connection", False)
        assert len(script.requests) == 1


@pytest.mark.usefixtures("never_late")
async def test_after_a_restart_one_request_meets_one_closed_connection_at_most():
    async with scripted([0.02, PLAIN], limit=8) as (transport, script):
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(transport.post("/x", b"{}", LONG_S, whole))
        for writer in list(script.open):
            writer.transport.abort()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(transport.post("/x", b"{}", LONG_S, whole)) for _ in range(8)
            ]
        assert [task.result() for task in tasks] == [Reply(200, {}, b"ok")] * 8


async def test_an_idle_connection_is_closed_after_its_time():
    async with scripted([PLAIN], keepalive_s=0.05) as (transport, script):
        await transport.post("/x", b"{}", LONG_S, whole)
        await until(lambda: not script.open)
        assert await transport.post("/x", b"{}", LONG_S, whole) == Reply(200, {}, b"ok")


async def test_a_drip_of_bytes_does_not_move_the_deadline():
    # It goes on for a minute.
    drip = [part for byte in b"x" * 3000 for part in (bytes([byte]), 0.02)]
    head = HEAD + b"content-length: 3000\r\n\r\n"
    started = asyncio.get_running_loop().time()
    outcome = await answered(head, *drip, timeout_s=0.2)
    assert outcome == Failure("timeout", "no complete reply within 0.2 s")
    assert asyncio.get_running_loop().time() - started < 30


async def test_each_request_has_its_own_deadline():
    async with scripted([0.3, PLAIN]) as (transport, _):
        async with asyncio.TaskGroup() as group:
            patient = group.create_task(transport.post("/x", b"{}", LONG_S, whole))
            hasty = [group.create_task(transport.post("/x", b"{}", t, whole)) for t in (0.1, 0.05)]
        assert patient.result() == Reply(200, {}, b"ok")
        assert [task.result() for task in hasty] == [
            Failure("timeout", f"no complete reply within {t} s") for t in (0.1, 0.05)
        ]


async def test_waiting_for_a_free_connection_counts():
    async with scripted([0.5, PLAIN], limit=1) as (transport, _):
        async with asyncio.TaskGroup() as group:
            first = group.create_task(transport.post("/x", b"{}", LONG_S, whole))
            await asyncio.sleep(0.05)
            second = group.create_task(transport.post("/x", b"{}", 0.1, whole))
        assert isinstance(first.result(), Reply)
        assert second.result() == Failure("timeout", "no complete reply within 0.1 s")


async def test_load_is_asked_for_while_every_connection_is_taken():
    async with scripted([LONG_S, PLAIN], [PLAIN], limit=1) as (transport, script):
        post = asyncio.ensure_future(transport.post("/x", b"{}", LONG_S, whole))
        await until(lambda: script.requests)
        assert await transport.get("/metrics", LONG_S) == Reply(200, {}, b"ok")
        assert not post.done()
        script.stopped.set()
        assert await post == Reply(200, {}, b"ok")


async def test_the_reply_to_a_cancelled_request_reaches_nobody_else():
    first = HEAD + b"content-length: 5\r\n\r\nfirst"
    async with scripted([30.0, first], [PLAIN], limit=1) as (transport, script):
        task = asyncio.ensure_future(transport.post("/x", b"{}", LONG_S, whole))
        await until(lambda: script.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await transport.post("/x", b"{}", LONG_S, whole) == Reply(200, {}, b"ok")


async def test_an_answer_that_comes_before_the_request_was_read_is_taken():
    answered, ended = asyncio.Event(), asyncio.Event()

    async def refuse(reader, writer):
        await reader.read(100)
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await answered.wait()
        writer.transport.abort()
        ended.set()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    transport = AiohttpTransport(Endpoint(base_url=url, model="m"))
    outcome = await transport.post("/x", b"x" * 20_000_000, LONG_S, whole)
    answered.set()
    await ended.wait()
    await transport.close()
    server.close()
    assert outcome == Reply(413, {}, b"no")


async def test_closing_fails_what_is_in_flight_and_what_comes_later():
    async with scripted([LONG_S, PLAIN], limit=1) as (transport, script):
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(transport.post("/x", b"{}", LONG_S, whole)) for _ in range(2)
            ]
            await until(lambda: script.requests)
            await transport.close()
        for task in tasks:
            assert isinstance(task.result(), Failure)
            assert task.result().cause == "connection"


async def test_the_second_address_of_a_host_is_tried(monkeypatch):
    def resolved(host, port, *_, **__):
        assert host == "two.local"
        places = ("127.0.0.2", "127.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, port)) for place in places]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    async with scripted([PLAIN], host="two.local") as (transport, _):
        assert await transport.post("/x", b"{}", LONG_S, whole) == Reply(200, {}, b"ok")


async def test_a_late_event_loop_is_not_taken_for_a_server_that_is_out_of_reach(monkeypatch):
    monkeypatch.setattr(_transport, "CONNECT_TIMEOUT_S", 0.05)
    async with scripted([PLAIN]) as (transport, _):
        # The kernel connects while the loop is held, and the timer is due when it looks again.
        asyncio.get_running_loop().call_soon(time.sleep, 0.2)
        assert await transport.post("/x", b"{}", LONG_S, whole) == Reply(200, {}, b"ok")


async def test_a_server_that_takes_no_connection_is_out_of_reach(monkeypatch):
    monkeypatch.setattr(_transport, "CONNECT_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        # Nobody accepts: the first connection fills the queue, and the kernel drops what follows.
        host, port = full.getsockname()
        with socket.create_connection((host, port)):
            transport = AiohttpTransport(Endpoint(base_url=f"http://{host}:{port}", model="m"))
            outcome = await transport.post("/x", b"{}", LONG_S, whole)
            await transport.close()
    assert isinstance(outcome, Failure)
    assert outcome.cause == "unreachable"
    assert outcome.message.startswith("no connection within 0.2 s: ")
    assert f"{host}:{port}" in outcome.message


def test_a_name_that_no_host_can_have_is_refused():
    with pytest.raises(UsageError, match="must be a URL"):
        AiohttpTransport(Endpoint(base_url=f"http://{'a' * 70}.local", model="m"))
