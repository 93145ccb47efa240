"""Replies to probes that no server should give."""

import json

import pytest

from backends.llamacpp import wire as llamacpp
from backends.vllm import wire as vllm
from orchestrator.probing import replies
from orchestrator.probing.checks import cap
from orchestrator.probing.replies import HttpReply, chat
from orchestrator.records import Failure
from orchestrator.wire import rulings

DEEP = "[" * 10_000 + "]" * 10_000
ENTRY = '{"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": []}'
LONG = "9" * 5000


def reply(entry: str) -> HttpReply:
    body = {"choices": [{"message": {"content": "a"}, "logprobs": {"content": ["entry"]}}]}
    return HttpReply(200, json.dumps(body).replace('"entry"', entry).encode())


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e999", "NaN", "-Infinity"])
def test_a_number_beyond_all_numbers_is_no_log_probability(number):
    found = chat(reply(ENTRY.replace("-1", number)))
    assert found is not None
    assert found.positions[0].logprob is None


@pytest.mark.parametrize("name", ["token_id:" + LONG, "token_id:\u00b2", "token_id:-1"])
def test_a_name_of_thousands_of_digits_is_no_id(name):
    found = chat(reply(ENTRY.replace('"a"', json.dumps(name), 1)))
    assert found is not None
    assert found.positions[0].id is None


@pytest.mark.parametrize("body", [DEEP, '{"data": ' + DEEP + "}", LONG, "\udcff", "NaN"])
def test_what_can_not_be_read_is_an_empty_table(body):
    found = HttpReply(200, body.encode("utf-8", "surrogateescape"))
    assert replies.identify({"/v1/models": found, "/version": found}) == "openai"
    assert replies.model_names(found) == ()


def test_a_cap_of_thousands_of_digits_is_not_read():
    refusal = HttpReply(400, f'{{"message": "maximum allowed: {LONG}"}}'.encode())
    assert cap(refusal).value != LONG
    assert rulings.most_in(f"maximum allowed: {LONG}") is None


@pytest.mark.parametrize("name", ["\u00b2", LONG, "-1", "", "1.0"])
def test_alternatives_of_a_prompt_are_named_by_ids(name):
    rows = [None, {"5": {"logprob": -1.0}, name: {"logprob": -2.0}}]
    body = {
        "choices": [{"index": 0, "prompt_logprobs": rows}],
        "usage": {"prompt_tokens": 2},
    }
    found = vllm.forced(json.dumps(body).encode(), (4, 5), 1, 2, "")
    assert isinstance(found, Failure)
    assert found.cause == "unparseable"


def test_settings_of_the_wrong_kind_are_not_shown():
    settings = {"params": {"speculative.types": [["eagle"]]}}
    body = {"total_slots": 1, "default_generation_settings": settings}
    props = llamacpp.props(json.dumps(body).encode())
    assert isinstance(props, llamacpp.Props)
    assert props.drafts == "?"
