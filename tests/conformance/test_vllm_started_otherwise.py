"""A real vLLM started otherwise than we start it, and what we make of it.

It states log-probabilities after the sampling settings, lets few requests wait, and closes idle
connections after a second.
"""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from launch import vllm as launch_kind
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
    pytest.mark.long,
    pytest.mark.timeout(600),
]

PROMPT = (Message("user", VERDICT.format("f k", "k f")),)
ODD = (Message("user", "Say something."),)
KEEPALIVE_S = 1
# More than a choice has nodes.
QUEUE = 16


@pytest.fixture(scope="module")
def otherwise(tmp_path_factory):
    folder, kind = tmp_path_factory.mktemp("otherwise"), KINDS["vllm"]
    vllm = launch_kind.Launch(launch_kind.Config()).find_command()
    # Of a mode that is named twice the last one counts; our own settings refuse another.
    command = folder / "vllm"
    command.write_text(f'#!/bin/sh\nexec "{vllm}" "$@" --logprobs-mode processed_logprobs\n')
    command.chmod(0o700)
    settings = {
        **kind.settings,
        "command": str(command),
        "max_num_seqs": 4,
        "extra_args": ("--max-num-queued-reqs", str(QUEUE)),
        "env": {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(KEEPALIVE_S)},
    }
    # Nobody else asks it for alternatives at the same time.
    backend = {**kind.backend, "raw_logprobs": False, "gate": False}
    with running(replace(kind, settings=settings, backend=backend), folder / "log") as found:
        yield found


@pytest.fixture
async def backend(otherwise):
    async with otherwise.connected() as found:
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


async def test_labels_are_refused_where_such_a_server_is_taken_for_a_raw_one(otherwise):
    async with otherwise.connected(settings={"raw_logprobs": True}) as backend:
        outcome = await backend.choose(ChooseAsk("m", PROMPT, SYMBOLS))
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("unsupported", True)
    assert "raw_logprobs: false" in outcome.message


async def test_requests_that_meet_a_closing_connection_are_answered(otherwise):
    """The server closes each connection at about the moment at which it is used again."""
    async with otherwise.connected(max_in_flight=16) as backend:

        async def ask_again(at):
            for turn in range(5):
                await asyncio.sleep(KEEPALIVE_S - 0.04 + 0.01 * ((at + turn) % 8))
                known(await backend.score(ScoreAsk("m", PROMPT, (30,))))

        known(await backend.score(ScoreAsk("m", PROMPT, (30,))))
        async with asyncio.TaskGroup() as group:
            for at in range(8):
                group.create_task(ask_again(at))


async def test_requests_that_it_has_no_room_for_may_be_sent_again(otherwise, backend):
    ask = GenerateAsk("m", PROMPT, Sampling(max_tokens=8))
    async with otherwise.connected(max_in_flight=128) as crowd, asyncio.TaskGroup() as group:
        tasks = [group.create_task(crowd.generate(ask, seed)) for seed in range(128)]
    outcomes = [task.result() for task in tasks]
    refused = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert 0 < len(refused) < len(outcomes)
    assert {(failure.cause, failure.permanent, failure.status) for failure in refused} == {
        ("server_error", False, 503)
    }
    assert "busy" in refused[0].message
    known(await backend.generate(ask, 1))
