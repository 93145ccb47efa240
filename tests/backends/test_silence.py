"""A network that goes silent is told from a server that takes its time."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from backends import _silence
from backends._aiohttp_transport import AiohttpTransport
from backends._direct_transport import DirectTransport
from backends._openai_transport import OpenaiTransport
from backends._transport import whole
from orchestrator.backend import Endpoint
from orchestrator.records import Failure
from tests.nodes import nodes

CHAT = "/v1/chat/completions"
KINDS = (DirectTransport, AiohttpTransport, OpenaiTransport)
# The bound is 30 s, from the last packet until somebody else may be asked.
NOTICED_S = 25.0


def body(model="m", words="hi"):
    messages = [{"role": "user", "content": words}]
    return json.dumps({"model": model, "messages": messages, "max_tokens": 4}).encode()


async def ended(transport, request=None):
    """Return the outcome of a request, and its time."""
    outcome = await transport.post(CHAT, request or body(), 300.0, whole)
    return outcome, time.monotonic()


@pytest.fixture
def silent_node():
    """A node with a server whose model "slow" takes minutes."""
    with nodes(1) as [node]:
        rules = json.dumps([{"model": "slow", "latency_s": 300}])
        with node.serve("--model", "m", "--model", "slow", "--rules", rules) as server:
            yield node
            server.kill()


@pytest.mark.slow
@pytest.mark.namespaces
async def test_a_silent_machine_is_noticed_by_every_transport(silent_node):
    """Both what it had acknowledged and what is sent on an open connection after it has gone."""
    transports = [kind(Endpoint(base_url=silent_node.url, model="m")) for kind in KINDS]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ended(one, body("slow"))) for one in transports]
        for one in transports:
            assert (await ended(one))[0].status == 200
        silent_node.vanish()
        gone_at = time.monotonic()
        tasks += [group.create_task(ended(one)) for one in transports]
    for outcome, at in (task.result() for task in tasks):
        assert isinstance(outcome, Failure), outcome
        assert (outcome.cause, outcome.permanent) == ("unreachable", False)
        assert at - gone_at < NOTICED_S
    for one in transports:
        # Who asks now is told as soon as no connection can be made.
        since = time.monotonic()
        assert (await ended(one))[0].cause == "unreachable"
        assert time.monotonic() - since < 12.0
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
    transport = DirectTransport(Endpoint(base_url=url, model="m"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ended(transport, body(words="x" * 2**22)))
        await asyncio.wait([task], timeout=_silence.SILENT_S + 10)
        assert not task.done()
        await transport.close()


def test_options_end_silent_connections_in_time():
    assert _silence.SILENT_S <= NOTICED_S
    assert _silence.UNREAD_S + _silence.INTERVAL_S <= NOTICED_S
    with socket.socket() as sock:
        _silence.set_options(sock, _silence.all_options())
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == _silence.IDLE_S


class Deaf:
    """A socket that takes no options and tells nothing."""

    def setsockopt(self, level, option, value):
        raise OSError("not supported")

    def getsockopt(self, level, option, size):
        raise OSError("not supported")


def test_where_keepalive_cannot_be_set_it_is_said_once(caplog):
    _silence._warn_once.cache_clear()
    for _ in range(3):
        _silence.set_options(Deaf(), _silence.keepalive_options())
    assert len(caplog.records) == 1
    assert "limits.timeout_s" in caplog.text
    assert not _silence.is_silent(Deaf())


def test_a_connection_that_was_just_made_is_not_silent():
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as sock,
    ):
        assert not _silence.is_silent(sock)
