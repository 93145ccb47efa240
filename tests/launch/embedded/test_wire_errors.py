"""The server's replies about itself, and its refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.launch.embedded.client import USER, Client


def test_what_the_server_is(client: Client) -> None:
    assert client.get("/version")["server"] == "orchestrator-embedded"
    models = {model["id"]: model for model in client.get("/v1/models")["data"]}
    assert set(models) == {"bos", "plain"}
    assert models["bos"]["max_model_len"] == 512
    assert client.raw("GET", "/health")[0] == 200


def test_a_refusal_does_not_repeat_the_key(url: str) -> None:
    status, body = Client(url, "wrong").raw("GET", "/v1/models")
    assert status == 401
    assert "secret-key" not in body.decode()


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"max_tokens": 0}, "max_tokens", "at least 1"),
    ({"max_tokens": 513}, "max_tokens", "max_model_len=512"),
    ({"temperature": -1}, "temperature", "at least 0"),
    ({"temperature": "hot"}, "temperature", "Expected"),
    ({"top_p": 0}, "top_p", "(0, 1]"),
    ({"top_k": -2}, "top_k", "at least 1"),
    ({"seed": 2**64}, "seed", "between"),
    ({"seed": -(2**63) - 1}, "seed", "between"),
    ({"n": 2}, "n", "not supported"),
    ({"top_logprobs": 2}, "top_logprobs", "logprobs must be set"),
    ({"logprobs": True, "logprob_token_ids": [320]}, "logprob_token_ids", "out of vocabulary"),
    ({"stop": ""}, "stop", "empty"),
    ({"messages": []}, "messages", "at least one"),
    ({"messages": [{"content": "x"}]}, "messages", "role"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages",
        "text parts",
    ),
    ({"repetition_penalty": 1.2}, "repetition_penalty", "not supported"),
    ({"stream": True}, "stream", "not supported"),
    ({"prompt_logprobs": 0}, "prompt_logprobs", "not supported"),
    ({"structured_outputs": {"choice": ["a"]}}, "structured_outputs", "not supported"),
    (
        {"add_generation_prompt": True, "continue_final_message": True},
        "continue_final_message",
        "both",
    ),
]


@pytest.mark.parametrize(("fields", "param", "text"), BAD, ids=[str(bad[0])[:40] for bad in BAD])
def test_bad_fields_are_refused_by_name(
    client: Client, fields: dict[str, Any], param: str, text: str
) -> None:
    error = client.chat(status=400, **fields)["error"]
    assert error["param"] == param
    assert text in error["message"]
    assert error["code"] == 400


def test_unknown_fields_are_ignored(client: Client) -> None:
    client.chat(max_tokens=1, no_such_field={"a": 1}, user="me")


def test_a_prompt_that_is_too_long_names_the_limit(client: Client) -> None:
    error = client.chat("word " * 600, status=400)["error"]
    assert (
        "This model's maximum context length is 512 tokens. However, your prompt contains"
        in error["message"]
    )
    long = [5] * 511
    client.post("/v1/score", 400, messages=USER, token_ids=long)


@pytest.mark.parametrize("wanted", [-1, 100_000, "all"])
def test_a_score_of_a_wrong_number_of_alternatives_is_refused(
    client: Client, wanted: object
) -> None:
    error = client.post("/v1/score", 400, messages=USER, token_ids=[5], top_logprobs=wanted)
    assert "top_logprobs" in str(error["error"])


def test_an_unknown_model_is_not_found(client: Client) -> None:
    error = client.chat(model="nobody", status=404)["error"]
    assert error["type"] == "NotFoundError"
    assert "nobody" in error["message"]


def test_a_missing_model_is_a_bad_request_where_there_are_several(client: Client) -> None:
    assert client.raw("POST", "/v1/chat/completions", b"{}")[0] == 400


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"model": "\\ud800"}', b"[" * 5000])
def test_what_is_not_a_json_object_is_a_bad_request(client: Client, body: bytes) -> None:
    status, answer = client.raw("POST", "/v1/chat/completions", body)
    assert status == 400
    assert json.loads(answer)["error"]["code"] == 400


def test_unknown_routes_have_an_error_body(client: Client) -> None:
    assert client.get("/nowhere")["error"]["code"] == 404
    assert client.get("/v1/score")["error"]["code"] == 405


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ([], "spelling"),
        ([[]], "spelling"),
        ([["a"], [""]], "no tokens"),
        ([["a"], ["b", "a"]], "share"),
    ],
)
def test_labels_that_can_not_be_told_apart_are_refused(
    client: Client, labels: list[list[str]], text: str
) -> None:
    assert text in client.post("/v1/choose", 400, messages=USER, labels=labels)["error"]["message"]
