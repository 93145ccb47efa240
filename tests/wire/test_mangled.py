"""Whatever comes back, it becomes an outcome or a failure."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ask import ScoreAsk
from orchestrator.records import Choice, Failure, Generation, Scored, labels
from orchestrator.wire import failures, replies
from orchestrator.wire.drawn import Reading
from orchestrator.wire.labels import choice_from_top
from tests.wire.bodies import chat, entry

TOP = [("A", -0.2), ("B", -2.0), ("é", -3.0)]
BODIES = (
    chat("Aé", [entry("A", -0.2, TOP), entry("é", -0.7, TOP), entry("</s>", -1.0, TOP)],
         token_ids=[5, 6, 2]),
    b'{"logprobs":[-0.5,-1.5],"token_ids":[1,2],"usage":{"prompt_tokens":3,"cached_tokens":1}}',
    b'{"logprobs":[-0.5,-1.5],"token_ids":[1,2],"top_token_ids":[[1,7],[8,2]],'
    b'"top_logprobs":[[-0.5,-3],[-0.1,-1.5]],'
    b'"features":{"entropy":[0.5,1.5],"attention_entropy":[[1,2],[3,4]]}}',
    b'{"error":{"message":"no","type":"x","code":400}}',
)  # fmt: skip
EVERYTHING = ("attention_entropy", "entropy")
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@st.composite
def cut_and_spliced(draw):
    body = draw(st.sampled_from(BODIES))
    start = draw(st.integers(0, len(body)))
    end = draw(st.integers(start, min(len(body), start + 40)))
    return body[:start] + draw(st.binary(max_size=6)) + body[end:]


@st.composite
def with_another_value(draw):
    body = json.loads(draw(st.sampled_from(BODIES)))
    place = body
    while True:
        steps = list(place) if isinstance(place, dict) else list(range(len(place)))
        step = draw(st.sampled_from(steps))
        if not isinstance(place[step], dict | list) or not place[step] or draw(st.booleans()):
            place[step] = draw(JUNK)
            return json.dumps(body, separators=draw(st.sampled_from([(",", ":"), None]))).encode()
        place = place[step]


def score(ids=(), top=0, features=()):
    return ScoreAsk("x", (), ids, "t", top, features)


def read_everything(body):
    for reading in (Reading(), Reading(top=2), Reading(logprobs=False)):
        assert isinstance(replies.generation(body, reading), Generation | Failure)
    assert isinstance(choice_from_top(body, labels("A", "B")), Choice | Failure)
    for ask in (score((1, 2)), score(), score((1, 2), 2), score((1, 2), 2, EVERYTHING)):
        assert isinstance(replies.scored(body, ask, "m", ""), Scored | Failure)
    assert isinstance(replies.choice(body, 2, "m", ""), Choice | Failure)
    assert isinstance(failures.classify(400, body, {}), Failure)
    replies.version(body)
    replies.model_names(body)


@given(cut_and_spliced())
@settings(max_examples=300, deadline=None)
def test_cut_bodies_never_raise(body):
    read_everything(body)


@given(with_another_value())
@settings(max_examples=300, deadline=None)
def test_other_values_never_raise(body):
    read_everything(body)


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_never_raise(body):
    read_everything(body)


@given(with_another_value())
@settings(max_examples=200, deadline=None)
def test_arrays_of_a_generation_are_aligned_and_no_log_probability_is_positive(body):
    outcome = replies.generation(body, Reading(top=2))
    if isinstance(outcome, Generation) and outcome.logprobs is not None:
        n = len(outcome.logprobs)
        assert outcome.token_ids is None or len(outcome.token_ids) == n
        assert outcome.top is None or outcome.top.logprobs.shape == (n, 2)
        assert not (outcome.logprobs > 0.01).any()


@given(with_another_value())
@settings(max_examples=200, deadline=None)
def test_alternatives_of_a_score_are_aligned_and_in_order(body):
    outcome = replies.scored(body, score((1, 2), 2), "m", "")
    if isinstance(outcome, Scored):
        assert outcome.top is not None
        assert outcome.top.token_ids.shape == outcome.top.logprobs.shape == (2, 2)
        assert not (outcome.top.logprobs[:, 0] < outcome.top.logprobs[:, 1]).any()
        assert not (outcome.top.logprobs > 0.01).any()


@given(with_another_value())
@settings(max_examples=200, deadline=None)
def test_features_of_a_score_are_complete_and_never_infinite(body):
    outcome = replies.scored(body, score((1, 2), features=EVERYTHING), "m", "")
    if isinstance(outcome, Scored):
        assert outcome.features is not None
        assert tuple(outcome.features) == EVERYTHING
        assert outcome.features["entropy"].shape == (2,)
        assert not any(np.isinf(array).any() for array in outcome.features.values())


WHOLE = json.loads(BODIES[0]) | {
    "id": "1", "created": 1, "model": "m", "system_fingerprint": "f", "prompt_logprobs": None,
    "usage": {
        "prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    },
}  # fmt: skip
# What says whether there is an answer, and which.
OF_THE_ANSWER = ("message", "finish_reason", "error")
OTHERS: tuple[object, ...] = (
    None,
    1,
    -1,
    1.5,
    "x",
    "",
    [],
    {},
    [1],
    [None],
    {"a": 1},
    True,
    300,
    10**25,
    "-Infinity",
)


def places(value, path=()):
    """Every part of a reply that says nothing about its text."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in inner:
        if name not in OF_THE_ANSWER:
            if path not in ((), ("choices",)) or name not in ("choices", 0):
                yield (*path, name)
            yield from places(part, (*path, name)) if isinstance(part, dict | list) else ()


@pytest.mark.parametrize("path", list(places(WHOLE)), ids=lambda path: ".".join(map(str, path)))
def test_what_is_no_part_of_the_text_costs_no_paid_text(path):
    for other in OTHERS:
        body = json.loads(json.dumps(WHOLE))
        place = body
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = other
        found = replies.generation(json.dumps(body).encode(), Reading(logprobs=False))
        assert isinstance(found, Generation), (other, found)
        assert found.text == "Aé"
        counted = replies.generation(json.dumps(body).encode(), Reading(ids=False))
        is_unreadable = "bytes" in path and other in (None, -1, 1.5, "x", [None], {"a": 1}, 300)
        if is_unreadable or not {"logprobs", "token_ids"} & set(path):
            assert isinstance(counted, Generation), (other, counted)
            assert counted.logprobs is not None
            np.testing.assert_allclose(counted.logprobs, np.array([-0.2, -0.7], np.float32))
