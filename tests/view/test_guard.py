"""Visitors that are let in, and those that are refused."""

import re
from pathlib import Path

import pytest
from starlette.routing import Route

from orchestrator.view.app import make_app
from orchestrator.view.library import Library
from tests.view.conftest import HERE
from tests.view.runs import made

ROUTES = [route for route in make_app(Library([], Path())).routes if isinstance(route, Route)]
PATHS = {re.sub(r"{.*?}", "made", route.path) for route in ROUTES}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made(folder / "made", 5)
    return folder


@pytest.fixture
def closed(viewer, runs):
    return viewer(runs)


@pytest.fixture
def opened(closed):
    return closed.enter()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", sorted(PATHS))
def test_without_a_cookie_no_route_answers(closed, path, method):
    reply = closed.client.request(method, path, content=b"{}")
    assert reply.status_code == (401 if method == "GET" else 405)
    assert "made" not in reply.text.replace(path, "")


def test_the_token_is_good_once(closed):
    token = closed.tokens[0]
    closed.enter()
    closed.client.cookies.clear()
    assert closed.get(f"/?token={token}").status_code == 401
    assert len(closed.tokens) == 2
    assert closed.get(f"/?token={closed.tokens[1]}").status_code == 200


def test_a_wrong_token_opens_nothing_and_uses_none_up(closed):
    assert closed.get("/?token=wrong").status_code == 401
    assert closed.get("/?token=").status_code == 401
    assert len(closed.tokens) == 1
    closed.enter()


def test_looking_at_a_link_without_opening_it_does_not_use_it_up(closed):
    closed.client.head(f"/?token={closed.tokens[0]}")
    closed.enter()


def test_the_cookie_is_kept_from_scripts_and_from_other_sites(closed):
    cookie = closed.get(f"/?token={closed.tokens[0]}").headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie


def test_the_token_is_taken_out_of_the_address(closed):
    reply = closed.get(f"/run/made/items?q=a%26b&token={closed.tokens[0]}")
    assert 'url=/run/made/items?q=a%26b"' in reply.text
    assert closed.tokens[0] not in reply.text


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", '/"><script>', "/'x"])
def test_the_way_on_never_leads_elsewhere(closed, path):
    reply = closed.client.get(f"{HERE}{path}?token={closed.tokens[0]}")
    assert "<script" not in reply.text
    assert "url=//" not in reply.text
    assert "url=/\\" not in reply.text


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8765", "", "127.0.0.1.evil.example:8765", "127.0.0.1:99999",
        "127.0.0.1:", "127.0.0.1:8765@evil.example", "localhost:x", "127.0.0.1:8765\n",
        "0.0.0.0:8765",
    ],
)  # fmt: skip
def test_other_names_of_this_machine_are_refused(opened, host):
    assert opened.get("/api/runs", host=host).status_code == 421


def test_it_goes_by_localhost_too(opened):
    cookie = f"orchestrator-view-8765={opened.guard.session}"
    assert opened.get("/api/runs", host="localhost:8765", cookie=cookie).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1:9000", "localhost:22022", "localhost"])
def test_any_local_port_is_let_in_with_the_token_and_only_so(closed, host):
    link = f"/?token={closed.tokens[0]}"
    assert closed.get("/api/runs", host=host).status_code == 401
    reply = closed.get(link, host=host)
    assert reply.status_code == 200
    name, _, value = reply.headers["set-cookie"].partition(";")[0].partition("=")
    # Each port has a cookie of its own: several viewers may be forwarded to one machine.
    assert name == f"orchestrator-view-{host.partition(':')[2] or 80}"
    closed.client.cookies.clear()
    cookie = f"{name}={value}"
    assert closed.get("/api/runs", host=host, cookie=cookie).status_code == 200
    assert closed.get("/api/runs", host="127.0.0.1:9", cookie=cookie).status_code == 401
    other = {"host": host, "cookie": cookie, "origin": "http://127.0.0.1:8765"}
    assert closed.client.get("/api/runs", headers=other).status_code == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8765"]
)
def test_requests_of_other_origins_are_refused(opened, origin):
    assert opened.get("/api/runs", origin=origin).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_that_other_pages_make_are_refused_also_without_an_origin(opened, site):
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}
    assert opened.client.get("/api/runs", headers=headers).status_code == 403
    assert opened.client.get("/static/app.js", headers=headers).status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reading_is_possible(opened, method):
    assert opened.client.request(method, "/api/runs").status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        "/static/..%2fapp.py",
        "/static/../app.py",
        "/static/%2e%2e/guard.py",
        "/static/__init__.py",
        "/api/runs/..%2f..%2fetc",
        "/api/runs/%2e%2e",
        "/api/runs/made%2f..%2fmade/state",
        "/api/runs/%00",
    ],
)
def test_nothing_else_on_the_disk_can_be_named(opened, path):
    reply = opened.get(path)
    # Addresses that are none of the api are the page itself, whatever they are.
    assert reply.status_code == 404 or '<div id="bar"' in reply.text


def test_every_answer_carries_the_policy(opened):
    for path in ("/", "/api/runs", "/static/app.js", "/api/nothing", "/static/nothing.js"):
        headers = opened.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"


def test_a_refusal_carries_the_policy_too(closed):
    assert "default-src 'none'" in closed.get("/").headers["content-security-policy"]
