"""The vLLM back-end on replies that were recorded from a real server, and on odd ones."""

import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from backends import vllm
from backends._transport import Read, Reply
from backends.vllm.wire import MIXED_UP
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Endpoint
from orchestrator.records import Failure, Generation, Sampling
from tests.conformance.servers import KINDS
from tests.conftest import SHARED
from tests.recorded.asks import CHOICES, DRAWS, FAULTY, PROMPT, SCORES, SEED, SYMBOLS, asked
from tests.recorded.replay import Player, Recording

RECORDED = Recording.read("vllm")
SETTINGS = KINDS["vllm"].backend
TOLERANCE = 1e-4


def backend_on(player: Player, **endpoint: object) -> vllm.Connection:
    at = Endpoint(base_url="http://127.0.0.1:1", model="judge")
    at = msgspec.structs.replace(at, **endpoint)
    return vllm.Connection(at, player, vllm.Config(**SETTINGS))


@pytest.fixture
def player() -> Player:
    return Player(RECORDED.exchanges)


@pytest.fixture
def backend(player: Player) -> vllm.Connection:
    return backend_on(player)


def replaced(change: Callable[[dict[str, Any]], None], path: str = "/v1/") -> Player:
    """The recording with every answered reply of some paths changed."""
    return RECORDED.changed(change, path)


@pytest.mark.parametrize(
    ("name", "cause", "said"),
    [
        ("too_hot", "bad_request", "temperature must be in"),
        ("too_many", "unsupported", "--max-logprobs 40"),
    ],
)
async def test_recorded_refusals_have_their_cause(backend, name, cause, said):
    outcome = await asked(backend, FAULTY[name])
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == (cause, True)
    assert said in outcome.message


async def test_recorded_metrics_are_its_load(backend):
    load = await backend.load()
    assert load is not None
    assert load.running == load.waiting == 0
    assert load.prefix_queries is not None


async def test_what_depends_on_the_model_alone_is_asked_once(backend, player):
    await backend.choose(CHOICES["symbols"])
    n_first = len(player.sent)
    await backend.choose(CHOICES["symbols"])
    again = player.sent[n_first:]
    assert again
    assert not any("tokenize" in request for request in again)


def test_the_recording_has_a_drawn_token_that_is_not_among_the_best():
    truth = RECORDED.truth["sampled"]
    pairs = zip(truth["ids"], truth["best_ids"], strict=True)
    assert any(token not in best for token, best in pairs)


async def test_a_choice_reads_prompt_and_inner_nodes_in_one_request(backend, player):
    await backend.choose(CHOICES["symbols"])
    bodies = [
        json.loads(request.partition(" ")[2])
        for request in player.sent
        if request.startswith("/v1/completions")
    ]
    (prompts,) = (
        body["prompt"] for body in bodies if body["logprobs"] == SETTINGS["choose_top_logprobs"]
    )
    assert len(prompts) > 1
    assert all(prompt[: len(prompts[0])] == prompts[0] for prompt in prompts)


def spoil(reply):
    """As V1 does it: the drawn token, and id 0 at minus infinity."""
    for choice in reply["choices"]:
        lists = choice.get("logprobs") or {}
        for entry in lists.get("content") or ():
            first = entry["top_logprobs"][:1]
            entry["top_logprobs"] = [*first, {"token": "token_id:0", "logprob": -9999.0}]
        for place, listed in enumerate(lists.get("top_logprobs") or ()):
            lists["top_logprobs"][place] = {**dict(list(listed.items())[:1]), "token_id:0": -9999.0}


@pytest.mark.parametrize("name", ["sampled", "symbols"])
async def test_alternatives_that_another_client_has_spoilt_are_asked_for_again(name):
    outcome = await asked(backend_on(replaced(spoil)), (DRAWS | CHOICES)[name])
    assert outcome == MIXED_UP


async def test_a_drawn_token_without_a_number_is_unknown_and_not_impossible():
    def lose(reply):
        for choice in reply["choices"]:
            choice["logprobs"]["content"][0]["logprob"] = -9999.0

    backend = backend_on(replaced(lose, path="/v1/chat"))
    drawn = await backend.generate(DRAWS["greedy"], SEED)
    assert isinstance(drawn, Generation)
    assert drawn.logprobs is not None
    assert math.isnan(drawn.logprobs[0])
    assert np.isfinite(drawn.logprobs[1:]).all()


@pytest.mark.parametrize("name", ["ids", "symbols"])
async def test_a_server_that_read_another_prompt_is_found_out(name):
    def add_bos(reply):
        reply["usage"]["prompt_tokens"] += 1

    outcome = await asked(backend_on(replaced(add_bos)), (SCORES | CHOICES)[name])
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("unparseable", True)


async def test_a_server_without_token_ids_is_no_vllm():
    def strip(reply):
        for choice in reply["choices"]:
            choice["token_ids"] = None

    stated = await backend_on(replaced(strip)).provenance()
    assert isinstance(stated, Failure)
    assert "backend: openai" in stated.message


async def test_a_model_that_is_not_served_is_named(player):
    stated = await backend_on(player, model="other").provenance()
    assert isinstance(stated, Failure)
    assert (stated.cause, stated.permanent) == ("not_found", True)


class OneReply:
    """A transport that gives the same reply to everything."""

    def __init__(self, status: int, body: bytes) -> None:
        self._reply = Reply(status, {}, body)

    async def post(self, path: str, body: bytes, timeout_s: float, read: Read[Any]) -> Any:
        return read(self._reply)

    async def get(self, path: str, timeout_s: float) -> Reply:
        return self._reply

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "body", "cause"),
    [
        (404, {"error": {"message": "The model `x` does not exist.", "code": 404}}, "not_found"),
        (400, {"object": "error", "message": "context length is 5 tokens"}, "too_long"),
        (503, {"error": "overloaded", "error_type": "overloaded"}, "server_error"),
        (422, {"detail": [{"loc": ["body"], "msg": "Field required"}]}, "bad_request"),
        (500, {"error": {"message": "EngineCore encountered an issue"}}, "dead_server"),
        (403, {"error": {"type": "PermissionDeniedError"}}, "unauthorised"),
    ],
)
@pytest.mark.parametrize("kind", ["generate", "score", "choose"])
async def test_error_bodies_of_every_shape_have_their_cause(status, body, cause, kind):
    endpoint = Endpoint(base_url="http://127.0.0.1:1", model="judge")
    transport = OneReply(status, json.dumps(body).encode())
    backend = vllm.Connection(endpoint, transport, vllm.Config())
    outcome = await {
        "generate": lambda: backend.generate(GenerateAsk("m", PROMPT, Sampling()), 1),
        "score": lambda: backend.score(ScoreAsk("m", PROMPT, (1,))),
        "choose": lambda: backend.choose(ChooseAsk("m", PROMPT, SYMBOLS)),
    }[kind]()
    assert isinstance(outcome, Failure)
    assert outcome.cause == cause


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is absent")
@pytest.mark.parametrize(
    ("name", "n", "k"), [("judge", 1, 20), ("small", 32, 5), ("large", 256, 20)]
)
async def test_replies_that_others_recorded_are_read(name, n, k):
    body = (SHARED / "data" / "vllm_replies" / f"{name}.json").read_bytes()
    endpoint = Endpoint(base_url="http://127.0.0.1:1", model="./tiny")
    backend = vllm.Connection(endpoint, OneReply(200, body), vllm.Config())
    drawn = await backend.generate(GenerateAsk("m", PROMPT, Sampling(), top_logprobs=k), 1)
    assert isinstance(drawn, Generation)
    assert drawn.logprobs is not None
    assert drawn.top is not None
    assert drawn.logprobs.shape == (n,)
    assert drawn.top.logprobs.shape == (n, k)
    entries = json.loads(body)["choices"][0]["logprobs"]["content"]
    np.testing.assert_allclose(drawn.logprobs, [entry["logprob"] for entry in entries], rtol=1e-6)
    # Where the drawn token pushed one of the best out of the list, the last one is not known.
    assert (np.diff(drawn.top.logprobs[:, : max(1, k - 1)], axis=1) <= 0).all()
