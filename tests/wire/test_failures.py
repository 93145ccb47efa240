import base64
import html
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from orchestrator.wire.failures import MESSAGE_LENGTH, classify, clean, redact, retry_after

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
        (401, "unauthorised", False),
        (402, "no_credit", False),
        (403, "unauthorised", False),
        (404, "not_found", False),
        (206, "unparseable", False),
        (308, "redirected", False),
        (413, "too_long", True),
        (422, "bad_request", True),
        (501, "unsupported", False),
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
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"x-ratelimit-reset": "12.5"}, 12.5),
        ({"x-ratelimit-reset": "1700000030", "date": "Tue, 14 Nov 2023 22:13:20 GMT"}, 30.0),
        ({"x-ratelimit-reset": "1700000030000", "date": "Tue, 14 Nov 2023 22:13:20 GMT"}, 30.0),
        ({"x-ratelimit-reset": "8", "x-ratelimit-remaining": "3"}, None),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "0"}, 360.0),
        (
            {
                "anthropic-ratelimit-tokens-reset": "2023-11-14T22:13:40Z",
                "anthropic-ratelimit-tokens-remaining": "0",
                "date": "Tue, 14 Nov 2023 22:13:20 GMT",
            },
            20.0,
        ),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers, expected):
    assert retry_after(headers) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Rate limit reached. Please try again in 1.5s.", 1.5),
        ("Please try again in 7m12s. Visit the page", 432.0),
        ("Please try again in 250ms", 0.25),
        ("Please retry after 26 seconds.", 26.0),
        ("Please wait 2 minutes before the next request", 120.0),
        ("Please retry after 15 days. Switch to a paid tier.", 86400.0),
        ("slow down", None),
        ("try again later", None),
    ],
)
def test_words_may_say_how_long_to_wait(words, expected):
    body = json.dumps({"error": {"message": words}}).encode()
    assert classify(429, body, {}).retry_after_s == expected
    assert classify(429, body, {"retry-after": "3"}).retry_after_s == 3.0


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


SIGNED = 'Token ab+c/d=="<&>e\\f 0123'
WAYS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "repr": repr,
    "lower": str.lower,
    "upper": str.upper,
    "JSON": json.dumps,
    "JSON in JSON": lambda one: json.dumps(json.dumps(one)),
    "JSON of PHP": lambda one: json.dumps(one).replace("/", "\\/"),
    "JSON of .NET": lambda one: "".join(c if c.isalnum() else f"\\u{ord(c):04X}" for c in one),
    "JSON of codes alone": lambda one: "".join(f"\\u{ord(c):04x}" for c in one),
    "URL": quote,
    "URL, all": lambda one: quote(one, safe=""),
    "URL, lower": lambda one: quote(one, safe="").lower(),
    "URL twice": lambda one: quote(quote(one, safe=""), safe=""),
    "form": quote_plus,
    "HTML": html.escape,
    "HTML twice": lambda one: html.escape(html.escape(one)),
    "base64": lambda one: base64.b64encode(one.encode()).decode(),
    "base64 for URLs": lambda one: base64.urlsafe_b64encode(one.encode()).decode(),
    "base64 of a header": lambda one: base64.b64encode(f"user:{one}".encode()).decode(),
    "base64 of words": lambda one: base64.b64encode(f"a {one} word".encode()).decode(),
}


@pytest.mark.parametrize("secret", [KEY, SIGNED, "dXNlcjpw+/3d=="])
@pytest.mark.parametrize("way", WAYS)
def test_a_secret_is_told_in_whatever_way_a_server_writes_it(way, secret):
    said = f"no such key: {WAYS[way](secret)} was sent"
    for shown in (redact(said, f"other-one\n{secret}"), clean(said, secret)):
        assert "[key]" in shown
        assert len(shown) < len("no such key: dXNlcjp[key]w== was sent") + 4
    assert redact("no such key was sent", secret) == "no such key was sent"


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"[" * 50_000, b"null", b"[1]", b'{"error":[]}']
)
def test_any_body_is_classified(body):
    assert classify(400, body, {}).permanent
