"""Tokens of an answer in a real browser: of servers with ids and without, and of hostile texts."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from orchestrator.interface import api
from tests.browser import IN_CHROMIUM, assert_no_fault
from tests.inside import fake_server
from tests.view.pages import opened, served

pytestmark = IN_CHROMIUM

# A tab, spaces, a line break, right to left, one character of two tokens, markup, and an override.
TOKENS = (
    b"a", b"\t", b"    ", b"\n", " مرحبا".encode(), b" ", b"\xf0\x9f\x91", b"\xa9",
    b"<img src=x onerror=alert(1)>", "\u202e".encode(), b"\xe6\x97", b"\xa5",
)  # fmt: skip
TEXT = b"".join(TOKENS).decode()
OTHERS = (b"<b>", b"\xf0\x9f", b"<|im_end|>")


def _entry(token: bytes, logprob: float) -> dict[str, Any]:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        # As OpenAI writes it.
        text = "".join(f"\\x{byte:02x}" for byte in token)
    return {"token": text, "logprob": logprob, "bytes": list(token)}


def _reply(asked: dict[str, Any]) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": TEXT},
        "finish_reason": "stop",
    }
    if asked.get("logprobs"):
        n = asked.get("top_logprobs", 0)
        content = [
            {
                **_entry(token, -0.25),
                "top_logprobs": [_entry(token, -0.25), *(_entry(one, -3.0) for one in OTHERS)][:n],
            }
            for token in TOKENS
        ]
        choice["logprobs"] = {"content": content}
    return {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": len(TOKENS)}}


class _Endpoint(BaseHTTPRequestHandler):
    """A hosted endpoint that always says the same."""

    def do_GET(self) -> None:
        self._answer({"data": [{"id": "hosted"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(_reply(asked))

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def ask(folder: Path, name: str, url: str, backend: object, *, top: int = 3) -> None:
    """Make a run of one item."""
    answers = {
        "kind": "answers",
        "top_logprobs": top,
        "answer": {"max_tokens": 10, "temperature": 0},
    }
    recipe = {
        "name": name,
        "models": {"there": {"base_url": url, "model": "hosted", "backend": backend}},
        "dataset": {"kind": "demo", "n": 1},
        "methods": [answers],
        "probe": False,
    }
    (folder / f"{name}.json").write_text(json.dumps(recipe), encoding="utf-8")
    result = api.run(folder / f"{name}.json", run_dir=folder / name)
    assert result.ok, result


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    with endpoint() as url:
        ask(folder, "hosted", url, {"kind": "openai", "top_logprobs": 4})
        ask(folder, "capped", url, {"kind": "openai", "top_logprobs": 2}, top=3)
        ask(folder, "plain", url, {"kind": "openai"}, top=0)
        ask(folder, "silent", url, {"kind": "openai", "logprobs": False}, top=0)
    with fake_server({"dialect": "vllm_v1"}, models=("hosted",)) as url:
        ask(folder, "vllm", url, "vllm")
    with served(folder, tmp_path_factory.mktemp("state")) as link:
        yield link


def tokens(page: Any) -> list[str]:
    found: list[str] = page.locator(".answer .tokens .tok").all_text_contents()
    return found


def test_tokens_of_a_server_with_ids_spell_the_answer_when_it_is_gone(browser, links):
    with opened(browser, links, "/run/vllm/item/0?view=tokens") as (page, said):
        page.wait_for_selector(".answer .tok")
        shown = "".join(tokens(page))
        page.locator(".answer .tok").first.hover()
        told = page.locator("#tip").inner_text()
        assert ", id " in told
        assert "the 3 most likely tokens" in told
        assert "#" not in told
        assert page.locator(".missing").count() == 0
        page.goto(page.url.replace("view=tokens", "view=text"))
        assert page.locator(".answer pre").inner_text().split() == shown.split()
        assert said == []


def test_tokens_of_an_endpoint_without_ids_are_shown_with_all_that_can_t_be_seen(browser, links):
    with opened(browser, links, "/run/hosted/item/0?view=tokens") as (page, said):
        page.wait_for_selector(".answer .tok")
        assert tokens(page) == [
            "a", "⇥\t", "␣␣␣␣", "↵\n", " مرحبا", "␣", "·", "👩",
            "<img src=x onerror=alert(1)>", "\\u202e", "·", "日",
        ]  # fmt: skip
        assert page.locator(".answer img").count() == 0
        style = "el => getComputedStyle(el).unicodeBidi"
        assert page.locator(".answer .tok").nth(4).evaluate(style) == "isolate"
        assert said == []


def test_alternatives_are_named_and_the_drawn_one_is_marked(browser, links):
    with opened(browser, links, "/run/hosted/item/0?view=tokens") as (page, said):
        page.locator(".answer .tok").first.hover()
        rows = page.locator("#tip tr td:first-child").all_inner_texts()
        assert rows == ["“a”", "“<b>”", "“<0xF0><0x9F>”"]
        assert page.locator("#tip tr.own td").first.inner_text() == "“a”"
        told = page.locator("#tip").inner_text()
        assert "the most likely of the alternatives" in told
        assert "id" not in told.partition("\n")[0]
        assert said == []


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("capped", "listed 2 of the 3 alternatives requested"),
        ("plain", "top_logprobs: 5"),
        ("silent", "logprobs: true"),
    ],
)
def test_what_is_missing_is_said_with_the_setting_that_observes_it(browser, links, run, words):
    with opened(browser, links, f"/run/{run}/item/0?view=tokens") as (page, said):
        page.wait_for_selector(".answer .missing li")
        assert words in page.locator(".answer .missing").inner_text()
        assert (page.locator(".answer .tok").count() == 0) == (run == "silent")
        assert said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault_in_tokens(browser, axe, links, scheme):
    path = "/run/plain/item/0?view=tokens"
    with opened(browser, links, path, color_scheme=scheme) as (page, _):
        page.wait_for_selector(".answer .tok")
        assert_no_fault(page, axe, 20)
