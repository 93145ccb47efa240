"""Tokens that are named by their texts alone: each text once, in the order they come."""

import json

import numpy as np

from orchestrator.records import Generation
from orchestrator.wire import replies
from orchestrator.wire.drawn import Reading


def test_texts_are_numbered_in_the_order_they_come():
    listed = ["x", " the", "\n", " the", "a longer one", "𝄞", "\\xe2\\x80", "bytes:\\xe2\\x80"]
    rows = [{"token": text, "logprob": -2.0 - at} for at, text in enumerate(listed)]
    entry = {"token": "x", "logprob": -2.0, "top_logprobs": rows}
    answer = {
        "message": {"content": "x"},
        "logprobs": {"content": [entry]},
        "finish_reason": "length",
    }
    body = json.dumps({"choices": [answer], "usage": {"prompt_tokens": 3}}).encode()
    found = replies.generation(body, Reading(top=len(listed)))
    assert isinstance(found, Generation)
    assert found.top is not None
    np.testing.assert_array_equal(found.top.token_ids, [[-2, -3, -4, -3, -5, -6, -7, -7]])
    assert found.names == (
        b"x", b" the", b"\n", b"a longer one", "𝄞".encode(), b"\xe2\x80"
    )  # fmt: skip
