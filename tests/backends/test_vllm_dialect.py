"""vLLM's adapter against the fake server's dialects, of the older and the newer model runner."""

import asyncio

import numpy as np
import pytest

from backends import vllm
from launch._fake_server import serving
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Endpoint, Provenance
from orchestrator.records import (
    Choice,
    Failure,
    Generation,
    Label,
    Message,
    Sampling,
    Scored,
    labels,
)

MESSAGES = (Message("user", "What is 2 + 2?"),)
SYMBOLS = (Message("user", "Say [[>>]] or [[<<]].\nA: bade kege lafe\nB: xoxo kofu zuku"),)
VERDICTS = labels("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")
RARE = (*labels("bade kofu"), *labels("lize gamu"))


@pytest.fixture
async def connect():
    opened = []

    async def open_one(dialect="vllm_v2", rules=(), quirks=(), **settings):
        given = {"dialect": dialect, "rules": list(rules), "quirks": list(quirks)}
        manager = serving(given, models=["m"])
        url, server = await manager.__aenter__()
        endpoint = Endpoint(base_url=url, model="m", timeout_s=5.0)
        backend = vllm.create(endpoint, vllm.Config(**settings))
        opened.append((backend, manager))
        return backend, server

    yield open_one
    for backend, manager in opened:
        await backend.close()
        await manager.__aexit__(None, None, None)


async def test_a_score_gives_the_numbers_of_the_draw(connect):
    backend, _ = await connect()
    made = await backend.generate(GenerateAsk("x", MESSAGES, Sampling(), top_logprobs=3), 1)
    assert isinstance(made, Generation), made
    assert made.token_ids is not None
    assert made.logprobs is not None
    assert made.top is not None
    scored = await backend.score(ScoreAsk("x", MESSAGES, tuple(made.token_ids.tolist())))
    assert isinstance(scored, Scored), scored
    np.testing.assert_array_equal(scored.logprobs, made.logprobs)
    assert made.top.token_ids.shape == (len(made.token_ids), 3)


async def test_labels_are_chosen_by_the_chain_rule(connect):
    backend, _ = await connect(choose_negligible=0.0)
    chosen = await backend.choose(ChooseAsk("x", SYMBOLS, VERDICTS))
    assert isinstance(chosen, Choice), chosen
    for label, value in zip(VERDICTS, chosen.logprobs, strict=True):
        scored = await backend.score(ScoreAsk("x", SYMBOLS, (), label.name))
        assert isinstance(scored, Scored)
        assert value == pytest.approx(float(scored.logprobs.sum()), abs=1e-5)


async def test_labels_that_are_not_listed_are_asked_for_by_id(connect):
    backend, _ = await connect(choose_negligible=0.0)
    chosen = await backend.choose(ChooseAsk("x", MESSAGES, (Label("r", ("!",)), *RARE)))
    assert isinstance(chosen, Choice), chosen
    assert chosen.exact
    assert chosen.method == "vllm.top_logprobs+token_ids"


@pytest.mark.parametrize(("dialect", "spoiled"), [("vllm_v1", True), ("vllm_v2", False)])
async def test_the_older_runner_mixes_replies_up_unless_they_are_kept_apart(
    connect, dialect, spoiled
):
    slow = [{"route": "completions", "latency_s": 0.02}, {"route": "chat", "latency_s": 0.005}]
    for gate in (False, True):
        backend, _ = await connect(dialect, rules=slow, gate=gate, choose_negligible=0.0)
        exact = ChooseAsk("x", MESSAGES, (Label("r", ("!",)), *RARE))
        drawn = [
            GenerateAsk(
                "x", (Message("user", f"Say {n}."),), Sampling(max_tokens=2), top_logprobs=3
            )
            for n in range(60)
        ]
        async with asyncio.TaskGroup() as group:
            choices = [group.create_task(backend.choose(exact)) for _ in range(4)]
            made = [await backend.generate(ask, 1) for ask in drawn]
        assert all(isinstance(one.result(), Choice) for one in choices)
        listed = [
            one.top.logprobs[:, 1:]
            for one in made
            if isinstance(one, Generation) and one.top is not None
        ]
        faulty = len(listed) < len(made) or any(np.isnan(row).any() for row in listed)
        assert faulty == (spoiled and not gate)


async def test_a_prompt_that_the_server_changes_is_no_score(connect):
    backend, _ = await connect(quirks=["double_bos"])
    scored = await backend.score(ScoreAsk("x", MESSAGES, (), "kege lafe"))
    assert isinstance(scored, Failure)
    assert (scored.cause, scored.permanent) == ("unparseable", True)


async def test_a_shifted_echo_shows_against_the_draw(connect):
    backend, _ = await connect(quirks=["shifted_echo"])
    made = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
    assert isinstance(made, Generation)
    assert made.token_ids is not None
    assert made.logprobs is not None
    scored = await backend.score(ScoreAsk("x", MESSAGES, tuple(made.token_ids.tolist())))
    assert isinstance(scored, Scored)
    assert np.abs(scored.logprobs - made.logprobs).max() > 0.1


async def test_numbers_after_the_temperature_show_against_the_score(connect):
    backend, _ = await connect(quirks=["after_temperature"])
    ask = GenerateAsk("x", MESSAGES, Sampling(temperature=0.5))
    made = await backend.generate(ask, 1)
    assert isinstance(made, Generation)
    assert made.token_ids is not None
    assert made.logprobs is not None
    scored = await backend.score(ScoreAsk("x", MESSAGES, tuple(made.token_ids.tolist())))
    assert isinstance(scored, Scored)
    np.testing.assert_allclose(made.logprobs, 2 * scored.logprobs, rtol=1e-5)


async def test_a_server_that_ignores_what_it_is_asked_is_no_vllm(connect):
    backend, _ = await connect(quirks=["ignored_fields"])
    stated = await backend.provenance()
    assert isinstance(stated, Failure)
    whole, _ = await connect()
    assert isinstance(await whole.provenance(), Provenance)


async def test_the_cap_of_alternatives_is_learnt_from_the_refusal(connect):
    backend, _ = await connect()
    refused = await backend.generate(GenerateAsk("x", MESSAGES, Sampling(), top_logprobs=40), 1)
    assert isinstance(refused, Failure)
    assert "at most 20" in refused.message
