"""Replies that real servers gave: TGI, OpenAI's completions and responses, llama-cpp-python."""

import json

import msgspec
import numpy as np
import pytest
import yaml

from backends.tgi import wire as tgi
from orchestrator.ask import GenerateAsk
from orchestrator.records import Failure, Generation, Message, Sampling
from orchestrator.wire import replies
from orchestrator.wire.drawn import Reading
from tests.conftest import SHARED

ASK = GenerateAsk("x", (Message("user", "Test request"),), Sampling(stop=("test",)))
PREFILLED = (
    "test_bloom_560m__test_bloom_560m",
    "test_bloom_560m__test_bloom_560m_all_params",
    "test_mamba__test_mamba_all_params",
    "test_mpt__test_mpt",
)
DRAWN = (
    "test_flash_grammar_llama__test_flash_llama_grammar_regex",
    "test_flash_llama__test_flash_llama_simple",
    "test_flash_qwen2__test_flash_qwen2",
    "test_mpt__test_mpt",
    "test_flash_starcoder2__test_flash_starcoder2_default_params",
)


def folder(name):
    found = SHARED / "data" / name
    if not found.is_dir():
        pytest.skip(f"../shared is absent: it has {name}")
    return found


def tgi_reply(name):
    return (folder("tgi_replies") / f"{name}.json").read_bytes()


def recorded(name):
    return (folder("recorded_replies") / name).read_bytes()


@pytest.mark.parametrize("name", PREFILLED)
def test_prefill_details_of_a_real_tgi_are_read(name):
    body = tgi_reply(name)
    given = json.loads(body)["details"]["prefill"]
    found = tgi.forced(body, "")
    assert isinstance(found, tuple), found
    ids, logprobs = found
    assert ids == tuple(one["id"] for one in given)
    assert np.isnan(logprobs[0])
    np.testing.assert_allclose(logprobs[1:], [one["logprob"] for one in given[1:]])


def test_a_real_tgi_without_prefill_details_is_refused():
    assert tgi.forced(tgi_reply("test_flash_llama__test_flash_llama_simple"), "") is (
        tgi.NO_PREFILL
    )


@pytest.mark.parametrize("name", DRAWN)
def test_draws_of_a_real_tgi_are_read(name):
    body = tgi_reply(name)
    given = json.loads(body)
    made = tgi.generation(body, Reading(), ASK, 5)
    assert isinstance(made, Generation), made
    assert made.token_ids is not None
    assert made.logprobs is not None
    assert made.text == given["generated_text"]
    tokens = given["details"]["tokens"][: len(made.token_ids)]
    assert made.token_ids.tolist() == [one["id"] for one in tokens]
    np.testing.assert_allclose(made.logprobs, [one["logprob"] for one in tokens], rtol=1e-6)


def test_concurrent_draws_of_a_real_tgi_are_alike():
    given = json.loads(tgi_reply("test_flash_llama__test_flash_llama_load"))
    made = [tgi.generation(json.dumps(one).encode(), Reading(), ASK, 5) for one in given]
    assert len({one.text for one in made if isinstance(one, Generation)}) == 1


def test_a_stop_string_is_taken_off_the_text_of_a_real_tgi():
    # That request asked for the prompt too, which no request of ours does.
    body = tgi_reply("test_flash_llama__test_flash_llama_all_params")
    made = tgi.generation(body.replace(b"Test request failed", b" failed"), Reading(), ASK, 5)
    assert isinstance(made, Generation), made
    assert made.text == " failed: Error in "
    assert made.finish_reason == "stop"


def test_a_text_that_holds_its_prompt_is_not_what_its_tokens_spell():
    body = tgi_reply("test_flash_llama__test_flash_llama_all_params")
    made = tgi.generation(body, Reading(), ASK, 5)
    assert isinstance(made, Failure)
    assert "do not spell its text" in made.message


@pytest.mark.parametrize(
    "name",
    [
        "test_chat_llama__test_flash_llama_simple",
        "test_continue_final_message__test_llama_completion_single_prompt",
    ],
)
def test_a_chat_of_a_real_tgi_without_numbers_is_read_as_a_text_only(name):
    body = tgi_reply(name)
    made = replies.generation(body, Reading(logprobs=False))
    assert isinstance(made, Generation), made
    assert made.text == json.loads(body)["choices"][0]["message"]["content"]
    refused = replies.generation(body, Reading())
    assert isinstance(refused, Failure)
    assert refused.cause == "no_logprobs"


def test_drawn_tokens_of_openais_completions_are_read_with_those_that_are_no_text():
    body = recorded("openai_legacy_completions_gpt3_test_f307d529.json")
    given = json.loads(body)["choices"][0]
    made = replies.completion(body, Reading(top=3))
    assert isinstance(made, Generation), made
    assert made.logprobs is not None
    assert made.top is not None
    assert made.text == given["text"]
    np.testing.assert_allclose(
        made.logprobs, given["logprobs"]["token_logprobs"][: made.logprobs.size], rtol=1e-6
    )
    assert (np.diff(made.top.logprobs, axis=1) <= 0).all()


@pytest.mark.parametrize("key", ["0deb8e9b", "bb2cc491", "cfd11f55"])
def test_the_first_token_of_an_echo_is_unknown(key):
    body = recorded(f"openai_legacy_completions_gpt3_test_{key}.json")
    made = replies.completion(body, Reading())
    assert isinstance(made, Generation), made
    assert made.logprobs is not None
    assert np.isnan(made.logprobs[0])
    assert (made.logprobs[1:] < 0).all()


def test_numbers_of_openais_responses_are_read_as_log_probabilities():
    name = "pydantic_ai__test_openai_instructions_with_responses_logprobs.yaml"
    cassette = yaml.safe_load(recorded(name))
    (part,) = cassette["interactions"][0]["response"]["parsed_body"]["output"][0]["content"]
    # The entries have the shape of a chat's; only their envelope differs.
    chat = {
        "choices": [{
            "finish_reason": "stop",
            "message": {"content": part["text"]},
            "logprobs": {"content": part["logprobs"]},
        }]
    }  # fmt: skip
    made = replies.generation(msgspec.json.encode(chat), Reading(offsets=True))
    assert isinstance(made, Generation), made
    assert made.logprobs is not None
    assert made.offsets is not None
    assert made.logprobs.max() <= 0
    assert made.offsets[0] == 0
    assert part["text"][made.offsets[1] :].startswith(part["logprobs"][1]["token"])
