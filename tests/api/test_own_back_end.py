"""A back-end of one's own: its server is sent what the back-end sends, and nothing else."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestrator.errors import PluginError
from orchestrator.interface import api

LAB = '''"""A laboratory's own route."""

import asyncio
import json
import urllib.request

from orchestrator.plugin import (
    Backend, BackendKind, Capabilities, Endpoint, Failure, Generation, Provenance, Settings,
)


class Connection(Backend):
    def __init__(self, endpoint):
        self._endpoint = endpoint

    async def generate(self, ask, seed):
        body = json.dumps({"q": ask.messages[-1].content}).encode()
        url = self._endpoint.base_url + "/answer"
        found = await asyncio.to_thread(lambda: urllib.request.urlopen(url, body).read())
        return Generation(json.loads(found)["a"], "stop", 1, 1)

    async def score(self, ask):
        return Failure("unsupported", "no scores", permanent=True)

    async def provenance(self):
        return Provenance(backend="lab", base_url=self._endpoint.base_url, model="m")

    async def close(self):
        pass


class Kind(BackendKind[Settings]):
    """The laboratory's server."""

    capabilities = Capabilities(generate=True, score=False, choose="none")

    def connect(self, endpoint: Endpoint) -> Backend:
        return Connection(endpoint)
'''


@pytest.fixture
def lab():
    """A server with one route that is closed by anything else; paths that it was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(self.path)
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            content = json.dumps({"a": body["q"][:5]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()


def test_its_server_is_asked_by_the_back_end_alone(tmp_path, lab):
    url, asked = lab
    (tmp_path / "lab.py").write_text(LAB)
    recipe = {
        "name": "own",
        "models": {"mine": {"base_url": url, "backend": "./lab.py"}},
        "dataset": {"kind": "demo", "n": 5},
        "methods": [{"kind": "answers", "answer": {"max_tokens": 4}}],
    }
    (tmp_path / "r.json").write_text(json.dumps(recipe))
    run = tmp_path / "run"
    result = api.run(tmp_path / "r.json", run_dir=run, allow_code=True, display="none")
    assert result.ok
    assert set(asked) == {"/answer"}
    # A text for each item, and the first contact of the probe.
    assert len(asked) == 5 + 1


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Connection(Backend)", "Connection", "Connection, which is not derived from Backend"),
        ("async def score(self, ask)", "def score(self, ask)", "'score' must be a coroutine"),
        ("async def close(self)", "async def close(self, at)", "'close' must take ()"),
        (
            "def provenance",
            "def of",
            "raised TypeError: Can't instantiate abstract class Connection",
        ),
        ("return Generation(", "return (", "returned tuple, not Generation or Failure"),
        ("return Provenance(", "return dict(", "returned dict, not Provenance or Failure"),
    ],
)
def test_a_connection_that_breaks_its_contract_ends_the_run_with_what_is_wrong(
    tmp_path, lab, old, new, words
):
    text = LAB.replace(old, new)
    (tmp_path / "lab.py").write_text(text)
    recipe = {
        "name": "own",
        "models": {"mine": {"base_url": lab[0], "backend": "./lab.py"}},
        "dataset": {"kind": "demo", "n": 5},
        "methods": [{"kind": "answers", "answer": {"max_tokens": 4}}],
    }
    (tmp_path / "r.json").write_text(json.dumps(recipe))
    with pytest.raises(PluginError, match=re.escape(words)):
        api.run(tmp_path / "r.json", run_dir=tmp_path / "run", allow_code=True, display="none")
