"""`/v1/chat/completions` and `/v1/completions`: requests to jobs, jobs to replies.

`token_ids` and `logprobs` hold every drawn token: the stop token (end of turn) too, and the tokens
of a stop string, as in vLLM; the text holds neither. Entries of `logprobs` carry an `id` beside
vLLM's fields, and `bytes` are the token's own, also where it is only part of a character.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from launch.embedded.drawing import (
    alternatives,
    answers,
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
from launch.embedded.errors import bad_request
from launch.embedded.jobs import Answer, Job
from launch.embedded.protocol import ChatRequest, CompletionRequest, check_ids
from launch.embedded.readers import Forced
from launch.embedded.served import Served


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
    return Forced(read.places, read.targets, n_top, (), read.logprobs, read.ranks, top)


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
