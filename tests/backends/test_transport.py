"""All transports against what can go wrong on a network."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from backends._aiohttp_transport import AiohttpTransport
from backends._transport import Reply, checked
from backends.openai.transport import OpenaiTransport
from orchestrator.backend import Endpoint, is_private
from orchestrator.errors import UsageError
from orchestrator.records import Failure
from tests.backends.batching import until
from tests.fake.main import serving
from tests.whole import whole

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":4}'
CHAT = "/v1/chat/completions"
KINDS = (AiohttpTransport, OpenaiTransport)


@asynccontextmanager
async def connected(kind, rules=None, key="", **settings):
    async with serving(rules, models=["m"], key=key) as (url, server):
        transport = kind(Endpoint(base_url=url, model="m", api_key=key), **settings)
        try:
            yield transport, server
        finally:
            await transport.close()


async def post(kind, rules, timeout_s=60.0, **settings):
    async with connected(kind, rules, **settings) as (transport, server):
        outcome = await transport.post(CHAT, BODY, timeout_s, whole)
        return outcome, server.stats()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reply_is_its_status_and_its_bytes(kind):
    outcome, _ = await post(kind, None)
    assert isinstance(outcome, Reply)
    assert outcome.status == 200
    assert outcome.body.startswith(b'{"id":"chatcmpl-')


@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_status_is_a_reply_with_its_headers(kind):
    outcome, stats = await post(kind, [{"fault": "429", "retry_after_s": 2}])
    assert isinstance(outcome, Reply)
    assert (outcome.status, outcome.headers["retry-after"]) == (429, "2")
    assert b"an invented fault" in outcome.body
    assert stats["total"] == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_the_key_is_sent(kind):
    async with connected(kind, key="sk-1234") as (transport, _):
        outcome = await transport.get("/v1/models", 60.0)
    assert isinstance(outcome, Reply)
    assert outcome.status == 200


@pytest.mark.parametrize("kind", KINDS)
async def test_a_connection_closed_before_the_reply_is_tried_once_more(kind):
    outcome, stats = await post(kind, [{"fault": "close", "first": 1}])
    assert isinstance(outcome, Reply)
    assert outcome.status == 200
    assert stats["total"] == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_tried_once_more_and_no_more(kind):
    outcome, stats = await post(kind, [{"fault": "close"}])
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("connection", False)
    assert stats["total"] == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["reset", "cut"])
async def test_a_broken_connection_is_a_failure_of_the_moment(kind, fault):
    outcome, _ = await post(kind, [{"fault": fault}])
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("connection", False)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_never_answers_meets_the_deadline(kind):
    outcome, _ = await post(kind, [{"fault": "hang"}], timeout_s=0.2)
    assert outcome == Failure("timeout", "no complete reply within 0.2 s")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_port_where_nobody_listens_refuses(kind):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        transport = kind(Endpoint(base_url=url, model="m"))
        outcome = await transport.post(CHAT, BODY, 60.0, whole)
        await transport.close()
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("refused", False)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_host_without_an_address_is_out_of_reach(kind):
    transport = kind(Endpoint(base_url="http://nowhere.invalid", model="m"))
    outcome = await transport.post(CHAT, BODY, 60.0, whole)
    await transport.close()
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("unreachable", False)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reply_over_the_limit_is_not_read(kind):
    outcome, _ = await post(kind, None, max_body_bytes=100)
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("unparseable", True)


@pytest.mark.parametrize("kind", KINDS)
async def test_cancelling_closes_the_connection(kind):
    async with connected(kind, [{"latency_s": 300}]) as (transport, server):
        async with asyncio.TaskGroup() as group:
            post = group.create_task(transport.post(CHAT, BODY, 60.0, whole))
            await until(lambda: server.stats()["in_flight"])
            post.cancel()
        await until(lambda: server.stats()["aborted"])
        assert server.stats()["aborted"] == 1
        assert server.stats()["in_flight"] == 0


async def test_closing_that_is_cancelled_closes_all_connections():
    async with connected(AiohttpTransport) as (transport, _):
        await transport.post(CHAT, BODY, 60.0, whole)
        await transport.get("/v1/models", 60.0)
        sessions = list(transport._sessions.values())
        assert len(sessions) == 2
        async with asyncio.TaskGroup() as group:
            closing = group.create_task(transport.close())
            await asyncio.sleep(0)
            closing.cancel()
        assert all(session.closed for session in sessions)


@pytest.mark.parametrize("kind", KINDS)
async def test_many_requests_share_a_bounded_number_of_connections(kind):
    async with serving([{"latency_s": 0.02}], models=["m"]) as (url, server):
        transport = kind(Endpoint(base_url=url, model="m", max_in_flight=3))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(transport.post(CHAT, BODY, 60.0, whole)) for _ in range(12)]
        await transport.close()
        assert all(isinstance(task.result(), Reply) for task in tasks)
        assert server.stats()["max_in_flight"] == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_a_key_that_no_header_takes_is_refused_and_not_shown(kind, key):
    with pytest.raises(UsageError) as caught:
        kind(Endpoint(base_url="http://127.0.0.1:1", model="m", api_key=key))
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:80", "ftp://h", "http://", "http://h:99999", "http://h#x", "http://[1"]
)
def test_what_is_no_base_url_is_refused(url):
    with pytest.raises(UsageError):
        checked(Endpoint(base_url=url, model="m"))


def test_a_password_in_a_base_url_is_refused_and_not_shown():
    with pytest.raises(UsageError) as caught:
        checked(Endpoint(base_url="http://me:hunter2@host", model="m"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:1", True),
        ("http://localhost", True),
        ("http://[::1]:8", True),
        ("http://10.0.0.8", True),
        ("http://192.168.1.2", True),
        ("http://172.31.0.1:80", True),
        ("http://100.64.0.1", True),
        ("http://100.127.255.254", True),
        ("http://[fd12:3456::7]:8000", True),
        ("http://[fe80::1%25eth0]:8000", True),
        ("http://[::ffff:10.0.0.8]:8000", True),
        ("http://gpu-node-07:8000", True),
        ("http://GPU_node7:8000", True),
        ("http://7b-judge:8000", True),
        ("http://judge.ml.svc.cluster.local:8000", True),
        ("http://judge.local.", True),
        ("http://node7.c.project.internal", True),
        ("http://nas.home.arpa", True),
        ("http://100.128.0.1", False),
        ("http://[2001:4860:4860::8888]", False),
        ("http://[::ffff:8.8.8.8]", False),
        ("http://local", True),
        ("http://notlocal.example", False),
        ("http://evil.com.internal.example.com", False),
        ("http://ai.", False),
        # Forms in which resolvers take an address: this one is 8.8.8.8.
        ("http://134744072", False),
        ("http://0x8080808", False),
        ("http://8.8.2056", False),
        ("http://010.8.8.8", False),
        ("https://api.example.com", False),
        ("http://8.8.8.8", False),
    ],
)
def test_a_private_address_is_told_by_its_url(url, expected):
    assert is_private(url) is expected
