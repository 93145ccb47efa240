"""Requests of probes: plain ones, the search for servers here, and questions to one model."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self

import msgspec

from orchestrator.ask import GenerateAsk
from orchestrator.backend import (
    NOT_OFFERED,
    ROUTES_MISSING,
    Backend,
    Call,
    Client,
    Endpoint,
    Provenance,
    T,
    server_address,
    split_query,
    verified,
    with_query,
)
from orchestrator.network import CONTROL_BYTES, client_session, collect, trust, words_of
from orchestrator.probing.abilities import Example
from orchestrator.probing.replies import PATHS, HttpReply, identify, model_names
from orchestrator.records import (
    ACCOUNT,
    SERVER,
    UNCLEAR,
    Failure,
    Generation,
    Messages,
    unsupported,
)
from orchestrator.runner.event_loop import at_once
from orchestrator.wire import failures

if TYPE_CHECKING:
    import aiohttp

# Plain requests to a server whose dialect is not known yet; for probing only.
#
# What methods ask goes through back-ends and their transports.


_CONNECT_S: Final = 5.0


class Http:
    """A client of one server.

    What holds a conversation is posted with the endpoint's `extra_body`.
    """

    def __init__(self, endpoint: Endpoint, timeout_s: float = 60.0) -> None:
        self._base_url, self._query = split_query(with_query(endpoint.base_url, endpoint.query))
        self._endpoint = endpoint
        self._secret = endpoint.secret
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._root = "/v1"

    async def __aenter__(self) -> Self:
        # It takes 0.2 s to import, and commands that only read a run import this module too.
        import aiohttp  # noqa: PLC0415

        connector = aiohttp.TCPConnector(ssl=trust(self._endpoint.ca_file) or True)
        headers = {"Accept-Encoding": "identity"}
        self._session = client_session(self._base_url, connector, headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str) -> HttpReply:
        """The reply; status 0 and what happened as its body where none came."""
        return await self._found("GET", path, None)

    async def post(self, path: str, table: dict[str, object]) -> HttpReply:
        """The same for JSON that is posted."""
        extra = self._endpoint.extra_body if "messages" in table else {}
        return await self._found("POST", path, {**extra, **table})

    async def _found(self, method: str, path: str, table: dict[str, object] | None) -> HttpReply:
        """The reply of a route, which may stand right behind the address, without `/v1`."""
        may_move, route = path.startswith("/v1/"), path.removeprefix("/v1")
        found = await self._send(method, self._root + route if may_move else path, table)
        if found.status not in ROUTES_MISSING or not may_move:
            return found
        root = "" if self._root else "/v1"
        other = await self._send(method, root + route, table)
        if other.status in ROUTES_MISSING:
            return found
        self._root = root
        return other

    async def _send(self, method: str, path: str, table: dict[str, object] | None) -> HttpReply:
        import aiohttp  # noqa: PLC0415 (as above)

        if self._session is None:
            raise RuntimeError("Http is used inside of `async with` only")
        body = None if table is None else msgspec.json.encode(table)
        # The key with each request: a session sends its own headers to proxies too.
        headers = self._endpoint.key_headers()
        headers |= {"Content-Type": "application/json"} if body else {}
        url = self._base_url + path + self._query
        try:
            async with self._session.request(
                method,
                url,
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=_CONNECT_S),
                allow_redirects=False,
            ) as reply:
                encoding = reply.headers.get("Content-Encoding", "")
                content = await collect(reply.content.iter_any(), self, encoding, CONTROL_BYTES)
                if isinstance(content, Failure):
                    reply.close()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return HttpReply(0, words_of(error, self._secret).encode())
        if isinstance(content, Failure):
            return HttpReply(0, content.message.encode())
        if reply.status != 200:
            if place := reply.headers.get("Location", "") if reply.status < 400 else "":
                content = failures.redirected(place, url).encode()
            # What is refused may repeat the key; what it says is shown and stored.
            content = failures.redact(content.decode("utf-8", "replace"), self._secret).encode()
        return HttpReply(reply.status, content)


USUAL: Final[Mapping[int, str]] = {
    8000: "vLLM, embedded server",
    8001: "second server",
    8080: "llama.cpp, TGI in a container",
    9931: "newer llama.cpp",
    3000: "TGI",
    30000: "SGLang",
    11434: "Ollama",
    1234: "LM Studio",
}
"""Ports that are searched, and the servers that listen there by default."""

_MODELS: Final = "/v1/models"
_KEYLESS: Final = frozenset({401, 403})
# Servers on this machine list their models at once, also when they are busy.
_TIMEOUT_S: Final = 3.0


class Found(msgspec.Struct, frozen=True):
    """A server that answered, or the reason why an address is of no use.

    Attributes:
        base_url: Its address, without `/v1`.
        kind: As `identify` names it; "" if the server lists no models.
        models: Names that it lists.
        fault: Cause, if there are no models; "" for a server without a fault.
        is_free: Nothing listens there.
    """

    base_url: str
    kind: str = ""
    models: tuple[str, ...] = ()
    fault: str = ""
    is_free: bool = False


async def scan(urls: Sequence[str], api_key: str = "") -> list[Found]:
    """Ask servers which models they have, all at the same time.

    Addresses may end in `/v1`; the key "" is none. Returns one entry for each address, in the order
    given. Nothing is raised for a server's fault.
    """
    return await at_once(*(_look(server_address(url), api_key) for url in urls))


async def _look(url: str, api_key: str) -> Found:
    async with Http(Endpoint(base_url=url, model="", api_key=api_key), _TIMEOUT_S) as http:
        listed = await http.get(_MODELS)
        if listed.status == 0:
            return Found(url, fault=listed.words, is_free=True)
        if listed.status in _KEYLESS:
            does = "refuses the API key" if api_key else "needs an API key"
            return Found(url, fault=f"{does} (status {listed.status})")
        if not (models := tuple(dict.fromkeys(model_names(listed)))):
            why = f", {listed.words}" if 300 <= listed.status < 400 else ""
            return Found(url, fault=f"lists no models at {_MODELS} (status {listed.status}{why})")
        replies = {path: await http.get(path) for path in PATHS if path != _MODELS}
        return Found(url, identify({**replies, _MODELS: listed}), models)


# Between attempts of a question that a server does not answer for the moment, seconds; and how long
# it may ask to wait.
_WAITS_S: Final = (0.25, 0.5, 1.0)
_LONGEST_WAIT_S: Final = 5.0
_OWN_ERRORS: Final = frozenset({200, 500})
# What may be asked at a time. The answer to one question seldom waits for that to another.
AT_ONCE: Final = 8


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A server and model that has been connected, and how it is probed.

    Attributes:
        kind: Of the back-end.
        endpoint: Where it is reached.
        backend: The connection.
        provenance: What the server says it is.
        examples: Made-up asks of methods, which have to be answered as they need it.
        at_once: Requests that it may have at a time.
        wants: Kinds of asks that the run sends it; texts, where that is not known.
        was_met: Whether it has answered in this call. Then a right that is refused is no finding:
            the run meets it too, and finds out whose it is.
    """

    kind: str
    endpoint: Endpoint
    backend: Backend
    provenance: Provenance
    examples: tuple[Example, ...] = ()
    at_once: int = AT_ONCE
    wants: frozenset[str] = frozenset({"generate"})
    was_met: bool = False

    @property
    def model(self) -> str:
        """The server's name for the model."""
        return self.endpoint.model


class Asking(Client):
    """Asks one server, no more than so many questions at a time.

    Attributes:
        room: For questions under way.
        unsure: What a server said that answered nothing for the moment; empty where it answered.
            Nothing that was found then is a fact to keep.
        is_closed: Whether that is the account's or the address's doing, and lasts until somebody
            acts.
    """

    def __init__(self, target: Target, http: Http) -> None:
        self._t, self._http = target, http
        self.room = asyncio.Semaphore(target.at_once)
        self.unsure = ""
        self.is_closed = False
        self._lasting: set[str] = set()

    async def post(self, path: str, body: dict[str, object]) -> HttpReply:
        """Post JSON to a route."""
        return await self._patiently(lambda: self._http.post(path, body), lambda one: one.failure)

    async def send(self, call: Call[T]) -> T | Failure:
        """See `Client`."""
        return await self._patiently(
            lambda: call(self._t.backend),
            lambda found: found if isinstance(found, Failure) else None,
        )

    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """Draw a text."""
        return verified(await super().generate(ask, seed), Generation)

    async def rendered(self, messages: Messages) -> tuple[tuple[int, ...], str | None] | Failure:
        """Render a chat; see `orchestrator.backend.Backend`."""
        none = unsupported(f"{self._t.kind} has no tokenise route")

        async def ask(backend: Backend) -> tuple[tuple[int, ...], str | None] | Failure:
            found = await backend.rendered(messages)
            # No such route, rather than a server that is away; what it said may be of the model.
            unread = isinstance(found, Failure) and found.cause == "unparseable"
            return none if unread or found is NOT_OFFERED else found

        return await self.send(ask)

    async def _patiently(
        self, ask: Callable[[], Awaitable[T]], failure_of: Callable[[T], Failure | None]
    ) -> T:
        """Return a reply; what fails for the moment is asked again a few times, a refusal once."""
        waits_s = iter(_WAITS_S)
        is_again = False
        while True:
            async with self.room:
                found = await ask()
            failure = failure_of(found)
            if failure is None:
                return found
            if not failure.retriable:
                if is_again or not self._is_closed_by(failure):
                    break
                is_again = True
                continue
            # An error that lasted through one question is no hiccup in the next.
            lasts = self.unsure or failure.message in self._lasting
            if lasts or (wait_s := next(waits_s, None)) is None:
                break
            stated = min(failure.retry_after_s or 0.0, _LONGEST_WAIT_S)
            await asyncio.sleep(max(wait_s, stated))
        # A server's own error may be its answer to an odd question; that it is busy or away is not.
        is_away = failure.retriable and failure.status not in _OWN_ERRORS
        self._lasting.add(failure.message)
        if is_away or self._is_closed_by(failure):
            self.unsure = failure.message
            self.is_closed = failure.scope in {ACCOUNT, SERVER}
        return found

    def _is_closed_by(self, failure: Failure) -> bool:
        is_right = failure.scope == UNCLEAR and failure.cause == "unauthorised"
        return failure.scope in {ACCOUNT, SERVER} or (self._t.was_met and is_right)
