import math

import numpy as np
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


def listing(ids, values):
    head = b'{"logprobs":[-0.5,-1.5],"token_ids":[1,2]'
    return head + f',"top_token_ids":{ids},"top_logprobs":{values}}}'.encode()


def test_alternatives_of_a_score_are_arrays():
    body = listing("[[1,7],[8,2]]", "[[-0.5,-9999.0],[-0.1,null]]")
    outcome = replies.scored(body, (1, 2), "x.score", "", 2)
    assert isinstance(outcome, Scored)
    assert outcome.top is not None
    assert outcome.top.token_ids.dtype == np.int32
    assert outcome.top.logprobs.dtype == np.float32
    np.testing.assert_array_equal(outcome.top.token_ids, [[1, 7], [8, 2]])
    expected = np.array([[-0.5, -np.inf], [-0.1, np.nan]], dtype=np.float32)
    np.testing.assert_array_equal(outcome.top.logprobs, expected)


def test_alternatives_of_a_score_are_put_in_order():
    body = listing("[[1,7],[8,2]]", "[[-3,-0.5],[null,-1.5]]")
    outcome = replies.scored(body, (1, 2), "x.score", "", 2)
    assert isinstance(outcome, Scored)
    assert outcome.top is not None
    np.testing.assert_array_equal(outcome.top.token_ids, [[7, 1], [2, 8]])
    np.testing.assert_array_equal(outcome.top.logprobs, [[-0.5, -3], [-1.5, np.nan]])


def test_alternatives_that_were_not_asked_are_not_read():
    outcome = replies.scored(listing("7", '"x"'), (1, 2), "x.score", "")
    assert isinstance(outcome, Scored)
    assert outcome.top is None


@pytest.mark.parametrize(
    ("ids", "values", "cause"),
    [
        ("[[1,7]]", "[[-0.5,-3]]", "unparseable"),
        ("[[1,7],[8]]", "[[-0.5,-3],[-0.1]]", "unparseable"),
        ("[[1,7],[8,2]]", "[[-0.5,-3],[-0.1]]", "unparseable"),
        ("[[1,7,3],[8,2,3]]", "[[-0.5,-3,-4],[-0.1,-2,-4]]", "unparseable"),
        ("[[1,7],[8,-2]]", "[[-0.5,-3],[-0.1,-2]]", "unparseable"),
        ("[1,7]", "[-0.5,-3]", "unparseable"),
        ("[[1,7],[8,2]]", "[[-0.5,3],[-0.1,-2]]", "no_logprobs"),
        ("null", "[[-0.5,-3],[-0.1,-2]]", "no_logprobs"),
        ("[[1,7],[8,2]]", "null", "no_logprobs"),
    ],
)
def test_alternatives_of_another_shape_are_a_failure(ids, values, cause):
    outcome = replies.scored(listing(ids, values), (1, 2), "x.score", "", 2)
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == (cause, True)


def test_nothing_has_alternatives_of_its_own_shape():
    nothing = replies.scored_nothing("x.score", 3)
    assert nothing.top is not None
    assert nothing.top.token_ids.shape == nothing.top.logprobs.shape == (0, 3)
    assert replies.scored_nothing("x.score").top is None


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
