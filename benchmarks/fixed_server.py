"""A server that gives fixed replies as fast as Python can: it must not be what limits a client.

GET and POST are answered by path from a table; the request's body is read and thrown away. A path
that ends in /chat/completions or /score answers with a text that differs by model, so that answers
differ, or with the bodies that `--chat` names, in turn. /counts says how often each path was asked,
/first when one of these was asked first (monotonic seconds), and /open how many of these it had
open at most.
"""

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

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
    content: list[dict[str, Any]] = [
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
    """The replies, and how often each path was asked.

    Args:
        replies: By path.
        chats: Replies of chats and scores, in turn.
        latency_s: Time to each of them.
        log: Gets a line for each of them when it is asked, and one when it is answered: the time
            (monotonic seconds), "asked" or "answered", and a hash of its body.
    """

    def __init__(
        self,
        replies: dict[str, bytes],
        chats: Sequence[bytes],
        latency_s: float = 0.0,
        log: Path | None = None,
    ) -> None:
        self._latency_s = latency_s
        self._log = None if log is None else log.open("a", buffering=1, encoding="ascii")
        self._n_open = self._most_open = 0
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
            reply = next(self._chats, None) or _chat(body)
            if self._latency_s:
                self._n_open += 1
                self._most_open = max(self._most_open, self._n_open)
                loop = asyncio.get_running_loop()
                loop.call_later(self._latency_s, self._late, reply, body, send)
            else:
                send(reply)
            self._note("asked", body)
        elif path == "/open":
            send(json.dumps(self._most_open).encode())
        elif path == "/first":
            send(json.dumps(self._first).encode())
        elif path == "/counts":
            send(json.dumps(self._counts).encode())
        else:
            send(self._replies.get(path, b"{}"))

    def _late(self, reply: bytes, body: bytes, send: Send) -> None:
        self._n_open -= 1
        send(reply)
        self._note("answered", body)

    def _note(self, what: str, body: bytes) -> None:
        if self._log is not None:
            key = hashlib.blake2b(body, digest_size=8).hexdigest()
            self._log.write(f"{time.monotonic()} {what} {key}\n")


def main() -> None:
    """Serve until killed."""
    parser = arguments(__doc__)
    parser.add_argument("--latency-s", type=float, default=0.0, help="of chats and scores")
    parser.add_argument("--log", type=Path, help="a line for each chat or score, with its hash")
    parser.add_argument("--chat", type=Path, action="append", default=[], metavar="FILE")
    options = parser.parse_args()
    replies = {
        "/v1/choose": CHOOSE.encode(),
        "/v1/models": MODELS.encode(),
        "/version": VERSION.encode(),
        "/health": b"{}",
        **replies_in(options),
    }
    chats = [file.read_bytes() for file in options.chat]
    fixed = Fixed(replies, chats, options.latency_s, options.log)
    serve(options.port, fixed.answer, options.host)


if __name__ == "__main__":
    main()
