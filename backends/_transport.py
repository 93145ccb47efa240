"""The seam to the network: bytes out, bytes in, failures as values.

Endpoints we launch or that live on this network are reached by `backends._direct_transport`, those
that need TLS by `backends._aiohttp_transport`, hosted ones by `backends.openai.transport`.
Backends know none of them.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

from backends._silence import UNREACHABLE
from orchestrator.backend import base_url_fault
from orchestrator.errors import UsageError
from orchestrator.records import Failure
from orchestrator.wire import failures

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


def cause_of(error: OSError) -> str:
    """Return the cause of a failure that the operating system reports.

    Refused and unreachable mean that another server may be asked at once. All else may be the
    request's doing, or this machine's, which has no file or port left for another connection.
    """
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    return "unreachable" if error.errno in UNREACHABLE else "connection"


def check_base_url(base_url: str) -> str:
    """`base_url` without a trailing slash.

    Raises:
        UsageError: If it is no http(s) URL, or holds a user name or password.
    """
    if fault := base_url_fault(base_url):
        raise UsageError(f"a base URL {fault}")
    return base_url.rstrip("/")


def check_key(api_key: str) -> str:
    """The key, if it can be sent in a header.

    Raises:
        UsageError: If it holds white space or characters outside ASCII; the key is not shown.
    """
    if not all("!" <= character <= "~" for character in api_key):
        raise UsageError("the API key contains white space or invalid characters")
    return api_key
