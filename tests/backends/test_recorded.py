"""Back-ends that ask by ids, on replies recorded from real servers: what all of them must do."""

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from backends import llamacpp, vllm
from backends._transport import Transport
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Backend, Endpoint, Provenance
from orchestrator.records import Choice, Failure, Generation, Message, Sampling, Scored
from tests.conformance.servers import KINDS
from tests.recorded.asks import CHOICES, DRAWS, FAULTY, PROMPT, SCORES, SEED, SYMBOLS, asked
from tests.recorded.replay import Player, Recording


@dataclass(frozen=True)
class Recorded:
    """A kind, what was recorded of its server, and what differs between kinds."""

    module: ModuleType
    cls: type
    tolerance: float
    scored_by: str
    too_long: str

    @property
    def name(self) -> str:
        return self.cls.kind  # type: ignore[attr-defined, no-any-return]

    def on(self, transport: Transport, **endpoint: Any) -> Backend:
        at = Endpoint(**{"base_url": "http://127.0.0.1:1", "model": "judge", **endpoint})
        settings = self.module.Config(**KINDS[self.name].backend)
        return self.cls(at, transport, settings)  # type: ignore[no-any-return]


RECORDED = (
    Recorded(vllm, vllm.Connection, 1e-4, "prompt_logprobs", "maximum context length"),
    Recorded(llamacpp, llamacpp.Connection, 2e-4, "forced", "context size"),
)


@pytest.fixture(params=RECORDED, ids=lambda kind: kind.name)
def kind(request):
    return request.param


@pytest.fixture
def kept(kind):
    return Recording.read(kind.name)


@pytest.fixture
def player(kept):
    return Player(kept.exchanges)


@pytest.fixture
def backend(kind, player):
    return kind.on(player)


def test_it_is_a_backend(backend):
    assert isinstance(backend, Backend)


@pytest.mark.parametrize("name", DRAWS)
async def test_a_draw_has_the_numbers_of_a_forward_pass(kind, kept, backend, name):
    truth = kept.truth[name]
    drawn = await backend.generate(DRAWS[name], SEED)
    assert isinstance(drawn, Generation)
    assert drawn.token_ids is not None
    assert drawn.logprobs is not None
    assert drawn.token_ids.tolist() == truth["ids"]
    np.testing.assert_allclose(drawn.logprobs, truth["logprobs"], atol=kind.tolerance)
    assert drawn.raw


@pytest.mark.parametrize("name", SCORES)
async def test_a_score_has_the_numbers_of_a_forward_pass(kind, kept, backend, name):
    truth = kept.truth[name]
    scored = await backend.score(SCORES[name])
    assert isinstance(scored, Scored)
    assert scored.token_ids.tolist() == truth["ids"]
    np.testing.assert_allclose(scored.logprobs, truth["logprobs"], atol=kind.tolerance)
    assert (scored.method, scored.boundary) == (f"{kind.name}.{kind.scored_by}", "separate")


@pytest.mark.parametrize("name", CHOICES)
async def test_a_choice_has_the_numbers_of_a_forward_pass(kind, kept, backend, name):
    chosen = await backend.choose(CHOICES[name])
    assert isinstance(chosen, Choice)
    np.testing.assert_allclose(chosen.logprobs, kept.truth[name], atol=kind.tolerance)
    assert chosen.exact
    assert chosen.upper == chosen.logprobs


@pytest.mark.parametrize("name", ["sampled", "listed"])
async def test_alternatives_are_the_best_of_a_forward_pass(kind, kept, backend, name):
    truth = kept.truth[name]
    seen = await asked(backend, (DRAWS | SCORES)[name])
    assert isinstance(seen, Generation | Scored)
    assert seen.top is not None
    assert seen.top.token_ids.tolist() == truth["best_ids"]
    np.testing.assert_allclose(seen.top.logprobs, truth["best_logprobs"], atol=kind.tolerance)


@pytest.mark.parametrize("name", ["too_long", "too_long_to_score"])
async def test_a_prompt_that_is_too_long_is_told(kind, backend, name):
    outcome = await asked(backend, FAULTY[name])
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("too_long", True)
    assert kind.too_long in outcome.message


async def test_provenance_is_version_and_fingerprint(kind, kept, backend):
    stated = await backend.provenance()
    assert isinstance(stated, Provenance)
    assert (stated.backend, stated.version) == (kind.name, kept.about["version"])
    assert stated.fingerprint == kept.about["fingerprint"]


async def test_features_are_refused_with_the_server_that_has_them(backend, player):
    outcome = await backend.score(ScoreAsk("m", PROMPT, (1,), features=("entropy",)))
    assert isinstance(outcome, Failure)
    assert "embedded" in outcome.message
    assert not player.sent


async def test_the_score_of_nothing_is_known_without_asking(backend, player):
    outcome = await backend.score(ScoreAsk("m", PROMPT, (), ""))
    assert isinstance(outcome, Scored)
    assert math.isnan(outcome.mean_logprob)
    assert not player.sent


async def test_several_turns_are_refused_for_a_base_model(kind, player):
    turns = (*PROMPT, Message("assistant", "x"), Message("user", "y"))
    backend = kind.on(player, plain=True)
    for ask in (
        GenerateAsk("m", turns, Sampling()),
        ScoreAsk("m", turns, (1,)),
        ChooseAsk("m", turns, SYMBOLS),
    ):
        outcome = await asked(backend, ask)
        assert isinstance(outcome, Failure)
        assert outcome.cause == "unsupported"
