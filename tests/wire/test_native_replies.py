import math

import numpy as np
import pytest

from orchestrator.ask import ScoreAsk
from orchestrator.records import Choice, Failure, Scored
from orchestrator.wire import replies


def ask(*ids, **more):
    return ScoreAsk("x", (), ids, "t", **more)


def test_a_score_is_read():
    body = b'{"logprobs":[-0.5,-9999.0,null],"token_ids":[1,2,3],"usage":{"prompt_tokens":9}}'
    outcome = replies.scored(body, ask(1, 2, 3), "x.score", "")
    assert isinstance(outcome, Scored)
    assert outcome.logprobs[:2].tolist() == [-0.5, -math.inf]
    assert math.isnan(outcome.logprobs[2])
    assert (outcome.n_prompt_tokens, outcome.method) == (9, "x.score")


def test_ids_are_the_servers_where_a_text_was_scored():
    outcome = replies.scored(b'{"logprobs":[-0.5],"token_ids":[4]}', ask(), "x.score", "")
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
    outcome = replies.scored(body, ask(1), "x.score", "")
    assert isinstance(outcome, Failure)
    assert outcome.cause == "unparseable"


def listing(ids, values):
    head = b'{"logprobs":[-0.5,-1.5],"token_ids":[1,2]'
    return head + f',"top_token_ids":{ids},"top_logprobs":{values}}}'.encode()


def test_alternatives_of_a_score_are_arrays():
    body = listing("[[1,7],[8,2]]", "[[-0.5,-9999.0],[-0.1,null]]")
    outcome = replies.scored(body, ask(1, 2, top_logprobs=2), "x.score", "")
    assert isinstance(outcome, Scored)
    assert outcome.top is not None
    assert outcome.top.token_ids.dtype == np.int32
    assert outcome.top.logprobs.dtype == np.float32
    np.testing.assert_array_equal(outcome.top.token_ids, [[1, 7], [8, 2]])
    expected = np.array([[-0.5, -np.inf], [-0.1, np.nan]], dtype=np.float32)
    np.testing.assert_array_equal(outcome.top.logprobs, expected)


def test_alternatives_of_a_score_are_put_in_order():
    body = listing("[[1,7],[8,2]]", "[[-3,-0.5],[null,-1.5]]")
    outcome = replies.scored(body, ask(1, 2, top_logprobs=2), "x.score", "")
    assert isinstance(outcome, Scored)
    assert outcome.top is not None
    np.testing.assert_array_equal(outcome.top.token_ids, [[7, 1], [2, 8]])
    np.testing.assert_array_equal(outcome.top.logprobs, [[-0.5, -3], [-1.5, np.nan]])


def test_alternatives_that_were_not_asked_are_not_read():
    outcome = replies.scored(listing("7", '"x"'), ask(1, 2), "x.score", "")
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
    outcome = replies.scored(listing(ids, values), ask(1, 2, top_logprobs=2), "x.score", "")
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == (cause, cause == "unparseable")


def test_nothing_has_alternatives_of_its_own_shape():
    nothing = replies.scored_nothing("x.score", ask(top_logprobs=3))
    assert nothing.top is not None
    assert nothing.top.token_ids.shape == nothing.top.logprobs.shape == (0, 3)
    assert replies.scored_nothing("x.score", ask()).top is None


def observing(features):
    return f'{{"logprobs":[-0.5,-1.5],"token_ids":[1,2],"features":{features}}}'.encode()


def test_features_of_a_score_are_float32_arrays():
    body = observing('{"entropy":[0.5,null],"attention_entropy":[[1,2,3],[4,5,6]],"more":[1]}')
    asked = ask(1, 2, features=("attention_entropy", "entropy"))
    outcome = replies.scored(body, asked, "x.score", "")
    assert isinstance(outcome, Scored)
    assert outcome.features is not None
    assert list(outcome.features) == ["attention_entropy", "entropy"]
    np.testing.assert_array_equal(outcome.features["entropy"], [0.5, np.nan])
    np.testing.assert_array_equal(outcome.features["attention_entropy"], [[1, 2, 3], [4, 5, 6]])
    assert {array.dtype for array in outcome.features.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("features", "cause"),
    [
        ("null", "unsupported"),
        ("{}", "unsupported"),
        ('{"entropy":[1],"attention_entropy":[[1]]}', "unparseable"),
        ('{"entropy":[[1,2]],"attention_entropy":[[1]]}', "unparseable"),
        ('{"entropy":[1,2],"attention_entropy":[1,2]}', "unparseable"),
        ('{"entropy":[1,2],"attention_entropy":[[1],[2,3]]}', "unparseable"),
        ('{"entropy":[1,[2]],"attention_entropy":[[1]]}', "unparseable"),
        ('{"entropy":[1,1e39],"attention_entropy":[[1]]}', "unparseable"),
        ('{"entropy":[1,Infinity],"attention_entropy":[[1]]}', "unparseable"),
        ('{"entropy":[1,"2"],"attention_entropy":[[1]]}', "unparseable"),
    ],
)
def test_features_of_another_form_are_a_failure(features, cause):
    asked = ask(1, 2, features=("attention_entropy", "entropy"))
    outcome = replies.scored(observing(features), asked, "x.score", "")
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == (cause, True)


def test_a_server_that_knows_no_features_is_named_with_one_that_does():
    asked = ask(1, 2, features=("entropy",))
    outcome = replies.scored(b'{"logprobs":[-1,-2],"token_ids":[1,2]}', asked, "x.score", "")
    assert isinstance(outcome, Failure)
    assert outcome.message == "the server does not return entropy; the embedded server does"


def test_features_that_were_not_asked_are_not_read():
    outcome = replies.scored(observing('"x"'), ask(1, 2), "x.score", "")
    assert isinstance(outcome, Scored)
    assert outcome.features is None


def test_the_end_of_the_turn_follows_the_ids_asked():
    asked = ask(1, end_of_turn=True)
    outcome = replies.scored(b'{"logprobs":[-1,-2],"token_ids":[1,9]}', asked, "x.score", "")
    assert isinstance(outcome, Scored)
    assert outcome.token_ids.tolist() == [1, 9]


@pytest.mark.parametrize(
    "body",
    [
        b'{"logprobs":[-1,-2]}',
        b'{"logprobs":[-1],"token_ids":[1]}',
        b'{"logprobs":[-1,-2],"token_ids":[9,1]}',
        b'{"logprobs":[],"token_ids":[]}',
    ],
)
def test_a_score_without_the_end_of_the_turn_is_a_failure(body):
    outcome = replies.scored(body, ask(1, end_of_turn=True), "x.score", "")
    assert isinstance(outcome, Failure)
    assert outcome.cause == "unparseable"


def test_nothing_has_features_of_no_tokens():
    asked = ask(features=("attention_entropy", "entropy"))
    nothing = replies.scored_nothing("x.score", asked).features
    assert nothing is not None
    assert {name: array.shape for name, array in nothing.items()} == {
        "attention_entropy": (0, 0),
        "entropy": (0,),
    }


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
