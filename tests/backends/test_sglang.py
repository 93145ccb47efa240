"""SGLang's adapter against the fake server's dialect, which is written from SGLang's source."""

import json
import math

import numpy as np
import pytest

from backends import sglang
from backends.sglang import wire
from orchestrator.ask import Ask, ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Backend, Endpoint, Provenance, ServerLoad
from orchestrator.records import (
    Choice,
    Failure,
    Generation,
    Message,
    Prefix,
    Sampling,
    Scored,
    labels,
)
from tests.backends.dialects import connecting
from tests.fake.main import serving

MESSAGES = (Message("user", "What is 2 + 2?"),)
PAIR = (Message("user", "A: bade kege lafe\nB: xoxo kofu zuku"),)
SYMBOLS = (Message("user", f"Say [[>>]] or [[<<]].\n{PAIR[0].content}"),)
LETTERS = labels("A", "B", "C")
VERDICTS = labels("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")


@pytest.fixture
async def connect():
    async with connecting(sglang, "sglang") as open_one:
        yield open_one


async def drawn(backend, **settings):
    top = settings.pop("top_logprobs", 0)
    ask = GenerateAsk("x", MESSAGES, Sampling(**settings), top_logprobs=top, offsets=True)
    outcome = await backend.generate(ask, 7)
    assert isinstance(outcome, Generation), outcome
    return outcome


async def test_a_draw_has_ids_and_numbers_without_the_stop_token(connect):
    backend, _ = await connect()
    assert isinstance(backend, Backend)
    made = await drawn(backend, top_logprobs=3)
    assert made.finish_reason == "stop"
    assert made.token_ids.shape == made.logprobs.shape
    assert made.n_completion_tokens == len(made.token_ids) + 1
    assert made.top.token_ids.shape == (len(made.token_ids), 3)
    assert made.offsets[0] == 0
    assert made.n_cached_tokens > 0


async def test_a_score_gives_the_numbers_of_the_draw(connect):
    backend, _ = await connect()
    made = await drawn(backend)
    by_ids = await backend.score(ScoreAsk("x", MESSAGES, tuple(made.token_ids.tolist())))
    by_text = await backend.score(ScoreAsk("x", MESSAGES, (), made.text))
    assert isinstance(by_ids, Scored)
    assert isinstance(by_text, Scored)
    np.testing.assert_array_equal(by_ids.logprobs, made.logprobs)
    np.testing.assert_array_equal(by_text.token_ids, made.token_ids)
    assert by_ids.method == "sglang.input_token_logprobs"


async def test_the_end_of_the_turn_is_scored_where_asked(connect):
    backend, _ = await connect()
    made = await drawn(backend)
    ask = ScoreAsk("x", MESSAGES, tuple(made.token_ids.tolist()), end_of_turn=True)
    scored = await backend.score(ask)
    assert isinstance(scored, Scored), scored
    assert len(scored.logprobs) == len(made.token_ids) + 1


async def test_alternatives_of_a_score_are_ordered(connect):
    backend, _ = await connect()
    scored = await backend.score(ScoreAsk("x", MESSAGES, (), "bade kege", top_logprobs=4))
    assert isinstance(scored, Scored), scored
    assert scored.top is not None
    assert scored.top.logprobs.shape == (2, 4)
    assert (np.diff(scored.top.logprobs, axis=1) <= 0).all()


async def test_nothing_is_scored_without_a_request(connect):
    backend, server = await connect()
    scored = await backend.score(ScoreAsk("x", MESSAGES, ()))
    assert isinstance(scored, Scored)
    assert server.stats()["total"] == 0


async def test_labels_of_several_tokens_are_chosen_by_the_chain_rule(connect):
    backend, _ = await connect(choose_negligible=0.0)
    chosen = await backend.choose(ChooseAsk("x", SYMBOLS, VERDICTS))
    assert isinstance(chosen, Choice), chosen
    assert chosen.exact
    assert chosen.n_requests == 2
    for label, value in zip(VERDICTS, chosen.logprobs, strict=True):
        scored = await backend.score(ScoreAsk("x", SYMBOLS, (), label.name))
        assert isinstance(scored, Scored)
        assert value == pytest.approx(float(scored.logprobs.sum()), abs=1e-5)


async def test_labels_of_one_token_take_one_request(connect):
    backend, _ = await connect()
    chosen = await backend.choose(ChooseAsk("x", PAIR, LETTERS))
    assert isinstance(chosen, Choice), chosen
    assert chosen.n_requests == 1
    assert sum(map(math.exp, chosen.logprobs)) == pytest.approx(0.97, abs=1e-4)


async def test_a_begun_answer_is_gone_on_from_by_text_and_by_ids(connect):
    backend, _ = await connect()
    whole = await backend.choose(ChooseAsk("x", PAIR, LETTERS, Prefix("Verdict: ")))
    ids = tuple(b"Verdict: ")
    same = await backend.choose(ChooseAsk("x", PAIR, LETTERS, Prefix("Verdict: ", ids)))
    assert isinstance(whole, Choice)
    assert isinstance(same, Choice)
    assert whole.logprobs == same.logprobs
    other = await backend.choose(ChooseAsk("x", PAIR, LETTERS))
    assert isinstance(other, Choice)
    assert other.logprobs != whole.logprobs


@pytest.mark.parametrize(("temperature", "original", "raw"), [
    (0.0, False, True), (1.0, False, True), (0.7, False, False), (0.7, True, True),
])  # fmt: skip
async def test_numbers_are_raw_unless_the_temperature_scaled_them(
    connect, temperature, original, raw
):
    backend, _ = await connect(original_logprobs=original)
    assert (await drawn(backend, temperature=temperature)).raw is raw


async def test_a_stop_string_is_no_part_of_the_text(connect):
    backend, _ = await connect(rules=[{"text": "bade kege STOP lafe"}])
    made = await drawn(backend, stop=("STOP",))
    assert (made.text, made.finish_reason) == ("bade kege ", "stop")


@pytest.mark.parametrize("quirk", ["double_bos", "silent_truncation"])
async def test_a_prompt_that_the_server_changes_is_no_outcome(connect, quirk):
    backend, _ = await connect(quirks=[quirk])
    long = (Message("user", "bade " * 100),)
    scored = await backend.score(ScoreAsk("x", long, (), "kege lafe"))
    assert isinstance(scored, Failure)
    made = await backend.generate(GenerateAsk("x", long, Sampling()), 1)
    assert isinstance(made, Failure)
    assert (made.cause, made.permanent) == ("unparseable", True)


async def test_a_server_without_numbers_is_refused(connect):
    backend, _ = await connect(quirks=["ignored_fields"])
    for outcome in (
        await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1),
        await backend.score(ScoreAsk("x", MESSAGES, (), "kege")),
        await backend.choose(ChooseAsk("x", PAIR, LETTERS)),
    ):
        assert isinstance(outcome, Failure)
        assert outcome.cause == "no_logprobs"


async def test_the_smallest_float_is_a_true_zero(connect):
    backend, _ = await connect(quirks=["missing_label"])
    chosen = await backend.choose(ChooseAsk("x", PAIR, LETTERS))
    assert isinstance(chosen, Choice)
    assert chosen.logprobs == (-math.inf,) * 3


async def test_features_are_refused_with_the_server_that_has_them(connect):
    backend, _ = await connect()
    outcome = await backend.score(ScoreAsk("x", MESSAGES, (1,), features=("entropy",)))
    assert isinstance(outcome, Failure)
    assert "embedded" in outcome.message


async def test_an_over_long_prompt_is_told(connect):
    manager = serving({"dialect": "sglang", "context_tokens": 16}, models=["m"])
    async with manager as (url, _):
        backend = sglang.Kind(sglang.Config()).connect(Endpoint(base_url=url, model="m"))
        outcome = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
        await backend.close()
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("too_long", True)


async def test_provenance_and_load(connect):
    backend, _ = await connect()
    stated = await backend.provenance()
    assert isinstance(stated, Provenance)
    assert (stated.backend, stated.version) == ("sglang", "0.5.23")
    assert await backend.load() == ServerLoad(running=0, waiting=0, kv_cache=0.25)


async def test_a_model_that_the_server_lacks_is_told():
    async with serving({"dialect": "sglang"}, models=["other"]) as (url, _):
        backend = sglang.Kind(sglang.Config()).connect(Endpoint(base_url=url, model="m"))
        stated = await backend.provenance()
        await backend.close()
    assert isinstance(stated, Failure)
    assert stated.cause == "not_found"


@pytest.mark.parametrize(
    "fault",
    ["429", "500", "503", "reset", "close", "cut", "malformed", "error_200", "wrong_types",
     "no_logprobs", "empty_choices", "abort"],
)  # fmt: skip
async def test_faults_are_failures(connect, fault):
    backend, _ = await connect(rules=[{"fault": fault, "route": "generate"}])
    outcome = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
    assert isinstance(outcome, Failure)


@pytest.mark.parametrize(("fault", "number"), [("nan", math.nan), ("null", math.nan)])
async def test_a_number_that_is_missing_is_unknown_and_not_zero(connect, fault, number):
    backend, _ = await connect(rules=[{"fault": fault, "route": "generate"}])
    made = await drawn(backend)
    np.testing.assert_array_equal(made.logprobs, np.full(made.logprobs.size, number))
    scored = await backend.score(ScoreAsk("x", MESSAGES, (), "kege"))
    assert isinstance(scored, Failure)
    assert scored.cause == "unparseable"


async def test_a_choice_whose_numbers_are_missing_is_refused(connect):
    backend, _ = await connect(rules=[{"fault": "no_logprobs", "route": "generate"}])
    chosen = await backend.choose(ChooseAsk("x", SYMBOLS, VERDICTS))
    assert isinstance(chosen, Failure)
    assert chosen.cause == "no_logprobs"


@pytest.mark.parametrize(("adapter", "expected"), [("", None), ("a", "a")])
def test_an_adapter_is_named_in_every_request_that_computes(adapter, expected):
    ask = Ask().generate("m", MESSAGES, Sampling(max_tokens=1))
    bodies = [
        wire.draw((1, 2), ask, 0, {"lora_path": adapter} if adapter else {}),
        wire.score((1, 2), 1, 0, lora=adapter),
        wire.look([(1, 2)], [[3]], adapter),
    ]
    assert [json.loads(body).get("lora_path") for body in bodies] == [expected] * 3
