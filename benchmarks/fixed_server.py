"""A server that gives fixed replies as fast as Python can: it must not be what limits a client.

GET and POST are answered by path from a table; the request's body is read and thrown away. A path
that ends in /chat/completions or /score answers with a text that differs by model, so that answers
differ, or with the bodies that `--chat` names, in turn. /counts says how often each path was asked,
and /first when one of these was asked first (monotonic seconds).
"""

import json
import re
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path

from benchmarks._server import Send, arguments, replies_in, serve

_MODEL = re.compile(rb'"model": *"([^"]*)"')

CHOOSE = json.dumps(
    {
        "logprobs": [-2.1, -1.3, -1.9, -1.5, -2.6],
        "usage": {"prompt_tokens": 1063, "cached_tokens": 1024},
    }
)
VERSION = json.dumps({"version": "1", "server": "fixed"})
NAMES = ("m1", "m2", "m3", "m4", "m5", "judge")
MODELS = json.dumps({"object": "list", "data": [{"id": name} for name in NAMES]})


def _chat(request: bytes) -> bytes:
    found = _MODEL.search(request)
    model = found.group(1).decode() if found else "m"
    words = [f" {model}", " gives", " this", " answer"]
    content = [
        {"token": word, "logprob": -0.25, "bytes": None, "top_logprobs": []} for word in words
    ]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "".join(words)},
        "finish_reason": "stop",
        "logprobs": {"content": content},
        "token_ids": [11, 12, 13, 14],
    }
    usage = {"prompt_tokens": 800, "completion_tokens": 4, "total_tokens": 804}
    return json.dumps({"id": "x", "model": model, "choices": [choice], "usage": usage}).encode()


class Fixed:
    """The replies, and how often each path was asked."""

    def __init__(self, replies: dict[str, bytes], chats: Sequence[bytes]) -> None:
        self._replies = replies
        self._chats: Iterator[bytes] = cycle(chats)
        self._counts: dict[str, int] = {}
        self._first: list[float] = []

    def answer(self, method: str, path: str, body: bytes, send: Send) -> None:  # noqa: ARG002
        """Answer a request at once."""
        self._counts[path] = self._counts.get(path, 0) + 1
        if path.endswith(("/chat/completions", "/score")):
            if not self._first:
                self._first.append(time.monotonic())
            send(next(self._chats, None) or _chat(body))
        elif path == "/first":
            send(json.dumps(self._first).encode())
        elif path == "/counts":
            send(json.dumps(self._counts).encode())
        else:
            send(self._replies.get(path, b"{}"))


def main() -> None:
    """Serve until killed."""
    parser = arguments(__doc__)
    parser.add_argument("--chat", type=Path, action="append", default=[], metavar="FILE")
    options = parser.parse_args()
    replies = {
        "/v1/choose": CHOOSE.encode(),
        "/v1/models": MODELS.encode(),
        "/version": VERSION.encode(),
        "/health": b"{}",
        **replies_in(options),
    }
    fixed = Fixed(replies, [file.read_bytes() for file in options.chat])
    serve(options.port, fixed.answer)


if __name__ == "__main__":
    main()
