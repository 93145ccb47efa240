"""A small HTTP/1.1 server that can also break connections on purpose.

Bodies come with Content-Length; there is no chunking and no TLS. It is written by hand because a
framework would keep us from cutting replies short, and takes several times as long per request.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Literal

import msgspec

_HEAD_LIMIT: Final = 65_536
_BODY_LIMIT: Final = 64 * 2**20
_LENGTH_DIGITS: Final = 20
# Between two pieces of a flood, seconds.
_FLOOD_S: Final = 1e-3
_REASONS: Final = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found",
    405: "Method Not Allowed", 411: "Length Required", 413: "Payload Too Large",
    429: "Too Many Requests", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip

Ending = Literal["keep", "close", "reset", "hang"]


class HttpRequest(msgspec.Struct, gc=False):
    """One request; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Action(msgspec.Struct):
    """Bytes to send, the delay before them, and the fate of the connection after them.

    Attributes:
        data: All bytes to send, head included; may be cut short or empty.
        delay_s: Before it is sent.
        ending: "keep", "close" (FIN), "reset" (RST), or "hang" (nothing more is sent).
        done: Called with whether the client was still there.
        drip_s: After the data a space is sent every so many seconds, without end; 0 for none.
        flood: After the data this is sent again and again, without end, as fast as it is taken.
    """

    data: bytes
    delay_s: float = 0.0
    ending: Ending = "keep"
    done: Callable[[bool], None] | None = None
    drip_s: float = 0.0
    flood: bytes = b""


def respond(
    status: int, body: bytes, headers: str = "", content_type: str = "application/json"
) -> bytes:
    """A whole reply; `headers` are further lines, each ended by CRLF."""
    head = (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}\r\nContent-Type: {content_type}\r\n"
        f"{headers}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("latin-1", "replace") + body


class Connection(asyncio.Protocol):
    """One connection; requests on it are answered one after the other."""

    def __init__(
        self, handle: Callable[[HttpRequest], Action], connections: set["Connection"]
    ) -> None:
        self._handle = handle
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._pending: Action | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
            self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever asked has gone: what was to be sent is dropped."""
        self._connections.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._finish(delivered=False)

    def data_received(self, data: bytes) -> None:
        """Collect, and answer when a request is whole."""
        self._buffer += data
        self._next()

    def abort(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _next(self) -> None:
        while self._pending is None and self._transport is not None:
            request = self._parse()
            if request is None:
                return
            if isinstance(request, int):
                # Where the next request begins is unknown.
                self._buffer.clear()
                refusal = respond(request, b"{}", "Connection: close\r\n")
                self._pending = action = Action(refusal, ending="close")
            else:
                self._pending = action = self._handle(request)
            if action.delay_s > 0:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(action.delay_s, self._send_later)
            else:
                self._send()

    def _send_later(self) -> None:
        self._timer = None
        self._send()
        self._next()

    def _send(self) -> None:
        action, transport = self._pending, self._transport
        if action is None or transport is None:
            return
        if action.data:
            transport.write(action.data)
        match action.ending:
            case "hang":
                if action.drip_s:
                    self._drip(action.drip_s)
                elif action.flood:
                    self._flood(action.flood)
                return
            case "reset":
                transport.abort()
            case "close":
                transport.close()
            case "keep":
                pass
        self._finish(delivered=True)

    def _drip(self, every_s: float) -> None:
        if self._transport is not None:
            self._transport.write(b" ")
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(every_s, self._drip, every_s)

    def _flood(self, piece: bytes) -> None:
        if self._transport is not None:
            if self._transport.get_write_buffer_size() < len(piece):
                self._transport.write(piece)
            self._timer = asyncio.get_running_loop().call_later(_FLOOD_S, self._flood, piece)

    def _finish(self, *, delivered: bool) -> None:
        action, self._pending = self._pending, None
        if action is not None and action.done is not None:
            action.done(delivered)

    def _parse(self) -> HttpRequest | int | None:
        """Take a request from the buffer; None until it is whole, a status if it is refused."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return 431 if len(self._buffer) > _HEAD_LIMIT else None
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        length = headers.get("content-length", "0")
        parts = lines[0].split(" ")
        if "transfer-encoding" in headers:
            return 411
        if len(parts) < 2 or not (length.isascii() and length.isdigit()):
            return 400
        if len(length) > _LENGTH_DIGITS or int(length) > _BODY_LIMIT:
            return 413
        start = end + 4
        if len(self._buffer) < start + int(length):
            return None
        body = bytes(self._buffer[start : start + int(length)])
        del self._buffer[: start + int(length)]
        return HttpRequest(parts[0], parts[1], headers, body)
