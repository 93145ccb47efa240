"""The transport for all that needs TLS, a proxy or compression, by aiohttp.

It stands alone because importing aiohttp takes a tenth of a second, and most servers are reached
without.
"""

import asyncio
import contextlib
import errno
import logging
import socket
from functools import lru_cache
from typing import Final, TypeVar

import aiohttp

from backends import _silence
from backends._transport import (
    CONTROL_CONNECTIONS,
    KEEPALIVE_S,
    KEPT_HEADERS,
    REPEATED,
    Read,
    Repeats,
    Reply,
    cause_of,
    check_base_url,
    check_key,
    connect_timeout_s,
)
from orchestrator.backend import Endpoint, is_private
from orchestrator.network import CONTROL_BYTES, collect, proxy_of, trust, words_of
from orchestrator.records import Failure
from orchestrator.wire.replies import MAX_BODY_BYTES, too_large

T = TypeVar("T")
_READ_BUFFER_BYTES: Final = 2**18
_OPTIONS: Final = _silence.all_options()
_OK: Final = 200
_CLOSED: Final = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})

log = logging.getLogger(__name__)


class AiohttpTransport:
    """A pool of connections to one server.

    Args:
        endpoint: Where and with which key.
        keepalive_s: How long an idle connection is kept; below what the server keeps it.
        max_body_bytes: Larger replies are failures.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        keepalive_s: float = KEEPALIVE_S,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._base_url, self._query = check_base_url(endpoint)
        # With each request: a session sends its own headers to proxies too.
        self._key_headers = check_key(endpoint)
        self._secret = endpoint.secret
        self._trusted = trust(endpoint.ca_file)
        self._max_in_flight = endpoint.max_in_flight
        self._keepalive_s = keepalive_s
        self._max_body_bytes = max_body_bytes
        self._repeats = Repeats()
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def post(self, path: str, body: bytes, timeout_s: float, read: Read[T]) -> T | Failure:
        """See `Transport`."""
        reply = await self._send("POST", path, body, timeout_s)
        return reply if isinstance(reply, Failure) else read(reply)

    async def get(self, path: str, timeout_s: float) -> Reply | Failure:
        """See `Transport`."""
        return await self._send("GET", path, None, timeout_s)

    async def close(self) -> None:
        """See `Transport`."""
        sessions, self._sessions = self._sessions, {}
        # Cancelled while one is closed, it closes the other too.
        async with contextlib.AsyncExitStack() as stack:
            for session in sessions.values():
                stack.push_async_callback(session.close)

    async def _send(
        self, method: str, path: str, body: bytes | None, timeout_s: float
    ) -> Reply | Failure:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        try:
            try:
                return await self._exchange(method, path, body, timeout_s)
            except aiohttp.ClientError as error:
                if not _closed_before_reply(error):
                    raise
                log.debug("%s closed the connection before replying; sent again", self._base_url)
                return await self._exchange(method, path, body, deadline - loop.time())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return _failure(error, timeout_s, connect_timeout_s(self._base_url), self._secret)

    async def _exchange(
        self, method: str, path: str, body: bytes | None, timeout_s: float
    ) -> Reply | Failure:
        session = self._sessions.get(method) or self._open(method)
        timeout = _client_timeout(timeout_s, connect_timeout_s(self._base_url))
        async with session.request(
            method,
            self._base_url + path + self._query,
            data=body,
            headers=self._key_headers,
            timeout=timeout,
            allow_redirects=False,
        ) as response:
            kept = {name: value for name in KEPT_HEADERS if (value := response.headers.get(name))}
            most_bytes = self._max_body_bytes
            if method == "GET":
                most_bytes = min(most_bytes, CONTROL_BYTES)
            announced = response.content_length or 0
            if announced > most_bytes:
                read: bytes | Failure = too_large(announced, most_bytes)
            else:
                encoding = response.headers.get("Content-Encoding", "")
                chunks = response.content.iter_any()
                read = await collect(chunks, self, encoding, most_bytes)
            if response.status == _OK and not isinstance(read, Failure):
                read = REPEATED if self._repeats.is_repeat(body or b"", read) else read
            if isinstance(read, Failure):
                response.close()
        return read if isinstance(read, Failure) else Reply(response.status, kept, read)

    def _open(self, method: str) -> aiohttp.ClientSession:
        # Questions about health and load have connections of their own: they must be answered
        # most of all when every other connection is taken.
        limit = self._max_in_flight if method == "POST" else CONTROL_CONNECTIONS
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        # A network that is near is faster than compression.
        headers["Accept-Encoding"] = "identity" if is_private(self._base_url) else "gzip"
        self._sessions[method] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=limit,
                keepalive_timeout=self._keepalive_s,
                socket_factory=_socket,
                ssl=self._trusted or True,
            ),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=proxy_of(self._base_url),
            read_bufsize=_READ_BUFFER_BYTES,
            # Inflated where the bytes are counted.
            auto_decompress=False,
        )
        return self._sessions[method]


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    _silence.set_options(made, _OPTIONS)
    return made


def _closed_before_reply(error: aiohttp.ClientError) -> bool:
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
        case aiohttp.ClientConnectorError(os_error=socket.gaierror()):
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
            said = f"the reply ended early: {said}"
        case _:
            pass
    return Failure(cause, said, permanent=cause == "bad_request")
