"""A server that gives fixed replies as fast as Python can: it must not be what limits a client.

GET and POST are answered by path from a table; the request's body is read and thrown away. A path
that ends in /chat/completions answers with a text that differs by model, so that answers differ, or
with the body that `--chat` names. /counts says how often each path was asked, and /first when a
chat was asked first (monotonic seconds).
"""

import argparse
import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import ClassVar

import uvloop

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
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


class FixedProtocol(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, enough for well-behaved clients."""

    counts: ClassVar[dict[str, int]] = {}
    first: ClassVar[list[float]] = []

    def __init__(self, replies: dict[str, bytes], chat: bytes) -> None:
        self._replies = replies
        self._chat = chat
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Answer every complete request."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            found = _LENGTH.search(head)
            length = int(found.group(1)) if found else 0
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            self._answer(head.split(b" ", 2)[1].decode(), body)

    def _answer(self, path: str, body: bytes) -> None:
        self.counts[path] = self.counts.get(path, 0) + 1
        if path.endswith("/chat/completions"):
            if not self.first:
                self.first.append(time.monotonic())
            reply = self._chat or _chat(body)
        elif path == "/first":
            reply = json.dumps(self.first).encode()
        elif path == "/counts":
            reply = json.dumps(self.counts).encode()
        else:
            reply = self._replies.get(path, b"{}")
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(reply)}"
        if self._transport is not None:
            self._transport.write(head.encode() + b"\r\n\r\n" + reply)


async def _serve(port: int, replies: dict[str, bytes], chat: bytes) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: FixedProtocol(replies, chat), "127.0.0.1", port)
    address = server.sockets[0].getsockname()
    sys.stderr.write(f"ready http://127.0.0.1:{address[1]}\n")
    sys.stderr.flush()
    await server.serve_forever()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--chat", type=Path, metavar="FILE")
    parser.add_argument("--reply", action="append", default=[], metavar="PATH=FILE")
    options = parser.parse_args()
    replies = {
        "/v1/choose": CHOOSE.encode(),
        "/v1/models": MODELS.encode(),
        "/version": VERSION.encode(),
        "/health": b"{}",
    }
    for entry in options.reply:
        path, _, file = entry.partition("=")
        replies[path] = Path(file).read_bytes()
    uvloop.run(_serve(options.port, replies, options.chat.read_bytes() if options.chat else b""))


if __name__ == "__main__":
    main()
