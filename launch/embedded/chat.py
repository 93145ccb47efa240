"""`/v1/chat/completions` and `/v1/completions`: requests to jobs, jobs to replies or events.

`token_ids` and `logprobs` hold every drawn token: the stop token (end of turn) too, and the tokens
of a stop string, as in vLLM; the text holds neither. Entries of `logprobs` carry an `id` beside
vLLM's fields, and `bytes` are the token's own, also where it is only part of a character.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from launch.embedded.drawing import (
    alternatives,
    answers,
    envelope,
    finite,
    prompt_logprobs,
    prompt_reader,
    text_of,
    token_limit,
    token_text,
    top_count,
    unresolved,
    usage,
)
from launch.embedded.jobs import Answer, Forced, Job
from launch.embedded.protocol import (
    ApiError,
    ChatRequest,
    CompletionRequest,
    bad_request,
    check_ids,
    internal,
)
from launch.embedded.served import Served, call_in


def chat_job(request: ChatRequest, served: Served) -> Job:
    """The job of a chat request.

    Raises:
        ApiError: 400 for what can't be done.
    """
    ids = served.encode(request)
    wanted = request.max_completion_tokens
    wanted = request.max_tokens if wanted is None else wanted
    limit = token_limit(wanted, len(ids), served)
    vocabulary = served.runner.vocabulary
    n_top = top_count("top_logprobs", request.top_logprobs or 0, vocabulary)
    given = request.logprob_token_ids
    if (n_top or given is not None) and not request.logprobs:
        name = "top_logprobs" if n_top else "logprob_token_ids"
        raise bad_request(f"when using {name}, logprobs must be set to true.", name)
    if given is not None:
        check_ids("logprob_token_ids", given, vocabulary)
    drawn = answers(request, served, limit, n_top, None if given is None else tuple(given))
    job = Job(ids, len(ids), unresolved, answers=drawn, reuse=len(ids) - 1)
    if request.prompt_logprobs is not None:
        n_prompt_top = top_count("prompt_logprobs", request.prompt_logprobs, vocabulary)
        job.reader = prompt_reader(ids, n_prompt_top)
        job.reuse = 0
    served.check_memory(job)
    return job


def chat_entry(
    request: ChatRequest, served: Served, answer: Answer, place: int
) -> dict[str, object]:
    """One token of `logprobs.content`."""
    tokens = served.tokens
    listed: list[dict[str, Any]] = []
    if answer.top:
        listed = [
            {
                "token": token_text(request, token, tokens),
                "logprob": finite(logprob),
                "bytes": tokens.piece(token).utf8,
                "id": token,
            }
            for token, logprob in alternatives(answer, place).items()
        ]
    token = answer.ids[place]
    return {
        "token": token_text(request, token, tokens),
        "logprob": finite(answer.logprobs[place]),
        "bytes": tokens.piece(token).utf8,
        "id": token,
        "top_logprobs": listed,
    }


def chat_reply(request: ChatRequest, served: Served, job: Job) -> dict[str, object]:
    """The fields of a chat reply."""
    choices = []
    for index, answer in enumerate(job.answers):
        choice: dict[str, Any] = {
            "index": index,
            "message": {"role": "assistant", "content": text_of(request, answer, served.tokens)},
            "logprobs": None,
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
        }
        if request.logprobs:
            places = range(len(answer.ids))
            content = [chat_entry(request, served, answer, place) for place in places]
            choice["logprobs"] = {"content": content}
        if request.return_token_ids:
            choice["token_ids"] = answer.ids
        choices.append(choice)
    reply: dict[str, Any] = {"choices": choices, "usage": usage([job])}
    if isinstance(job.reader, Forced):
        reply["prompt_logprobs"] = prompt_logprobs(job.reader, served.tokens)
    if request.return_token_ids:
        reply["prompt_token_ids"] = job.ids
    return reply


def completion_jobs(request: CompletionRequest, served: Served) -> list[Job]:
    """One job for each prompt of a completion request.

    Raises:
        ApiError: 400 for what can't be done.
    """
    echo, vocabulary = bool(request.echo), served.runner.vocabulary
    wanted = 16 if request.max_tokens is None else request.max_tokens
    n_top = None
    if request.logprobs is not None:
        n_top = top_count("logprobs", request.logprobs, vocabulary)
    n_read = None
    if request.prompt_logprobs is not None:
        n_read = top_count("prompt_logprobs", request.prompt_logprobs, vocabulary)
    if echo and n_top is not None:
        n_read = max(n_top, n_read or 0)
    jobs = []
    for ids in _prompts(request, served):
        limit = token_limit(wanted, len(ids), served, least=0 if echo else 1)
        drawn = answers(request, served, max(limit, 1), n_top or 0)
        job = Job(ids, len(ids), unresolved, answers=drawn if limit else [], reuse=len(ids) - 1)
        if n_read is not None:
            job.reader = prompt_reader(ids, n_read)
            job.reuse = 0
        served.check_memory(job)
        jobs.append(job)
    return jobs


def _prompts(request: CompletionRequest, served: Served) -> list[list[int]]:
    """Token ids of the prompts, whichever form they came in."""
    given = request.prompt
    special = request.add_special_tokens is not False
    prompts: list[Any] = [given] if isinstance(given, str) else list(given or ())
    if not prompts:
        raise bad_request("the prompt is empty", "prompt")
    if isinstance(prompts[0], int):
        prompts = [prompts]
    found: list[list[int]] = []
    for prompt in prompts:
        if isinstance(prompt, str):
            found.append(served.tokens.encode(prompt, special=special))
        elif isinstance(prompt, list) and all(type(token) is int for token in prompt):
            check_ids("prompt", prompt, served.runner.vocabulary)
            found.append(prompt)
        else:
            raise bad_request("prompt must be a string, token ids, or a list of either", "prompt")
    return found


def completion_reply(
    request: CompletionRequest, served: Served, jobs: Sequence[Job]
) -> dict[str, object]:
    """The fields of a completion reply; choices of the first prompt come first."""
    choices: list[dict[str, Any]] = []
    for job in jobs:
        # Without answers there is one choice: the prompt that is echoed.
        shown: list[Answer] | list[None] = job.answers or [None]
        for answer in shown:
            choice = _completion_choice(request, served, job, answer)
            choices.append({"index": len(choices), **choice})
    return {"choices": choices, "usage": usage(jobs)}


def _completion_choice(
    request: CompletionRequest, served: Served, job: Job, answer: Answer | None
) -> dict[str, object]:
    text = "" if answer is None else text_of(request, answer, served.tokens)
    if request.echo:
        given = request.prompt
        shown = given if isinstance(given, str) else served.tokens.decode(job.ids)
        text = shown + text
    choice: dict[str, Any] = {
        "text": text,
        "logprobs": None,
        "finish_reason": "length" if answer is None else answer.finish_reason,
        "stop_reason": None if answer is None else answer.stop_reason,
    }
    if request.logprobs is not None:
        choice["logprobs"] = legacy_logprobs(request, served, job, answer)
    if request.prompt_logprobs is not None and isinstance(job.reader, Forced):
        shown_top = top_count("prompt_logprobs", request.prompt_logprobs, served.runner.vocabulary)
        choice["prompt_logprobs"] = prompt_logprobs(_first(job.reader, shown_top), served.tokens)
    if request.return_token_ids:
        choice["token_ids"] = [] if answer is None else answer.ids
        choice["prompt_token_ids"] = job.ids
    return choice


def _first(read: Forced, n_top: int) -> Forced:
    """A reading with fewer alternatives than were read for the echo."""
    top = [(ids[:n_top], values[:n_top]) for ids, values in read.top] if n_top else []
    return Forced(read.places, read.targets, n_top, {}, read.logprobs, read.ranks, top)


_Listed = tuple[int, float | None, dict[int, float] | None]


def legacy_logprobs(
    request: CompletionRequest, served: Served, job: Job, answer: Answer | None, start: int = 0
) -> dict[str, object]:
    """Tokens, their log-probabilities, and the alternatives by text (up to k + 1 of them)."""
    rows: list[_Listed] = []
    if request.echo and isinstance(job.reader, Forced):
        rows += _echoed(job, job.reader, request.logprobs or 0)
    if answer is not None:
        for place in range(start, len(answer.ids)):
            listed = alternatives(answer, place)
            rows.append((answer.ids[place], answer.logprobs[place], listed))
    offsets, reached = [], 0
    for token, _, _ in rows:
        offsets.append(reached)
        reached += len(served.tokens.piece(token).text)
    return {
        "tokens": [token_text(request, token, served.tokens) for token, _, _ in rows],
        "token_logprobs": [None if value is None else finite(value) for _, value, _ in rows],
        "top_logprobs": [_by_text(request, served, listed) for _, _, listed in rows],
        "text_offset": offsets,
    }


def _echoed(job: Job, read: Forced, n_top: int) -> list[_Listed]:
    """The prompt's tokens; nothing is known of the first."""
    rows: list[_Listed] = [(job.ids[0], None, None)]
    for place, token in enumerate(read.targets):
        listed = {token: read.logprobs[place]}
        if read.top and n_top:
            ids, values = read.top[place]
            best = zip(ids, values, strict=True)
            shown = len(ids) if n_top < 0 else n_top
            listed |= {i: v for i, v in islice(best, shown) if i != token}
        rows.append((token, read.logprobs[place], listed))
    return rows


def _by_text(
    request: CompletionRequest, served: Served, listed: dict[int, float] | None
) -> dict[str, float | None] | None:
    if listed is None:
        return None
    found: dict[str, float | None] = {}
    for token, logprob in listed.items():
        found.setdefault(token_text(request, token, served.tokens), finite(logprob))
    return found


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
