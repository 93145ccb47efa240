"""The HTTP application: routes, the key, error bodies."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from launch.embedded import protocol
from launch.embedded.chat import chat_job, chat_reply, completion_jobs, completion_reply
from launch.embedded.drawing import envelope
from launch.embedded.errors import (
    ApiError,
    ClientGoneError,
    bad_request,
    internal,
    not_found,
    reply,
)
from launch.embedded.guard import Guard
from launch.embedded.jobs import Job
from launch.embedded.metrics import prometheus
from launch.embedded.pooling import Pooling
from launch.embedded.protocol import check_ids
from launch.embedded.scoring import Choosing, Scoring
from launch.embedded.served import Served
from launch.embedded.streaming import Stream
from orchestrator import __version__

_log = logging.getLogger(__name__)
_GONE = 499
SERVER = "orchestrator-embedded"
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
        self.routes: Final = (
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/score", self.score, methods=["POST"]),
            Route("/v1/choose", self.choose, methods=["POST"]),
            Route("/v1/models", self.list_models, methods=["GET"]),
            Route("/pooling", self.pooling, methods=["POST"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/version", self.version, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        )

    def app(self) -> ASGIApp:
        """The ASGI application."""
        handlers = {
            ApiError: _refused,
            ClientGoneError: _gone,
            ClientDisconnect: _gone,
            HTTPException: _http_error,
            Exception: _fault,
        }
        return Guard(Starlette(routes=self.routes, exception_handlers=handlers), self._key)

    async def chat(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        asked, served = await self._read(request, protocol.ChatRequest)
        job = chat_job(asked, served)
        if asked.stream:
            return _stream(asked, served, job)
        await served.run(request, [job])
        head = envelope("chat.completion", "chatcmpl", served)
        return reply({**head, **chat_reply(asked, served, job)})

    async def completions(self, request: Request) -> Response:
        """`POST /v1/completions`."""
        asked, served = await self._read(request, protocol.CompletionRequest)
        jobs = completion_jobs(asked, served)
        if asked.stream:
            if asked.echo or len(jobs) > 1:
                raise bad_request("stream takes one prompt and no echo", "stream")
            return _stream(asked, served, jobs[0])
        await served.run(request, jobs)
        head = envelope("text_completion", "cmpl", served)
        return reply({**head, **completion_reply(asked, served, jobs)})

    async def score(self, request: Request) -> Response:
        """`POST /v1/score`: log-probabilities of given tokens after a chat."""
        asked, served = await self._read(request, protocol.ScoreRequest)
        scoring = Scoring.of(asked, served)
        await served.run(request, [scoring.job])
        return reply({"object": "score", "model": served.name, **scoring.reply()})

    async def choose(self, request: Request) -> Response:
        """`POST /v1/choose`: probabilities of labels after a chat."""
        asked, served = await self._read(request, protocol.ChooseRequest)
        choosing = Choosing.of(asked, served)
        await served.run(request, [choosing.job])
        return reply({"object": "choice", "model": served.name, **choosing.reply()})

    async def pooling(self, request: Request) -> Response:
        """Answer `POST /pooling`, as vLLM has it: the outputs of a reward model for a chat."""
        asked, served = await self._read(request, protocol.PoolingRequest, rates=True)
        pooling = Pooling.of(asked, served)
        await served.run(request, [pooling.job])
        return reply({"object": "list", "model": served.name, **pooling.reply()})

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
        texts = [served.tokens.piece(token).text for token in ids]
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

    async def list_models(self, _request: Request) -> Response:
        """`GET /v1/models`."""
        data = [
            {
                "id": served.name,
                "object": "model",
                "owned_by": SERVER,
                "root": served.root,
                "parent": None,
                "max_model_len": served.max_len,
            }
            for served in self._models.values()
        ]
        return reply({"object": "list", "data": data})

    async def health(self, _request: Request) -> Response:
        """`GET /health`."""
        return reply({})

    async def version(self, _request: Request) -> Response:
        """`GET /version`."""
        return reply({"version": __version__, "server": SERVER})

    async def metrics(self, _request: Request) -> Response:
        """`GET /metrics`."""
        return PlainTextResponse(prometheus(self._models.values()))

    async def _read(
        self, request: Request, kind: type[protocol.T], *, rates: bool | None = False
    ) -> tuple[protocol.T, Served]:
        """Return the request of that kind and the model it names.

        Args:
            request: As it came.
            kind: Of the body.
            rates: Whether it is for reward models, or for the others; None for all.
        """
        asked, served = await self._asked(request, kind)
        if rates is not None and served.rates != rates:
            said = "is a reward model: it has /pooling only" if served.rates else _RATES_NOT
            raise ApiError(501, f"The model `{served.name}` {said}", "NotImplementedError")
        return asked, served

    async def _asked(self, request: Request, kind: type[protocol.T]) -> tuple[protocol.T, Served]:
        asked = protocol.decode(await request.body(), kind)
        name: str | None = getattr(asked, "model", None)
        if name is None and len(self._models) == 1:
            return asked, next(iter(self._models.values()))
        if name is None:
            raise bad_request("model is missing, and this server has several", "model")
        if name not in self._models:
            raise not_found(f"The model `{name}` does not exist.")
        return asked, self._models[name]


def _stream(
    asked: protocol.ChatRequest | protocol.CompletionRequest, served: Served, job: Job
) -> Response:
    if asked.prompt_logprobs is not None:
        raise bad_request("prompt_logprobs are not available when stream is true", "stream")
    stream = Stream(asked, served, job)
    stream.start()
    return StreamingResponse(stream.events(), media_type="text/event-stream")


async def _refused(_request: Request, error: Exception) -> Response:
    # Handlers are found by the type of the error.
    assert isinstance(error, ApiError)  # noqa: S101
    return reply(error.body(), error.status)


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=_GONE)


async def _http_error(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    text = error.detail if isinstance(error, HTTPException) else "Internal Server Error"
    return reply(
        ApiError(status, text, "NotFoundError" if status == 404 else "HTTPError").body(), status
    )


async def _fault(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return reply(internal(f"the server failed: {type(error).__name__}").body(), 500)
