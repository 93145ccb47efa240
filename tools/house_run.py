"""Count what a run goes through: files of ours that it enters, and the way to its first request.

`python -P tools/house_run.py CODE`

Runs a recipe of one model, one method and two items with the `orchestrator` in the folder CODE,
against a server of this process, and prints measures by name as JSON. A file is entered once any
of its code is run but that of the module itself. The way to the first request is the stack of our
own functions, from the command line's `main` to the one that takes the request's bytes last.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Final

_RECIPE: Final = """
name: tiny
seed: 0
models:
  model: {base_url: "http://127.0.0.1:PORT", model: served, backend: openai}
dataset: {path: items.jsonl}
methods:
  - {kind: answers, answer: {max_tokens: 8, temperature: 0}}
"""
_ITEMS: Final = '{"prompt": "one?"}\n{"prompt": "two?"}\n'
_WHEEL: Final = ("orchestrator", "backends", "launch")
_CLIENT: Final = f"{os.sep}aiohttp{os.sep}"
_VERBS: Final = (b"GET ", b"POST ")


class Server(BaseHTTPRequestHandler):
    """A server with one model, whose every answer is the token `5`."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Say which model is served."""
        self._reply({"data": [{"id": "served", "object": "model"}]})

    def do_POST(self) -> None:
        """Answer a chat; any other path is unknown."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self._reply({"error": {"message": "no such path"}}, status=404)
            return
        choice = {"message": {"role": "assistant", "content": "5"}, "finish_reason": "stop"}
        if asked.get("logprobs"):
            others = [_token(str(i), -1.0 - i) for i in range(asked.get("top_logprobs", 0))]
            choice["logprobs"] = {"content": [_token("5", -0.5) | {"top_logprobs": others}]}
        usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
        self._reply({"id": "1", "model": "served", "choices": [choice], "usage": usage})

    def _reply(self, body: object, status: int = 200) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def _token(text: str, logprob: float) -> dict[str, object]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


class Watch:
    """Sees each call of a Python function. Pass it to `sys.setprofile`.

    Args:
        code: Folder of the packages.
    """

    def __init__(self, code: Path) -> None:
        self._own = tuple(f"{code / name}{os.sep}" for name in _WHEEL)
        self._first = b""
        self._is_seen = False
        self.entered: set[str] = set()
        self.stack: list[str] = []
        """File of each frame of ours under the first request, innermost first."""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Look at a call."""
        code = frame.f_code
        if event != "call":
            return
        if code.co_filename.startswith(self._own) and code.co_name != "<module>":
            self.entered.add(code.co_filename)
        # The request's bytes are the client library's.
        if not self._is_seen and _CLIENT in code.co_filename:
            self._look_for_request(frame)

    def _look_for_request(self, frame: FrameType) -> None:
        for value in list(frame.f_locals.values()):
            if isinstance(value, bytes) and value.startswith(_VERBS):
                self._first = self._first or value
                self._is_seen = value != self._first
                if not self._is_seen:
                    self.stack = max(self.stack, self._stack(frame), key=len)

    def _stack(self, innermost: FrameType) -> list[str]:
        found: list[str] = []
        frame: FrameType | None = innermost
        while frame is not None:
            if frame.f_code.co_filename.startswith(self._own):
                found.append(frame.f_code.co_filename)
            frame = frame.f_back
        return found


def main() -> int:
    """Run, and print what was counted."""
    code = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(code))
    watch = Watch(code)
    with (
        tempfile.TemporaryDirectory() as scratch,
        ThreadingHTTPServer(("127.0.0.1", 0), Server) as server,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.chdir(scratch)
        os.environ["ORCHESTRATOR_CACHE"] = scratch
        Path("items.jsonl").write_text(_ITEMS, encoding="utf-8")
        recipe = _RECIPE.replace("PORT", str(server.server_port))
        Path("tiny.yaml").write_text(recipe, encoding="utf-8")
        threading.setprofile(watch)
        sys.setprofile(watch)
        from orchestrator.cli import main as run  # noqa: PLC0415 (of the folder given)

        status = run(["run", "tiny.yaml", "--display", "none"])
        sys.setprofile(None)
        server.shutdown()
    found = {
        "files that one run enters": len(watch.entered),
        "frames to a run's first request": len(watch.stack),
        "files to a run's first request": len(set(watch.stack)),
    }
    print(json.dumps(found))
    return status


if __name__ == "__main__":
    sys.exit(main())
