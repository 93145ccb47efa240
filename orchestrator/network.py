"""HTTP for all clients: bodies of replies within bounds, and proxies of the environment."""

import asyncio
import logging
import re
import weakref
import zlib
from collections.abc import AsyncIterator, Hashable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from orchestrator.backend import is_private
from orchestrator.errors import UsageError
from orchestrator.records import Failure, unparseable
from orchestrator.wire import failures
from orchestrator.wire.parsing import MAX_BODY_BYTES, too_large

if TYPE_CHECKING:
    import ssl

    import aiohttp

# Bodies of replies: a bound for each, and one for all that are being received.
#
# A server may send without end, announce no length, or compress gigabytes to megabytes. Every
# client counts bytes as they come, after decompression, and stops at its limit.


MOST_TOGETHER_BYTES: Final = 256 << 20
"""Bytes of all bodies that are being received; when they are reached most readers wait."""
FREE_BYTES: Final = 256 << 10
"""A body of so many bytes never waits: most replies are shorter, and are not counted at all."""
CONTROL_BYTES: Final = 8 << 20
"""The longest reply to a question about a server: its models, its health, a probe."""
UNASKED_ENCODING: Final = unparseable("the reply is compressed in a form that was not asked for")

# A text that gzip can't shrink grows by 5 bytes in 16,384, and some bytes are its head and padding.
_GZIP_ROOM_BYTES: Final = 64 << 10
_GZIP_GROWTH: Final = 1.001
_WITH_GZIP_HEADER: Final = 16 + zlib.MAX_WBITS


class Ledger:
    """Counts the bytes of all bodies that are being received, and has readers wait.

    When the limit is reached one body of each server may still grow, so that none waits for
    another server, and some reply always ends. At most the limit and one body of each server are
    held, beside `FREE_BYTES` of each connection.

    Attributes:
        n_bytes: Held now.
    """

    def __init__(self, most_bytes: int = MOST_TOGETHER_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held: dict[Hashable, int] = {}
        # Of each server the body that may grow whatever is held.
        self._first: dict[Hashable, Hashable] = {}
        self._released = asyncio.Event()
        self.n_bytes = 0

    async def hold(self, body: Hashable, server: Hashable, n_bytes: int) -> None:
        """Count a body that has `n_bytes` by now, and wait until more of it may be read.

        Args:
            body: Stands for the body until `release`.
            server: Stands for the server that sends it.
            n_bytes: Its length so far.
        """
        self.n_bytes += n_bytes - self._held.get(body, 0)
        self._held[body] = n_bytes
        while self.n_bytes > self._most_bytes and self._first.setdefault(server, body) is not body:
            await self._released.wait()

    def release(self, body: Hashable, server: Hashable) -> None:
        """Forget a body, whether or not it is whole; does nothing for one that is not held."""
        if body in self._held:
            self.n_bytes -= self._held.pop(body)
            if self._first.get(server) is body:
                del self._first[server]
            self._released.set()
            self._released = asyncio.Event()


_ledgers: Final[weakref.WeakValueDictionary[int, Ledger]] = weakref.WeakValueDictionary()


def ledger() -> Ledger:
    """The ledger of the running event loop, one for all clients; keep it while it is in use."""
    key = id(asyncio.get_running_loop())
    found = _ledgers.get(key)
    if found is None:
        found = _ledgers[key] = Ledger()
    return found


async def collect(
    chunks: AsyncIterator[bytes],
    server: Hashable,
    encoding: str = "",
    most_bytes: int = MAX_BODY_BYTES,
) -> bytes | Failure:
    """Read a body to its end.

    Args:
        chunks: As they come from the network, not decompressed.
        server: Stands for the server that sends them, in the ledger.
        encoding: The reply's Content-Encoding; of gzip the inflated bytes are counted.
        most_bytes: Longer bodies are failures; so is gzip that is longer as it comes.

    Failures: "unparseable" for a body that is too long or compressed otherwise, and "connection"
    for compressed data that is damaged or breaks off. What `chunks` raises is raised.
    """
    if encoding.lower() in ("", "identity"):
        inflater = None
    elif encoding.lower() in ("gzip", "x-gzip"):
        inflater = _Gzip()
    else:
        return UNASKED_ENCODING
    counted, body, parts, n_bytes = ledger(), object(), [], 0
    left = most_bytes * _GZIP_GROWTH + _GZIP_ROOM_BYTES
    try:
        async for chunk in chunks:
            left -= len(chunk)
            part = inflater.inflate(chunk, most_bytes + 1 - n_bytes) if inflater else chunk
            parts.append(part)
            n_bytes += len(part)
            # Padding, and members that hold nothing, may come without end.
            if n_bytes > most_bytes or left < 0:
                return too_large(max(n_bytes, most_bytes + 1), most_bytes)
            if n_bytes > FREE_BYTES:
                await counted.hold(body, server, n_bytes)
    except zlib.error:
        return Failure("connection", "the reply is not valid gzip")
    finally:
        counted.release(body, server)
    if inflater and not inflater.is_whole:
        return Failure("connection", "the reply ended early")
    return b"".join(parts)


class _Gzip:
    """Inflates no more than it is told to."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_WITH_GZIP_HEADER)
        # Errors of gateways may have no body at all, whatever their head says.
        self.is_whole = True

    def inflate(self, data: bytes, most_bytes: int) -> bytes:
        """The next bytes, at most so many; the rest of `data` is dropped then.

        Raises:
            zlib.error: If it is no gzip.
        """
        parts: list[bytes] = []
        while data and most_bytes > 0:
            if self._member.eof:
                # Members of a file follow one another without a sign; zeros may pad each.
                data = data.lstrip(b"\0")
                if not data:
                    break
                self._member = zlib.decompressobj(_WITH_GZIP_HEADER)
            parts.append(self._member.decompress(data, most_bytes))
            most_bytes -= len(parts[-1])
            data = self._member.unused_data or self._member.unconsumed_tail
        self.is_whole = self._member.eof
        return b"".join(parts)


# Proxies of the environment, the same for every client.
#
# The libraries disagree about `ALL_PROXY`, `NO_PROXY` and proxies without a scheme, and aiohttp's
# `trust_env` also reads `~/.netrc` and sends what stands there to servers, so it stays off.


log = logging.getLogger(__name__)


def proxy_of(base_url: str) -> str | None:
    """The proxy that `HTTP_PROXY`, `HTTPS_PROXY` or `ALL_PROXY` names; None for none.

    Servers on this machine or in a private network are always reached without one, and so are
    those that `NO_PROXY` lists.

    Raises:
        UsageError: If it is no address.
    """
    # It brings clients of its own along, which a check of a recipe needs not.
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415

    parts = urlsplit(base_url)
    if is_private(base_url) or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found:
        return None
    found = found if "://" in found else f"http://{found}"
    try:
        named = urlsplit(found)
        _ = named.port
    except ValueError as error:
        raise UsageError(f"the proxy that the environment names: {error}") from None
    if named.scheme not in ("http", "https"):
        log.warning("ignoring the proxy for %s: only HTTP proxies are supported", parts.hostname)
        return None
    return found


_READ_BUFFER_BYTES: Final = 2**18
_MAX_HEADER_BYTES: Final = 2**16


def client_session(
    base_url: str, connector: "aiohttp.BaseConnector", headers: Mapping[str, str]
) -> "aiohttp.ClientSession":
    """Return a session with a server, by the proxy of the environment and without cookies."""
    import aiohttp  # noqa: PLC0415 (a tenth of a second, and few commands speak to servers)

    return aiohttp.ClientSession(
        connector=connector,
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=proxy_of(base_url),
        read_bufsize=_READ_BUFFER_BYTES,
        max_field_size=_MAX_HEADER_BYTES,
        # Inflated where the bytes are counted.
        auto_decompress=False,
    )


# Certificates.


@lru_cache(maxsize=16)
def trust(ca_file: str) -> "ssl.SSLContext | None":
    """Trust in the system's certificates and those of a file; None without one.

    Raises:
        UsageError: If the file can't be read, or holds no certificates in PEM.
    """
    if not ca_file:
        return None
    import ssl  # noqa: PLC0415 (most servers are reached without)

    context = ssl.create_default_context()
    try:
        context.load_verify_locations(ca_file)
    except ssl.SSLError:
        raise UsageError(f"{ca_file!r} holds no certificate in PEM (BEGIN CERTIFICATE)") from None
    except OSError as error:
        raise UsageError(f"{ca_file!r} can't be read: {error.strerror or error}") from None
    return context


# What TLS says of a server, or of a proxy before it.
_TLS: Final = (
    ("mismatch", "the server's certificate is of another host ({why})"),
    ("expired", "the server's certificate is too old, or this machine's clock is wrong ({why})"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the server's certificate is not trusted ({why}); if a private authority signed "
        "it, give the file of that authority's certificate as `ca_file`",
    ),
    ("WRONG_VERSION_NUMBER", "no TLS is spoken there; such an address begins with http://"),
    ("CERTIFICATE_REQUIRED", "the server asks for a client's certificate, and none is ever sent"),
)


def words_of(error: BaseException, secret: str) -> str:
    """Return the words of a client's error without secrets, with a remedy for faults of TLS."""
    said = re.sub(r"://[^/\s]*@", "://", str(error))  # the address of a proxy has its password
    said = failures.clean(said or type(error).__name__, secret)
    why = said.rpartition("certificate verify failed: ")[2].partition(" (_ssl")[0]
    found = (of.format(why=why) for word, of in _TLS if "SSL" in said and word in said)
    return next(found, said)
