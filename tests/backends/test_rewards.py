"""Rewards end to end from the fake server, and what servers of other kinds answer."""

import pytest

from backends import embedded, fake, openai, sglang, vllm
from orchestrator.ask import RewardAsk
from orchestrator.backend import Endpoint
from orchestrator.records import Failure, Message, Rewards
from tests.backends.kinds import kind_in
from tests.fake import language
from tests.fake.main import serving

QUESTION = Message("user", "What is 2 + 2?")


def rating(text="baba bebe bibi"):
    return RewardAsk("m", (QUESTION, Message("assistant", text)))


@pytest.fixture
async def connect():
    """Starts a server with rules and gives a back-end to it."""
    opened = []

    async def open_one(module=embedded, rules=None, settings=None, **more):
        manager = serving(rules, models=["fake:1.0"], key="sk-1234")
        url, server = await manager.__aenter__()
        endpoint = Endpoint(
            base_url=url, model="fake:1.0", api_key="sk-1234", timeout_s=60.0, **more
        )
        kind = kind_in(module)
        backend = kind(kind.Config(**(settings or {}))).connect(endpoint)
        opened.append((backend, manager))
        return backend, server

    yield open_one
    for backend, manager in opened:
        await backend.close()
        await manager.__aexit__(None, None, None)


@pytest.mark.parametrize("module", [embedded, fake, vllm])
async def test_the_raw_reward_is_read(connect, module):
    backend, server = await connect(module)
    good, bad = [
        await backend.reward(rating(text)) for text in ("baba bebe bibi", "bobo bubu bobo")
    ]
    assert isinstance(good, Rewards)
    assert isinstance(bad, Rewards)
    # Through the sigmoid that such servers apply by default both would be in [0, 1].
    assert good.values.item() > 1.0
    assert bad.values.item() < -1.0
    assert good.n_prompt_tokens > 0
    assert server.stats()["by_route"] == {"pooling": 2}


async def test_a_conversation_without_an_answer_is_refused_here(connect):
    backend, server = await connect()
    found = await backend.reward(RewardAsk("m", (QUESTION,)))
    assert isinstance(found, Failure)
    assert (found.cause, found.permanent) == ("bad_request", True)
    assert server.stats()["total"] == 0


async def test_a_base_model_rates_no_turns(connect):
    backend, _ = await connect(plain=True)
    found = await backend.reward(rating())
    assert isinstance(found, Failure)
    assert "template: none" in found.message


@pytest.mark.parametrize("status", [404, 501])
async def test_a_server_without_the_route_says_what_to_serve(connect, status):
    rules = {"rules": [{"fault": "status", "status": status, "message": "Not Found"}]}
    backend, _ = await connect(vllm, rules)
    found = await backend.reward(rating())
    assert isinstance(found, Failure)
    assert (found.cause, found.permanent) == ("unsupported", True)
    for part in ("'fake:1.0' at http://127.0.0.1:", "/pooling", "Not Found", "reward model"):
        assert part in found.message


async def test_a_missing_model_is_not_a_missing_route(connect):
    backend, _ = await connect()
    backend._endpoint = Endpoint(base_url="http://x", model="other")
    found = await backend.reward(rating())
    assert isinstance(found, Failure)
    assert found.cause == "not_found"
    assert "does not exist" in found.message


@pytest.mark.parametrize("data", ["[NaN]", "[null]", "[[1.0],[1.0,2.0]]", "[]"])
async def test_what_is_no_reward_is_a_failure(connect, tmp_path, data):
    body = tmp_path / "body.json"
    body.write_text(f'{{"data":[{{"data":{data}}}]}}')
    backend, _ = await connect(vllm, {"rules": [{"fixed": str(body)}]})
    found = await backend.reward(rating())
    assert isinstance(found, Failure)
    assert (found.cause, found.permanent) == ("unparseable", True)


async def test_other_kinds_of_servers_rate_nothing(connect):
    backend, server = await connect(openai)
    found = await backend.reward(rating())
    assert isinstance(found, Failure)
    assert (found.cause, found.permanent) == ("unsupported", True)
    assert "backend: vllm" in found.message
    assert server.stats()["total"] == 0


TEMPLATE = "{{ bos }}{% for one in messages %}{{ one.role }}: {{ one.content }};{% endfor %}"


async def test_sglang_rates_the_text_of_the_template(connect):
    settings = {"chat_template": TEMPLATE, "special_tokens": {"bos": "!"}}
    backend, server = await connect(sglang, {"dialect": "sglang"}, settings)
    good, bad = [
        await backend.reward(rating(text)) for text in ("baba bebe bibi", "bobo bubu bobo")
    ]
    assert isinstance(good, Rewards)
    assert isinstance(bad, Rewards)
    assert good.values.item() > 1.0 > -1.0 > bad.values.item()
    text = "!user: What is 2 + 2?;assistant: baba bebe bibi;"
    assert good.n_prompt_tokens == language.count(text)
    assert server.stats()["by_route"] == {"tokenize": 2, "classify": 2}


async def test_sglang_needs_the_template_of_the_reward_model(connect):
    backend, server = await connect(sglang, {"dialect": "sglang"})
    found = await backend.reward(rating())
    assert isinstance(found, Failure)
    assert (found.cause, found.permanent) == ("unsupported", True)
    assert "`backend: {kind: sglang, chat_template: PATH}`" in found.message
    assert server.stats()["total"] == 0
