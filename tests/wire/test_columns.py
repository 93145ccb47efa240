"""Long replies: lists of alternatives read all at once are what the decoder of objects reads."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.records import Failure, Generation
from orchestrator.store import codec
from orchestrator.wire import _columns, replies
from orchestrator.wire.replies import Reading

Tokens = list[dict[str, Any]]

texts = st.sampled_from(("", "a", " the", '"', "\\", '\\"', "\n", "{", "}]}", '"bytes":', "é", "𝄞"))
placeholders = st.integers(0, 10**9 - 1).map("token_id:{}".format)
logprobs = (
    st.floats(-400, 0, width=32)
    | st.floats(-1e5, 0)
    | st.sampled_from([None, -9999.0, 0.0, -0.0, -5, -1e-300, -1234.5, 0.001, 12.5, math.nan])
)
few = settings(max_examples=50)


@st.composite
def answers(draw, tokens=texts) -> Tokens:
    """Drawn tokens, each with as many alternatives."""
    k = draw(st.integers(1, 4))

    def one() -> dict[str, Any]:
        text = draw(tokens)
        spelled = draw(st.none() | st.just(list(text.encode())))
        return {"token": text, "logprob": draw(logprobs), "bytes": spelled}

    return [
        {**one(), "top_logprobs": [one() for _ in range(k)]} for _ in range(draw(st.integers(1, 4)))
    ]


def reply(content: Tokens, *, said: str = "x", ascii_only: bool = False) -> bytes:
    answer = {
        "message": {"content": said},
        "logprobs": {"content": content},
        "finish_reason": "length",
    }
    body = {"choices": [answer], "usage": {"prompt_tokens": 3}}
    return json.dumps(body, separators=(",", ":"), ensure_ascii=ascii_only).encode()


def read(body: bytes, least: int) -> Generation | Failure:
    """With replies of `least` bytes and more read at once."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(replies, "LEAST_BYTES", least)
        return replies.generation(body, Reading(top=3, offsets=True))


def assert_same(body: bytes) -> None:
    assert codec.pack(read(body, 0)) == codec.pack(read(body, 2**40))


@few
@given(answers(), texts, st.booleans())
def test_what_is_read_at_once_is_what_objects_say(content, said, ascii_only):
    body = reply(content, said=said, ascii_only=ascii_only)
    assert _columns.cut(body) is not None
    assert_same(body)


@few
@given(answers(placeholders))
def test_ids_are_read_at_once(content):
    found = _columns.cut(reply(content))
    assert found is not None
    expected = [[int(one["token"][9:]) for one in drawn["top_logprobs"]] for drawn in content]
    assert found[1].ids.tolist() == expected
    assert_same(reply(content))


@few
@given(answers(texts | placeholders))
def test_ids_for_some_tokens_only_are_what_objects_say(content):
    assert_same(reply(content))


@few
@given(st.lists(st.decimals(-2000, 0, places=18), min_size=1, max_size=8))
def test_a_number_of_any_length_becomes_the_nearest_float32(numbers):
    numbers = [f"{number:f}" for number in numbers]
    content = [{"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": []}]
    content[0]["top_logprobs"] = [
        {"token": "a", "logprob": index, "bytes": None} for index in range(len(numbers))
    ]
    text = reply(content).decode()
    for index, number in enumerate(numbers):
        text = text.replace(f'"logprob":{index},', f'"logprob":{number},')
    found = _columns.cut(text.encode())
    assert found is not None
    expected = np.array([float(number) for number in numbers]).astype(np.float32)
    np.testing.assert_array_equal(found[1].logprobs[0].astype(np.float32), expected)


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 2])
def test_a_number_between_two_float32_goes_to_the_nearer(offset):
    # Halfway between two float32, and its neighbours among float64.
    half = np.float64(np.float32(-3.5)) + np.spacing(np.float32(3.5)) / 2
    value = half + offset * np.spacing(half)
    number = f"{value:.17f}"
    body = reply(
        [
            {
                "token": "a", "logprob": -1.0, "bytes": [],
                "top_logprobs": [{"token": "a", "logprob": float(number), "bytes": []}],
            }
        ]
    )  # fmt: skip
    found = _columns.cut(body)
    assert found is not None
    assert found[1].logprobs.astype(np.float32) == np.float32(float(number))


@few
@given(answers(), st.data())
def test_a_reply_that_is_cut_or_garbled_is_what_objects_say(content, data):
    body = reply(content)
    place = data.draw(st.integers(0, len(body) - 1))
    put = data.draw(st.sampled_from([b"", b'"', b"{", b"]", b",", b"\\", b"0", b"-", b"e", b" "]))
    garbled = body[:place] + put + body[place + data.draw(st.integers(0, 3)) :]
    found = _columns.cut(garbled)
    # What the lists say of texts and bytes is not looked at.
    assume(found is None or _is_json(garbled))
    assert_same(garbled)


@few
@given(answers(), st.integers(0, 400))
def test_a_reply_that_ends_too_early_is_not_read(content, n_missing):
    body = reply(content)
    kept = body[: max(len(body) - 1 - n_missing, 0)]
    found = read(kept, 0)
    assert isinstance(found, Failure)
    assert found.cause == "unparseable"


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def _one_list(alternatives: str) -> bytes:
    drawn = '{"token":"a","logprob":-1.0,"bytes":[],"top_logprobs":[%s]}'
    said = reply([]).decode()
    return said.replace('"content":[]', '"content":[%s]' % (drawn % alternatives)).encode()


@pytest.mark.parametrize(
    "alternatives",
    [
        '{"token":"a","logprob":-1.0,"bytes":[{"token":"b","logprob":-2.0,"bytes":[]}]}',
        '{"token":"a","logprob":-1.0,"bytes":{"token":"b","logprob":-2.0,"bytes":[]}}',
        '{"token":"a","logprob":-1.0,"bytes":[],"id":7}',
        '{"logprob":-1.0,"token":"a","bytes":[]}',
        '{"token": "a", "logprob": -1.0, "bytes": []}',
        '{"token":"a","logprob":"-1.0","bytes":[]}',
        '{"token":"a","logprob":-1e999,"bytes":[]}',
        '{"token":"a","logprob":true,"bytes":[]}',
        '{"token":"a","logprob":-1.5.5,"bytes":[]}',
        '{"token":"a","logprob":- 1.5,"bytes":[]}',
        '{"token":7,"logprob":-1.5,"bytes":[]}',
        '{"token":"a\nb","logprob":-1.5,"bytes":[]}',
        "",
    ],
)
def test_lists_that_are_written_in_another_way_are_left_to_objects(alternatives):
    assert_same(_one_list(alternatives))


def test_lists_of_several_lengths_are_left_to_objects():
    one = {"token": "a", "logprob": -1.0, "bytes": []}
    body = reply([{**one, "top_logprobs": [one] * n} for n in (2, 1)])
    assert _columns.cut(body) is None
    assert_same(body)


def test_texts_are_numbered_in_the_order_they_come():
    listed = [" the", "\n", " the", "a longer one", "𝄞", "", "a longer one", "\\xe2\\x80"]
    one = {"token": "a", "logprob": -1.0, "bytes": []}
    rows = [{**one, "token": text} for text in listed]
    found = _columns.cut(reply([{**one, "top_logprobs": rows}]))
    assert found is not None
    assert found[1].ids.tolist() == [[-2, -3, -2, -4, -5, -6, -4, -7]]
    expected = [b" the", b"\n", b"a longer one", "𝄞".encode(), b"", b"\xe2\x80"]
    assert list(found[1].names) == expected


def test_a_long_reply_is_read_at_once(recorded, monkeypatch):
    monkeypatch.setattr(replies, "_listed_chat", None)
    found = replies.generation(recorded["large"], Reading(top=20))
    assert getattr(found, "top", None) is not None
