"""The seam to the network: bytes out, bytes in, one reply a request, failures as values.

Endpoints are reached by `backends._aiohttp_transport`, hosted ones by `backends.openai.transport`.
Backends know neither.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

from backends._silence import UNREACHABLE
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
        number, seen = found[1], (hash(body), hash(request))
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


def whole(reply: Reply) -> Reply:
    """Reads nothing out of a reply."""
    return reply


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


def http_transport(endpoint: Endpoint, keepalive_s: float = KEEPALIVE_S) -> Transport:
    """Connect to a server by aiohttp.

    Args:
        endpoint: Where and with which key.
        keepalive_s: How long an idle connection is kept; below what the server keeps it.

    Raises:
        UsageError: If the URL or the key can't be used.
    """
    # aiohttp takes a tenth of a second to import, and who checks a recipe needs no server.
    from backends._aiohttp_transport import AiohttpTransport  # noqa: PLC0415

    return AiohttpTransport(endpoint, keepalive_s)


def cause_of(error: OSError) -> str:
    """Return the cause of a failure that the operating system reports.

    Refused and unreachable mean that another server may be asked at once. All else may be the
    request's doing, or this machine's, which has no file or port left for another connection.
    """
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    return "unreachable" if error.errno in UNREACHABLE else "connection"


def check_base_url(endpoint: Endpoint) -> tuple[str, str]:
    """The server's own address, without `/v1`, and its query, which goes behind every route.

    Raises:
        UsageError: If it is no http(s) URL, or holds a user name or password.
    """
    if fault := base_url_fault(endpoint.base_url):
        raise UsageError(f"a base URL {fault}")
    return split_query(with_query(server_address(endpoint.base_url), endpoint.query))


def check_key(endpoint: Endpoint) -> dict[str, str]:
    """The headers that the transport adds, if they can be sent; see `Endpoint.key_headers`.

    Raises:
        UsageError: If one holds what no header can; secrets are not shown.
    """
    if not all("!" <= character <= "~" for character in endpoint.api_key):
        raise UsageError("the API key contains white space or invalid characters")
    for name, value in endpoint.headers.items():
        try:
            check_header(name, value)
        except ValueError as error:
            raise UsageError(f"the header {name!r}: {error}") from None
    return endpoint.key_headers()
