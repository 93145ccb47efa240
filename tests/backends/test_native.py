"""The dialect of the embedded and of the fake server, end to end."""

import asyncio
import math

import numpy as np
import pytest

from backends import embedded, fake
from backends._openai_compatible import ChatConfig
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Backend, Endpoint, Provenance, ServerLoad
from orchestrator.records import (
    FEATURES,
    TOKEN_FEATURES,
    Choice,
    Failure,
    Generation,
    Message,
    Prefix,
    Sampling,
    Scored,
    labels,
)
from tests.backends.batching import begin, until
from tests.backends.kinds import kind_in
from tests.fake.main import serving

MESSAGES = (Message("user", "What is 2 + 2?"),)
SYMBOLS = labels("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")


@pytest.fixture(params=[embedded, fake], ids=["embedded", "fake"])
def module(request):
    return request.param


@pytest.fixture
async def connect(module):
    """Starts a server with rules and gives a back-end to it."""
    opened = []

    async def open_one(rules=None, model="fake:0.7"):
        manager = serving(rules, models=["fake:0.7", "fake:0.2"], key="sk-1234")
        url, server = await manager.__aenter__()
        endpoint = Endpoint(base_url=url, model=model, api_key="sk-1234", timeout_s=60.0)
        backend = kind_in(module)(kind_in(module).Config()).connect(endpoint)
        opened.append((backend, manager))
        return backend, server

    yield open_one
    for backend, manager in opened:
        await backend.close()
        await manager.__aexit__(None, None, None)


async def test_it_is_a_backend(connect):
    backend, _ = await connect()
    assert isinstance(backend, Backend)


async def test_a_generation_has_ids_and_logprobs_without_its_stop_token(connect):
    backend, _ = await connect()
    outcome = await backend.generate(GenerateAsk("m", MESSAGES, Sampling()), 1)
    assert isinstance(outcome, Generation)
    assert outcome.token_ids is not None
    assert outcome.logprobs is not None
    assert len(outcome.token_ids) == len(outcome.logprobs) == outcome.n_completion_tokens - 1
    assert (outcome.finish_reason, outcome.raw) == ("stop", True)


async def test_alternatives_have_ids(connect):
    backend, _ = await connect()
    ask = GenerateAsk("m", MESSAGES, Sampling(max_tokens=5), top_logprobs=3)
    outcome = await backend.generate(ask, 1)
    assert isinstance(outcome, Generation)
    assert outcome.top is not None
    assert outcome.top.token_ids.shape == (5, 3)
    assert (outcome.top.token_ids >= 0).all()


async def test_a_stop_string_ends_text_and_arrays(connect):
    backend, _ = await connect([{"text": "bade kofu lize gamu"}])
    ask = GenerateAsk("m", MESSAGES, Sampling(stop=(" lize",)))
    outcome = await backend.generate(ask, 1)
    assert isinstance(outcome, Generation)
    assert outcome.text == "bade kofu"
    assert outcome.token_ids is not None
    assert len(outcome.token_ids) == 2


async def test_scoring_an_answer_gives_the_numbers_of_its_generation(connect):
    backend, _ = await connect()
    drawn = await backend.generate(GenerateAsk("m", MESSAGES, Sampling()), 1)
    assert isinstance(drawn, Generation)
    assert drawn.token_ids is not None
    ask = ScoreAsk("m", MESSAGES, tuple(drawn.token_ids.tolist()), drawn.text)
    outcome = await backend.score(ask)
    assert isinstance(outcome, Scored)
    np.testing.assert_array_equal(outcome.logprobs, drawn.logprobs)


async def test_scoring_an_answer_gives_the_alternatives_of_its_generation(connect):
    backend, _ = await connect()
    drawn = await backend.generate(GenerateAsk("m", MESSAGES, Sampling(), top_logprobs=3), 1)
    assert isinstance(drawn, Generation)
    assert drawn.token_ids is not None
    assert drawn.top is not None
    ids = tuple(drawn.token_ids.tolist())
    outcome = await backend.score(ScoreAsk("m", MESSAGES, ids, drawn.text, 3))
    assert isinstance(outcome, Scored)
    assert outcome.top is not None
    np.testing.assert_array_equal(outcome.top.token_ids, drawn.top.token_ids)
    np.testing.assert_array_equal(outcome.top.logprobs, drawn.top.logprobs)


async def test_a_text_is_scored_where_there_are_no_ids(connect):
    backend, _ = await connect()
    outcome = await backend.score(ScoreAsk("m", MESSAGES, (), "bade kofu"))
    assert isinstance(outcome, Scored)
    assert len(outcome.token_ids) == 2


async def test_features_of_a_score_have_the_shapes_that_are_stated(connect):
    backend, _ = await connect()
    ask = ScoreAsk("m", MESSAGES, (), "bade kofu", features=tuple(sorted(FEATURES)))
    outcome = await backend.score(ask)
    assert isinstance(outcome, Scored)
    assert outcome.features is not None
    assert outcome.features.keys() == FEATURES
    assert all(outcome.features[name].shape == (2,) for name in TOKEN_FEATURES)
    assert outcome.features["attention_entropy"].ndim == 2
    again = await backend.score(ask)
    assert isinstance(again, Scored)
    assert again.features is not None
    for name, array in outcome.features.items():
        np.testing.assert_array_equal(again.features[name], array)


async def test_the_released_codes_positions_are_one_token_later(connect):
    backend, _ = await connect()
    names = ("compat_logprob", "compat_vocab_logprob_var", "vocab_logprob_var")
    outcome = await backend.score(ScoreAsk("m", MESSAGES, (), "bade kofu sido", features=names))
    assert isinstance(outcome, Scored)
    assert outcome.features is not None
    np.testing.assert_array_equal(outcome.features["compat_logprob"][:-1], outcome.logprobs[1:])
    later, plain = outcome.features[names[1]], outcome.features[names[2]]
    np.testing.assert_array_equal(later[:-1], plain[1:])


async def test_a_feature_that_there_is_not_is_refused(connect):
    backend, _ = await connect()
    outcome = await backend.score(ScoreAsk("m", MESSAGES, (65,), features=("mood",)))
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("bad_request", True)
    assert "mood" in outcome.message


async def test_the_end_of_the_turn_is_scored_where_asked(connect):
    backend, _ = await connect()
    outcome = await backend.score(ScoreAsk("m", MESSAGES, (65, 66), end_of_turn=True))
    assert isinstance(outcome, Scored)
    assert outcome.token_ids[:2].tolist() == [65, 66]
    assert len(outcome.token_ids) == len(outcome.logprobs) == 3


async def test_the_score_of_nothing_is_known_without_asking(connect):
    backend, server = await connect()
    outcome = await backend.score(ScoreAsk("m", MESSAGES, (), ""))
    assert isinstance(outcome, Scored)
    assert math.isnan(outcome.mean_logprob)
    assert server.stats()["total"] == 0


@pytest.mark.parametrize("prefix", [Prefix(), Prefix("so "), Prefix("so ", (115, 111))])
async def test_a_choice_is_a_distribution_over_its_labels(connect, module, prefix):
    backend, _ = await connect()
    outcome = await backend.choose(ChooseAsk("m", MESSAGES, SYMBOLS, prefix))
    assert isinstance(outcome, Choice)
    assert sum(map(math.exp, outcome.logprobs)) == pytest.approx(0.97)
    assert outcome.exact
    assert outcome.method == f"{module.__name__.rpartition('.')[2]}.choose"


async def test_provenance_is_what_the_server_says(connect):
    backend, _ = await connect()
    stated = await backend.provenance()
    assert isinstance(stated, Provenance)
    assert (stated.model, stated.version) == ("fake:0.7", "fake-1")


async def test_a_server_that_lists_no_models_answers_to_every_name():
    async with serving() as (url, _):
        backend = fake.Kind(ChatConfig()).connect(Endpoint(base_url=url, model="any"))
        stated = await backend.provenance()
        made = await backend.generate(GenerateAsk("m", MESSAGES, Sampling()), 1)
        await backend.close()
    assert isinstance(stated, Provenance)
    assert isinstance(made, Generation)


async def test_a_model_that_the_server_does_not_have_is_not_healthy(connect):
    backend, _ = await connect(model="other")
    stated = await backend.provenance()
    assert isinstance(stated, Failure)
    assert stated.cause == "not_found"
    assert "available: fake:0.7" in stated.message
    outcome = await backend.generate(GenerateAsk("m", MESSAGES, Sampling()), 1)
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("not_found", False)
    assert "did you mean" in outcome.message or "available: fake:0.7" in outcome.message


async def test_load_is_read_from_the_metrics(connect):
    backend, _ = await connect()
    assert await backend.load() == ServerLoad(running=0, waiting=0)


async def test_load_is_read_while_every_connection_is_taken(module):
    async with serving([{"latency_s": 300}], models=["m"]) as (url, server):
        endpoint = Endpoint(base_url=url, model="m", max_in_flight=1)
        backend = kind_in(module)(kind_in(module).Config()).connect(endpoint)
        asking = [
            begin(backend.generate(GenerateAsk("m", MESSAGES, Sampling()), seed))
            for seed in range(2)
        ]
        await until(lambda: server.stats()["in_flight"])
        async with asyncio.timeout(60):
            assert await backend.load() == ServerLoad(running=1, waiting=0)
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        await backend.close()


@pytest.mark.parametrize(
    ("rule", "cause", "permanent"),
    [
        ({"fault": "429", "retry_after_s": 1.5}, "rate_limited", False),
        ({"fault": "500"}, "server_error", False),
        ({"fault": "503"}, "server_error", False),
        ({"fault": "status", "status": 413}, "too_long", True),
        ({"fault": "malformed"}, "unparseable", False),
        ({"fault": "wrong_types"}, "unparseable", True),
        ({"fault": "error_200"}, "server_error", False),
        ({"fault": "cut"}, "connection", False),
        ({"fault": "reset"}, "connection", False),
        ({"fault": "exit"}, "connection", False),
    ],
)
@pytest.mark.parametrize("kind", ["generate", "score", "choose"])
async def test_every_fault_has_its_cause(connect, rule, cause, permanent, kind):
    backend, _ = await connect([rule])
    outcome = await {
        "generate": lambda: backend.generate(GenerateAsk("m", MESSAGES, Sampling()), 1),
        "score": lambda: backend.score(ScoreAsk("m", MESSAGES, (65, 66))),
        "choose": lambda: backend.choose(ChooseAsk("m", MESSAGES, SYMBOLS)),
    }[kind]()
    assert isinstance(outcome, Failure)
    if rule["fault"] == "exit":
        assert outcome.cause in {"connection", "refused"}
    else:
        assert (outcome.cause, outcome.permanent) == (cause, permanent)
    assert outcome.retry_after_s == rule.get("retry_after_s")


@pytest.mark.parametrize(
    ("fault", "cause", "permanent"),
    [
        ("no_logprobs", "no_logprobs", False),
        ("empty_choices", "unparseable", False),
        ("abort", "server_error", False),
    ],
)
async def test_every_fault_of_a_generation_has_its_cause(connect, fault, cause, permanent):
    backend, _ = await connect([{"fault": fault}])
    outcome = await backend.generate(GenerateAsk("m", MESSAGES, Sampling()), 1)
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == (cause, permanent)


@pytest.mark.parametrize(
    ("fault", "expected"), [("sentinel", -math.inf), ("nan", math.nan), ("null", math.nan)]
)
async def test_odd_numbers_are_no_log_probabilities(connect, fault, expected):
    backend, _ = await connect([{"fault": fault}])
    drawn = await backend.generate(GenerateAsk("m", MESSAGES, Sampling()), 1)
    scored = await backend.score(ScoreAsk("m", MESSAGES, (65,)))
    chosen = await backend.choose(ChooseAsk("m", MESSAGES, SYMBOLS))
    assert isinstance(drawn, Generation)
    assert isinstance(scored, Scored)
    for values in (drawn.logprobs, scored.logprobs):
        np.testing.assert_array_equal(np.asarray(values), expected)
    if math.isnan(expected):
        # No label has a probability: another server of the model may give them.
        assert isinstance(chosen, Failure)
        assert chosen.cause == "no_logprobs"
    else:
        assert isinstance(chosen, Choice)
        np.testing.assert_array_equal(np.asarray(chosen.logprobs), expected)


async def test_a_prompt_that_is_too_long_is_told(connect):
    backend, _ = await connect({"context_tokens": 50})
    ask = GenerateAsk("m", (Message("user", "x" * 100),), Sampling())
    outcome = await backend.generate(ask, 1)
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("too_long", True)


async def test_a_lone_surrogate_is_not_sent(connect):
    backend, server = await connect()
    ask = GenerateAsk("m", (Message("user", "\ud800"),), Sampling())
    outcome = await backend.generate(ask, 1)
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("bad_request", True)
    assert server.stats()["total"] == 0
