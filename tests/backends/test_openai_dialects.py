"""The adapter for hosted endpoints, LiteLLM and Ollama, against what those accept and refuse."""

import math
import re

import numpy as np
import pytest
import yaml

from backends import openai
from backends.openai import Config
from orchestrator.ask import ChooseAsk, GenerateAsk
from orchestrator.backend import Provenance
from orchestrator.records import UNCLEAR, Choice, Failure, Generation, Message, Sampling, labels
from tests.backends.dialects import connecting

MESSAGES = (Message("user", "What is 2 + 2?"),)
PAIR = (Message("user", "A: bade kege lafe\nB: xoxo kofu zuku"),)
RATING = (Message("user", "Give a rating from 1 to 9.\nbade kege lafe"),)
PLAIN = GenerateAsk("x", MESSAGES, Sampling())


@pytest.fixture
async def connect():
    async with connecting(openai, "openai", ["m", "reasoning-1"], transport="openai") as open_one:

        async def backend_of(*named, **given):
            return (await open_one(*named, **given))[0]

        yield backend_of


async def test_an_endpoint_that_refuses_unknown_fields_takes_ours(connect):
    made = await (await connect()).generate(PLAIN, 1)
    assert isinstance(made, Generation), made
    assert made.logprobs is not None
    assert made.token_ids is None
    assert made.logprobs.size > 0
    assert made.n_cached_tokens == made.n_prompt_tokens // 2 > 0


def told(message: str) -> Config:
    """The settings of the connection where a model's entry holds what a message says."""
    [hint] = re.findall(r"say `(backend: \{.*?\})`", message)
    settings = yaml.safe_load(hint)["backend"]
    assert settings.pop("kind") == "openai"
    return Config.model_validate(settings)


async def test_a_field_that_the_endpoint_refuses_is_named_with_the_remedy(connect):
    backend = await connect()
    refused = await backend.generate(GenerateAsk("x", MESSAGES, Sampling(top_k=5)), 1)
    assert isinstance(refused, Failure)
    assert (refused.scope, "top_k" in refused.message) == (UNCLEAR, True)
    assert told(refused.message) == Config(omit=("top_k",))


@pytest.mark.parametrize(
    ("status", "words", "settings"),
    [
        (422, "body.seed: Extra inputs are not permitted", {"omit": ("seed",)}),
        (400, "property 'seed' is unsupported", {"omit": ("seed",)}),
        (400, "Unknown field: continue_final_message", {"continue_final_message": False}),
        (400, "System role not supported", {"system_role": False}),
        (403, "You are not allowed to request logprobs from this model.", {"logprobs": False}),
        (400, "Invalid value for 'top_logprobs': must be less than or equal to 5.",
         {"top_logprobs": 5}),
        (400, "Unsupported parameter: 'temperature' is not supported with this model.",
         {"reasoning": True}),
    ],
)  # fmt: skip
async def test_what_an_endpoint_refuses_comes_with_the_setting_that_helps(
    connect, status, words, settings
):
    backend = await connect(rules=[{"fault": "status", "status": status, "message": words}])
    refused = await backend.generate(PLAIN, 1)
    assert isinstance(refused, Failure)
    assert not refused.permanent
    assert told(refused.message) == Config(**settings)


async def test_an_account_without_money_is_told_to_run_the_same_command_later(connect):
    rule = {"fault": "status", "status": 402, "message": "Insufficient Balance"}
    refused = await (await connect(rules=[rule])).generate(PLAIN, 1)
    assert isinstance(refused, Failure)
    assert "run the same command" in refused.message


async def test_a_reasoning_model_that_is_asked_as_others_are_names_the_setting(connect):
    refused = await (await connect(model="reasoning-1")).generate(PLAIN, 1)
    assert isinstance(refused, Failure)
    assert told(refused.message) == Config(reasoning=True)


async def test_a_reasoning_model_is_asked_for_what_it_takes(connect):
    backend = await connect(model="reasoning-1", reasoning=True)
    made = await backend.generate(PLAIN, 1)
    assert isinstance(made, Generation), made
    assert made.logprobs is None
    assert made.n_completion_tokens > 32
    chosen = await backend.choose(ChooseAsk("x", PAIR, labels("A", "B")))
    assert isinstance(chosen, Failure)
    assert chosen.cause == "no_logprobs"


async def test_a_refusal_is_no_answer(connect):
    backend = await connect(rules=[{"refusal": "I can not say that."}])
    made = await backend.generate(PLAIN, 1)
    assert isinstance(made, Failure)
    assert (made.cause, made.permanent) == ("no_answer", True)
    assert made.message == "a refusal came instead: I can not say that."


@pytest.mark.parametrize("dialect", ["openai", "ollama"])
async def test_log_probabilities_dropped_in_silence_are_refused_with_the_setting(connect, dialect):
    backend = await connect(dialect, quirks=["ignored_fields"])
    for outcome in (
        await backend.generate(PLAIN, 1),
        await backend.choose(ChooseAsk("x", PAIR, labels("A", "B"))),
    ):
        assert isinstance(outcome, Failure)
        assert (outcome.cause, outcome.scope) == ("no_logprobs", UNCLEAR)
        assert told(outcome.message) == Config(logprobs=False)


async def test_a_number_that_is_missing_is_unknown_and_not_zero(connect):
    backend = await connect(rules=[{"fault": "sentinel"}])
    made = await backend.generate(PLAIN, 1)
    assert isinstance(made, Generation), made
    assert made.logprobs is not None
    assert np.isnan(made.logprobs).all()


async def test_labels_below_those_listed_are_bounded(connect):
    some = await (await connect(top_logprobs=3)).choose(
        ChooseAsk("x", RATING, labels(*"123456789"))
    )
    every = await (await connect()).choose(ChooseAsk("x", RATING, labels(*"123456789")))
    assert isinstance(some, Choice), some
    assert isinstance(every, Choice), every
    assert every.exact
    assert sum(not math.isnan(one) for one in some.logprobs) == 3
    for upper, known in zip(some.upper, every.logprobs, strict=True):
        assert upper >= known - 1e-6


async def test_a_label_that_is_not_listed_is_unknown(connect):
    backend = await connect(quirks=["missing_label"])
    chosen = await backend.choose(ChooseAsk("x", PAIR, labels("A", "B", "C")))
    assert isinstance(chosen, Choice), chosen
    assert not chosen.exact
    assert all(math.isfinite(upper) for upper in chosen.upper)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m2s"}, 62.0),
        ({"x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": "20ms"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
    ],
)
async def test_the_limit_that_is_used_up_says_how_long_to_wait(connect, headers, seconds):
    backend = await connect(rules=[{"fault": "429", "headers": headers}])
    limited = await backend.generate(PLAIN, 1)
    assert isinstance(limited, Failure)
    assert (limited.cause, limited.permanent) == ("rate_limited", False)
    assert limited.retry_after_s == seconds


async def test_a_model_that_the_endpoint_lacks_is_told(connect):
    refused = await (await connect(model="gpt-x")).generate(PLAIN, 1)
    assert isinstance(refused, Failure)
    assert refused.cause == "not_found"


async def test_ollama_is_an_openai_endpoint(connect):
    backend = await connect("ollama")
    assert isinstance(await backend.provenance(), Provenance)
    chosen = await backend.choose(ChooseAsk("x", PAIR, labels("A", "B", "C")))
    assert isinstance(chosen, Choice)
    drawn = await backend.generate(GenerateAsk("x", MESSAGES, Sampling(top_k=5)), 1)
    assert isinstance(drawn, Generation)
