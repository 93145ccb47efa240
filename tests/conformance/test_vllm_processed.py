"""A real vLLM that states log-probabilities after the sampling settings, and what we make of it."""

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.records import Failure, Message, Sampling
from tests.conformance.measure import SYMBOLS, VERDICT, known
from tests.conformance.reference import reference
from tests.conformance.servers import KINDS, MODEL, running
from tests.conftest import BUNDLED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.models,
    pytest.mark.vllm,
    pytest.mark.timeout(600),
]

PROMPT = (Message("user", VERDICT.format("f k", "k f")),)
ODD = (Message("user", "Say something."),)


@pytest.fixture(scope="module")
def processed(tmp_path_factory):
    kind = KINDS["vllm"]
    kind = replace(
        kind,
        settings={**kind.settings, "extra_args": ("--logprobs-mode", "processed_logprobs")},
        backend={**kind.backend, "raw_logprobs": False},
    )
    with running(kind, tmp_path_factory.mktemp("processed") / "server.log") as found:
        yield found


@pytest.fixture
async def backend(processed):
    async with processed.connected() as found:
        yield found


@pytest.fixture(scope="module")
def truth():
    return reference(BUNDLED / MODEL)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_draws_are_raw_where_sampling_changes_nothing(backend, truth, temperature):
    sampling = Sampling(max_tokens=12, temperature=temperature)
    drawn = known(await backend.generate(GenerateAsk("m", ODD, sampling, top_logprobs=2), 1))
    expected = truth.scores(truth.prompt(ODD), drawn.token_ids.tolist())
    assert drawn.raw
    np.testing.assert_allclose(drawn.logprobs, expected, atol=1e-4)


async def test_draws_at_other_temperatures_are_marked_and_are_not_the_models(backend, truth):
    ask = GenerateAsk("m", ODD, Sampling(max_tokens=24, temperature=2.0))
    drawn = known(await backend.generate(ask, 1))
    expected = truth.scores(truth.prompt(ODD), drawn.token_ids.tolist())
    assert not drawn.raw
    assert np.abs(drawn.logprobs - expected).max() > 0.1


async def test_scores_are_those_of_a_forward_pass_all_the_same(backend, truth):
    ids = tuple(truth.encode("[[>]] because f k"))
    scored = known(await backend.score(ScoreAsk("m", PROMPT, ids)))
    np.testing.assert_allclose(scored.logprobs, truth.scores(truth.prompt(PROMPT), ids), atol=1e-4)


async def test_labels_are_asked_for_by_id_and_are_those_of_a_forward_pass(backend, truth):
    chosen = known(await backend.choose(ChooseAsk("m", PROMPT, SYMBOLS)))
    before = truth.prompt(PROMPT)
    expected = [truth.scores(before, truth.encode(label.name)).sum() for label in SYMBOLS]
    assert chosen.method == "vllm.top_logprobs+token_ids"
    np.testing.assert_allclose(chosen.logprobs, expected, atol=1e-4)


async def test_labels_are_refused_where_such_a_server_is_taken_for_a_raw_one(processed):
    async with processed.connected(settings={"raw_logprobs": True}) as backend:
        outcome = await backend.choose(ChooseAsk("m", PROMPT, SYMBOLS))
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("unsupported", True)
    assert "raw_logprobs: false" in outcome.message
