"""Endpoints that refuse a field: what changes no number is left out or written in another way."""

import asyncio
import json
import math
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from backends import openai
from orchestrator.ask import ChooseAsk, GenerateAsk
from orchestrator.backend import Endpoint
from orchestrator.records import Choice, Failure, Generation, Message, Sampling, labels
from tests import apps

Body = dict[str, Any]
SYSTEM_THEN_USER = (Message("system", "Be brief."), Message("user", "A or B?"))


def too_many(most: int, words: str) -> Callable[[Body], str]:
    return lambda body: words.format(most) if body.get("top_logprobs", 0) > most else ""


def too_few(least: int, words: str) -> Callable[[Body], str]:
    return lambda body: words.format(least) if body.get("max_tokens", least) < least else ""


def has(field: str, words: str) -> Callable[[Body], str]:
    return lambda body: words if field in body else ""


def system(words: str) -> Callable[[Body], str]:
    return lambda body: words if body["messages"][0]["role"] == "system" else ""


REFUSALS = {
    "cap, OpenAI": (
        400, too_many(5, "Invalid value for 'top_logprobs': must be less than or equal to {}.")
    ),
    "cap, vLLM": (
        400, too_many(8, "Requested sample logprobs of 20, which is greater than max allowed: {}")
    ),
    "cap, interval": (400, too_many(5, "top_logprobs must be in [0, {}]")),
    "cap, between": (422, too_many(8, "logprobs must be between 0 and {}")),
    "cap, at most": (400, too_many(5, "top_logprobs can be at most {}")),
    "seed, extra": (422, has("seed", "body.seed: Extra inputs are not permitted")),
    "seed, property": (400, has("seed", "property 'seed' is unsupported")),
    "seed, argument": (400, has("seed", "Unrecognized request argument supplied: seed")),
    "tokens": (
        400,
        has("max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead."),
    ),
    "least, OpenAI": (
        400,
        too_few(16, "Invalid 'max_tokens': integer below minimum value. Expected a value >= {}, "
                "but got 1 instead."),
    ),
    "least, words": (400, too_few(16, "max_tokens must be at least {}")),
    "system, Gemma": (400, system("System role not supported")),
    "system, template": (400, system("Conversation roles must alternate user/assistant/...")),
}  # fmt: skip


def reply(body: Body) -> Body:
    text = ["A", " is", " better"]
    k = body.get("top_logprobs", 0)
    listed = [("A", math.log(0.7)), ("B", math.log(0.2)), *((f"x{n}", -9.0 - n) for n in range(18))]
    n = min(body.get("max_tokens") or body["max_completion_tokens"], len(text))
    entries = [
        {
            "token": one,
            "logprob": math.log(0.7),
            "top_logprobs": [{"token": t, "logprob": v} for t, v in listed[:k]] if at == 0 else [
                {"token": one, "logprob": math.log(0.7)},
                *({"token": f"y{m}", "logprob": -9.0 - m} for m in range(max(k - 1, 0))),
            ],
        }
        for at, one in enumerate(text[:n])
    ]  # fmt: skip
    choice = {
        "index": 0,
        "finish_reason": "stop" if n == len(text) else "length",
        "message": {"role": "assistant", "content": "".join(text[:n])},
        "logprobs": {"content": entries} if body.get("logprobs") else None,
    }
    return {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": n}}


@pytest.fixture
async def endpoint():
    """A back-end of an endpoint that refuses by rules, and the bodies that it was sent."""

    async def begin(*rules, place="/v1", met=None, **config):
        sent: list[Body] = []

        async def answer(request):
            body = json.loads(await request.read())
            sent.append(body)
            if request.path != f"{place}/chat/completions":
                return web.json_response({"error": {"message": "no such route"}}, status=404)
            await (asyncio.sleep(0.01) if met is None else met.wait())
            for status, said in rules:
                if words := said(body):
                    return web.json_response({"error": {"message": words}}, status=status)
            return web.json_response(reply(body))

        url = await made.enter_async_context(apps.answering(answer, "POST"))
        address = Endpoint(base_url=url, model="m")
        backend = openai.Kind(openai.Config(**config)).connect(address)
        made.push_async_callback(backend.close)
        return backend, sent

    async with AsyncExitStack() as made:
        yield begin


CHOICE = ChooseAsk("m", SYSTEM_THEN_USER, labels("A", "B"))
TEXT = GenerateAsk("m", SYSTEM_THEN_USER, Sampling(max_tokens=64), top_logprobs=3)


@pytest.mark.parametrize("ask", [CHOICE, TEXT], ids=["choice", "text"])
@pytest.mark.parametrize("name", REFUSALS)
async def test_one_refusal_is_paid_for_and_the_numbers_are_those_of_an_endpoint_that_takes_all(
    endpoint, caplog, name, ask
):
    plain, _ = await endpoint()
    backend, sent = await endpoint(REFUSALS[name])

    async def asked(one):
        return await (one.choose(ask) if isinstance(ask, ChooseAsk) else one.generate(ask, 1))

    expected, found = await asked(plain), await asked(backend)
    assert isinstance(expected, Choice | Generation)
    assert found == expected if isinstance(expected, Choice) else found.text == expected.text
    if isinstance(expected, Generation) and isinstance(found, Generation):
        np.testing.assert_array_equal(found.logprobs, expected.logprobs)
        assert found.top is not None
        assert expected.top is not None
        np.testing.assert_array_equal(found.top.logprobs, expected.top.logprobs)
    n_first = len(sent)
    assert n_first <= 2
    assert len([one for one in caplog.records if "the endpoint" in one.message]) == n_first - 1
    assert isinstance(await asked(backend), type(expected))
    assert len(sent) == n_first + 1


async def at_once(backend, asks) -> list[Choice | Generation | Failure]:
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(backend.choose(one) if one is CHOICE else backend.generate(one, 1))
            for one in asks
        ]
    return [task.result() for task in tasks]


@pytest.mark.parametrize("mixed", [False, True], ids=["alike", "mixed"])
@pytest.mark.parametrize("ask", [CHOICE, TEXT], ids=["choice", "text"])
@pytest.mark.parametrize("name", [*REFUSALS, "route", "route and seed"])
async def test_what_many_at_once_meet_is_learnt_by_one_and_every_request_is_counted(
    endpoint, name, ask, mixed
):
    """However many come together, it takes a request or two more for each form of asks."""
    place = "/v1" if name in REFUSALS else ""
    rules = [REFUSALS[name]] if name in REFUSALS else [REFUSALS["seed, extra"]] * ("seed" in name)
    extra = []
    for n in (4, 30):
        backend, sent = await endpoint(*rules, place=place)
        again: list[str] = []
        backend.asked_again = lambda again=again: again.append("")
        found = await at_once(backend, [ask, TEXT if mixed else ask] * (n // 2))
        assert not any(isinstance(one, Failure) for one in found)
        assert len(sent) == n + len(again)
        extra.append(len(again))
        assert len(await at_once(backend, [ask] * n)) == n
        assert len(sent) == 2 * n + len(again)
    assert extra[0] == extra[1] <= 4


async def test_who_comes_while_the_first_is_being_answered_waits_for_a_moment_only(
    endpoint, monkeypatch
):
    monkeypatch.setattr(openai, "_REFUSED_WITHIN_S", 0.0)
    all_here = asyncio.Barrier(5)
    backend, sent = await endpoint(met=all_here)
    assert not any(isinstance(one, Failure) for one in await at_once(backend, [TEXT] * 5))
    assert len(sent) == 5


async def test_all_at_once_and_many_at_a_time(endpoint, caplog):
    rules = [REFUSALS[name] for name in ("cap, OpenAI", "seed, extra", "tokens", "system, Gemma")]
    backend, sent = await endpoint(*rules)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(backend.choose(CHOICE)) for _ in range(20)]
    assert all(isinstance(one.result(), Choice) for one in tasks)
    assert len([one for one in caplog.records if "the endpoint" in one.message]) == 4
    assert len(sent) == 20 + 4
    body = sent[-1]
    assert (body["top_logprobs"], "seed" in body, body["max_completion_tokens"]) == (5, False, 1)
    assert [one["role"] for one in body["messages"]] == ["user"]


@pytest.mark.parametrize(
    "words",
    [
        "Unsupported value: 'temperature' does not support 0 with this model.",
        "You are not allowed to request logprobs from this model.",
        "Unknown field: continue_final_message",
        "messages: bad",
        "top_logprobs must be less than or equal to 20",
        "max_tokens must be at least 4096",
    ],
)
async def test_what_would_change_numbers_or_helps_nothing_is_refused_once(endpoint, words):
    backend, sent = await endpoint((400, lambda _: words))
    assert isinstance(await backend.choose(CHOICE), Failure)
    assert len(sent) == 1


async def test_an_endpoint_that_always_refuses_is_asked_a_few_times(endpoint):
    words = "seed is not supported; top_logprobs at most 5; system role not supported"
    backend, sent = await endpoint((400, lambda _: words))
    assert isinstance(await backend.choose(CHOICE), Failure)
    assert len(sent) <= 5


async def test_the_remedy_for_a_begun_answer_keeps_verdicts_in_place(endpoint):
    backend, _ = await endpoint((400, lambda _: "Unknown field: continue_final_message"))
    refused = await backend.choose(CHOICE)
    assert isinstance(refused, Failure)
    assert "`backend: {kind: openai, continue_final_message: false}`" in refused.message
    with pytest.raises(ValueError, match="required"):
        openai.Config(omit=("continue_final_message",))
