"""Base models (template: none): plain text in, by the route that the server has for it."""

import json

import pytest

from backends import embedded, fake, openai
from backends._openai_compatible import ChatConfig
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Endpoint
from orchestrator.records import Failure, Generation, Message, Sampling, labels
from orchestrator.wire import requests
from orchestrator.wire.requests import Dialect
from tests.backends.kinds import kind_in
from tests.fake.main import serving

TEXT = (Message("user", "Once upon a time"),)
CHAT = (Message("system", "Be brief."), *TEXT)


@pytest.fixture
async def connect():
    opened = []

    async def open_one(module, **settings):
        manager = serving(None, models=["m"])
        url, server = await manager.__aenter__()
        endpoint = Endpoint(base_url=url, model="m", timeout_s=60.0, plain=True, **settings)
        backend = kind_in(module)(kind_in(module).Config()).connect(endpoint)
        opened.append((backend, manager))
        return backend, server

    yield open_one
    for backend, manager in opened:
        await backend.close()
        await manager.__aexit__(None, None, None)


async def test_an_openai_endpoint_is_asked_for_a_completion(connect):
    backend, server = await connect(openai)
    made = await backend.generate(GenerateAsk("x", TEXT, Sampling(max_tokens=4)), 1)
    assert isinstance(made, Generation)
    assert made.logprobs is not None
    assert server.stats()["by_route"] == {"completions": 1}


@pytest.mark.parametrize("module", [embedded, fake])
async def test_our_own_servers_are_told_to_leave_the_template_out(connect, module):
    backend, server = await connect(module)
    made = await backend.generate(GenerateAsk("x", TEXT, Sampling(max_tokens=4)), 1)
    assert isinstance(made, Generation)
    assert server.stats()["by_route"] == {"chat": 1}


def test_every_route_of_ours_says_so():
    ask, dialect = GenerateAsk("x", TEXT, Sampling()), Dialect(plain=True)
    bodies = [
        requests.chat("m", ask, 1, dialect),
        requests.score("m", ScoreAsk("x", TEXT, (1, 2)), plain=True),
        requests.choose("m", ChooseAsk("x", TEXT, labels("A", "B")), plain=True),
    ]
    assert [json.loads(body)["template"] for body in bodies] == ["none"] * 3


def test_a_chat_model_is_told_nothing():
    ask = GenerateAsk("x", TEXT, Sampling())
    assert "template" not in json.loads(requests.chat("m", ask, 1, Dialect()))
    assert "template" not in json.loads(requests.score("m", ScoreAsk("x", TEXT, (1,))))


@pytest.mark.parametrize("module", [openai, embedded])
async def test_a_conversation_is_refused_and_not_cut_to_its_last_turn(connect, module):
    backend, server = await connect(module)
    outcomes = [await backend.generate(GenerateAsk("x", CHAT, Sampling()), 1)]
    if module is embedded:
        outcomes.append(await backend.score(ScoreAsk("x", CHAT, (1,))))
        outcomes.append(await backend.choose(ChooseAsk("x", CHAT, labels("A", "B"))))
    for outcome in outcomes:
        assert isinstance(outcome, Failure)
        assert (outcome.cause, outcome.permanent) == ("unsupported", True)
        assert "not from 2 turns" in outcome.message
    assert server.stats()["by_route"] == {}


async def test_label_probabilities_after_plain_text_are_the_embedded_servers(connect):
    backend, _ = await connect(openai)
    outcome = await backend.choose(ChooseAsk("x", TEXT, labels("A", "B")))
    assert isinstance(outcome, Failure)
    assert outcome.cause == "unsupported"
    assert embedded.Kind.capabilities.plain_choose
    assert not openai.Kind(openai.Config()).capabilities.plain_choose


async def test_thinking_is_set_aside_by_the_marker_of_the_endpoint(connect):
    backend, _ = await connect(fake)
    backend = fake.Kind(ChatConfig()).connect(
        Endpoint(base_url=backend._endpoint.base_url, model="m", thinking_end=" ")
    )
    try:
        made = await backend.generate(GenerateAsk("x", TEXT, Sampling(max_tokens=12)), 1)
    finally:
        await backend.close()
    assert isinstance(made, Generation)
    assert made.thinking
    assert made.token_ids is not None
    assert made.n_thinking_tokens is not None
    assert made.n_thinking_tokens + made.token_ids.size <= made.n_completion_tokens
