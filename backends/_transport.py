"""The seam to the network: bytes out, bytes in, one reply a request, failures as values.

Endpoints are reached by `backends._aiohttp_transport`, hosted ones by `backends.openai.transport`.
Backends know neither.

A network that has gone silent is told from a server that takes its time. A reply may take minutes,
so that nothing comes says nothing about the server. Its kernel answers TCP's own questions
meanwhile, however busy the server is: keepalive probes where all that was sent has arrived,
retransmissions where it has not. A machine that is gone answers neither.

Linux can end a connection whose data stays unacknowledged (TCP_USER_TIMEOUT), but ends it too where
the other side acknowledges and has no room: llama.cpp leaves the requests that wait for a slot
unread. So connections of aiohttp are looked at with TCP_INFO, which tells the two apart.

That packets come is no sign either: a machine that our packets do not reach sends its last reply
again and again, as it hears no acknowledgement.
"""

import errno
import logging
import re
import socket
import struct
from asyncio.trsock import TransportSocket
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

from orchestrator.backend import (
    Endpoint,
    base_url_fault,
    check_header,
    server_address,
    split_query,
    with_query,
)
from orchestrator.errors import UsageError
from orchestrator.records import Failure
from orchestrator.wire import failures

# One reply a request: a reply that comes twice must not become another request's.
#
# HTTP/1.1 does not say to which request a reply belongs. A server, or a proxy before it, that sends
# one again on a connection that is kept would shift all later replies on it by one.


REPEATED: Final = Failure(
    "connection", "the server sent the reply to an earlier request once more; it is not taken"
)
_ID: Final = re.compile(rb'"id":\s?"([^"\\]{1,200})"')
_HEAD: Final = 512
_MOST_KEPT: Final = 1024


class Repeats:
    """The last replies of one server, each with the request that it answered.

    Equal replies to different requests are one that came twice where the server numbers its
    replies (`id`); where it doesn't, they may be as equal as they look.
    """

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[int, int]] = {}
        self._n_replies = self._n_numbers = 0

    def is_repeat(self, request: bytes, body: bytes) -> bool:
        """Return True if a reply answered another request before."""
        found = _ID.search(body, 0, _HEAD)
        if found is None:
            return False
        # The numbers at its end tell a long reply from any other.
        number, seen = found[1], (hash(body[-8 * _HEAD :]), hash(request))
        self._n_replies += 1
        before = self._seen.setdefault(number, seen)
        if before is seen:
            self._n_numbers += 1
            if len(self._seen) > _MOST_KEPT:
                del self._seen[next(iter(self._seen))]
            return False
        # Gateways may write one of a few names for a number.
        is_numbering = 2 * self._n_numbers > self._n_replies
        return is_numbering and before[0] == seen[0] and before[1] != seen[1]


T = TypeVar("T")
CONNECT_TIMEOUT_S: Final = 5.0
"""For TCP's handshake, which a server's kernel answers however busy the server is."""
_TLS_CONNECT_TIMEOUT_S: Final = 20.0
KEEPALIVE_S: Final = 3.0
"""Below uvicorn's 5 s, so that a connection is not reused in the moment the server closes it."""

KEPT_HEADERS: Final = (*failures.READ_HEADERS, "x-request-id")
CONTROL_CONNECTIONS: Final = 2


def connect_timeout_s(base_url: str) -> float:
    """Return how long a client library may take for a connection.

    That is with TLS's handshake: where many begin at once, they take turns at this machine's
    processor.
    """
    return _TLS_CONNECT_TIMEOUT_S if base_url.startswith("https://") else CONNECT_TIMEOUT_S


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A reply: status, the headers in `KEPT_HEADERS` (lower case), and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Read: TypeAlias = Callable[[Reply], T | Failure]
"""Makes something of a reply; never None."""


class Transport(Protocol):
    """Sends bytes to one server."""

    async def post(self, path: str, body: bytes, timeout_s: float, read: Read[T]) -> T | Failure:
        """Post JSON to `path` under the base URL; return `read` of the reply.

        It is read as soon as it is whole, so that many long replies that come together need not be
        held together. `timeout_s` is the deadline of the whole. What `read` raises is raised here.
        """
        ...

    async def get(self, path: str, timeout_s: float) -> Reply | Failure:
        """Get `path` under the base URL."""
        ...

    async def close(self) -> None:
        """Close connections; what is in flight fails."""
        ...


def http_transport(endpoint: Endpoint) -> Transport:
    """Connect to a server by aiohttp.

    Raises:
        UsageError: If the URL or the key can't be used.
    """
    # aiohttp takes a tenth of a second to import, and who checks a recipe needs no server.
    from backends._aiohttp_transport import AiohttpTransport  # noqa: PLC0415

    return AiohttpTransport(endpoint)


def cause_of(error: OSError) -> str:
    """Return the cause of a failure that the operating system reports.

    Refused and unreachable mean that another server may be asked at once. All else may be the
    request's doing, or this machine's, which has no file or port left for another connection.
    """
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    return "unreachable" if error.errno in UNREACHABLE else "connection"


def checked(endpoint: Endpoint) -> tuple[str, str, dict[str, str]]:
    """Return how a server is reached.

    That is its own address, without `/v1`; its query, which goes behind every route; and the
    headers that the transport adds, see `Endpoint.key_headers`.

    Raises:
        UsageError: If it is no http(s) URL, or holds a user name or password, or if a header holds
            what none can; secrets are not shown.
    """
    if fault := base_url_fault(endpoint.base_url):
        raise UsageError(f"a base URL {fault}")
    if not all("!" <= character <= "~" for character in endpoint.api_key):
        raise UsageError("the API key contains white space or invalid characters")
    for name, value in endpoint.headers.items():
        try:
            check_header(name, value)
        except ValueError as error:
            raise UsageError(f"the header {name!r}: {error}") from None
    whole = with_query(server_address(endpoint.base_url), endpoint.query)
    return (*split_query(whole), endpoint.key_headers())


IDLE_S: Final = 5
"""A connection on which nothing has come for so long is probed."""
INTERVAL_S: Final = 3
PROBES: Final = 3
SILENT_S: Final = float(IDLE_S + INTERVAL_S * PROBES)
"""A server that has answered nothing for so long, not even a probe, is out of reach."""
UNREAD_S: Final = 20
"""With TCP_USER_TIMEOUT: data that the other side does not take for so long ends a connection."""

UNREACHABLE: Final = frozenset(
    (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
)
"""Numbers of the errors by which a kernel says that nobody answers."""

# Of Linux's `struct tcp_info`, whose layout only ever grows at the end: retransmissions and probes
# without an answer so far, and milliseconds since the last segment with an acknowledgement.
_INFO: Final = struct.Struct("=2xBB52xI")
# Bytes acknowledged so far, segments received, and those of them that carry data (Linux 4.6).
_RECEIVED: Final = struct.Struct("=120xQ12xI8xI")
# One may be under way just now.
_MOST_PROBES: Final = 1

Option = tuple[int, int, int]

_log = logging.getLogger(__name__)


Socket: TypeAlias = socket.socket | TransportSocket
"""A socket, or the object that an event loop gives for one."""


def tcp_options(*, unread: bool = False) -> list[Option]:
    """Level, name and value of the options by which a kernel ends silent connections.

    With `unread` TCP_USER_TIMEOUT too, for clients whose sockets can't be looked at.
    """
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
    wanted = (
        (idle, IDLE_S),
        (getattr(socket, "TCP_KEEPINTVL", None), INTERVAL_S),
        (getattr(socket, "TCP_KEEPCNT", None), PROBES),
        (getattr(socket, "TCP_USER_TIMEOUT", None) if unread else None, UNREAD_S * 1000),
    )
    known = [(socket.IPPROTO_TCP, name, value) for name, value in wanted if name is not None]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *known]


def set_options(sock: Socket, options: list[Option]) -> None:
    """Set options on a socket; one that can't be set is said once."""
    try:
        for level, name, value in options:
            sock.setsockopt(level, name, value)
    except OSError as error:
        _warn_once(str(error))


class Watch:
    """Watches one connection for silence, by looks at its socket every few seconds."""

    def __init__(self) -> None:
        self._answered: tuple[int, int] | None = None
        self._since_s = 0.0

    def is_silent(self, sock: Socket, now_s: float) -> bool:
        """Return whether the other side has acknowledged nothing for `SILENT_S` although asked to.

        False where the kernel can't tell: there keepalive and deadlines are all there is.

        Args:
            sock: The connection's.
            now_s: The time, by a monotonic clock.
        """
        info = _info_of(sock)
        if len(info) < _INFO.size:
            return False
        n_sent_again, n_probes, since_ms = _INFO.unpack_from(info)
        is_quiet = since_ms > SILENT_S * 1000
        if not n_sent_again:
            self._answered = None
            return bool(is_quiet and n_probes > _MOST_PROBES)
        return is_quiet or self._has_waited(info, now_s)

    def _has_waited(self, info: bytes, now_s: float) -> bool:
        """Return whether looks have found the same data unacknowledged for `SILENT_S`."""
        if len(info) < _RECEIVED.size:
            return False
        n_bytes, n_segments, n_with_data = _RECEIVED.unpack_from(info)
        # A kernel that gets a retransmission answers with a segment that carries no data.
        answered = (n_bytes, n_segments - n_with_data)
        if answered != self._answered:
            self._answered, self._since_s = answered, now_s
        return now_s - self._since_s > SILENT_S


def _info_of(sock: Socket) -> bytes:
    option = getattr(socket, "TCP_INFO", None)
    if option is None:
        return b""
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, option, _RECEIVED.size)
    except OSError:
        return b""


@cache
def _warn_once(said: str) -> None:
    _log.warning(
        "cannot set TCP keepalive (%s): a silent network failure is detected only after "
        "limits.timeout_s",
        said,
    )
