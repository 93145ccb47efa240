"""Replies of real servers that went wrong: what is made of them can be true, or is a failure."""

import asyncio
import json
from functools import cache

import pytest
from hypothesis import strategies as st

from backends import vllm
from backends._transport import Reply
from backends.tgi import wire as tgi
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Endpoint
from orchestrator.records import Failure, Outcome, Sampling, labels
from orchestrator.wire import failures, replies
from orchestrator.wire.drawn import Reading
from orchestrator.wire.labels import choice_from_top
from tests.conformance.servers import KINDS
from tests.conftest import SHARED
from tests.fuzz.fuzzing import fuzz
from tests.fuzz.fuzzing import replies as wrong
from tests.fuzz.served import KEY, MESSAGES, Garbler
from tests.fuzz.test_replies import check, check_failure
from tests.recorded.asks import CHOICES, DRAWS, SCORES, asked
from tests.recorded.replay import Recording

DATA = SHARED / "data"
READING = Reading(top=2, offsets=True, secret=KEY)
SETTINGS = KINDS["vllm"].backend
ASKS: dict[str, GenerateAsk | ScoreAsk | ChooseAsk] = {**DRAWS, **SCORES, **CHOICES}
needs_shared = pytest.mark.skipif(not DATA.is_dir(), reason="../shared is absent: real replies")


@cache
def bodies(folder: str) -> tuple[bytes, ...]:
    """The replies in a folder; of several in one file the first."""
    found = []
    for path in sorted((DATA / folder).glob("*.json")):
        reply = json.loads(path.read_bytes())
        if path.stem != "openapi" and path.stat().st_size < 50_000:
            one = reply[0] if isinstance(reply, list) else reply
            found.append(json.dumps(one, separators=(",", ":")).encode())
    return tuple(found)


@needs_shared
@fuzz(150, body=st.deferred(lambda: wrong(bodies("vllm_replies") + bodies("recorded_replies"))))
def test_chats_and_completions(body):
    check(replies.generation(body, READING))
    check(replies.completion(body, READING))
    found = choice_from_top(body, labels("A", "B", "C"), KEY)
    check(found)
    check_failure(failures.classify(500, body, {"retry-after": "soon"}, KEY))


@needs_shared
@fuzz(150, body=st.deferred(lambda: wrong(bodies("tgi_replies"))))
def test_those_of_tgi(body):
    ask = GenerateAsk("m", MESSAGES, Sampling(stop=("a",)))
    check(tgi.generation(body, READING, ask, 5))
    prefilled = tgi.forced(body, KEY)
    if isinstance(prefilled, Failure):
        check_failure(prefilled)
    else:
        ids, logprobs = prefilled
        assert len(ids) == len(logprobs)
    for read in (tgi.listed, tgi.rendered, tgi.token_ids):
        found = read(body, KEY)
        if isinstance(found, Failure):
            check_failure(found)


@cache
def recorded() -> dict[str, Reply]:
    return {
        request: Reply(status, {}, reply.encode())
        for request, (status, reply) in Recording.read("vllm").exchanges.items()
    }


@st.composite
def vllm_cases(draw: st.DrawFn) -> tuple[str, int, bytes]:
    """An ask, which of its replies goes wrong, and a reply of the server to something like it."""
    name = draw(st.sampled_from(sorted(ASKS)))
    real = tuple(one.body for one in recorded().values() if one.body.startswith(b"{"))
    return name, draw(st.integers(0, 4)), draw(wrong(real))


def made_of(name: str, at: int, body: bytes) -> Outcome | Failure:
    """Return the outcome of an ask of vLLM's back-end whose reply of number `at` is `body`."""
    endpoint = Endpoint(base_url="http://127.0.0.1:1", model="judge", api_key=KEY)
    garbler = Garbler(recorded(), at, body)
    return asyncio.run(
        asked(vllm.Connection(endpoint, garbler, vllm.Config(**SETTINGS)), ASKS[name])
    )


@pytest.mark.parametrize("name", ASKS)
def test_the_recording_of_vllm_that_goes_wrong_is_right_before(name):
    found = made_of(name, -1, b"")
    assert not isinstance(found, Failure), found
    check(found)


@fuzz(150, case=vllm_cases())
def test_those_of_vllm(case):
    check(made_of(*case))
