"""Peculiarities of vLLM, and those that our back-end keeps out of the numbers.

Where a test says that the server does something odd, it is there to tell when that ends.
"""

import asyncio
import json
import math

import aiohttp
import numpy as np
import pytest

from orchestrator.ask import ChooseAsk, GenerateAsk, RewardAsk, ScoreAsk
from orchestrator.backend import Provenance
from orchestrator.records import Message, Sampling
from tests.conformance.measure import SYMBOLS, VERDICT, known
from tests.conformance.reference import reference
from tests.conformance.servers import MODEL
from tests.conftest import BUNDLED

pytestmark = [pytest.mark.timeout(600), pytest.mark.kinds("vllm")]

PROMPT = (Message("user", VERDICT.format("f k", "k f")),)
CHAT = [{"role": "user", "content": PROMPT[0].content}]
N = 20
TRIES = 20


@pytest.fixture
async def raw(server):
    """Posts without our client: status and body."""
    headers = {"Authorization": f"Bearer {server.server.api_key}"}
    async with aiohttp.ClientSession(server.server.base_url, headers=headers) as session:

        async def post(path, body):
            async with session.post(path, json={"model": MODEL, **body}) as reply:
                return reply.status, await reply.json()

        yield post


def chat(**fields):
    return {"messages": CHAT, "max_tokens": 1, "temperature": 0, "logprobs": True, **fields}


async def at_once(raw, *groups):
    """The replies of several groups of bodies, all sent together."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            [group.create_task(raw("/v1/chat/completions", body)) for body in bodies]
            for bodies in groups
        ]
    return [[task.result()[1] for task in some] for some in tasks]


def spoilt(reply):
    content = reply["choices"][0]["logprobs"]["content"]
    return any(
        listed["logprob"] < -9998 for entry in content for listed in entry["top_logprobs"]
    ) or any(len(entry["top_logprobs"]) < 5 for entry in content)


async def test_the_v1_runner_spoils_alternatives_beside_requests_for_ids(raw):
    """Hold the fault for which labels are forced; when it is gone, so may `gate` be."""
    ordinary = [chat(top_logprobs=5, max_tokens=8)] * N
    exact = [chat(logprob_token_ids=[40, 41], max_tokens=8)]
    # One of each kind in turn, and again: only those that share a step of the server are spoilt.
    for _ in range(TRIES):
        replies = await at_once(raw, *(group for one in ordinary for group in ([one], exact)))
        if any(spoilt(reply) for (reply,) in replies[::2]):
            break
    else:
        pytest.fail(f"no reply of {TRIES * N} was spoilt")
    (alone,) = await at_once(raw, ordinary)
    assert not any(map(spoilt, alone))


async def test_requests_without_alternatives_are_not_spoilt_beside_requests_for_ids(raw):
    plain = [chat(top_logprobs=0, max_tokens=8)] * N
    exact = [chat(logprob_token_ids=[40, 41], max_tokens=8)] * N
    (alone,) = await at_once(raw, plain[:1])
    replies, _ = await at_once(raw, plain, exact)

    def numbers(reply):
        return [entry["logprob"] for entry in reply["choices"][0]["logprobs"]["content"]]

    for reply in replies:
        np.testing.assert_allclose(numbers(reply), numbers(alone[0]), atol=1e-4)


@pytest.mark.parametrize(("raw", "how"), [(True, "+forced"), (False, "")])
async def test_labels_that_are_not_listed_spoil_nothing(server, raw, how):
    """Forced draws, or none where numbers are processed, among draws that list alternatives."""
    draw = GenerateAsk("m", PROMPT, Sampling(max_tokens=8), top_logprobs=5)
    choose = ChooseAsk("m", PROMPT, SYMBOLS)
    async with server.connected(settings={"raw_logprobs": raw}) as backend:
        drawn_alone = known(await backend.generate(draw, 1))
        chosen_alone = known(await backend.choose(choose))
        assert chosen_alone.method == f"vllm.top_logprobs{how}"
        async with asyncio.TaskGroup() as group:
            draws = [group.create_task(backend.generate(draw, 1)) for _ in range(N)]
            choices = [group.create_task(backend.choose(choose)) for _ in range(N)]
    for task in draws:
        drawn = known(task.result())
        np.testing.assert_allclose(drawn.top.logprobs, drawn_alone.top.logprobs, atol=1e-4)
    for task in choices:
        chosen = known(task.result())
        np.testing.assert_allclose(chosen.logprobs, chosen_alone.logprobs, atol=1e-4)


async def test_the_drawn_token_comes_first_and_the_list_is_cut(raw):
    body = chat(top_logprobs=2, max_tokens=40, temperature=2.0, seed=1, ignore_eos=True)
    body["messages"] = [{"role": "user", "content": "Say something."}]
    _, reply = await raw("/v1/chat/completions", body)
    entries = reply["choices"][0]["logprobs"]["content"]
    outside = [
        entry
        for entry in entries
        if entry["top_logprobs"][0]["logprob"] < entry["top_logprobs"][1]["logprob"]
    ]
    assert outside
    assert all(entry["top_logprobs"][0]["token"] == entry["token"] for entry in outside)
    assert all(len(entry["top_logprobs"]) == 2 for entry in outside)


async def test_echo_gives_the_numbers_of_prompt_logprobs(raw, backend):
    truth = reference(BUNDLED / MODEL)
    ids = truth.prompt(PROMPT)
    _, reply = await raw(
        "/v1/completions", {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 0}
    )
    echoed = reply["choices"][0]["logprobs"]["token_logprobs"]
    assert echoed[0] is None
    np.testing.assert_allclose(echoed[1:], truth.scores(ids[:1], ids[1:]), atol=1e-4)


async def test_constrained_choices_are_renormalised_and_allowed_ids_are_not(raw):
    truth = reference(BUNDLED / MODEL)
    p = truth.logprobs(truth.prompt(PROMPT), [0])[0]
    ids = truth.encode("A")[:1] + truth.encode("B")[:1]
    constrained = chat(top_logprobs=2, structured_outputs={"choice": ["A", "B"]})
    _, reply = await raw("/v1/chat/completions", constrained)
    listed = reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    assert sum(math.exp(one["logprob"]) for one in listed) == pytest.approx(1, abs=1e-3)
    assert sum(math.exp(p[token]) for token in ids) < 0.5
    _, reply = await raw("/v1/chat/completions", chat(top_logprobs=2, allowed_token_ids=ids))
    drawn = reply["choices"][0]["logprobs"]["content"][0]["logprob"]
    assert drawn == pytest.approx(max(p[token] for token in ids), abs=1e-3)


async def test_scoring_reads_no_prefix_cache_and_drawing_does(backend):
    prompt = (Message("user", "rotate: " + "a b c d e f g h " * 40),)
    draw = GenerateAsk("m", prompt, Sampling(max_tokens=2))
    known(await backend.generate(draw, 1))
    assert known(await backend.generate(draw, 1)).n_cached_tokens >= 128
    before = await backend.load()
    assert known(await backend.score(ScoreAsk("m", prompt, (30, 31)))).n_cached_tokens == 0
    after = await backend.load()
    assert after.prefix_queries == before.prefix_queries


async def test_a_choice_takes_its_prompt_from_the_prefix_cache(backend):
    prompt = (Message("user", VERDICT.format("a b c d e f g h " * 40, "k")),)
    before = await backend.load()
    chosen = known(await backend.choose(ChooseAsk("m", prompt, SYMBOLS)))
    after = await backend.load()
    n_prompts = (after.prefix_queries - before.prefix_queries) // chosen.n_prompt_tokens
    assert n_prompts > 1
    # vLLM on a CPU keeps blocks of 128 tokens; only the first prompt has none of them.
    kept = chosen.n_prompt_tokens // 128 * 128
    assert after.prefix_hits - before.prefix_hits >= (n_prompts - 1) * kept


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"model": "other"}, 404, "does not exist"),
        ({"max_tokens": 5000}, 400, "max_tokens"),
        ({"logprobs": True, "top_logprobs": 1000}, 400, "max allowed: 16"),
        ({"top_logprobs": 2}, 400, "logprobs"),
        ({"guided_choice": ["A"]}, 200, ""),
        ({"no_such_field": 1}, 200, ""),
    ],
)
async def test_odd_requests_are_answered_as_they_were_when_this_was_written(
    raw, body, status, said
):
    answered, reply = await raw("/v1/chat/completions", {"messages": CHAT, "max_tokens": 4} | body)
    assert answered == status
    assert said in json.dumps(reply)


async def test_the_route_for_exact_ids_is_closed_without_its_flag(raw):
    status, reply = await raw("/inference/v1/generate", {"token_ids": [1], "sampling_params": {}})
    assert status == 403
    assert "--enable-scale-out" in json.dumps(reply)


async def test_more_alternatives_than_the_server_lists_are_refused_with_the_flag(backend):
    outcome = await backend.generate(GenerateAsk("m", PROMPT, Sampling(), top_logprobs=40), 1)
    assert (outcome.cause, outcome.permanent) == ("unsupported", True)
    assert "--max-logprobs 40" in outcome.message


async def test_provenance_names_version_and_build(backend):
    stated = await backend.provenance()
    assert isinstance(stated, Provenance)
    assert stated.fingerprint.startswith(f"vllm-{stated.version}")


async def test_figures_of_its_load_are_published(backend):
    load = await backend.load()
    assert None not in (load.running, load.waiting, load.kv_cache)
    assert 0 <= load.prefix_hits <= load.prefix_queries


async def test_the_key_is_in_no_log_and_no_command_line(server):
    key = server.server.api_key
    assert len(key) > 20
    assert key.encode() not in server.server.log_path.read_bytes()


async def test_a_base_model_is_drawn_from_scored_and_read_after_plain_text(server):
    truth, text = reference(BUNDLED / MODEL), "Task: repeat: f k\nAnswer: "
    before = truth.tokenizer.encode(text)
    async with server.connected(plain=True) as backend:
        prompt = (Message("user", text),)
        drawn = known(await backend.generate(GenerateAsk("m", prompt, Sampling(max_tokens=6)), 1))
        ids = tuple(drawn.token_ids.tolist())
        scored = known(await backend.score(ScoreAsk("m", prompt, ids, drawn.text)))
        chosen = known(await backend.choose(ChooseAsk("m", prompt, SYMBOLS)))
    expected = truth.scores(before, ids)
    np.testing.assert_allclose(drawn.logprobs, expected, atol=1e-4)
    np.testing.assert_allclose(scored.logprobs, expected, atol=1e-4)
    paths = [truth.encode(label.name) for label in SYMBOLS]
    sums = [truth.scores(before, path).sum() for path in paths]
    np.testing.assert_allclose(chosen.logprobs, sums, atol=1e-4)


async def test_a_model_that_draws_texts_rates_no_answers(backend):
    chat = (Message("user", "x"), Message("assistant", "y"))
    found = await backend.reward(RewardAsk("m", chat))
    assert (found.cause, found.permanent) == ("unsupported", True)
    assert "serve the weights of a reward model" in found.message
