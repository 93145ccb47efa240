"""The transport of all back-ends, by aiohttp, and its connections.

It stands alone because importing aiohttp takes a tenth of a second, which a check of a recipe needs
not; `backends._transport.http_transport` imports it.

aiohttp takes a kept connection although bytes have come on it that answer nobody: they would become
the reply to the next request. It gives a new one up by its own clock, which is late where the
processor is short. And it waits for replies of a machine that is gone. So the kernel is asked what
the event loop cannot know.
"""

import asyncio
import contextlib
import errno
import io
import logging
import select
import socket
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar

import aiohttp

from backends import _transport
from backends._transport import (
    CONTROL_CONNECTIONS,
    KEEPALIVE_S,
    KEPT_HEADERS,
    REPEATED,
    SILENT_S,
    Read,
    Repeats,
    Reply,
    cause_of,
    checked,
    connect_timeout_s,
)
from orchestrator.backend import Endpoint, is_private
from orchestrator.network import CONTROL_BYTES, client_session, collect, trust, words_of
from orchestrator.records import Failure
from orchestrator.wire import failures
from orchestrator.wire.parsing import MAX_BODY_BYTES, too_large

if TYPE_CHECKING:
    import ssl

    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

_OPTIONS: Final = _transport.tcp_options()


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


T = TypeVar("T")
_MAX_PART_BYTES: Final = 2**20
# A server that closes an idle connection just as it is used again does so within a round trip, and
# the request is sent anew. What is closed later was being answered, and that is to be known: it may
# be another server that would answer next.
_RACE_S: Final = 0.02
# How often connections that wait for a reply are looked at.
_LOOK_S: Final = 5.0
_OK: Final = 200
_KEPT: Final = {name.encode(): name for name in KEPT_HEADERS}
_CLOSED: Final = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})
_SILENT: Final = Failure(
    "unreachable",
    f"the server's machine has acknowledged nothing for {SILENT_S:g} s, not even TCP probes",
)

log = logging.getLogger(__name__)


class AiohttpTransport:
    """A pool of connections to one server.

    Args:
        endpoint: Where and with which key.
        keepalive_s: How long an idle connection is kept; below what the server keeps it.
        max_body_bytes: Larger replies are failures.

    Raises:
        UsageError: If the URL or the key can't be used.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        keepalive_s: float = KEEPALIVE_S,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._base_url, self._query, self._key_headers = checked(endpoint)
        self._secret = endpoint.secret
        self._trusted = trust(endpoint.ca_file)
        self._max_in_flight = endpoint.max_in_flight
        self._keepalive_s = keepalive_s
        self._max_body_bytes = max_body_bytes
        self._repeats = {"POST": Repeats(), "GET": Repeats()}
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._busy: set[Attempt] = set()
        self._looking: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def post(self, path: str, body: bytes, timeout_s: float, read: Read[T]) -> T | Failure:
        """See `Transport`."""
        reply = await self._send("POST", path, body, timeout_s)
        return reply if isinstance(reply, Failure) else read(reply)

    async def get(self, path: str, timeout_s: float) -> Reply | Failure:
        """See `Transport`."""
        return await self._send("GET", path, None, timeout_s)

    async def close(self) -> None:
        """See `Transport`."""
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
        for attempt in self._busy:
            attempt.abort()
        sessions, self._sessions = self._sessions, {}
        # Cancelled while one is closed, it closes the other too.
        async with contextlib.AsyncExitStack() as stack:
            for session in sessions.values():
                stack.push_async_callback(session.close)
        # Connections are closed by the loop's next turn; a loop that ends now would not do it.
        await asyncio.sleep(0)

    async def _send(
        self, method: str, path: str, body: bytes | None, timeout_s: float
    ) -> Reply | Failure:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        is_again = False
        while not self._is_closed:
            attempt = Attempt()
            left_s = deadline - loop.time() if is_again else timeout_s
            try:
                return await self._exchange(attempt, method, path, body, left_s)
            except (aiohttp.ClientError, TimeoutError, OSError, UnicodeError) as error:
                if self._is_closed:
                    break
                if attempt.is_silent:
                    return _SILENT
                is_race = loop.time() - attempt.sent_at <= _RACE_S
                if is_again or not is_race or not _closed_before_reply(error):
                    connect_s = connect_timeout_s(self._base_url)
                    return _failure(error, timeout_s, connect_s, self._secret)
            log.debug("%s closed the connection before replying; sent again", self._base_url)
            is_again = True
        return Failure("connection", "the connection was closed")

    async def _exchange(
        self, attempt: Attempt, method: str, path: str, body: bytes | None, timeout_s: float
    ) -> Reply | Failure:
        session = self._sessions.get(method) or self._open(method)
        ATTEMPT.set(attempt)
        self._busy.add(attempt)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)
        is_done = False
        try:
            response = await session.request(
                method,
                self._base_url + path + self._query,
                # What is long is written in parts.
                data=body if body is None or len(body) <= _MAX_PART_BYTES else io.BytesIO(body),
                headers=self._key_headers,
                timeout=_client_timeout(timeout_s, connect_timeout_s(self._base_url)),
                allow_redirects=False,
            )
            try:
                came = await self._read(method, body or b"", response)
            finally:
                # Another request may have its connection once the whole reply has come.
                is_done = response.content.is_eof()
                if not is_done:
                    response.close()
            is_done = is_done and came is not REPEATED
            return came
        finally:
            self._busy.discard(attempt)
            if not is_done:
                attempt.abort()

    async def _read(
        self, method: str, body: bytes, response: aiohttp.ClientResponse
    ) -> Reply | Failure:
        most_bytes = self._max_body_bytes
        if method == "GET":
            most_bytes = min(most_bytes, CONTROL_BYTES)
        announced = response.content_length or 0
        if announced > most_bytes:
            return too_large(announced, most_bytes)
        encoding = response.headers.get("Content-Encoding", "")
        read: bytes | Failure
        if announced and response.content.is_eof() and not encoding:
            # It came with its head, as most do: 8 us less.
            read = response.content.read_nowait()
        else:
            read = await collect(response.content.iter_any(), self, encoding, most_bytes)
        if isinstance(read, Failure):
            return read
        if response.status == _OK and self._repeats[method].is_repeat(body, read):
            return REPEATED
        found = {name.lower(): value for name, value in response.raw_headers}
        kept = {name: found[raw].decode("latin-1") for raw, name in _KEPT.items() if raw in found}
        return Reply(response.status, kept, read)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for attempt in list(self._busy):
            attempt.look(loop.time())
        self._looking = loop.call_later(_LOOK_S, self._look) if self._busy else None

    def _open(self, method: str) -> aiohttp.ClientSession:
        # Questions about health and load have connections of their own: they must be answered
        # most of all when every other connection is taken.
        limit = self._max_in_flight if method == "POST" else CONTROL_CONNECTIONS
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        # A network that is near is faster than compression.
        headers["Accept-Encoding"] = "identity" if is_private(self._base_url) else "gzip"
        connector = Connector(limit, self._keepalive_s, self._trusted)
        self._sessions[method] = client_session(self._base_url, connector, headers)
        return self._sessions[method]


def _closed_before_reply(error: Exception) -> bool:
    if isinstance(error, aiohttp.ServerDisconnectedError):
        # A message that is not text is the head of a reply that had begun.
        return isinstance(error.message, str)
    if isinstance(error, aiohttp.ClientConnectorError):
        return False
    return isinstance(error, aiohttp.ClientOSError) and error.errno in _CLOSED


@lru_cache(maxsize=64)
def _client_timeout(timeout_s: float, connect_s: float) -> aiohttp.ClientTimeout:
    # aiohttp takes 0 for no deadline at all.
    return aiohttp.ClientTimeout(
        total=max(timeout_s, 1e-3), sock_connect=connect_s, ceil_threshold=1e9
    )


def _failure(error: Exception, timeout_s: float, connect_s: float, secret: str) -> Failure:
    """Every error of aiohttp and of sockets, mapped here and nowhere else."""
    said = words_of(error, secret)
    cause = "connection"
    match error:
        case aiohttp.ConnectionTimeoutError():
            cause, said = "unreachable", f"no connection within {connect_s:g} s: {said}"
        case aiohttp.ClientConnectorError(os_error=socket.gaierror()) | UnicodeError():
            cause, said = "unreachable", f"the host name can't be resolved: {said}"
        case OSError(errno=number) if number is not None:
            cause = cause_of(getattr(error, "os_error", error))
        case TimeoutError():
            cause, said = "timeout", f"no complete reply within {timeout_s:g} s"
        case aiohttp.InvalidURL():
            cause, said = "bad_request", f"no valid URL: {said}"
        case aiohttp.ServerDisconnectedError():
            said = "the server closed the connection before replying"
        case aiohttp.ClientPayloadError():
            said = "the reply ended early"
        case aiohttp.ClientResponseError(message=why, status=status):
            # Its own words name the address, and mostly a status that no server sent.
            is_proxy = isinstance(error, aiohttp.ClientHttpProxyError)
            what = f"the proxy answered HTTP {status}" if is_proxy else "the reply is not HTTP"
            said = f"{what}: {failures.clean(why, secret)}"
        case _:
            pass
    return Failure(cause, said, permanent=cause == "bad_request")
