"""What a reply lacks that came as a stream nobody asked for: both are said."""

import json
from typing import Any

import pytest

from orchestrator.records import labels
from orchestrator.wire import replies
from orchestrator.wire.drawn import Reading
from orchestrator.wire.labels import choice_from_top
from tests.wire.test_reply_contract import parts


@pytest.mark.parametrize("reason", [None, "", "stop"])
@pytest.mark.parametrize("read", ["drawn", "label"])
def test_what_a_stream_lacks_is_said_with_the_stream_and_of_a_whole_reply_without(reason, read):
    read = {
        "drawn": lambda body: replies.generation(body, Reading()),
        "label": lambda body: choice_from_top(body, labels("A", "B")),
    }[read]
    part = {"index": 0, "delta": {"content": "A"}, "finish_reason": reason}
    made: Any = read(parts({"choices": [part]}) + b"data: [DONE]\n\n")
    whole: Any = read(json.dumps({"choices": [{"message": {"content": "A"}} | part]}).encode())
    assert (made.cause, made.scope, made.permanent) == (whole.cause, whole.scope, whole.permanent)
    assert made.message.startswith(f"{whole.message}; the server streams")
    assert made.message.count("streams") == 1
    assert "stream" not in whole.message
    if read != "label" and not reason and whole.cause == "unparseable":
        assert f"finish_reason is {'null' if reason is None else 'empty'}" in whole.message
