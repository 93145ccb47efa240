"""Addresses as providers print them: with `/v1` and without, with a path of their own, a query."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from backends._aiohttp_transport import AiohttpTransport
from backends._transport import Reply
from backends.openai import Config, Kind
from backends.openai.transport import OpenaiTransport
from orchestrator.ask import GenerateAsk
from orchestrator.backend import Endpoint, base_url_fault, server_address
from orchestrator.records import Failure, Generation, Message, Sampling
from orchestrator.runner.models.asking import Http, scan
from tests import apps
from tests.whole import whole

TRANSPORTS = (AiohttpTransport, OpenaiTransport)
KEY = "sk-0123456789abcdef"
PLACES = ("", "/v1", "/inference", "/v1beta/openai", "/api/paas/v4", "/api/v3", "/proxy/a/v1")
TOKEN = {"token": "5", "logprob": -0.5, "bytes": [53], "top_logprobs": []}
ANSWER = {
    "id": "1",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "5"},
            "finish_reason": "stop",
            "logprobs": {"content": [TOKEN]},
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}


@asynccontextmanager
async def provider(place: str):
    """A server whose only route is the chat of one place: its address, and what it was asked."""
    seen: list[tuple[str, dict[str, str]]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((str(request.rel_url), dict(request.headers)))
        if request.path != f"{place}/chat/completions":
            return web.json_response({"error": {"message": "no such route"}}, status=404)
        return web.json_response(ANSWER)

    async with apps.answering(answer) as url:
        yield url, seen


@asynccontextmanager
async def answering(place: str, status: int, body: Mapping[str, object]):
    """A server with one list of models and one chat route at a place: its address."""

    async def chat(_: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    app = web.Application()
    app.router.add_post(f"{place}/chat/completions", chat)
    app.router.add_get(f"{place}/models", models)
    async with apps.running(app) as url:
        yield f"{url}{place}"


async def asked(backend, n: int) -> list[Generation | Failure]:
    """Several questions at once, so that some are under way when the first is answered."""
    asks = [GenerateAsk("m", (Message("user", str(i)),), Sampling(max_tokens=4)) for i in range(n)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(backend.generate(ask, 1)) for ask in asks]
    return [task.result() for task in tasks]


@pytest.mark.parametrize("transport", ["auto", "aiohttp", "openai"])
@pytest.mark.parametrize("end", ["", "/"])
@pytest.mark.parametrize("place", PLACES)
async def test_an_address_works_as_the_provider_prints_it(place, end, transport):
    async with provider(place) as (url, seen):
        backend = Kind(Config(transport=transport)).connect(
            Endpoint(base_url=f"{url}{place}{end}", model="m", api_key=KEY)
        )
        for _ in range(2):
            assert all(isinstance(one, Generation) for one in await asked(backend, 8))
        # Once it is known where the routes are, nothing is asked elsewhere.
        n = len(seen)
        await asked(backend, 8)
        assert len(seen) == n + 8
        await backend.close()


async def test_a_server_that_has_no_such_route_says_so_in_the_words_of_the_first_answer():
    async with provider("/elsewhere") as (url, _):
        backend = Kind(Config()).connect(Endpoint(base_url=url, model="m"))
        [found] = await asked(backend, 1)
        assert isinstance(found, Failure)
        assert found.status == 404
        await backend.close()


@pytest.mark.parametrize(
    ("status", "body", "cause"),
    [
        (400, {"error": {"message": "logprobs is not supported"}}, "no_logprobs"),
        (401, {"error": {"message": "Incorrect API key provided."}}, "unauthorised"),
        (200, ANSWER | {"choices": [{"index": 0, "message": {"content": None},
                                     "finish_reason": "length"}]}, "no_answer"),
        (404, {"error": {"message": "The model `m` does not exist."}}, "not_found"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["/v1", "/api/v3"])
async def test_what_a_route_refuses_is_told_wherever_it_stands(place, status, body, cause):
    async with answering(place, status, body) as url:
        backend = Kind(Config(logprobs=False)).connect(Endpoint(base_url=url, model="m"))
        [found] = await asked(backend, 1)
        await backend.close()
    assert isinstance(found, Failure)
    assert found.cause == cause


@pytest.mark.parametrize("place", ["/v1", "/api/v3"])
async def test_a_missing_model_is_named_with_those_there_are(place):
    async with answering(place, 404, {"error": {"message": "No such model."}}) as url:
        backend = Kind(Config()).connect(Endpoint(base_url=url, model="n"))
        await backend.provenance()
        [found] = await asked(backend, 1)
        await backend.close()
    assert isinstance(found, Failure)
    assert "the server has no model 'n'; available: m" in found.message


@pytest.mark.parametrize("place", ["", "/v1", "/api/v3"])
async def test_models_are_listed_wherever_the_routes_stand(place):
    async with answering(place, 200, ANSWER) as url:
        [found] = await scan([url])
    assert found.models == ("m",)


@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_a_query_goes_behind_the_route_and_azures_key_into_its_header(kind):
    place = "/openai/deployments/gpt/v1"
    async with provider(place) as (url, seen):
        address = server_address(f"{url}{place}/?api-version=2024-10-21")
        transport = kind(Endpoint(base_url=address, model="m", api_key=KEY))
        reply = await transport.post("/v1/chat/completions", json.dumps({}).encode(), 5.0, whole)
        assert isinstance(reply, Reply)
        assert reply.status == 200
        await transport.close()
        async with Http(Endpoint(base_url=address, model="m", api_key=KEY)) as http:
            assert (await http.post("/v1/chat/completions", {})).status == 200
    for target, headers in seen:
        assert target == f"{place}/chat/completions?api-version=2024-10-21"
        assert headers["Authorization"] == f"Bearer {KEY}"
        assert headers["api-key"] == KEY


@pytest.mark.parametrize(
    "host",
    ["a b", "a..b", ".a", "h%zz", "a" * 64, "xn--\u00e9", "h\\x", "a,b", "[fe80::1", "[zz]", "<h>"],
)
def test_what_no_host_is_named_is_no_address(host):
    assert base_url_fault(f"http://{host}:8000/v1").startswith("must be a URL such as")


@pytest.mark.parametrize(
    "host",
    ["h", "h_1", "a.b.", "b\u00fccher.example", "10.0.0.1", "[::1]", "[fe80::1%eth0]"],
)
def test_names_and_addresses_of_hosts_are_addresses(host):
    assert not base_url_fault(f"http://{host}:8000/v1")


@pytest.mark.parametrize(
    "name", ["key", "api_key", "subscription-key", "token", "sig", "Secret", "credential"]
)
def test_a_key_in_a_query_is_refused_and_not_shown(name):
    fault = base_url_fault(f"https://models.example/v1?{name}=abcdef")
    assert "api_key_env" in fault
    assert "abcdef" not in fault


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("http://h:1", "http://h:1"),
        ("http://h:1/", "http://h:1"),
        ("http://h:1/v1/", "http://h:1"),
        ("http://h:1/a/v1?x=/v1", "http://h:1/a?x=/v1"),
        ("http://h:1/v1beta/openai/", "http://h:1/v1beta/openai"),
    ],
)
def test_the_servers_own_address(given, address):
    assert server_address(given) == address
    assert server_address(address) == address
