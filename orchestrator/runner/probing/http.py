"""Plain requests to a server whose dialect is not known yet; for probing only.

What methods ask goes through back-ends and their transports.
"""

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from orchestrator.network import CONTROL_BYTES, collect, proxy_of
from orchestrator.probing.replies import HttpReply
from orchestrator.records import Failure
from orchestrator.wire import failures

if TYPE_CHECKING:
    import aiohttp

_CONNECT_S: Final = 5.0


class Http:
    """A client of one server.

    Args:
        base_url: Without `/v1` at its end.
        api_key: Sent as a bearer token; empty for none.
        timeout_s: Deadline of each request.
    """

    def __init__(self, base_url: str, api_key: str = "", timeout_s: float = 60.0) -> None:
        self._base_url = base_url
        self._secret = api_key
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # It takes 0.2 s to import, and commands that only read a run import this module too.
        import aiohttp  # noqa: PLC0415

        self._session = aiohttp.ClientSession(
            headers={"Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=_CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=proxy_of(self._base_url),
            # Inflated where the bytes are counted.
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str) -> HttpReply:
        """The reply; status 0 and what happened as its body where none came."""
        return await self._send("GET", path, None)

    async def post(self, path: str, table: dict[str, object]) -> HttpReply:
        """The same for JSON that is posted."""
        return await self._send("POST", path, table)

    async def _send(self, method: str, path: str, table: dict[str, object] | None) -> HttpReply:
        import aiohttp  # noqa: PLC0415 (as above)

        if self._session is None:
            raise RuntimeError("Http is used inside of `async with` only")
        body = None if table is None else msgspec.json.encode(table)
        headers = {} if body is None else {"Content-Type": "application/json"}
        if self._secret:
            # With each request: a session sends its own headers to proxies too.
            headers["Authorization"] = f"Bearer {self._secret}"
        try:
            async with self._session.request(
                method, self._base_url + path, data=body, headers=headers, allow_redirects=False
            ) as reply:
                encoding = reply.headers.get("Content-Encoding", "")
                content = await collect(reply.content.iter_any(), self, encoding, CONTROL_BYTES)
                if isinstance(content, Failure):
                    reply.close()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            said = failures.clean(str(error) or type(error).__name__, self._secret)
            return HttpReply(0, said.encode())
        if isinstance(content, Failure):
            return HttpReply(0, content.message.encode())
        if reply.status != 200:
            # What is refused may repeat the key; what it says is shown and stored.
            content = failures.redact(content.decode("utf-8", "replace"), self._secret).encode()
        return HttpReply(reply.status, content)
