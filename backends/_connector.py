"""Connections of aiohttp, of which the kernel is asked what the event loop can't know.

aiohttp takes a kept connection although bytes have come on it that answer nobody: they would become
the reply to the next request. It gives a new one up by its own clock, which is late where the
processor is short. And it waits for replies of a machine that is gone.
"""

import asyncio
import contextlib
import select
import socket
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import aiohttp

from backends import _transport

if TYPE_CHECKING:
    import ssl

    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

_OPTIONS: Final = _transport.keepalive_options()


class _Socket(socket.socket):
    """A socket that tells, also when it is closed, whether the kernel has connected it."""

    _had_peer = False

    def has_peer(self) -> bool:
        """Return whether it is connected, or was when it was closed."""
        with contextlib.suppress(OSError):
            self.getpeername()
            return True
        return self._had_peer

    def close(self) -> None:
        """See `socket.socket`."""
        self._had_peer = self.has_peer()
        super().close()


class Attempt:
    """One sending of a request.

    Attributes:
        made: Sockets that were made for it; none where it got a connection that was kept.
        carrier: The connection it goes over, once there is one.
        sent_at: When it got that, in the loop's time.
        is_silent: Whether it was given up as nobody is there.
    """

    __slots__ = ("_watch", "carrier", "is_silent", "made", "sent_at")

    def __init__(self) -> None:
        self.made: list[_Socket] = []
        self.carrier: asyncio.Transport | None = None
        self.sent_at = 0.0
        self.is_silent = False
        self._watch = _transport.Watch()

    def look(self, now: float) -> None:
        """End the connection if the server's machine no longer answers."""
        sock = None if self.carrier is None else self.carrier.get_extra_info("socket")
        if sock is not None and self._watch.is_silent(sock, now):
            self.is_silent = True
            self.abort()

    def abort(self) -> None:
        """Close the connection at once, whatever is unsent."""
        if self.carrier is not None:
            self.carrier.abort()


ATTEMPT: Final[ContextVar[Attempt]] = ContextVar("attempt")
"""The sending of a request that a task is at; set before the session is asked."""


class Connector(aiohttp.TCPConnector):
    """Asks the kernel before it takes a kept connection, and before it gives up a new one.

    Args:
        limit: How many connections it may have.
        keepalive_s: How long an idle one is kept.
        trusted: The certificates to trust, where they are not the system's.
    """

    def __init__(self, limit: int, keepalive_s: float, trusted: "ssl.SSLContext | None") -> None:
        super().__init__(
            limit=limit, keepalive_timeout=keepalive_s, socket_factory=_socket, ssl=trusted or True
        )

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: "list[Trace]",
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 (aiohttp's)
    ) -> "Connection":
        """See `aiohttp.BaseConnector`."""
        attempt = ATTEMPT.get()
        while True:
            attempt.made.clear()
            try:
                connection = await super().connect(req, traces, timeout)
            except TimeoutError:
                # Where the processor is short this event loop may be late, and not the server: the
                # kernel has connected the socket, and the loop has not looked yet.
                if req.is_ssl() or not any(sock.has_peer() for sock in attempt.made):
                    raise
                continue
            except asyncio.CancelledError:
                # aiohttp cancels who waits for a connection when it is closed.
                task = asyncio.current_task()
                if not self.closed or (task is not None and task.cancelling()):
                    raise
                raise aiohttp.ClientConnectionError from None
            if not _has_word(connection):
                attempt.carrier = connection.transport
                attempt.sent_at = self._loop.time()
                return connection
            connection.close()
            if attempt.made:
                raise aiohttp.ServerDisconnectedError


def _has_word(connection: "Connection") -> bool:
    """Return whether something has come on a connection: it answers nobody, or is the end."""
    if connection.protocol is None or connection.protocol.should_close:
        return True
    transport = connection.transport
    # TLS has words of its own.
    if transport is None or transport.get_extra_info("sslcontext") is not None:
        return False
    readable = select.poll()
    readable.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(readable.poll(0))


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = _Socket(family, kind, protocol)
    _transport.set_options(made, _OPTIONS)
    ATTEMPT.get().made.append(made)
    return made
