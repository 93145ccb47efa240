"""Behaviour required of every server with asks, sound and unsound, whatever its numbers."""

import asyncio
import json
import math
import re

import numpy as np
import pytest

from backends._transport import http_transport
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Endpoint, Provenance
from orchestrator.records import Failure, Message, Prefix, Sampling, labels
from tests.conformance.measure import SYMBOLS, VERDICT, known
from tests.conformance.servers import CONTEXT, KINDS, MODEL
from tests.whole import whole

pytestmark = pytest.mark.timeout(600)

DRAWN = re.compile(rb"^\w+:(?:generation_tokens|tokens_predicted)_total.*", re.MULTILINE)
PROMPT = (Message("user", VERDICT.format("f k", "k f")),)
LONG = (Message("user", "a b c d " * CONTEXT),)


async def test_scoring_a_draw_gives_the_numbers_of_the_draw(backend):
    """The most valuable check there is: a shift by one, a second BOS, temperatures all show."""
    drawn = known(await backend.generate(GenerateAsk("m", PROMPT, Sampling(max_tokens=8)), 1))
    assert drawn.token_ids.size
    ids = tuple(drawn.token_ids.tolist())
    scored = known(await backend.score(ScoreAsk("m", PROMPT, ids, drawn.text)))
    assert scored.n_prompt_tokens == drawn.n_prompt_tokens
    np.testing.assert_allclose(scored.logprobs, drawn.logprobs, atol=1e-4)


@pytest.mark.kinds("embedded", "vllm", "llamacpp")
async def test_the_probability_of_a_greedy_answer_is_that_of_its_label(backend):
    drawn = known(await backend.generate(GenerateAsk("m", PROMPT, Sampling(max_tokens=8)), 1))
    ids = tuple(drawn.token_ids.tolist())
    text = drawn.text.strip()
    if text not in {label.name for label in SYMBOLS}:
        pytest.fail(f"the greedy answer is no verdict: {text!r}")
    chosen = known(await backend.choose(ChooseAsk("m", PROMPT, SYMBOLS)))
    scored = known(await backend.score(ScoreAsk("m", PROMPT, ids, drawn.text)))
    at = [label.name for label in SYMBOLS].index(text)
    assert chosen.logprobs[at] == max(chosen.logprobs)
    assert chosen.logprobs[at] == pytest.approx(float(scored.logprobs.sum()), abs=1e-4)


async def test_a_choice_is_no_more_than_one(backend):
    chosen = known(await backend.choose(ChooseAsk("m", PROMPT, SYMBOLS)))
    assert 0 < sum(map(math.exp, chosen.logprobs)) <= 1 + 1e-6
    assert chosen.exact


async def test_a_seed_repeats_a_draw_and_another_gives_another(backend):
    prompt = (Message("user", "Say something."),)
    hot = GenerateAsk("m", prompt, Sampling(max_tokens=12, temperature=2.0))
    draws = [known(await backend.generate(hot, seed)) for seed in (1, 1, 2, 3, 4)]
    ids = [drawn.token_ids.tolist() for drawn in draws]
    assert ids[0] == ids[1]
    assert any(other != ids[0] for other in ids[2:])


async def test_an_answer_is_cut_at_max_tokens(backend):
    drawn = known(await backend.generate(GenerateAsk("m", PROMPT, Sampling(max_tokens=2)), 1))
    assert (drawn.finish_reason, len(drawn.token_ids)) == ("length", 2)


async def test_the_stop_token_is_no_part_of_the_answer(backend):
    drawn = known(await backend.generate(GenerateAsk("m", PROMPT, Sampling(max_tokens=64)), 1))
    assert drawn.finish_reason == "stop"
    assert len(drawn.token_ids) == len(drawn.logprobs) == drawn.n_completion_tokens - 1


# The small fake server takes a prompt of any length.
@pytest.mark.kinds(*(kind for kind in KINDS if kind != "fake"))
@pytest.mark.parametrize("kind", ["generate", "score", "choose"])
async def test_a_prompt_that_is_too_long_is_told(server, backend, kind):
    outcome = await asked(backend, kind, LONG, by_text=server.kind.by_text)
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("too_long", True)


@pytest.mark.kinds(*(name for name, kind in KINDS.items() if not kind.any_name))
@pytest.mark.parametrize("kind", ["generate", "score", "choose"])
async def test_a_model_that_there_is_not_is_told(server, kind):
    async with server.connected("no-such-model") as backend:
        outcome = await asked(backend, kind, PROMPT)
        assert isinstance(outcome, Failure)
        assert (outcome.cause, outcome.retriable) == ("not_found", False)
        assert isinstance(await backend.provenance(), Failure)


async def test_a_wrong_key_is_told(server):
    async with server.connected() as backend:
        stated = await backend.provenance()
        assert isinstance(stated, Provenance)
    endpoint_key = server.server.api_key
    server.server.api_key = "sk-wrong"
    try:
        async with server.connected() as backend:
            outcome = await asked(backend, "generate", PROMPT)
            assert isinstance(outcome, Failure)
            assert outcome.status == 401
            assert "sk-wrong" not in outcome.message
    finally:
        server.server.api_key = endpoint_key


@pytest.mark.kinds("embedded", "vllm", "llamacpp")
async def test_labels_that_share_a_spelling_are_refused(backend):
    outcome = await backend.choose(ChooseAsk("m", PROMPT, labels("A", "B", "A")))
    assert isinstance(outcome, Failure)
    assert outcome.permanent


async def test_the_score_of_nothing_is_no_number(backend):
    outcome = known(await backend.score(ScoreAsk("m", PROMPT, (), "")))
    assert math.isnan(outcome.mean_logprob)


async def test_a_begun_answer_changes_what_comes_next(backend):
    plain = known(await backend.choose(ChooseAsk("m", PROMPT, SYMBOLS)))
    begun = known(await backend.choose(ChooseAsk("m", PROMPT, SYMBOLS, Prefix("I think that "))))
    assert begun.n_prompt_tokens > plain.n_prompt_tokens


async def test_more_requests_than_there_is_room_for_are_all_answered(server):
    async with server.connected(max_in_flight=8) as backend, asyncio.TaskGroup() as group:
        short = Sampling(max_tokens=4)
        tasks = [
            group.create_task(backend.generate(GenerateAsk("m", PROMPT, short), seed))
            for seed in range(200)
        ]
    texts = {known(task.result()).text for task in tasks}
    assert len(texts) == 1


@pytest.mark.slow
async def test_a_connection_that_lay_idle_is_no_failure(server):
    async with server.connected() as backend:
        known(await asked(backend, "generate", PROMPT))
        await asyncio.sleep(6)
        known(await asked(backend, "generate", PROMPT))


@pytest.mark.kinds("embedded", "vllm", "llamacpp")
async def test_a_request_that_is_given_up_stops_being_computed(server, backend):
    n_tokens = 900
    endless = json.dumps({
        "model": MODEL, "messages": [{"role": "user", "content": PROMPT[0].content}],
        "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True,
    }).encode()  # fmt: skip
    endpoint = Endpoint(
        base_url=server.server.base_url, model=MODEL, api_key=server.server.api_key, max_in_flight=4
    )
    transport = http_transport(endpoint)

    async def given_up():
        """Give four of them up as soon as the server runs them; return how many tokens it drew."""
        before = await n_drawn(transport)
        tasks = [
            asyncio.ensure_future(transport.post("/v1/chat/completions", endless, 60.0, whole))
            for _ in range(4)
        ]
        await until(
            backend, lambda running: running == 4 or any(task.done() for task in tasks), 0.05
        )
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        # llama-server looks whether somebody still listens when it had nothing to answer for a
        # second, so asking it all the time would keep it from that.
        await until(backend, lambda running: running == 0, 2.5)
        return await n_drawn(transport) - before

    # Again where a busy machine was done with all of them before it saw that nobody listens.
    async with asyncio.timeout(240):
        while await given_up() >= 4 * n_tokens:
            pass
    await transport.close()


async def n_drawn(transport):
    """Return the number of tokens that the server has drawn since it started."""
    reply = await transport.get("/metrics", 10.0)
    (line,) = DRAWN.findall(reply.body)
    return float(line.split()[-1])


async def until(backend, is_so, every_s):
    """Wait until the number of running requests is as wanted."""
    async with asyncio.timeout(60):
        while not is_so((await backend.load()).running):  # noqa: ASYNC110 (the server's number)
            await asyncio.sleep(every_s)


async def asked(backend, kind, prompt, *, by_text=False):
    if kind == "generate":
        return await backend.generate(GenerateAsk("m", prompt, Sampling(max_tokens=4)), 1)
    if kind == "score":
        return await backend.score(ScoreAsk("m", prompt, () if by_text else (30, 31), "f k"))
    return await backend.choose(ChooseAsk("m", prompt, SYMBOLS))
