import json

import pytest

from orchestrator.wire.failures import MESSAGE_LENGTH, classify, clean, retry_after

KEY = "sk-secret/0123"


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no such thing", "type": "X", "code": 400}},
        {"object": "error", "message": "no such thing", "type": "X", "code": 400},
        {"error": "no such thing", "error_type": "validation"},
        {"detail": "no such thing"},
        {"detail": [{"loc": ["body", "n"], "msg": "no such thing"}]},
    ],
)
def test_the_words_are_found_in_every_shape(body):
    message = classify(400, json.dumps(body).encode(), {}).message
    assert message.startswith("HTTP 400: ")
    assert message.endswith("no such thing")


@pytest.mark.parametrize(
    ("status", "cause", "permanent"),
    [
        (400, "bad_request", True),
        (401, "bad_request", True),
        (403, "bad_request", True),
        (404, "not_found", True),
        (413, "too_long", True),
        (422, "bad_request", True),
        (501, "unsupported", True),
        (408, "timeout", False),
        (409, "server_error", False),
        (425, "server_error", False),
        (429, "rate_limited", False),
        (500, "server_error", False),
        (502, "server_error", False),
        (503, "server_error", False),
        (504, "server_error", False),
    ],
)
def test_the_status_decides_cause_and_permanence(status, cause, permanent):
    failure = classify(status, b"{}", {})
    assert (failure.cause, failure.permanent, failure.status) == (cause, permanent, status)


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 2048 tokens. However, your prompt contains 4096.",
        "The input (9 tokens) is longer than the model's context length (8 tokens).",
        "`inputs` must have less than 1024 tokens. Given: 2000",
        "the request exceeds the available context size (4096 tokens)",
    ],
)
def test_a_prompt_that_is_too_long_is_told_by_its_message(message):
    body = json.dumps({"error": {"message": message}}).encode()
    failure = classify(400, body, {})
    assert (failure.cause, failure.permanent) == ("too_long", True)


def test_a_model_that_gives_no_logprobs_is_told_by_its_message():
    body = json.dumps({"error": {"message": "'logprobs' is not supported with this model"}})
    assert classify(400, body.encode(), {}).cause == "no_logprobs"


def test_a_dead_engine_is_told_by_its_message():
    body = b'{"error":{"message":"EngineCore encountered an issue."}}'
    failure = classify(500, body, {})
    assert (failure.cause, failure.permanent) == ("dead_server", False)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "1e9"}, 86_400.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
        (
            {
                "retry-after": "Fri, 31 Dec 1999 23:59:59 GMT",
                "date": "Fri, 31 Dec 1999 23:59:29 GMT",
            },
            30.0,
        ),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers, expected):
    assert retry_after(headers) == expected


def test_messages_are_shortened_and_stripped_of_terminal_escapes():
    message = clean("\x1b[31mred\x1b]0;title\x07\u202e\r\n  text " + "x" * 2000)
    assert message.startswith("red text xxx")
    assert len(message) == MESSAGE_LENGTH
    assert message.isprintable()


@pytest.mark.parametrize(
    "body",
    [
        f"Bearer {KEY}",
        json.dumps({"error": {"message": f"wrong key {KEY}"}}),
        json.dumps({"detail": f"{KEY}{KEY}"}),
        "x" * 490 + KEY,
        "sk-secret%2F0123",
    ],
)
def test_the_key_is_never_repeated(body):
    message = classify(401, body.encode(), {}, KEY).message
    assert "secret" not in message
    assert KEY[:8] not in message


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"[" * 50_000, b"null", b"[1]", b'{"error":[]}']
)
def test_any_body_is_classified(body):
    assert classify(400, body, {}).permanent
