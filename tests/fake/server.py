"""The fake server: routes, faults, and a count of everything it was asked."""

import asyncio
import hmac
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.fake import completions, dialects, faults
from tests.fake.http import Action, Connection, HttpRequest, respond
from tests.fake.places import Places
from tests.fake.protocol import RefusedError, Request, encode, error_body, read
from tests.fake.replies import FINGERPRINT, Speaker
from tests.fake.rules import Case, Referee, Rules, Verdict
from tests.fake.toy import Toy

VERSION: Final = "fake-1"
_ROUTES: Final = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/score": "score",
    "/v1/choose": "choose",
    "/tokenize": "tokenize",
    "/pooling": "pooling",
    "/classify": "classify",
}
_HEALTH: Final = "/health"
_STATS: Final = "/fake/stats"


class _Foreign(msgspec.Struct, frozen=True, gc=False):
    """A request in another server's dialect."""

    model: str
    body: dict[str, Any]


class FakeServer:
    """Answers requests in the process it is made in.

    Args:
        models: Names it answers to; any name where empty.
        rules: What it does other than answer at once.
        key: Required on all paths but `/health` where not empty.
        log: File that gets a line for each model request: hash, route, model, attempt.

    Attributes:
        seen: Gets every request, where it is a list.
    """

    def __init__(
        self, models: Sequence[str], rules: Rules, key: str = "", log: Path | None = None
    ) -> None:
        self.stopped = asyncio.Event()
        self._models = tuple(models)
        self._referee = Referee(rules)
        self._speaker = Speaker(rules)
        self._pages: dict[str, Callable[[], bytes]] = {
            _HEALTH: lambda: respond(200, b"{}"),
            "/version": lambda: respond(
                200, encode({"version": VERSION, "fingerprint": FINGERPRINT})
            ),
            "/v1/models": self._list_models,
            "/metrics": self._metrics,
            _STATS: lambda: respond(200, encode(self.stats())),
        }
        self._dialect = None
        if rules.dialect != "native":
            self._dialect = dialects.load(rules.dialect, Toy(rules, self._models))
        self._key = key
        self._log = (
            None if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        )
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self.seen: list[HttpRequest] | None = None
        self._requests: Counter[str] = Counter()
        self._answered: set[str] = set()
        self._totals: Counter[str] = Counter()
        self._by_model: dict[str, Counter[str]] = {}
        self._faults: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._places = Places(rules.capacity)
        self._n_asked_again = self._n_aborted = self._max_in_flight = 0

    @property
    def routes(self) -> dict[str, str]:
        """Paths that it answers, with the method of each."""
        posted = _ROUTES if self._dialect is None else self._dialect.routes
        return dict.fromkeys(self._pages, "GET") | dict.fromkeys(posted, "POST")

    async def listen(
        self,
        host: str,
        port: int,
        bound: socket.socket | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> int:
        """Start to listen, at a bound socket if there is one; the port (a free one for 0)."""
        loop = asyncio.get_running_loop()
        place = {"host": host, "port": port} if bound is None else {"sock": bound}
        self._server = await loop.create_server(
            lambda: Connection(self._handle, self._connections), **place, ssl=tls, backlog=4096
        )
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        """Stop to listen and break all connections; what is in flight is lost."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.abort()
        if self._log is not None:
            os.close(self._log)
            self._log = None
        self.stopped.set()

    def stats(self) -> dict[str, object]:
        """Counts since the start; `requests` is how often each content came, by its hash."""
        return {
            "total": self._totals.total(),
            "by_route": dict(self._totals),
            "by_model": {model: dict(counts) for model, counts in self._by_model.items()},
            "distinct": len(self._requests),
            "answered": len(self._answered),
            "asked_again": self._n_asked_again,
            "faults": dict(self._faults),
            "aborted": self._n_aborted,
            "in_flight": self._running.total(),
            "max_in_flight": self._max_in_flight,
            "requests": dict(self._requests),
        }

    def _handle(self, request: HttpRequest) -> Action:
        if self.seen is not None:
            self.seen.append(request)
        path, mark, query = request.path.partition("?")
        if mark:
            # Routes are found by the path alone.
            headers = {**request.headers, "x-query": query}
            request = HttpRequest(request.method, path, headers, request.body)
        dialect = self._dialect
        route = (_ROUTES if dialect is None else dialect.routes).get(path)
        if self._key and path != _HEALTH:
            given = request.headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
                refused = RefusedError(401, "wrong API key", "AuthenticationError")
                return Action(self._refusal(refused, path))
        if route is None or (dialect is not None and request.method != "POST"):
            return Action(self._plain(path) if dialect is None else self._foreign_get(path))
        if request.method != "POST":
            return Action(respond(405, error_body(405, "Method Not Allowed")))
        return self._ask(route, request)

    def _foreign_get(self, path: str) -> bytes:
        if path == _STATS or self._dialect is None:
            return self._plain(path)
        found = self._dialect.get(path, self._running)
        missing = RefusedError(404, "Not Found", "NotFoundError")
        return self._refusal(missing, path) if found is None else found

    def _plain(self, path: str) -> bytes:
        page = self._pages.get(path)
        return (
            respond(404, error_body(404, "Not Found", "NotFoundError")) if page is None else page()
        )

    def _list_models(self) -> bytes:
        models = [{"id": name, "object": "model"} for name in self._models]
        return respond(200, encode({"object": "list", "data": models}))

    def _metrics(self) -> bytes:
        now = asyncio.get_running_loop().time()
        lines = []
        for model in self._models or tuple(self._by_model):
            waiting = self._places.waiting(model, now)
            escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            label = f'model_name="{escaped}"'
            running = self._running[model] - waiting
            lines.append(f"orchestrator:num_requests_running{{{label}}} {running}")
            lines.append(f"orchestrator:num_requests_waiting{{{label}}} {waiting}")
        metrics = "\n".join([*lines, ""]).encode()
        return respond(200, metrics, content_type="text/plain; version=0.0.4")

    def _ask(self, route: str, received: HttpRequest) -> Action:
        digest = blake2b(received.body, digest_size=12, key=route.encode())
        content = digest.hexdigest()
        try:
            request = self._read(received)
        except RefusedError as error:
            self._count(content, route, "")
            return Action(self._refusal(error, received.path))
        attempt = self._count(content, route, request.model)
        verdict = self._referee.judge(Case(request.model, route, content, attempt))
        action = self._answer(route, request, verdict, received)
        now = asyncio.get_running_loop().time()
        action.delay_s = self._places.delay(request.model, now, action.delay_s)
        self._running[request.model] += 1
        self._max_in_flight = max(self._max_in_flight, self._running.total())
        good = verdict.fault is None and action.data.startswith(b"HTTP/1.1 200")
        action.done = partial(self._done, request, content, good)
        if isinstance(request, _Foreign) and self._dialect is not None:
            self._dialect.began(request.body)
        return action

    def _read(self, received: HttpRequest) -> "Request | _Foreign":
        if self._dialect is None:
            request = read(received.body)
            if self._models and request.model not in self._models:
                said = f"The model `{request.model}` does not exist."
                raise RefusedError(404, said, "NotFoundError")
            if request.stream:
                raise RefusedError(400, "stream is not supported by the fake server")
            return request
        try:
            body = msgspec.json.decode(received.body, type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            raise RefusedError(400, str(error)) from error
        return _Foreign(self._dialect.model_of(body), body)

    def _count(self, content: str, route: str, model: str) -> int:
        self._requests[content] += 1
        attempt = self._requests[content]
        self._totals[route] += 1
        self._by_model.setdefault(model, Counter())[route] += 1
        self._n_asked_again += content in self._answered
        if self._log is not None:
            os.write(self._log, f"{content}\t{route}\t{model}\t{attempt}\n".encode())
        return attempt

    def _done(
        self,
        request: "Request | _Foreign",
        content: str,
        good: bool,  # noqa: FBT001
        delivered: bool,  # noqa: FBT001
    ) -> None:
        self._running[request.model] -= 1
        if isinstance(request, _Foreign) and self._dialect is not None:
            self._dialect.ended(request.body)
        self._n_aborted += not delivered
        if good and delivered:
            self._answered.add(content)

    def _answer(
        self, route: str, request: "Request | _Foreign", verdict: Verdict, received: HttpRequest
    ) -> Action:
        delay_s = verdict.latency_s
        fault = verdict.fault
        if fault is not None:
            self._faults[fault.fault or ""] += 1
            if fault.fault == "exit":
                self.stop()
            early = faults.without_reply(fault, received)
            if early is not None:
                early.delay_s = delay_s
                return early
        try:
            if isinstance(request, _Foreign):
                body, generated = self._foreign(received.path, request, verdict)
            else:
                body, generated = self._body(route, request, verdict)
            if verdict.noise is not None:
                body = faults.noisy(body, *verdict.noise)
        except RefusedError as error:
            return Action(self._refusal(error, received.path), delay_s)
        delay_s += verdict.latency_per_token_s * generated
        if fault is None:
            return Action(respond(200, body), delay_s)
        broken = faults.broken_off(body, fault.fault or "")
        if broken is not None:
            broken.delay_s = delay_s
            return broken
        return Action(respond(200, faults.spoil(body, fault)), delay_s)

    def _foreign(self, path: str, request: "_Foreign", verdict: Verdict) -> tuple[bytes, int]:
        if verdict.fixed is not None or self._dialect is None:
            return verdict.fixed or b"", 0
        return self._dialect.answer(path, request.body, verdict)

    def _refusal(self, error: RefusedError, path: str) -> bytes:
        if self._dialect is None:
            body = error_body(error.status, error.message, error.kind)
        else:
            body = self._dialect.error(path, error.status, error.message, error.kind)
        return respond(error.status, body)

    def _body(self, route: str, request: Request, verdict: Verdict) -> tuple[bytes, int]:
        if verdict.fixed is not None:
            return verdict.fixed, 0
        match route:
            case "chat":
                return self._speaker.chat(request, verdict)
            case "completions":
                return completions.complete(request, self._speaker.quality(request.model))
            case "score":
                return self._speaker.score(request), 0
            case "choose":
                return self._speaker.choose(request, verdict), 0
            case "pooling":
                return self._speaker.pool(request), 0
            case "classify":
                return self._speaker.classify(request), 0
            case _:
                return completions.tokenize(request), 0
