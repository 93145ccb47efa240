"""The llama.cpp back-end on replies recorded from a real server, and on a fake one's oddities."""

import json
import logging
import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from backends import llamacpp
from backends._transport import Read, Reply, Transport
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Endpoint
from orchestrator.records import Choice, Failure, Generation, Message, Sampling, Scored, labels
from tests.backends.dialects import connecting
from tests.conformance.servers import KINDS
from tests.crossed import LONG
from tests.recorded.asks import CHOICES, DRAWS, PROMPT, SCORES, SEED, asked
from tests.recorded.replay import Player, Recording

RECORDED = Recording.read("llamacpp")
SETTINGS = KINDS["llamacpp"].backend
TOLERANCE = 2e-4
TASK = (Message("user", "kofu bade kofu. Tell me more."),)


def backend_on(player: Transport, **endpoint: object) -> llamacpp.Connection:
    at = Endpoint(base_url="http://127.0.0.1:1", model="judge")
    at = msgspec.structs.replace(at, **endpoint)
    return llamacpp.Connection(at, player, llamacpp.Config(**SETTINGS))


@pytest.fixture
def player() -> Player:
    return Player(RECORDED.exchanges)


@pytest.fixture
def backend(player: Player) -> llamacpp.Connection:
    return backend_on(player)


def replaced(change: Callable[[dict[str, Any]], None], path: str = "/completion") -> Player:
    """The recording with every answered reply of some paths changed."""
    return RECORDED.changed(change, path)


def test_the_recording_names_its_build_and_no_machine():
    assert RECORDED.about["version"]
    (props,) = [body for request, (_, body) in RECORDED.exchanges.items() if request == "/props"]
    assert json.loads(props)["model_path"] == ".llamacpp/models/judge.gguf"


async def test_recorded_metrics_are_its_load(backend):
    load = await backend.load()
    assert load is not None
    assert (load.running, load.waiting) == (0, 0)
    assert load.prefix_queries is not None
    assert load.prefix_hits is not None
    assert 0 < load.prefix_hits < load.prefix_queries


async def test_no_request_names_a_slot(backend, player):
    await backend.generate(DRAWS["greedy"], SEED)
    await backend.score(SCORES["ended"])
    await backend.choose(CHOICES["nested"])
    assert not any("id_slot" in request for request in player.sent)


async def test_every_sampler_is_written_out(backend, player):
    await backend.generate(DRAWS["sampled"], SEED)
    (sent,) = [one for one in player.sent if one.startswith("/completion")]
    body = json.loads(sent.partition(" ")[2])
    assert body["samplers"] == ["temperature", "top_k", "top_p"]
    named = {"min_p", "typical_p", "repeat_penalty", "dry_multiplier", "xtc_probability", "seed"}
    assert named <= body.keys()


async def test_what_the_server_is_is_asked_once(backend, player):
    await backend.choose(CHOICES["symbols"])
    n_first = len(player.sent)
    await backend.choose(CHOICES["symbols"])
    assert not [one for one in player.sent[n_first:] if not one.startswith("/completion")]


@pytest.mark.parametrize("name", ["greedy", "ids", "symbols"])
async def test_a_server_that_read_another_prompt_is_found_out(name):
    def add_bos(reply):
        reply["tokens_evaluated"] += 1

    outcome = await asked(backend_on(replaced(add_bos)), (DRAWS | SCORES | CHOICES)[name])
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("unparseable", True)


@pytest.mark.parametrize("name", ["ids", "symbols"])
async def test_tokens_that_were_not_forced_are_no_numbers(name):
    def draw_another(reply):
        reply["tokens"] = [token + 1 for token in reply["tokens"]]

    outcome = await asked(backend_on(replaced(draw_another)), (SCORES | CHOICES)[name])
    assert isinstance(outcome, Failure)
    assert outcome.cause == "unparseable"


@pytest.mark.parametrize("name", ["greedy", "ids"])
async def test_a_number_below_what_float32_holds_is_unknown_and_not_impossible(name):
    def sink(reply):
        reply["completion_probabilities"][0]["logprob"] = -3.4028234663852886e38

    seen = await asked(backend_on(replaced(sink)), (DRAWS | SCORES)[name])
    assert isinstance(seen, Generation | Scored)
    assert seen.logprobs is not None
    assert math.isnan(seen.logprobs[0])
    assert np.isfinite(seen.logprobs[1:]).all()


async def test_a_server_that_guesses_ahead_is_refused_with_the_flag():
    def guess(reply):
        reply["default_generation_settings"]["params"]["speculative.types"] = "draft-simple"

    backend = backend_on(replaced(guess, path="/props"))
    for ask in (DRAWS["greedy"], SCORES["ids"], CHOICES["symbols"]):
        outcome = await asked(backend, ask)
        assert isinstance(outcome, Failure)
        assert (outcome.cause, outcome.permanent) == ("unsupported", True)
        assert "--model-draft" in outcome.message


async def test_a_model_that_is_not_served_is_named_with_those_that_are(player):
    stated = await backend_on(player, model="other").provenance()
    assert isinstance(stated, Failure)
    assert (stated.cause, stated.permanent) == ("not_found", True)
    assert "available: judge" in stated.message


async def test_without_metrics_the_flag_is_named_once(caplog):
    backend = backend_on(Scripted({"/metrics": (501, {"error": {"message": "not enabled"}})}))
    with caplog.at_level(logging.INFO):
        assert await backend.load() is None
        assert await backend.load() is None
    assert caplog.text.count("--metrics") == 1


# -- llama-cpp-python's server ---------------------------------------------------------------------


class Scripted:
    """A transport with a reply for each path; 404 for others."""

    def __init__(self, replies: dict[str, tuple[int, object]]) -> None:
        self._replies = replies
        self.bodies: list[dict[str, object]] = []

    async def post(self, path: str, body: bytes, timeout_s: float, read: Read[Any]) -> Any:
        self.bodies.append(json.loads(body))
        return read(await self.get(path, timeout_s))

    async def get(self, path: str, timeout_s: float) -> Reply:
        status, reply = self._replies.get(path, (404, {"detail": "Not Found"}))
        return Reply(status, {}, json.dumps(reply).encode())

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("ask", ["generate", "score", "choose"])
async def test_llama_cpp_pythons_server_is_refused_and_what_to_use_is_named(ask):
    backend = backend_on(Scripted({}))
    outcome = await {
        "generate": lambda: backend.generate(GenerateAsk("m", PROMPT, Sampling(max_tokens=1)), 1),
        "score": lambda: backend.score(ScoreAsk("m", PROMPT, (1,))),
        "choose": lambda: backend.choose(ChooseAsk("m", PROMPT, labels("A", "B"))),
    }[ask]()
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("unsupported", True)
    assert "llama-server" in outcome.message
    assert "backend: openai" in outcome.message


# -- the fake server's dialect ---------------------------------------------------------------------


@pytest.fixture
async def connect():
    """Starts a fake llama-server with quirks and gives a back-end to it."""
    named = "fake:0.7"
    async with connecting(llamacpp, "llama_server", [named]) as open_one:

        async def backend_of(*quirks, **settings):
            return (await open_one(quirks=quirks, model=named, **settings))[0]

        yield backend_of


@pytest.mark.parametrize(
    "text", ["kofu bade", pytest.param("é 漢字 🙂", marks=LONG), "a<|end|>b", "é"]
)
async def test_steps_without_a_grammar_give_the_numbers_of_one(connect, text):
    ask = ScoreAsk("m", TASK, (), text, top_logprobs=3, end_of_turn=True)
    together = await (await connect()).score(ask)
    one_by_one = await (await connect("no_token_grammar")).score(ask)
    assert isinstance(together, Scored)
    assert isinstance(one_by_one, Scored)
    assert together.token_ids.tolist() == one_by_one.token_ids.tolist()
    np.testing.assert_array_equal(together.logprobs, one_by_one.logprobs)
    assert together.top is not None
    assert one_by_one.top is not None
    np.testing.assert_array_equal(together.top.logprobs, one_by_one.top.logprobs)


@pytest.mark.parametrize("stop", [(), ("e",), (" k",), ("fu", "ba")])
async def test_scoring_a_draw_gives_its_numbers_wherever_it_was_stopped(connect, stop):
    backend = await connect()
    sampling = Sampling(max_tokens=30, temperature=1.0, stop=stop)
    drawn = await backend.generate(GenerateAsk("m", TASK, sampling, top_logprobs=2), 3)
    assert isinstance(drawn, Generation)
    assert drawn.token_ids is not None
    assert drawn.logprobs is not None
    scored = await backend.score(ScoreAsk("m", TASK, tuple(drawn.token_ids.tolist())))
    assert isinstance(scored, Scored)
    np.testing.assert_allclose(drawn.logprobs, scored.logprobs, atol=1e-6)


async def test_labels_that_are_not_listed_are_forced(connect):
    few = await connect(choose_top_logprobs=1, choose_negligible=0)
    many = await connect(choose_top_logprobs=64, choose_negligible=0)
    names = labels("kofu", "bade", "漢", "zuzu")
    ask = ChooseAsk("m", TASK, names)
    one, other = await few.choose(ask), await many.choose(ask)
    assert isinstance(one, Choice)
    assert isinstance(other, Choice)
    assert one.exact
    assert one.logprobs == pytest.approx(other.logprobs, abs=1e-6)
    assert one.n_requests > 1


@pytest.mark.parametrize("quirk", ["double_bos", "silent_truncation"])
async def test_a_prompt_that_is_not_read_as_sent_is_found_out(connect, quirk):
    long = (Message("user", "kofu bade. " * 40),)
    outcome = await (await connect(quirk)).generate(GenerateAsk("m", long, Sampling()), 1)
    assert isinstance(outcome, Failure)
    assert outcome.cause == "unparseable"


async def test_a_reply_without_log_probabilities_is_a_failure(connect):
    backend = await connect("ignored_fields")
    drawn = await backend.generate(GenerateAsk("m", TASK, Sampling(max_tokens=4)), 1)
    scored = await backend.score(ScoreAsk("m", TASK, (65, 66)))
    assert isinstance(drawn, Failure)
    assert isinstance(scored, Failure)
