"""Peculiarities of llama-server, and those that our back-end keeps out of the numbers.

Where a test says that the server does something odd, it is there to tell when that ends.
"""

import asyncio
import json
import math
from dataclasses import replace
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Provenance
from orchestrator.records import Message, Sampling
from tests.conformance.measure import SYMBOLS, VERDICT, known
from tests.conformance.reference import reference
from tests.conformance.servers import KINDS, MODEL, running
from tests.conftest import BUNDLED

pytestmark = [pytest.mark.timeout(600), pytest.mark.kinds("llamacpp")]

PROMPT = (Message("user", VERDICT.format("f k", "k f")),)
CHAT = [{"role": "user", "content": PROMPT[0].content}]
SPELLINGS = "[[>>]] é 漢字 🙂\u200d \r\n\t <|im_end|> <s> '''s  12,345 \u00a0x"


def post_to(server):
    """Posts without our client: status and body."""
    headers = {"Authorization": f"Bearer {server.server.api_key}"}

    async def post(path, body):
        async with (
            aiohttp.ClientSession(server.server.base_url, headers=headers) as session,
            session.post(path, json=body) as reply,
        ):
            return reply.status, await reply.json()

    return post


@pytest.fixture
def raw(server):
    return post_to(server)


@pytest.fixture(scope="module")
def truth():
    return reference(BUNDLED / MODEL)


def forced(ids, **fields):
    return {
        "prompt": list(ids), "n_predict": 1, "n_probs": 1, "temperature": 0, "top_k": 1,
        "samplers": ["top_k"], "return_tokens": True, **fields,
    }  # fmt: skip


async def cut(raw, text):
    _, reply = await raw("/tokenize", {"content": text, "parse_special": True})
    return reply["tokens"]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(max_size=40) | st.text("[]<>= \n'abc12.,", max_size=40))
def test_the_gguf_has_the_tokens_of_the_model(server, truth, text):
    text = text.replace("\0", "")
    assert asyncio.run(cut(post_to(server), text)) == truth.encode(text)


async def test_a_nasty_text_has_the_tokens_of_the_model_and_comes_back(raw, truth):
    ids = await cut(raw, SPELLINGS)
    assert ids == truth.encode(SPELLINGS)
    assert (await raw("/detokenize", {"tokens": ids}))[1] == {"content": SPELLINGS}


@pytest.mark.parametrize("text", ["f", "[[", "<|im_end|>"])
async def test_a_bias_a_grammar_and_a_look_up_tell_the_same(raw, truth, text):
    ids = truth.prompt(PROMPT)
    (wanted,) = truth.encode(text)
    expected = truth.scores(ids, [wanted])[0]
    _, biased = await raw("/completion", forced(ids, logit_bias=[[wanted, 1000]]))
    _, listed = await raw("/completion", forced(ids, n_probs=1024))
    (entry,) = biased["completion_probabilities"]
    assert (entry["id"], biased["tokens"]) == (wanted, [wanted])
    assert entry["logprob"] == pytest.approx(expected, abs=2e-4)
    rows = {
        one["id"]: one["logprob"] for one in listed["completion_probabilities"][0]["top_logprobs"]
    }
    assert rows[wanted] == pytest.approx(expected, abs=2e-4)
    assert len(rows) == 1024
    if text != "<|im_end|>":
        _, grammar = await raw("/completion", forced(ids, grammar=f"root ::= <[{wanted}]>"))
        (entry,) = grammar["completion_probabilities"]
        assert (entry["id"], entry["logprob"]) == (wanted, pytest.approx(expected, abs=2e-4))


async def test_a_token_that_ends_inside_a_character_is_not_told_of(raw, truth):
    ids, (first, *_) = truth.prompt(PROMPT), truth.encode("漢")
    _, reply = await raw("/completion", forced(ids, logit_bias=[[first, 1000]]))
    assert reply["tokens"] == [first]
    assert "completion_probabilities" not in reply


async def test_a_grammar_can_not_force_a_token_that_ends_inside_a_character(raw, truth):
    ids, fragments = truth.prompt(PROMPT), truth.encode("漢")
    grammar = "root ::= " + " ".join(f"<[{token}]>" for token in fragments)
    status, reply = await raw("/completion", forced(ids, grammar=grammar, n_predict=len(fragments)))
    assert (status, "grammar" in json.dumps(reply)) == (500, True)


@pytest.mark.parametrize("text", ["漢字 🙂 and [[>>]] é!", "🙂", "plain words", "a<|im_end|>b"])
async def test_texts_with_any_characters_are_scored_right(backend, truth, text):
    scored = known(await backend.score(ScoreAsk("m", PROMPT, (), text, 2, end_of_turn=True)))
    ids = truth.encode(text)
    assert scored.token_ids.tolist()[:-1] == ids
    expected = truth.logprobs(truth.prompt(PROMPT), scored.token_ids.tolist())
    own = expected[np.arange(len(scored.token_ids)), scored.token_ids]
    np.testing.assert_allclose(scored.logprobs, own, atol=2e-4)
    np.testing.assert_allclose(scored.top.logprobs, -np.sort(-expected, axis=1)[:, :2], atol=2e-4)


@pytest.mark.parametrize("seed", range(4))
async def test_drawn_pieces_of_characters_have_their_numbers(backend, truth, seed):
    wild = GenerateAsk("m", PROMPT, Sampling(max_tokens=48, temperature=9.0), top_logprobs=2)
    drawn = known(await backend.generate(wild, seed))
    ids = drawn.token_ids.tolist()
    rows = truth.logprobs(truth.prompt(PROMPT), ids)
    np.testing.assert_allclose(drawn.logprobs, rows[np.arange(len(ids)), ids], atol=2e-4)
    np.testing.assert_allclose(drawn.top.logprobs, -np.sort(-rows, axis=1)[:, :2], atol=2e-4)


@pytest.mark.parametrize("stop", ["]", ">]", " k", "k f"])
async def test_a_stop_string_takes_no_number_from_the_text_before_it(backend, truth, stop):
    prompt = (Message("user", "repeat: f k f k"),)
    ask = GenerateAsk("m", prompt, Sampling(max_tokens=16, stop=(stop,)))
    drawn = known(await backend.generate(ask, 1))
    assert stop not in drawn.text
    ids = drawn.token_ids.tolist()
    assert truth.tokenizer.decode(ids).startswith(drawn.text)
    np.testing.assert_allclose(drawn.logprobs, truth.scores(truth.prompt(prompt), ids), atol=2e-4)


async def test_the_numbers_do_not_depend_on_what_was_asked_before(server, truth):
    ids = tuple(truth.encode("[[>]] f k"))
    async with server.connected(settings={"cache_prompt": False}) as backend:
        anew = known(await backend.score(ScoreAsk("m", PROMPT, ids)))
    async with server.connected() as backend:
        known(await backend.choose(ChooseAsk("m", PROMPT, SYMBOLS)))
        cached = known(await backend.score(ScoreAsk("m", PROMPT, ids)))
    assert anew.n_cached_tokens == 0
    assert cached.n_cached_tokens > 0
    np.testing.assert_allclose(cached.logprobs, anew.logprobs, atol=2e-4)


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.llamacpp
def test_naming_a_busy_slot_spoils_the_answer_that_is_drawn_there(tmp_path, truth):
    """Hold the fault for which no slot is named and main memory caches nothing."""
    kind = KINDS["llamacpp"]
    cached = {**kind.settings, "slots": 1, "env": {"LLAMA_ARG_CACHE_RAM": "64"}}
    with running(replace(kind, settings=cached), tmp_path / "log") as run:
        worst = [asyncio.run(worst_beside_a_named_slot(run, truth)) for _ in range(8)]
    assert max(worst) > 0.1


async def worst_beside_a_named_slot(run, truth):
    """The largest error of a draw while others ask for its slot by name."""
    ids, others = truth.prompt(PROMPT), truth.prompt((Message("user", "sort: q c a b"),))
    post = post_to(run)
    async with asyncio.TaskGroup() as group:
        drawn = group.create_task(post("/completion", forced(ids, n_predict=200, ignore_eos=True)))
        await asyncio.sleep(0.05)
        for _ in range(4):
            group.create_task(post("/completion", forced(others, id_slot=0)))
    reply = drawn.result()[1]
    told = [entry["logprob"] for entry in reply["completion_probabilities"]]
    return float(np.abs(told - truth.scores(ids, reply["tokens"])[: len(told)]).max())


async def test_a_begun_answer_is_gone_on_from_whatever_is_asked(raw):
    begun = [*CHAT, {"role": "assistant", "content": "So "}]
    _, plain = await raw("/apply-template", {"messages": begun})
    _, asked = await raw(
        "/apply-template",
        {"messages": begun, "continue_final_message": True, "add_generation_prompt": False},
    )
    assert plain == asked
    assert plain["prompt"].endswith("assistant\nSo ")


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/chat/completions", {"messages": CHAT, "model": "other"}, 200, ""),
        ("/v1/chat/completions", {"messages": CHAT, "top_logprobs": 2}, 400, "logprobs"),
        ("/v1/chat/completions", {"messages": CHAT, "no_such_field": 1}, 200, ""),
        ("/v1/completions", {"prompt": "a", "echo": True}, 200, ""),
        ("/completion", {"prompt": []}, 400, "must not be empty"),
        ("/completion", {"prompt": [99999]}, 400, "invalid tokens"),
        ("/completion", {"prompt": [5] * 2000}, 400, "exceed_context_size_error"),
        ("/completion", {"prompt": [5], "grammar": "root ::= <[x]>"}, 400, "grammar"),
        ("/embedding", {"content": "a"}, 501, "--embeddings"),
        ("/nowhere", {}, 404, "not_found"),
    ],
)
async def test_odd_requests_are_answered_as_they_were_when_this_was_written(
    raw, path, body, status, said
):
    answered, reply = await raw(path, {"n_predict": 1, "max_tokens": 1} | body)
    assert answered == status
    assert said in json.dumps(reply)


async def test_a_choice_takes_its_prompt_from_the_cache(backend):
    known(await backend.choose(ChooseAsk("m", PROMPT, SYMBOLS)))
    again = known(await backend.choose(ChooseAsk("m", PROMPT, SYMBOLS)))
    assert again.n_cached_tokens >= again.n_prompt_tokens - 1


async def test_provenance_names_the_build(backend):
    stated = await backend.provenance()
    assert isinstance(stated, Provenance)
    assert stated.version
    assert len(stated.fingerprint) == 16


async def test_figures_of_its_load_are_published(backend):
    known(await backend.choose(ChooseAsk("m", PROMPT, SYMBOLS)))
    load = await backend.load()
    assert (load.running, load.waiting) == (0, 0)
    assert 0 < load.prefix_hits < load.prefix_queries


def test_the_key_is_in_no_log_and_no_command_line(server):
    key = server.server.api_key
    assert len(key) > 20
    assert key.encode() not in server.server.log_path.read_bytes()
    command = Path(f"/proc/{server.server.pid}/cmdline")
    if command.exists():
        assert key.encode() not in command.read_bytes()


async def test_probabilities_over_the_whole_vocabulary_add_up_to_one(raw, truth):
    _, reply = await raw("/completion", forced(truth.prompt(PROMPT), n_probs=1024))
    listed = reply["completion_probabilities"][0]["top_logprobs"]
    assert math.fsum(math.exp(one["logprob"]) for one in listed) == pytest.approx(1, abs=1e-4)
