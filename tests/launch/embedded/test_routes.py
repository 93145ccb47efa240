"""Every route of the embedded server against requests that it must survive."""

from __future__ import annotations

import pytest

from launch.embedded import app
from launch.embedded.app import Service
from tests.launch import routes


def test_no_route_answers_without_the_key_or_breaks(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MOST_BYTES", 1 << 20)
    table = {
        route.path: method
        for route in Service([]).routes
        for method in (route.methods or ())
        if method != "HEAD"
    }
    assert len(table) > 5
    assert list(routes.faults(url, table)) == []


@pytest.mark.parametrize("body", ["huge, chunked", "huge, stated"])
def test_a_body_over_the_bound_is_refused_however_it_is_framed(
    url: str, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setattr(app, "MOST_BYTES", 1 << 20)
    for path in ("/v1/chat/completions", "/tokenize"):
        assert routes.status_of(url, routes.HOSTILE[body]("POST", path)) == 413
