"""Replies of the embedded server, written as vLLM writes its own."""

import json

import pytest

from benchmarks import _drawn
from orchestrator.records import Choice, Generation, labels
from orchestrator.wire import replies
from orchestrator.wire.drawn import Reading
from orchestrator.wire.labels import choice_from_top

TOKENS = {5: ' "', 9: "A", 32803: "[["}


def entry(token: int, logprob: float) -> dict[str, object]:
    text = TOKENS[token]
    return {"token": text, "logprob": logprob, "bytes": list(text.encode()), "id": token}


def reply(*ids: int) -> dict[str, object]:
    listed = [entry(5, -0.5), entry(9, -1.5)]
    known = {5: -0.5, 9: -1.5}
    content = [{**entry(token, known.get(token, -2.5)), "top_logprobs": listed} for token in ids]
    message = {"role": "assistant", "content": "".join(TOKENS[token] for token in ids)}
    choice = {
        "message": message, "logprobs": {"content": content}, "finish_reason": "length",
        "token_ids": ids,
    }  # fmt: skip
    usage = {"prompt_tokens": 7, "completion_tokens": len(ids), "total_tokens": 7 + len(ids)}
    return {"choices": [choice], "usage": usage}


MODEL: _drawn.Reply = {
    "model": "m",
    "choices": [{"message": {"refusal": None}, "logprobs": {"content": []}, "token_ids": None}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
RECORDED: _drawn.Replies = {
    "draws": [reply(32803, 5, 9)],
    "judgments": [reply(9)],
    "scores": [{"logprobs": [-1.0]}],
}


@pytest.fixture(scope="module")
def bodies() -> dict[str, list[bytes]]:
    return _drawn.bodies(RECORDED, MODEL)


@pytest.mark.parametrize("kind", ["words", "reply"])
def test_a_long_answer_is_read_as_those_of_vllm(bodies, kind):
    (body,) = bodies[kind]
    found = replies.generation(body, Reading(top=2))
    assert isinstance(found, Generation)
    assert found.text == '[[ "A'
    assert (found.n_prompt_tokens, found.n_completion_tokens) == (7, 3)
    assert found.top is not None
    assert found.top.logprobs.tolist() == [[-0.5, -1.5]] * 3
    assert found.top.token_ids.tolist() == ([[5, 9]] if kind == "reply" else [[-2, -3]]) * 3


def test_a_judgment_lists_its_labels(bodies):
    (body,) = bodies["judge"]
    found = choice_from_top(body, labels(' "', "A"))
    assert isinstance(found, Choice)
    assert found.logprobs == (-0.5, -1.5)


def test_a_score_stays_as_it_is(bodies):
    assert [json.loads(body) for body in bodies["score"]] == RECORDED["scores"]
