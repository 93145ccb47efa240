"""A server with fixed replies that counts how many requests it has open at once.

GET and POST are answered by path from a table; bodies are read and thrown away. `/open` says how
many POSTs were open: the most ever, and the median of samples taken every 20 ms while any was.
`--latency S` answers POSTs S seconds late. `--hold N` answers none before N are open at once, or
none has come for five seconds: what a client really keeps open, however slow it is.
"""

import argparse
import asyncio
import json
import re
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvloop

QUIET_S = 5.0
SAMPLE_S = 0.02
Reply = Callable[[], None]

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Open:
    """Requests that were read and not yet answered."""

    def __init__(self, latency_s: float, hold: int) -> None:
        self._latency_s, self._hold = latency_s, hold
        self._held: list[Reply] = []
        self._timer: asyncio.TimerHandle | None = None
        self._now = 0
        self._peak = 0
        self._samples: list[int] = []

    def admit(self, reply: Reply) -> None:
        """Call `reply` when its time has come."""
        loop = asyncio.get_running_loop()
        if self._now == 0 and self._latency_s:
            loop.call_later(SAMPLE_S, self._sample)
        self._now += 1
        self._peak = max(self._peak, self._now)
        if self._hold:
            self._keep(reply)
        elif self._latency_s:
            loop.call_later(self._latency_s, self._answer, reply)
        else:
            self._answer(reply)

    def report(self) -> dict[str, float]:
        """The most requests that were open at once, and the median of the samples."""
        return {"peak": self._peak, "median": statistics.median(self._samples or [0])}

    def _keep(self, reply: Reply) -> None:
        self._held.append(reply)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(QUIET_S, self._release)
        if self._now >= self._hold:
            self._hold = 0
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for reply in held:
            self._answer(reply)

    def _answer(self, reply: Reply) -> None:
        self._now -= 1
        reply()

    def _sample(self) -> None:
        if self._now:
            self._samples.append(self._now)
            asyncio.get_running_loop().call_later(SAMPLE_S, self._sample)


class Protocol(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, enough for well-behaved clients."""

    def __init__(self, replies: dict[str, bytes], opened: Open) -> None:
        self._replies = replies
        self._open = opened
        self._buffer = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Answer every complete request, at once or later."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            found = _LENGTH.search(head)
            length = int(found.group(1)) if found else 0
            if len(self._buffer) < end + 4 + length:
                return
            self._buffer = self._buffer[end + 4 + length :]
            method, path = head.decode("latin-1").split(" ", 2)[:2]
            if method == "POST":
                self._open.admit(partial(self._answer, path))
            else:
                self._answer(path)

    def _answer(self, path: str) -> None:
        if path == "/open":
            reply = json.dumps(self._open.report()).encode()
        else:
            reply = self._replies.get(path, b"{}")
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(reply)}"
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(head.encode() + b"\r\n\r\n" + reply)


async def _serve(port: int, replies: dict[str, bytes], opened: Open) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Protocol(replies, opened), "127.0.0.1", port, backlog=4096
    )
    address = server.sockets[0].getsockname()
    sys.stderr.write(f"ready http://127.0.0.1:{address[1]}\n")
    sys.stderr.flush()
    await server.serve_forever()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--reply", action="append", default=[], metavar="PATH=FILE")
    parser.add_argument("--latency", type=float, default=0.0, metavar="S")
    parser.add_argument("--hold", type=int, default=0, metavar="N")
    options = parser.parse_args()
    pairs = (entry.partition("=") for entry in options.reply)
    replies = {path: Path(file).read_bytes() for path, _, file in pairs}
    uvloop.run(_serve(options.port, replies, Open(options.latency, options.hold)))


if __name__ == "__main__":
    main()
