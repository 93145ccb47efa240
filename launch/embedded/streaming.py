"""Server-sent events for chats and completions: simple, one event for each new piece of text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from launch.embedded.chat import chat_entry, legacy_logprobs
from launch.embedded.drawing import envelope, text_of, usage
from launch.embedded.errors import ApiError, internal
from launch.embedded.jobs import Answer, Job
from launch.embedded.protocol import ChatRequest, CompletionRequest
from launch.embedded.served import Served, call_in

_END = b"data: [DONE]\n\n"


def event(fields: dict[str, object]) -> bytes:
    """One event."""
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


@dataclass(slots=True)
class _Told:
    """The part of one answer that has been sent: characters and tokens."""

    text: str = ""
    n_tokens: int = 0
    ended: bool = False


class Stream:
    """The events of one job.

    Args:
        request: Chat or completion.
        served: The model.
        job: Not queued yet.
    """

    def __init__(self, request: ChatRequest | CompletionRequest, served: Served, job: Job) -> None:
        self._request = request
        self._served = served
        self._job = job
        self._told = [_Told() for _ in job.answers]
        self._news: asyncio.Queue[int | Exception | None] = asyncio.Queue()
        self._is_chat = isinstance(request, ChatRequest)
        kind = "chat.completion.chunk" if self._is_chat else "text_completion"
        self._envelope = envelope(kind, "chatcmpl" if self._is_chat else "cmpl", served)

    def start(self) -> None:
        """Queue the job.

        Raises:
            ApiError: 503 when too many wait.
        """
        loop = asyncio.get_running_loop()
        put: Callable[[int | Exception | None], None] = self._news.put_nowait
        self._job.on_token = lambda index: call_in(loop, put, index)
        self._job.on_done = lambda error: call_in(loop, put, error)
        self._served.engine.submit(self._job)

    async def events(self) -> AsyncIterator[bytes]:
        """The events; closing the iterator drops the job."""
        try:
            if self._is_chat:
                for index in range(len(self._told)):
                    delta = {"role": "assistant", "content": ""}
                    yield self._event({"index": index, "delta": delta, "finish_reason": None})
            while True:
                news = await self._news.get()
                if isinstance(news, int):
                    choice = self._choice(news, self._job.answers[news])
                    if choice is not None:
                        yield self._event(choice)
                    continue
                if news is not None:
                    failed = news if isinstance(news, ApiError) else internal(str(news))
                    yield event(dict(failed.body()))
                elif (self._request.stream_options or {}).get("include_usage"):
                    yield event({**self._envelope, "choices": [], "usage": usage([self._job])})
                yield _END
                return
        finally:
            self._served.engine.cancel(self._job)

    def _event(self, choice: dict[str, object]) -> bytes:
        return event({**self._envelope, "choices": [choice]})

    def _choice(self, index: int, answer: Answer) -> dict[str, object] | None:
        told = self._told[index]
        # The engine's thread may be adding a token: its log-probability comes after its id.
        ended, n_tokens = bool(answer.finish_reason), len(answer.logprobs)
        if told.ended or (n_tokens == told.n_tokens and not ended):
            return None
        text = text_of(self._request, answer, self._served.tokens)
        if not ended:
            text = _settled(text, answer.stop.strings)
        added = text[len(told.text) :] if text.startswith(told.text) else ""
        choice: dict[str, Any] = {
            "index": index,
            **({"delta": {"content": added}} if self._is_chat else {"text": added}),
            "logprobs": self._logprobs(answer, told.n_tokens),
            "finish_reason": answer.finish_reason or None,
            "stop_reason": answer.stop_reason,
        }
        if self._request.return_token_ids:
            choice["token_ids"] = answer.ids[told.n_tokens : n_tokens]
        told.text += added
        told.n_tokens, told.ended = n_tokens, ended
        return choice

    def _logprobs(self, answer: Answer, start: int) -> dict[str, object] | None:
        request, served = self._request, self._served
        if isinstance(request, ChatRequest):
            if not request.logprobs:
                return None
            places = range(start, len(answer.logprobs))
            return {"content": [chat_entry(request, served, answer, place) for place in places]}
        if request.logprobs is None:
            return None
        return legacy_logprobs(request, served, self._job, answer, start)


def _settled(text: str, stops: tuple[str, ...]) -> str:
    """A text without an unfinished character and without what may become a stop string."""
    text = text.rstrip("\N{REPLACEMENT CHARACTER}")
    held = max(
        (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0
    )
    return text[: len(text) - held]
