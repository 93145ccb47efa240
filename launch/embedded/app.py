"""The HTTP application, and its models, engines, threads and listening socket put together.

Routes, the key and the bound of bodies, error bodies, load figures.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from launch._spec import given, processors, use_threads
from launch.embedded import protocol
from launch.embedded.engine import Engine, Settings
from launch.embedded.jobs import Work
from launch.embedded.protocol import (
    ApiError,
    ClientGoneError,
    bad_request,
    check_ids,
    internal,
    reply,
)
from launch.embedded.routes import chat, choose, pool, score
from launch.embedded.served import Served, load
from orchestrator import __version__

MOST_BYTES: Final = 64 << 20
"""The longest body that is read, in bytes, however it is framed."""
OPEN: Final = frozenset({"/health"})
"""Paths that need no key; they tell nothing but that the server runs."""


class Guard:
    """Middleware around the whole application, so that no route can be left out.

    Args:
        app: What answers the requests that pass.
        key: Wanted as a bearer token on all paths but `OPEN`; empty for none.
    """

    def __init__(self, app: ASGIApp, key: str = "") -> None:
        self._app = app
        self._wanted = b"Bearer " + key.encode() if key else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the server for each request."""
        if scope["type"] != "http":
            return
        error = self._refusal(scope["path"], Headers(scope=scope))
        if error is not None:
            await reply(error.body(), error.status)(scope, receive, send)
            return
        n_bytes = 0

        async def bounded() -> Message:
            # Whatever length a request states, or none: what arrives is what counts.
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > MOST_BYTES:
                raise _too_long()
            return message

        await self._app(scope, bounded, send)

    def _refusal(self, path: str, headers: Mapping[str, str]) -> ApiError | None:
        given = headers.get("authorization", "").encode("latin-1")
        if self._wanted and path not in OPEN and not hmac.compare_digest(given, self._wanted):
            return ApiError(401, "the API key is missing or wrong", "AuthenticationError")
        stated = headers.get("content-length", "")
        return _too_long() if stated.isdigit() and int(stated) > MOST_BYTES else None


def _too_long() -> ApiError:
    return ApiError(413, f"the body is over {MOST_BYTES} bytes", "BadRequestError")


_FIGURES = (
    ("num_requests_running", "gauge", "n_running", "Requests under way"),
    ("num_requests_waiting", "gauge", "n_waiting", "Requests that wait for their first pass"),
    ("prompt_tokens_total", "counter", "prompt_tokens", "Prompt tokens of requests begun"),
    ("prompt_tokens_cached_total", "counter", "cached_tokens",
     "Prompt tokens taken from the prefix cache"),
    ("generation_tokens_total", "counter", "generated_tokens", "Drawn tokens"),
    ("requests_total", "counter", "requests", "Requests queued"),
    ("requests_failed_total", "counter", "failed", "Requests that the engine failed"),
    ("admission_rejections_total", "counter", "refused",
     "Requests refused because too many waited"),
    ("engine_steps_total", "counter", "steps", "Decoding steps"),
)  # fmt: skip
"""Name, kind, attribute or total of the engine, and description of each load figure."""


def figures(models: Iterable[Served]) -> str:
    """The load figures of all models, as Prometheus reads them."""
    models = list(models)
    lines = []
    for name, kind, key, text in _FIGURES:
        full = f"orchestrator:{name}"
        lines += [f"# HELP {full} {text}.", f"# TYPE {full} {kind}"]
        for served in models:
            label = served.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            engine = served.engine
            value = getattr(engine, key) if kind == "gauge" else engine.totals[key]
            lines.append(f'{full}{{model_name="{label}"}} {value}')
    return "\n".join(lines) + "\n"


_log = logging.getLogger(__name__)
_GONE = 499
SERVER = "orchestrator-embedded"
_ANSWERED: Final[tuple[tuple[str, type[Any], Callable[[Any, Served], Work], bool], ...]] = (
    ("/v1/chat/completions", protocol.ChatRequest, chat, False),
    ("/v1/score", protocol.ScoreRequest, score, False),
    ("/v1/choose", protocol.ChooseRequest, choose, False),
    ("/pooling", protocol.PoolingRequest, pool, True),
)
"""Paths that a model computes for: kind of the request, what begins it, and if it rates chats."""
_RATES_NOT = "draws texts: /pooling is for reward models"


class Service:
    """The routes over a set of models.

    Args:
        models: By name; requests that name none go to the only one.
        key: Wanted as a bearer token; empty for none.
    """

    def __init__(self, models: Sequence[Served], key: str = "") -> None:
        self._models = {served.name: served for served in models}
        self._key = key
        listed = [
            {
                "id": served.name,
                "object": "model",
                "owned_by": SERVER,
                "root": served.root,
                "parent": None,
                "max_model_len": served.max_len,
            }
            for served in models
        ]
        self.routes: Final = (
            *(
                Route(path, partial(self.answer, kind, begin, rates), methods=["POST"])
                for path, kind, begin, rates in _ANSWERED
            ),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            *(
                Route(path, partial(self.tell, fields), methods=["GET"])
                for path, fields in (
                    ("/v1/models", {"object": "list", "data": listed}),
                    ("/health", {}),
                    ("/version", {"version": __version__, "server": SERVER}),
                )
            ),
            Route("/metrics", self.metrics, methods=["GET"]),
        )

    def app(self) -> ASGIApp:
        """The ASGI application."""
        kinds = (ApiError, ClientGoneError, ClientDisconnect, HTTPException, Exception)
        handlers = dict.fromkeys(kinds, _failed)
        return Guard(Starlette(routes=self.routes, exception_handlers=handlers), self._key)

    async def answer(
        self,
        kind: type[protocol.T],
        begin: Callable[[protocol.T, Served], Work],
        rates: bool,  # noqa: FBT001 (of a route)
        request: Request,
    ) -> Response:
        """Answer a request of a kind by what `begin` makes of it; `rates` as of `_read`."""
        asked, served = await self._read(request, kind, rates=rates)
        job, fields = begin(asked, served)
        await served.run(request, job)
        return reply(fields())

    async def tokenize(self, request: Request) -> Response:
        """`POST /tokenize`: of a text or of a chat."""
        asked, served = await self._read(request, protocol.TokenizeRequest, rates=None)
        if (asked.prompt is None) == (asked.messages is None):
            raise bad_request("give either prompt or messages", "prompt")
        if asked.prompt is None:
            ids = served.encode(asked)
        else:
            special = asked.add_special_tokens is not False
            ids = served.tokens.encode(asked.prompt, special=special)
        texts = [served.tokens.piece(token).decode("utf-8", "replace") for token in ids]
        return reply(
            {
                "count": len(ids),
                "max_model_len": served.max_len,
                "tokens": ids,
                "token_strs": texts if asked.return_token_strs else None,
            }
        )

    async def detokenize(self, request: Request) -> Response:
        """`POST /detokenize`: special tokens are kept."""
        asked, served = await self._read(request, protocol.DetokenizeRequest, rates=None)
        check_ids("tokens", asked.tokens, served.runner.vocabulary)
        return reply({"prompt": served.tokens.decode(asked.tokens, skip_special=False)})

    async def tell(self, fields: Mapping[str, Any], _request: Request) -> Response:
        """Answer with what is the same for every request."""
        return reply(fields)

    async def metrics(self, _request: Request) -> Response:
        """`GET /metrics`."""
        return PlainTextResponse(figures(self._models.values()))

    async def _read(
        self, request: Request, kind: type[protocol.T], *, rates: bool | None = False
    ) -> tuple[protocol.T, Served]:
        """Return the request of that kind and the model it names.

        Args:
            request: As it came.
            kind: Of the body.
            rates: Whether it is for reward models, or for the others; None for all.
        """
        asked = protocol.decode(await request.body(), kind)
        name: str | None = getattr(asked, "model", None)
        if name is None and len(self._models) > 1:
            raise bad_request("model is missing, and this server has several", "model")
        served = next(iter(self._models.values())) if name is None else self._models.get(name)
        if served is None:
            said = f"The model `{name}` does not exist."
            raise ApiError(404, said, "NotFoundError", "model")
        if rates is not None and served.rates != rates:
            said = "is a reward model: it has /pooling only" if served.rates else _RATES_NOT
            raise ApiError(501, f"The model `{served.name}` {said}", "NotImplementedError")
        return asked, served


async def _failed(request: Request, error: Exception) -> Response:
    """Answer a request that was refused, or that failed; a client that is gone hears nothing."""
    match error:
        case ClientGoneError() | ClientDisconnect():
            return Response(status_code=_GONE)
        case ApiError():
            found = error
        case HTTPException():
            kind = "NotFoundError" if error.status_code == 404 else "HTTPError"
            found = ApiError(error.status_code, error.detail, kind)
        case _:
            _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
            found = internal(f"the server failed: {type(error).__name__}")
    return reply(found.body(), found.status)


def _shared_out(total: int, engines: Sequence[Engine]) -> Callable[[], None]:
    """Return a function that gives the calling thread its share of the threads, at least one.

    Engines with work have equal shares. A number of threads belongs to the thread that set it, so
    each engine sets its own.

    Args:
        total: Threads for all engines together.
        engines: All of them; may be added to.
    """
    known = threading.local()

    def share() -> None:
        n = max(1, total // max(1, sum(engine.busy for engine in engines)))
        if getattr(known, "share", None) != n:
            known.share = n
            torch.set_num_threads(n)

    return share


T = TypeVar("T")
_KEEP_ALIVE_S = 120
_DRAIN_S = 5
_SWITCH_S = 0.001


class Announcing(uvicorn.Server):
    """Says on stderr when it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: D102
        await super().startup(sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            host = self.config.host
            shown = f"[{host}]" if ":" in host else host
            sys.stderr.write(f"ready http://{shown}:{port}\n")
            sys.stderr.flush()


def _in_thread(function: Callable[[], T], n_threads: int) -> T:
    """Call a function on a thread that ends with it and computes with `n_threads`.

    The threading library of `torch` keeps helpers for every thread that computed something, and
    with more of them than cores all wait asleep, which takes half of a decoding step's time.
    """
    found: Future[T] = Future()

    def call() -> None:
        use_threads(n_threads)
        try:
            found.set_result(function())
        except BaseException as error:  # noqa: BLE001 (raised again where it is waited for)
            found.set_exception(error)

    # Does not keep the process when a signal ends it meanwhile.
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join()
    return found.result()


def serve(
    models: Mapping[str, str], settings: Settings, *, n_threads: int, host: str, port: int, key: str
) -> None:
    """Load models and serve them until a signal comes.

    Args:
        models: Place by name.
        settings: Of all of them.
        n_threads: For all together; 0 for all cores but one.
        host: Address to listen on, where no bound socket is given.
        port: Likewise.
        key: Required of whoever asks; empty for none.

    Raises:
        LaunchError: If a model can't be served.
        SystemExit: When the server has ended.
    """
    # One core is left for the event loop and for the program that asks.
    total = n_threads or max(1, processors() - 1)
    engines: list[Engine] = []
    share = _shared_out(total, engines)
    served = _in_thread(
        lambda: [load(name, place, settings, share) for name, place in models.items()], total
    )
    engines += [one.engine for one in served]
    # The loop's and the engines' bursts of Python are short; the default of 5 ms makes each wait.
    sys.setswitchinterval(_SWITCH_S)
    config = uvicorn.Config(
        Service(served, key).app(),
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        # Reads no more than 64 KB of a request's head; the other parser has no bound.
        http="h11",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_DRAIN_S,
    )
    for engine in engines:
        engine.start()
    try:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            bound = given()
            sockets = None if bound is None else [bound]
            runner.run(Announcing(config).serve(sockets))
    finally:
        for engine in engines:
            engine.close()
