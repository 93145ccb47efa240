"""Hosted and compatible endpoints, through both transports."""

import json
import math

import pytest
from pydantic import ValidationError

from backends import openai
from backends._aiohttp_transport import AiohttpTransport
from backends._transport import Reply
from backends.openai.transport import OpenaiTransport
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Backend, Endpoint, Provenance
from orchestrator.records import (
    ACCOUNT,
    Choice,
    Failure,
    Generation,
    Message,
    Prefix,
    Sampling,
    labels,
)
from orchestrator.wire.requests import Dialect
from tests.fake.main import serving
from tests.wire.bodies import chat, entry

MESSAGES = (Message("user", "What is 2 + 2?"),)
PAIR = (Message("user", "A: bade kege lafe\nB: xoxo kofu zuku"),)
LETTERS = labels("A", "B", "C")


@pytest.fixture(params=["auto", "aiohttp", "openai"])
async def connect(request):
    opened = []

    async def open_one(rules=None, path="/v1", extra=None, **settings):
        manager = serving(rules, models=["m"], key="sk-1234")
        url, server = await manager.__aenter__()
        at = {"base_url": url + path, "api_key": "sk-1234", "extra_body": extra or {}}
        endpoint = Endpoint(model="m", timeout_s=60.0, **at)
        config = openai.Config(transport=request.param, **settings)
        backend = openai.Kind(config).connect(endpoint)
        opened.append((backend, manager))
        return backend, server

    yield open_one
    for backend, manager in opened:
        await backend.close()
        await manager.__aexit__(None, None, None)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_the_base_url_ends_with_v1_or_not(connect, path):
    backend, _ = await connect(path=path)
    assert isinstance(backend, Backend)
    outcome = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
    assert isinstance(outcome, Generation)
    assert outcome.token_ids is None
    assert outcome.logprobs is not None
    assert outcome.raw


async def test_logprobs_are_not_raw_where_sampling_may_have_changed_them(connect):
    backend, _ = await connect()
    outcome = await backend.generate(GenerateAsk("x", MESSAGES, Sampling(temperature=0.7)), 1)
    assert isinstance(outcome, Generation)
    assert not outcome.raw


async def test_ids_come_where_extra_fields_ask_for_them(connect):
    backend, _ = await connect(extra={"return_token_ids": True})
    outcome = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
    assert isinstance(outcome, Generation)
    assert outcome.token_ids is not None


async def test_logprobs_can_be_switched_off(connect):
    backend, _ = await connect(logprobs=False)
    outcome = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
    assert isinstance(outcome, Generation)
    assert outcome.logprobs is None
    chosen = await backend.choose(ChooseAsk("x", PAIR, LETTERS))
    assert isinstance(chosen, Failure)
    assert chosen.cause == "no_logprobs"


async def test_labels_of_one_token_are_chosen_from_the_alternatives(connect):
    backend, _ = await connect()
    outcome = await backend.choose(ChooseAsk("x", PAIR, LETTERS))
    assert isinstance(outcome, Choice)
    assert outcome.logprobs[0] > outcome.logprobs[2] > outcome.logprobs[1]
    assert sum(map(math.exp, outcome.logprobs)) == pytest.approx(0.97)


async def test_labels_that_share_their_first_token_are_refused(connect):
    backend, _ = await connect()
    prompt = (Message("user", f"[[>>]] or [[=]]? {PAIR[0].content}"),)
    outcome = await backend.choose(ChooseAsk("x", prompt, labels("[[>>]]", "[[=]]")))
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("unsupported", True)


async def test_a_begun_answer_is_sent_only_where_the_endpoint_goes_on_from_it(connect):
    ask = ChooseAsk("x", PAIR, LETTERS, Prefix("Verdict: "))
    refused, server = await connect()
    outcome = await refused.choose(ask)
    assert isinstance(outcome, Failure)
    assert outcome.cause == "unsupported"
    assert server.stats()["total"] == 0
    able, _ = await connect(continue_final_message=True)
    assert isinstance(await able.choose(ask), Choice)


async def test_nothing_can_be_scored(connect):
    backend, _ = await connect()
    outcome = await backend.score(ScoreAsk("x", MESSAGES, (1,)))
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("unsupported", True)
    assert "embedded" in outcome.message


async def test_provenance_and_load(connect):
    backend, _ = await connect()
    stated = await backend.provenance()
    assert isinstance(stated, Provenance)
    assert (stated.backend, stated.model) == ("openai", "m")
    assert await backend.load() is None


@pytest.mark.parametrize("fault", ["429", "500", "cut", "malformed", "error_200", "no_logprobs"])
async def test_faults_are_failures(connect, fault):
    backend, server = await connect([{"fault": fault}])
    outcome = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
    assert isinstance(outcome, Failure)
    assert server.stats()["total"] == 1


async def test_a_wrong_key_is_told_by_what_is_asked():
    async with serving(None, key="sk-right") as (url, _):
        backend = openai.Kind(openai.Config()).connect(
            Endpoint(base_url=url, model="m", api_key="sk-wrong")
        )
        stated = await backend.provenance()
        outcome = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
        await backend.close()
    assert isinstance(stated, Provenance)
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent, outcome.scope) == ("unauthorised", False, ACCOUNT)


class Listing:
    """A server that answers its list of models in one way, and has no other route."""

    def __init__(self, status: int, body: bytes = b"") -> None:
        self._reply = Reply(status, {}, body)

    async def get(self, path, timeout_s):
        return self._reply

    async def post(self, path, body, timeout_s, read):
        said = b'{"error": {"message": "The model `novise` does not exist"}}'
        return read(Reply(404, {}, said))

    async def close(self):
        pass


@pytest.mark.parametrize("status", [206, 308, 401, 403, 404, 429, 500, 503])
async def test_a_list_of_models_that_is_refused_says_nothing_of_answers(status):
    endpoint = Endpoint(base_url="http://127.0.0.1:1", model="m")
    backend = openai.Connection(endpoint, Listing(status), Dialect())
    assert isinstance(await backend.provenance(), Provenance)


class Answering(Listing):
    """Answers with a status and a body."""

    async def post(self, path, body, timeout_s, read):
        return read(self._reply)


@pytest.mark.parametrize("status", [200, 201, 202, 203, 206, 299])
async def test_a_whole_answer_counts_under_every_status_of_success(status):
    endpoint = Endpoint(base_url="http://127.0.0.1:1", model="m")
    whole = chat("yes", [entry("yes", -0.1)])
    for body, is_whole in ((whole, True), (whole[:30], False), (b"", False)):
        backend = openai.Connection(endpoint, Answering(status, body), Dialect())
        outcome = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
        assert isinstance(outcome, Generation if is_whole else Failure), outcome


async def test_a_model_that_is_not_there_is_told_with_the_nearest_name():
    endpoint = Endpoint(base_url="http://127.0.0.1:1", model="novise")
    listing = Listing(200, b'{"data": [{"id": "novice"}, {"id": "expert"}]}')
    backend = openai.Connection(endpoint, listing, Dialect())
    # Some endpoints answer to names that they don't list.
    assert isinstance(await backend.provenance(), Provenance)
    outcome = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("not_found", False)
    assert "did you mean 'novice'?" in outcome.message


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://127.0.0.1:8000", AiohttpTransport),
        ("https://192.168.0.2/v1", AiohttpTransport),
        ("http://gpu.example.com:8000", AiohttpTransport),
        ("https://api.example.com/v1", OpenaiTransport),
    ],
)
def test_auto_takes_the_cheaper_transport_on_this_network(url, kind):
    backend = openai.Kind(openai.Config()).connect(
        Endpoint(base_url=url, model="m", api_key="sk-1")
    )
    assert isinstance(vars(backend)["_transport"], kind)


@pytest.mark.parametrize(
    "settings",
    [
        {"transport": "curl"},
        {"unknown": 1},
        {"top_logprobs": 0},
        {"omit": ("messages",)},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValidationError):
        openai.Config(**settings)


def replies_of(model, fingerprint, path):
    said = {"role": "assistant", "content": "4"}
    listed = [{"token": "4", "logprob": -0.1, "bytes": None, "top_logprobs": []}]
    choice = {"message": said, "logprobs": {"content": listed}, "finish_reason": "stop"}
    reply = {"id": "x", "model": model, "choices": [choice], "system_fingerprint": fingerprint}
    path.write_text(json.dumps(reply), encoding="utf-8")
    return str(path)


async def test_replies_of_another_model_are_a_warning_once(connect, tmp_path, caplog):
    before = replies_of("m-1", "fp_1", tmp_path / "before.json")
    after = replies_of("m-2", "fp_1", tmp_path / "after.json")
    backend, _ = await connect([{"fixed": after, "after": 2}, {"fixed": before}])
    ask = GenerateAsk("m", MESSAGES, Sampling(max_tokens=4))
    for _ in range(5):
        assert isinstance(await backend.generate(ask, 0), Generation)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "m: replies are of m-1 (fp_1) no more, but of m-2 (fp_1): their numbers may differ"
    ]


@pytest.mark.parametrize("reasoning", [True, False])
@pytest.mark.parametrize("logprobs", [True, False])
def test_labels_are_read_where_log_probabilities_are_asked_for_and_given(logprobs, reasoning):
    kind = openai.Kind(openai.Config(logprobs=logprobs, reasoning=reasoning))
    can = kind.capabilities
    assert (can.generate, can.score) == (True, False)
    assert can.choose == ("top" if logprobs and not reasoning else "none")
