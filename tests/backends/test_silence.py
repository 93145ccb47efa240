"""A network that goes silent is told from a server that takes its time."""

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Any

import pytest
from aiohttp import web

from backends import _transport
from backends._aiohttp_transport import AiohttpTransport
from backends.openai.transport import OpenaiTransport
from orchestrator import contracts
from orchestrator.backend import BackendKind, Endpoint, answered
from orchestrator.records import Failure
from tests import apps
from tests.e2e.runs import stats
from tests.nodes import Node, nodes
from tests.whole import whole

CHAT = "/v1/chat/completions"
KINDS = (AiohttpTransport, OpenaiTransport)
# The bound is 30 s, from the last packet until somebody else may be asked.
NOTICED_S = 25.0
# What a busy machine adds.
BUSY_S = 20.0


def body(model="m", words="hi"):
    messages = [{"role": "user", "content": words}]
    return json.dumps({"model": model, "messages": messages, "max_tokens": 4}).encode()


async def ended(transport, request=None):
    """Return the outcome of a request, and its time."""
    outcome = await transport.post(CHAT, request or body(), 300.0, whole)
    return outcome, time.monotonic()


@pytest.fixture
def silent_node():
    """A node with a server whose model "slow" takes minutes, and "late" two seconds."""
    latencies = {"m": 0, "late": 2, "slow": 300}
    rules = [{"model": model, "latency_s": latency} for model, latency in latencies.items()]
    models = (word for model in latencies for word in ("--model", model))
    with nodes(1) as [node], node.serve(*models, "--rules", json.dumps(rules)) as server:
        yield node
        server.kill()


@pytest.mark.slow
@pytest.mark.namespaces
@pytest.mark.parametrize(
    "vanish", [Node.vanish, pytest.param(Node.vanish_unknown, marks=pytest.mark.long)]
)
async def test_a_silent_machine_is_noticed_by_every_transport(silent_node, vanish):
    """Both what it had acknowledged and what is sent on an open connection after it has gone."""
    transports = [kind(Endpoint(base_url=silent_node.url, model="m")) for kind in KINDS]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ended(one, body("slow"))) for one in transports]
        for one in transports:
            assert (await ended(one))[0].status == 200
        vanish(silent_node)
        gone_at = time.monotonic()
        tasks += [group.create_task(ended(one)) for one in transports]
    for outcome, at in (task.result() for task in tasks):
        assert isinstance(outcome, Failure), outcome
        assert (outcome.cause, outcome.permanent) == ("unreachable", False)
        assert at - gone_at < NOTICED_S + BUSY_S
    for one in transports:
        # Who asks now is told as soon as no connection can be made.
        since = time.monotonic()
        assert (await ended(one))[0].cause == "unreachable"
        assert time.monotonic() - since < _transport.CONNECT_TIMEOUT_S + BUSY_S
        await one.close()


@pytest.mark.slow
@pytest.mark.namespaces
async def test_a_machine_that_hears_nothing_is_noticed_by_every_transport(silent_node):
    """It sends its last reply for long, since no acknowledgement arrives, and no other packet."""
    transports = [kind(Endpoint(base_url=silent_node.url, model="m")) for kind in KINDS]
    async with asyncio.TaskGroup() as group:
        last = [group.create_task(ended(one, body("late"))) for one in transports]
        async with asyncio.timeout(60):
            while (await asyncio.to_thread(stats, silent_node.url))["total"] < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        silent_node.deafen()
    assert [task.result()[0].status for task in last] == [200] * len(KINDS)
    since = time.monotonic()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ended(one)) for one in transports]
    for outcome, at in (task.result() for task in tasks):
        assert isinstance(outcome, Failure), outcome
        assert outcome.cause == "unreachable"
        assert at - since < NOTICED_S + BUSY_S
    for one in transports:
        await one.close()


@pytest.fixture
def stopped_server():
    """The port of a server that accepts connections and runs no more, as its kernel does."""
    code = "import socket, sys, time; s = socket.socket(fileno=int(sys.argv[1])); time.sleep(99)"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        inherited = listening.fileno()
        argv = (sys.executable, "-c", code, str(inherited))
        with subprocess.Popen(argv, pass_fds=[inherited]) as process:
            os.kill(process.pid, signal.SIGSTOP)
            yield listening.getsockname()[1]
            process.kill()


@pytest.mark.slow
async def test_a_server_that_reads_nothing_for_long_is_not_taken_for_a_silent_one(stopped_server):
    """It has more of the request than fits its kernel's buffers, and its kernel acknowledges."""
    url = f"http://127.0.0.1:{stopped_server}"
    transport = AiohttpTransport(Endpoint(base_url=url, model="m"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ended(transport, body(words="x" * 2**22)))
        await asyncio.wait([task], timeout=_transport.SILENT_S + 10)
        assert not task.done()
        await transport.close()


def test_options_end_silent_connections_in_time():
    assert _transport.SILENT_S <= NOTICED_S
    assert _transport.UNREAD_S + _transport.INTERVAL_S <= NOTICED_S
    with socket.socket() as sock:
        _transport.set_options(sock, _transport.tcp_options(unread=True))
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == _transport.IDLE_S


class Deaf:
    """A socket that takes no options and tells nothing."""

    def setsockopt(self, level, option, value):
        raise OSError("not supported")

    def getsockopt(self, level, option, size):
        raise OSError("not supported")


def test_where_keepalive_cannot_be_set_it_is_said_once(caplog):
    _transport._warn_once.cache_clear()
    deaf: Any = Deaf()
    for _ in range(3):
        _transport.set_options(deaf, _transport.tcp_options())
    assert len(caplog.records) == 1
    assert "limits.timeout_s" in caplog.text
    assert not _transport.Watch().is_silent(deaf, 0.0)


class Unanswered:
    """A socket whose data was sent again, as Linux's `struct tcp_info` tells it.

    What still comes is counted: acknowledged bytes, segments, and those of them that carry data.
    """

    def __init__(self):
        self.acknowledged, self.segments, self.with_data = 300, 5, 2

    def getsockopt(self, level, option, size):
        info = bytearray(size)
        info[2] = 3
        struct.pack_into("=I", info, 56, 40)
        struct.pack_into("=Q", info, 120, self.acknowledged)
        struct.pack_into("=I", info, 140, self.segments)
        struct.pack_into("=I", info, 152, self.with_data)
        return bytes(info)


def silent_at(sock, heard):
    """Return when the connection is found silent, in seconds; None if it is not in two minutes.

    Args:
        sock: Its socket.
        heard: Called before each look with its number.
    """
    watch = _transport.Watch()
    for number in range(1, 25):
        heard(number)
        if watch.is_silent(sock, 5.0 * number):
            return 5.0 * number
    return None


def test_who_sends_and_acknowledges_nothing_is_silent():
    sock = Unanswered()

    def heard(_):
        sock.segments += 1
        sock.with_data += 1

    assert silent_at(sock, heard) == 20.0


def test_who_acknowledges_without_taking_more_is_not_silent():
    """As a kernel does whose program reads nothing."""
    sock = Unanswered()

    def heard(number):
        sock.segments += number % 2

    assert silent_at(sock, heard) is None


def test_who_acknowledges_a_part_with_data_of_its_own_is_not_silent():
    sock = Unanswered()

    def heard(number):
        sock.acknowledged += number % 2
        sock.segments += number % 2
        sock.with_data += number % 2

    assert silent_at(sock, heard) is None


def test_a_kernel_that_counts_no_segments_is_asked_for_the_last_acknowledgement_alone():
    class Old(Unanswered):
        def getsockopt(self, level, option, size):
            return super().getsockopt(level, option, size)[:104]

    assert silent_at(Old(), lambda _: None) is None


def test_segments_are_counted_where_the_kernel_has_them():
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as sock,
    ):
        other, _ = listening.accept()
        with other:
            sock.sendall(b"question")
            assert other.recv(99) == b"question"
            other.sendall(b"answer")
            assert sock.recv(99) == b"answer"
            found = _transport._RECEIVED.unpack(_transport._info_of(sock))
    n_bytes, n_segments, n_with_data = found
    # The handshake counts for a byte.
    assert (n_bytes, n_with_data) == (len(b"question") + 1, 1)
    assert n_segments > n_with_data


def test_a_connection_that_was_just_made_is_not_silent():
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as sock,
    ):
        assert not _transport.Watch().is_silent(sock, 0.0)


@pytest.mark.parametrize("answered_paths", [(), ("/v1/models",)])
@pytest.mark.parametrize("kind", ["vllm", "sglang", "tgi", "llamacpp", "embedded"])
async def test_a_server_that_breaks_off_is_a_failure_wherever_it_does(kind, answered_paths):
    async def reply(request):
        if request.path in answered_paths:
            return web.json_response({"object": "list", "data": [{"id": "m"}]})
        request.transport.close()
        raise ConnectionResetError

    of_kind = contracts.load(BackendKind, kind)
    async with apps.answering(reply) as url:
        backend = of_kind(of_kind.Config()).connect(Endpoint(base_url=url, model="m"))
        found = await answered(backend.provenance())
        await backend.close()
    assert isinstance(found, Failure)
    assert found.cause == "connection"
