import math

import pytest

from orchestrator.records import Choice, Failure, Scored
from orchestrator.wire import replies


def test_a_score_is_read():
    body = b'{"logprobs":[-0.5,-9999.0,null],"token_ids":[1,2,3],"usage":{"prompt_tokens":9}}'
    outcome = replies.scored(body, (1, 2, 3), "x.score", "")
    assert isinstance(outcome, Scored)
    assert outcome.logprobs[:2].tolist() == [-0.5, -math.inf]
    assert math.isnan(outcome.logprobs[2])
    assert (outcome.n_prompt_tokens, outcome.method) == (9, "x.score")


def test_ids_are_the_servers_where_a_text_was_scored():
    outcome = replies.scored(b'{"logprobs":[-0.5],"token_ids":[4]}', None, "x.score", "")
    assert isinstance(outcome, Scored)
    assert outcome.token_ids.tolist() == [4]


@pytest.mark.parametrize(
    "body",
    [
        b'{"logprobs":[-0.5],"token_ids":[7]}',
        b'{"logprobs":[-0.5,-1.0]}',
        b'{"logprobs":[-0.5],"token_ids":[99999999999]}',
        b'{"logprobs":{"0":-1}}',
        b"{}",
    ],
)
def test_a_score_of_something_else_is_a_failure(body):
    outcome = replies.scored(body, (1,), "x.score", "")
    assert isinstance(outcome, Failure)
    assert outcome.cause == "unparseable"


def test_a_choice_is_read_in_float64():
    usage = b'"usage":{"prompt_tokens":9,"cached_tokens":4}'
    body = b'{"logprobs":[-0.1234567890123,null,-9999.0],' + usage + b"}"
    outcome = replies.choice(body, 3, "x.choose", "")
    assert isinstance(outcome, Choice)
    assert outcome.logprobs[0] == -0.1234567890123
    assert math.isnan(outcome.logprobs[1])
    assert outcome.logprobs[2] == -math.inf
    assert outcome.upper == (-0.1234567890123, 0.0, -math.inf)
    assert (outcome.n_prompt_tokens, outcome.n_cached_tokens) == (9, 4)


def test_a_choice_of_another_number_of_labels_is_a_failure():
    outcome = replies.choice(b'{"logprobs":[-0.5]}', 2, "x.choose", "")
    assert isinstance(outcome, Failure)
