"""The lean transport: plain HTTP/1.1 to servers on this machine or network.

It costs about a third of aiohttp's processor time a request, and does what `AiohttpTransport` does,
but no TLS, proxies, redirects or compression. Why and measured how: `docs/design/0007`.
"""

import asyncio
import ipaddress
import logging
import socket
from collections import deque
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit

from backends._connection import Connection, Sending
from backends._silence import SILENT_S
from backends._transport import (
    CONNECT_TIMEOUT_S,
    CONTROL_CONNECTIONS,
    KEEPALIVE_S,
    Read,
    Repeats,
    Reply,
    Transport,
    cause_of,
    check_base_url,
    check_key,
    whole,
)
from orchestrator.backend import Endpoint, is_private
from orchestrator.network import CONTROL_BYTES
from orchestrator.records import Failure
from orchestrator.wire import failures
from orchestrator.wire.replies import MAX_BODY_BYTES

T = TypeVar("T")
_SAFE: Final = "/%~!$&'()*+,;=:@"
# What an event loop's timer may come too early.
_RESOLUTION_S: Final = 1e-3
# A server that closes an idle connection just as it is used again does so within a round trip, and
# the request is sent anew. What is closed later was being answered, and that is to be known: it may
# be another server that would answer next.
_RACE_S: Final = 0.02
# How often connections that wait for a reply are looked at.
_LOOK_S: Final = 5.0
_SILENT: Final = Failure(
    "unreachable",
    f"the server's machine has acknowledged nothing for {SILENT_S:g} s, not even TCP probes",
)
_SHUT: Final = Failure("connection", "the connection was closed")

log = logging.getLogger(__name__)


def lean_transport(endpoint: Endpoint, keepalive_s: float = KEEPALIVE_S) -> Transport:
    """The cheapest transport that reaches an endpoint: aiohttp for TLS and through proxies.

    Raises:
        UsageError: If the URL or the key can't be used.
    """
    base_url, _ = check_base_url(endpoint)
    if base_url.startswith("http://") and is_private(base_url):
        return DirectTransport(endpoint, keepalive_s)
    # aiohttp takes a tenth of a second to import, and most servers are reached without it.
    from backends._aiohttp_transport import AiohttpTransport  # noqa: PLC0415

    return AiohttpTransport(endpoint, keepalive_s)


class DirectTransport:
    """A pool of connections to one server, whose URL begins with http://.

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
        base_url, query = check_base_url(endpoint)
        parts = urlsplit(base_url)
        self._path = quote(parts.path, safe=_SAFE)
        self._query = quote(query, safe=_SAFE + "?")
        # The headers that all requests share, and the empty line after them.
        shared = {
            "Host": parts.netloc,
            "User-Agent": "orchestrator",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            **check_key(endpoint),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in shared.items())
        self._head = f"{lines}\r\n"
        address = (parts.hostname or "", parts.port or 80)
        # Questions about health and load have connections of their own: they must be answered
        # most of all when every other connection is taken.
        control_bytes = min(max_body_bytes, CONTROL_BYTES)
        self._pools = {
            method: _Pool(address, limit, keepalive_s, most_bytes, endpoint.secret)
            for method, limit, most_bytes in (
                ("POST", endpoint.max_in_flight, max_body_bytes),
                ("GET", CONTROL_CONNECTIONS, control_bytes),
            )
        }

    async def post(self, path: str, body: bytes, timeout_s: float, read: Read[T]) -> T | Failure:
        """See `Transport`."""
        target = f"{self._path}{path}{self._query}"
        head = f"POST {target} HTTP/1.1\r\nContent-Length: {len(body)}\r\n{self._head}"
        return await self._pools["POST"].send(head.encode() + body, timeout_s, read)

    async def get(self, path: str, timeout_s: float) -> Reply | Failure:
        """See `Transport`."""
        head = f"GET {self._path}{path}{self._query} HTTP/1.1\r\n{self._head}"
        return await self._pools["GET"].send(head.encode(), timeout_s, whole)

    async def close(self) -> None:
        """See `Transport`."""
        for pool in self._pools.values():
            pool.close()
        # Connections are closed by the loop's next turn; a loop that ends now would not do it.
        await asyncio.sleep(0)


class _Pool:
    """Connections to one address, at most `limit` of them in use."""

    def __init__(
        self,
        address: tuple[str, int],
        limit: int,
        keepalive_s: float,
        max_body_bytes: int,
        secret: str,
    ) -> None:
        self._address = address
        self._keepalive_s = keepalive_s
        self._max_body_bytes = max_body_bytes
        self._secret = secret
        self._slots = asyncio.Semaphore(limit)
        self._limit = limit
        # The last that was used is the first to be used again: the others grow old and are closed.
        self._idle: deque[Connection] = deque()
        self._busy: dict[Connection, float] = {}
        self._sending = Sending()
        self._repeats = Repeats()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_closed = False

    async def send(self, request: bytes, timeout_s: float, read: Read[T]) -> T | Failure:
        """Send a request and return `read` of its reply; `timeout_s` bounds all of it."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        if self._slots.locked():
            try:
                async with asyncio.timeout_at(deadline):
                    await self._slots.acquire()
            except TimeoutError:
                return _late(timeout_s)
        else:
            await self._slots.acquire()
        try:
            return await self._exchange(request, deadline, timeout_s, read)
        finally:
            self._slots.release()

    def close(self) -> None:
        """Close connections; what is in flight fails."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in (*self._idle, *self._busy):
            connection.fail(_SHUT)
        self._idle.clear()

    async def _exchange(
        self, request: bytes, deadline: float, timeout_s: float, read: Read[T]
    ) -> T | Failure:
        connection: Connection | Failure | None = None
        fresh = asyncio.get_running_loop().time() - self._keepalive_s
        if self._idle and self._idle[-1].idle_since > fresh:
            connection = self._idle.pop()
        for _ in range(2):
            if connection is None:
                connection = await self._connect(deadline, timeout_s)
            if isinstance(connection, Failure):
                return connection
            if self._is_closed:
                connection.abort()
                return _SHUT
            self._busy[connection] = timeout_s
            began = asyncio.get_running_loop().time()
            self._watch(min(deadline, began + _LOOK_S))
            end = await connection.ask(request, deadline, read)
            if end is not None:
                return end
            if asyncio.get_running_loop().time() - began > _RACE_S:
                break
            log.debug("%s:%d closed the connection before replying", *self._address)
            # Not another idle one: a server that was started again has closed them all.
            connection = None
        return Failure("connection", "the server closed the connection before replying")

    # -- connections -----------------------------------------------------------------------------

    async def _connect(self, deadline: float, timeout_s: float) -> Connection | Failure:
        while self._idle and len(self._idle) + len(self._busy) >= self._limit:
            self._idle.popleft().abort()
        try:
            async with asyncio.timeout_at(deadline):
                return await self._open()
        except TimeoutError:
            return _late(timeout_s)

    async def _open(self) -> Connection | Failure:
        """A new connection to the first of the host's addresses that takes one."""
        loop = asyncio.get_running_loop()
        host, port = self._address
        try:
            addresses = await _addresses(host, port)
        except (OSError, UnicodeError) as error:
            said = failures.clean(str(error), self._secret)
            return Failure("unreachable", f"the host name can't be resolved: {said}")
        failure = Failure("unreachable", "the host has no address")
        for address in addresses:
            try:
                connected = await _connected(address, port)
                _, connection = await loop.create_connection(self._make, sock=connected)
            except TimeoutError:
                said = f"no connection within {CONNECT_TIMEOUT_S:g} s: {address}:{port}"
                failure = Failure("unreachable", said)
            except OSError as error:
                failure = Failure(cause_of(error), failures.clean(str(error), self._secret))
            else:
                return connection
        return failure

    def _make(self) -> Connection:
        return Connection(
            self._released,
            self._lost,
            self._sending,
            self._repeats,
            self._max_body_bytes,
            self._secret,
        )

    def _released(self, connection: Connection) -> None:
        self._busy.pop(connection, None)
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)
        self._watch(connection.idle_since + self._keepalive_s)

    def _lost(self, connection: Connection) -> None:
        self._busy.pop(connection, None)
        if connection in self._idle:
            self._idle.remove(connection)

    # -- one timer for all -----------------------------------------------------------------------

    def _watch(self, at: float) -> None:
        """See to it that `_sweep` runs at a time, or before: it looks when it must run again."""
        if self._timer is not None:
            if at >= self._timer_at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time() + _RESOLUTION_S
        for connection, timeout_s in list(self._busy.items()):
            if connection.deadline <= now:
                connection.fail(_late(timeout_s))
            elif connection.is_silent(now):
                connection.fail(_SILENT)
        while self._idle and self._idle[0].idle_since + self._keepalive_s <= now:
            self._idle.popleft().abort()
        due = [connection.deadline for connection in self._busy if connection.deadline > now]
        if due:
            due.append(now + _LOOK_S)
        if self._idle:
            due.append(self._idle[0].idle_since + self._keepalive_s)
        if due:
            self._watch(min(due))


async def _addresses(host: str, port: int) -> list[str]:
    """The host's addresses in the order in which to try them.

    Raises:
        OSError: If there is none.
        UnicodeError: If it is no host name.
    """
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def _connected(address: str, port: int) -> socket.socket:
    """Return a socket that is connected.

    Raises:
        TimeoutError: If nobody takes the connection in time.
        OSError: If it is refused.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(0.0)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().sock_connect(sock, (address, port))
        except TimeoutError:
            # Where the processor is short this event loop may be late, and not the server: the
            # kernel has connected the socket, and the loop has not looked yet.
            if not _has_peer(sock):
                raise
    except BaseException:
        sock.close()
        raise
    return sock


def _has_peer(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def _late(timeout_s: float) -> Failure:
    return Failure("timeout", f"no complete reply within {timeout_s:g} s")
