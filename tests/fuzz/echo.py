"""A server that says back every header it was sent, in a way that the asked model names."""

import contextlib
import json
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote


def answered(text: str, finish_reason: str) -> bytes:
    """A good reply."""
    choice = {"message": {"content": text}, "finish_reason": finish_reason}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 1}}).encode()


def listed(tokens: Sequence[str], key: str) -> bytes:
    """A good reply whose drawn tokens, each with the others beside it, are `tokens`."""
    entries = [{"token": token, "logprob": -0.5 - n} for n, token in enumerate(tokens)]
    content = [{**entry, "top_logprobs": entries} for entry in entries]
    choice = {
        "message": {"content": "\ufffd"}, "finish_reason": key, "logprobs": {"content": content},
    }  # fmt: skip
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 1}}).encode()


Way = Callable[[str], tuple[int, bytes]]
WAYS: tuple[Way, ...] = (
    lambda said: (401, json.dumps({"error": {"message": f"bad key: {said}"}}).encode()),
    lambda said: (500, f"<html>Traceback: headers={said}</html>".encode()),
    lambda said: (429, json.dumps({"message": said, "object": "error"}).encode()),
    lambda said: (400, json.dumps({"error": said, "error_type": said}).encode()),
    lambda said: (422, json.dumps({"detail": [{"loc": ["header"], "msg": said}]}).encode()),
    lambda said: (503, quote(said, safe="").encode()),
    lambda said: (200, json.dumps({"error": {"message": said, "code": said}}).encode()),
    lambda said: (200, said.encode()),
    lambda said: (200, json.dumps({"choices": [{"message": {"content": 7}, "x": said}]}).encode()),
    lambda said: (200, json.dumps({"choices": [{"finish_reason": said}]}).encode()),
    lambda said: (200, answered("x", said)),
    lambda said: (200, answered(said, "stop")),
    lambda said: (302, b""),
)  # fmt: skip


@contextlib.contextmanager
def echoing(ways: Sequence[Way] = WAYS) -> Iterator[str]:
    """The base URL of a server whose model `…-N` is refused in way N, for half of the questions.

    The others are answered: where nothing is, a run ends at the first contact and stores nothing.
    Which half depends on the question alone, so that every way is met at any pace. Of a single way
    all replies are so.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            # As a version, a list of models and figures, where these are asked for.
            listed = {"version": self._said(), "data": [{"id": self._said()}]}
            self._say(200, json.dumps(listed).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if len(ways) > 1 and zlib.crc32(body.partition(b'"messages"')[2]) % 2:
                return self._say(200, answered("x", "stop"))
            way = ways[int(json.loads(body)["model"].rpartition("-")[2])]
            return self._say(*way(self._said()))

        def log_request(self, *args: object) -> None:
            pass

        def _said(self) -> str:
            return "; ".join(f"{name}: {value}" for name, value in self.headers.items())

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            for name in ("Location", "Retry-After", "X-Request-Id", "WWW-Authenticate"):
                self.send_header(name, self._said())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
