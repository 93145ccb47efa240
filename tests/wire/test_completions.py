"""Legacy completions: the same numbers as from a chat reply, in another form."""

import json

import pytest

from orchestrator.ask import GenerateAsk
from orchestrator.records import Failure, Generation, Message, Sampling
from orchestrator.wire import replies, requests
from orchestrator.wire.drawn import Reading
from orchestrator.wire.requests import Dialect

ASK = GenerateAsk("m", (Message("user", "Once upon"),), Sampling(max_tokens=4), top_logprobs=2)


def body(text, finish="length", token_ids=None, **logprobs):
    choice = {"text": text, "finish_reason": finish, "logprobs": logprobs or None}
    if token_ids is not None:
        choice["token_ids"] = token_ids
    usage = {"prompt_tokens": 2, "completion_tokens": 2}
    return json.dumps({"choices": [choice], "usage": usage}).encode()


def read(content, **reading):
    outcome = replies.completion(content, Reading(**reading))
    assert isinstance(outcome, Generation), outcome
    return outcome


def test_the_message_is_the_prompt_and_nothing_else_is_sent():
    sent = json.loads(requests.completion("m", ASK, 7, Dialect(top_k_off=0)))
    assert sent["prompt"] == "Once upon"
    assert "messages" not in sent
    assert (sent["logprobs"], sent["seed"], sent["top_k"]) == (3, 7, 0)


def test_no_log_probabilities_are_asked_for_where_they_are_off():
    assert "logprobs" not in json.loads(requests.completion("m", ASK, 7, Dialect(logprobs=False)))


def test_tokens_and_their_log_probabilities_are_read():
    content = body(" a time", tokens=[" a", " time"], token_logprobs=[-0.5, -1.0], top_logprobs=[])
    made = read(content)
    assert made.logprobs is not None
    assert made.logprobs.tolist() == [-0.5, -1.0]
    assert (made.text, made.finish_reason, made.token_ids) == (" a time", "length", None)
    assert (made.n_prompt_tokens, made.n_completion_tokens) == (2, 2)


def test_ids_are_taken_where_the_server_gives_them():
    made = read(body(" a", token_ids=[5], tokens=[" a"], token_logprobs=[-0.5]))
    assert made.token_ids is not None
    assert made.token_ids.tolist() == [5]


def test_ids_may_stand_in_place_of_the_tokens():
    made = read(body(" a", tokens=["token_id:7"], token_logprobs=[-0.5]))
    assert made.token_ids is not None
    assert made.token_ids.tolist() == [7]


def test_alternatives_are_ranked():
    top = [{" b": -2.0, " a": -0.5, " c": -3.0}]
    made = read(body(" a", tokens=[" a"], token_logprobs=[-0.5], top_logprobs=top), top=2)
    assert made.top is not None
    assert made.top.logprobs.tolist() == [[-0.5, -2.0]]


def test_a_stop_token_is_no_part_of_the_text():
    made = read(body(" a", "stop", tokens=[" a", "</s>"], token_logprobs=[-0.5, -0.1]))
    assert made.logprobs is not None
    assert made.logprobs.tolist() == [-0.5]


def test_thinking_is_set_aside_here_too():
    content = body("Hm</think>a", tokens=["Hm", "</think>", "a"], token_logprobs=[-1, -2, -3])
    made = read(content, thinking_end="</think>")
    assert (made.text, made.n_thinking_tokens) == ("a", 2)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"{}", "unparseable"),
        (b'{"choices": [{"finish_reason": "stop"}]}', "unparseable"),
        (b'{"error": {"message": "no", "code": 500}}', "server_error"),
        (body("a"), "no_logprobs"),
        (body("a", None, tokens=["a"], token_logprobs=[-1]), "unparseable"),
        (body("a", "abort", tokens=["a"], token_logprobs=[-1]), "server_error"),
        (body("a", tokens=["a"], token_logprobs=[]), "unparseable"),
        (body("a", tokens=["a"], token_logprobs=[2.0]), "no_logprobs"),
    ],
)
def test_what_is_wrong_is_a_failure(content, cause):
    outcome = replies.completion(content, Reading())
    assert isinstance(outcome, Failure)
    assert outcome.cause == cause
