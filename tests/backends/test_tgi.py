"""TGI's adapter against the fake server's dialect, and its wire against replies of real servers."""

import math

import numpy as np
import pytest

from backends import tgi
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Backend, Endpoint, Provenance, ServerLoad
from orchestrator.records import (
    Choice,
    Failure,
    Generation,
    Label,
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
RATING = (Message("user", "Give a rating from 1 to 9.\nbade kege lafe"),)
SYMBOLS = (Message("user", f"Say [[>>]] or [[<<]].\n{PAIR[0].content}"),)
LETTERS = labels("A", "B", "C")
DIGITS = labels(*"123456789")
VERDICTS = labels("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")


@pytest.fixture
async def connect():
    async with connecting(tgi, "tgi", ["/model"]) as open_one:
        yield open_one


async def drawn(backend, **settings):
    top = settings.pop("top_logprobs", 0)
    ask = GenerateAsk("x", MESSAGES, Sampling(**settings), top_logprobs=top)
    outcome = await backend.generate(ask, 7)
    assert isinstance(outcome, Generation), outcome
    return outcome


async def test_a_draw_has_ids_and_numbers_without_the_stop_token(connect):
    backend, _ = await connect()
    assert isinstance(backend, Backend)
    made = await drawn(backend, top_logprobs=3)
    assert (made.finish_reason, made.raw) == ("stop", True)
    assert made.n_completion_tokens == len(made.token_ids) + 1
    assert made.top.token_ids.shape == (len(made.token_ids), 3)


async def test_sampling_that_is_off_is_not_sent_as_the_server_refuses_it(connect):
    backend, _ = await connect()
    assert not (await drawn(backend, temperature=0.7, top_p=1.0)).raw
    assert not (await drawn(backend, temperature=1.0, top_p=0.9, top_k=5)).raw


async def test_the_stop_string_that_the_server_leaves_is_taken_off(connect):
    backend, _ = await connect(rules=[{"text": "bade kege STOP lafe"}])
    made = await drawn(backend, stop=("STOP",))
    assert (made.text, made.finish_reason) == ("bade kege ", "stop")


async def test_a_score_gives_the_numbers_of_the_draw(connect):
    backend, _ = await connect()
    made = await drawn(backend)
    ids = tuple(made.token_ids.tolist())
    scored = await backend.score(ScoreAsk("x", MESSAGES, ids, made.text))
    assert isinstance(scored, Scored), scored
    np.testing.assert_array_equal(scored.logprobs, made.logprobs)
    assert (scored.method, scored.boundary) == ("tgi.prefill", "separate")
    assert scored.n_prompt_tokens == made.n_prompt_tokens


async def test_a_server_without_prefill_details_is_refused_by_the_name_of_the_flag(connect):
    backend, _ = await connect(quirks=["no_prefill"])
    scored = await backend.score(ScoreAsk("x", MESSAGES, (), "bade kege"))
    assert isinstance(scored, Failure)
    assert (scored.cause, scored.permanent) == ("unsupported", True)
    assert "--enable-prefill-logprobs" in scored.message


@pytest.mark.parametrize(
    ("ask", "word"),
    [
        (ScoreAsk("x", MESSAGES, (1, 2)), "token ids"),
        (ScoreAsk("x", MESSAGES, (1, 2), "bade kege"), "other tokens"),
        (ScoreAsk("x", MESSAGES, (), "bade", top_logprobs=2), "alternatives"),
        (ScoreAsk("x", MESSAGES, (), "bade", end_of_turn=True), "end of a turn"),
        (ScoreAsk("x", MESSAGES, (), "bade", features=("entropy",)), "entropy"),
    ],
)
async def test_what_it_cannot_score_is_refused_with_words(connect, ask, word):
    backend, _ = await connect()
    scored = await backend.score(ask)
    assert isinstance(scored, Failure)
    assert (scored.cause, scored.permanent) == ("unsupported", True)
    assert word in scored.message


async def test_listed_labels_take_one_request(connect):
    backend, _ = await connect()
    chosen = await backend.choose(ChooseAsk("x", PAIR, LETTERS))
    assert isinstance(chosen, Choice), chosen
    assert (chosen.method, chosen.n_requests) == ("tgi.top_n_tokens", 1)
    assert sum(map(math.exp, chosen.logprobs)) == pytest.approx(0.97, abs=1e-4)


async def test_a_grammar_finds_labels_that_are_not_listed(connect):
    backend, _ = await connect(top_n_tokens=9)
    everything = await backend.choose(ChooseAsk("x", RATING, DIGITS))
    small, _ = await connect(top_n_tokens=5)
    some = await small.choose(ChooseAsk("x", RATING, DIGITS))
    assert isinstance(everything, Choice), everything
    assert isinstance(some, Choice), some
    assert everything.method == "tgi.top_n_tokens"
    assert (some.method, some.n_requests) == ("tgi.top_n_tokens+grammar", 2)
    # Nine labels and five places: what is in neither list has a bound that holds.
    for known, found, upper in zip(everything.logprobs, some.logprobs, some.upper, strict=True):
        assert math.isnan(found) or found == pytest.approx(known, abs=1e-5)
        assert upper >= known - 1e-5
    assert sum(not math.isnan(one) for one in some.logprobs) >= 5


async def test_a_grammar_renormalises_and_a_shared_label_undoes_it(connect):
    backend, _ = await connect(top_n_tokens=2)
    wide, _ = await connect(top_n_tokens=5)
    three = labels("A", "C")
    pair = await backend.choose(ChooseAsk("x", PAIR, three))
    known = await wide.choose(ChooseAsk("x", PAIR, LETTERS))
    odd = await backend.choose(ChooseAsk("x", PAIR, labels("A", "B")))
    assert isinstance(pair, Choice)
    assert isinstance(known, Choice)
    assert isinstance(odd, Choice)
    assert odd.exact
    assert odd.method == "tgi.top_n_tokens+grammar"
    assert odd.logprobs == pytest.approx((known.logprobs[0], known.logprobs[1]), abs=1e-5)


async def test_spellings_are_summed(connect):
    backend, _ = await connect()
    known = await backend.choose(ChooseAsk("x", PAIR, LETTERS))
    both = (Label("first", ("A", "C")), Label("second", ("B",)))
    summed = await backend.choose(ChooseAsk("x", PAIR, both))
    assert isinstance(known, Choice)
    assert isinstance(summed, Choice)
    a, b, c = map(math.exp, known.logprobs)
    assert [*map(math.exp, summed.logprobs)] == pytest.approx([a + c, b])


async def test_longer_labels_are_scored(connect):
    backend, _ = await connect()
    chosen = await backend.choose(ChooseAsk("x", SYMBOLS, VERDICTS))
    assert isinstance(chosen, Choice), chosen
    assert (chosen.method, chosen.n_requests) == ("tgi.prefill", 5)
    scored = await backend.score(ScoreAsk("x", SYMBOLS, (), "[[=]]"))
    assert isinstance(scored, Scored)
    assert chosen.logprobs[2] == pytest.approx(float(scored.logprobs.sum()), abs=1e-5)


async def test_a_label_that_begins_another_is_refused(connect):
    backend, _ = await connect()
    chosen = await backend.choose(ChooseAsk("x", MESSAGES, labels("1", "10")))
    assert isinstance(chosen, Failure)
    assert "begins with another" in chosen.message


async def test_a_begun_answer_is_gone_on_from(connect):
    backend, _ = await connect()
    begun = ChooseAsk("x", PAIR, VERDICTS, Prefix("Verdict: "))
    chosen = await backend.choose(begun)
    assert isinstance(chosen, Choice), chosen
    assert chosen.n_prompt_tokens > 9
    refused = await backend.choose(ChooseAsk("x", PAIR, LETTERS, Prefix("", (1, 2))))
    assert isinstance(refused, Failure)
    assert "token ids" in refused.message


async def test_provenance_and_load(connect):
    backend, _ = await connect()
    stated = await backend.provenance()
    assert isinstance(stated, Provenance)
    assert (stated.backend, stated.version) == ("tgi", "3.3.6")
    assert await backend.load() == ServerLoad(running=0, waiting=0)


async def test_an_over_long_prompt_is_told():
    async with serving({"dialect": "tgi", "context_tokens": 16}) as (url, _):
        backend = tgi.Kind(tgi.Config()).connect(Endpoint(base_url=url, model="m"))
        outcome = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
        await backend.close()
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("too_long", True)


async def test_a_shard_that_failed_is_a_failure_of_the_moment(connect):
    backend, _ = await connect(rules=[{"fault": "status", "status": 424, "route": "generate"}])
    outcome = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("server_error", False)


@pytest.mark.parametrize(
    "fault",
    ["429", "500", "503", "reset", "close", "cut", "malformed", "error_200", "wrong_types",
     "no_logprobs", "empty_choices", "abort"],
)  # fmt: skip
async def test_faults_are_failures(connect, fault):
    backend, _ = await connect(rules=[{"fault": fault, "route": "generate"}])
    outcome = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
    assert isinstance(outcome, Failure)
