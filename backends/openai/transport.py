"""Transport through the `openai` package, for hosted endpoints.

The package knows certificates and the headers of its own service. Its hidden retries are
off, and of its reply only the bytes are used: building its objects costs 30 ms for a large reply.
Importing it takes most of a second, so `backends.openai` imports this module when it is needed.
"""

import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import parse_qsl

import openai
from openai import RequestOptions

from backends._transport import (
    KEPT_HEADERS,
    REPEATED,
    Read,
    Repeats,
    Reply,
    cause_of,
    checked,
    connect_timeout_s,
    tcp_options,
)
from orchestrator.backend import Endpoint, is_private
from orchestrator.network import collect, proxy_of, trust, words_of
from orchestrator.records import Failure
from orchestrator.wire.parsing import MAX_BODY_BYTES

T = TypeVar("T")
_AS_STREAM: Final = "X-Stainless-Raw-Response"
_OK: Final = range(200, 300)
_DISCONNECTED: Final = "Server disconnected without sending a response"


class _Streamed(Protocol):
    """A response of the HTTP library that the package uses, its body not read yet."""

    status_code: int

    @property
    def headers(self) -> Mapping[str, str]:
        """Names are found in any case."""
        ...

    def aiter_raw(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        ...


class _RefusedError(openai.OpenAIError):
    """Carries the reply with an error status: the package would read its body without a limit."""

    def __init__(self, reply: Reply | Failure) -> None:
        super().__init__()
        self.reply = reply


class OpenaiTransport:
    """A client of the `openai` package, used for its connection only.

    Args:
        endpoint: Where and with which key.
        max_body_bytes: Larger replies are failures.
    """

    def __init__(self, endpoint: Endpoint, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._base_url, self._query, self._key_headers = checked(endpoint)
        self._secret = endpoint.secret
        self._trusted = trust(endpoint.ca_file)
        self._max_in_flight = endpoint.max_in_flight
        self._max_body_bytes = max_body_bytes
        self._encoding = "identity" if is_private(self._base_url) else "gzip"
        self._repeats = Repeats()
        self._client: openai.AsyncOpenAI | None = None

    async def post(self, path: str, body: bytes, timeout_s: float, read: Read[T]) -> T | Failure:
        """See `backends._transport.Transport`."""
        reply = await self.send(path, body, timeout_s, is_sent_again=True)
        if isinstance(reply, Failure):
            return reply
        if self._repeats.is_repeat(body, reply.body):
            # The library closes no connection by itself whose reply it has read.
            await self.close()
            return REPEATED
        return read(reply)

    async def send(
        self, path: str, body: bytes, timeout_s: float, *, is_sent_again: bool
    ) -> Reply | Failure:
        """Post to a path; what must not be obeyed twice is not sent again where a reply is lost."""
        post = (self._client or self._open()).post
        return await self._send(
            partial(post, content=body), path, timeout_s, is_sent_again=is_sent_again
        )

    async def get(self, path: str, timeout_s: float) -> Reply | Failure:
        """See `backends._transport.Transport`."""
        return await self._send((self._client or self._open()).get, path, timeout_s)

    async def close(self) -> None:
        """See `backends._transport.Transport`."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _send(
        self,
        method: Callable[..., Awaitable[openai.AsyncAPIResponse[Any]]],
        path: str,
        timeout_s: float,
        *,
        is_sent_again: bool = True,
    ) -> Reply | Failure:
        kind = openai.AsyncAPIResponse[bytes]
        whole = path + (self._query.replace("?", "&", 1) if "?" in path else self._query)
        send = partial(method, whole, cast_to=kind, options=self._options())
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    response = await send()
                except openai.APIConnectionError as error:
                    said = str(error.__cause__)
                    if not (is_sent_again and said.startswith(_DISCONNECTED)):
                        raise
                    response = await send()
                try:
                    return await self.whole(response.http_response)
                finally:
                    await response.close()
        except Exception as error:  # noqa: BLE001 (what is not of the network is raised)
            return self._told(error, timeout_s)

    async def ask(
        self, root: str, call: Callable[[openai.AsyncOpenAI], Awaitable[T]], timeout_s: float
    ) -> T | Reply | Failure:
        """Return what a call of the package gives under the base URL and `root`.

        A refusal is a reply.
        """
        client = self._client or self._open()
        under = client.copy(
            base_url=self._base_url + root,
            default_headers={"Authorization": openai.Omit(), **self._key_headers},  # type: ignore[dict-item]
            default_query=dict(parse_qsl(self._query.removeprefix("?"), keep_blank_values=True)),
        )
        try:
            async with asyncio.timeout(timeout_s):
                return await call(under)
        except Exception as error:  # noqa: BLE001 (what is not of the network is raised)
            return self._told(error, timeout_s)

    def _told(self, error: Exception, timeout_s: float) -> Reply | Failure:
        """The reply or the failure that an error of the package or its HTTP library stands for."""
        for cause in _causes(error):
            if isinstance(cause, _RefusedError):
                return cause.reply
        # The package wraps no error that its HTTP library raises while a body is read.
        is_library = type(error).__module__.startswith(("httpx", "httpcore"))
        if not (is_library or isinstance(error, openai.OpenAIError | TimeoutError)):
            raise error
        return _failure(error, timeout_s, connect_timeout_s(self._base_url), self._secret)

    async def whole(self, response: _Streamed) -> Reply | Failure:
        """Read a response to its end, within bounds."""
        encoding = response.headers.get("Content-Encoding") or ""
        body = await collect(response.aiter_raw(), self, encoding, self._max_body_bytes)
        if isinstance(body, Failure):
            return body
        kept = {name: value for name in KEPT_HEADERS if (value := response.headers.get(name))}
        return Reply(response.status_code, kept, body)

    async def _refuse(self, response: _Streamed) -> None:
        """Called with each response before its body is read.

        Raises:
            _RefusedError: If it has an error status.
        """
        if response.status_code not in _OK:
            raise _RefusedError(await self.whole(response))

    def _options(self) -> RequestOptions:
        headers: dict[str, Any] = {_AS_STREAM: "stream", "Accept-Encoding": self._encoding}
        # Written out, so that no other key of the environment is sent in its place.
        headers["Authorization"] = openai.Omit()
        return {"headers": headers | self._key_headers}

    def _open(self) -> openai.AsyncOpenAI:
        kind = type(openai.DEFAULT_CONNECTION_LIMITS)
        limits = kind(
            max_connections=self._max_in_flight, max_keepalive_connections=self._max_in_flight
        )
        # Its name differs by the version of openai.
        library = sys.modules[kind.__module__.partition(".")[0]]
        proxy = proxy_of(self._base_url)
        if proxy is not None and proxy.startswith("https:"):
            proxy = library.Proxy(proxy, ssl_context=self._trusted)
        own = library.AsyncHTTPTransport(
            verify=self._trusted or True,
            limits=limits,
            socket_options=tcp_options(unread=True),
            proxy=proxy,
        )
        self._client = openai.AsyncOpenAI(
            api_key="none",
            base_url=self._base_url,
            max_retries=0,
            timeout=openai.Timeout(None, connect=connect_timeout_s(self._base_url)),
            http_client=openai.DefaultAsyncHttpxClient(
                follow_redirects=False, transport=own, event_hooks={"response": [self._refuse]}
            ),
        )
        return self._client


def _failure(error: Exception, timeout_s: float, connect_s: float, secret: str) -> Failure:
    """Every error of the package and of its HTTP library, mapped here and nowhere else."""
    causes = list(_causes(error))
    said = words_of(causes[-1], secret)
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return Failure("unreachable", f"the host name can't be resolved: {said}")
    if any(type(cause).__name__ == "ConnectTimeout" for cause in causes):
        return Failure("unreachable", f"no connection within {connect_s:g} s")
    # One of TLS says no more than that nothing has come yet.
    of_system = [one for one in causes if not isinstance(one, ssl.SSLError)]
    if numbered := [one for one in of_system if isinstance(one, OSError) and one.errno]:
        return Failure(cause_of(numbered[-1]), said)
    if isinstance(error, (TimeoutError, openai.APITimeoutError)):
        return Failure("timeout", f"no complete reply within {timeout_s:g} s")
    if any(type(cause).__name__ == "ProxyError" for cause in causes):
        said = f"the proxy answered HTTP {said}"
    elif _DISCONNECTED in said:
        said = "the server closed the connection before replying"
    elif any(type(cause).__name__ == "RemoteProtocolError" for cause in causes):
        is_cut = "closed connection" in said
        said = "the reply ended early" if is_cut else f"the reply is not HTTP: {said}"
    return Failure("connection", said)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
