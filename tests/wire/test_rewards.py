"""Requests and replies of reward models; the replies named real are those of vLLM 0.32."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ask import RewardAsk
from orchestrator.records import Failure, Message, Rewards
from orchestrator.wire import rewards

ASK = RewardAsk("name", (Message("user", "Reverse: k d a"), Message("assistant", "a d k")))
REAL = (
    b'{"id":"pooling-af9013c98b7ed706","object":"list","created":1795451380,"model":"rm",'
    b'"data":[{"index":0,"object":"pooling","data":[5.117001056671143]}],'
    b'"usage":{"prompt_tokens":21,"total_tokens":21,"completion_tokens":0,'
    b'"prompt_tokens_details":null,"completion_tokens_details":null}}'
)
REAL_BY_TOKEN = (
    b'{"id":"pooling-9596cbf55da5322e","object":"list","created":1795451534,"model":"rm",'
    b'"data":[{"index":0,"object":"pooling","data":[[-1.113444209098816,-3.7724075317382812],'
    b'[3.4251866340637207,-1.4964303970336914]]}],"usage":{"prompt_tokens":21,"total_tokens":21}}'
)


def reply(data):
    return json.dumps({"data": [{"index": 0, "data": data}]}).encode()


def pooled(body):
    return rewards.pooled(body, "vllm.pooling", "")


def test_the_raw_output_is_asked_for_without_the_opening_of_a_turn():
    body = json.loads(rewards.pool("rm", ASK, {}))
    assert body == {
        "model": "rm",
        "messages": [
            {"role": "user", "content": "Reverse: k d a"},
            {"role": "assistant", "content": "a d k"},
        ],
        "add_generation_prompt": False,
        "use_activation": False,
    }
    assert json.loads(rewards.pool("rm", ASK, {"x": 1}))["x"] == 1


def test_a_reply_of_one_number_is_read():
    found = pooled(REAL)
    assert isinstance(found, Rewards)
    assert (found.values.tolist(), found.by_place) == ([[np.float32(5.117001056671143)]], False)
    assert (found.method, found.n_prompt_tokens) == ("vllm.pooling", 21)


def test_a_reply_by_token_is_read():
    found = pooled(REAL_BY_TOKEN)
    assert isinstance(found, Rewards)
    assert (found.values.shape, found.by_place) == ((2, 2), True)


def test_a_reply_of_sglang_is_read():
    body = b'{"embedding":[-2.5,1.0],"meta_info":{"id":"x","prompt_tokens":7,"cached_tokens":3}}'
    found = rewards.classified(body, "sglang.classify", "")
    assert isinstance(found, Rewards)
    assert (found.values.tolist(), found.n_prompt_tokens) == ([[-2.5, 1.0]], 7)
    assert found.n_cached_tokens == 3


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("[NaN]", "not all finite"),
        ("[Infinity]", "not all finite"),
        ("[[0.5],[-Infinity]]", "not all finite"),
        ("[null]", "not all finite"),
        ("[1e39]", "too large"),
        ("[1e400]", "not all finite"),
        ("[]", "empty"),
        ("[[]]", "empty"),
        ("[[1.0],[1.0,2.0]]", "different lengths"),
        ("[[1.0],2.0]", "different lengths"),
        ("[1.0,[2.0]]", "a list where a number"),
        ('["1.0"]', "a str where a number"),
        ("[true]", "a bool where a number"),
        ('[{"a":1}]', "a dict where a number"),
        (f"[{'0,' * rewards.MOST_VALUES}0]", "more than"),
        ('"AACAPw=="', "unexpected shape"),
        ("5.0", "unexpected shape"),
    ],
)
def test_what_is_no_reward_is_a_failure(data, said):
    found = pooled(b'{"data":[{"index":0,"data":' + data.encode() + b"}]}")
    assert isinstance(found, Failure)
    assert (found.cause, found.permanent) == ("unparseable", True)
    assert said in found.message


def test_several_replies_are_not_one():
    body = b'{"data":[{"data":[1.0]},{"data":[2.0]}]}'
    found = pooled(body)
    assert isinstance(found, Failure)
    assert "2 are rated" in found.message


def test_an_error_in_a_reply_is_said():
    found = pooled(b'{"error":{"message":"out of memory","code":400}}')
    assert isinstance(found, Failure)
    assert "out of memory" in found.message


jsons = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["data", "usage", "error", "embedding"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@given(jsons)
def test_any_json_is_rewards_or_a_failure(content):
    for body in (json.dumps(content).encode(), reply(content)):
        for read in (rewards.pooled, rewards.classified):
            found = read(body, "x", "")
            assert isinstance(found, Rewards | Failure)
            if isinstance(found, Rewards):
                assert np.isfinite(found.values).all()
                assert found.values.dtype == np.float32
                assert found.values.size
