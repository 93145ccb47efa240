"""`/v1/chat/completions`: a request to a job, the job to a reply.

`token_ids` and `logprobs` hold every drawn token: the stop token (end of turn) too, and the tokens
of a stop string, as in vLLM; the text holds neither. Entries of `logprobs` carry an `id` beside
vLLM's fields, and `bytes` are the token's own, also where it is only part of a character.
"""

from __future__ import annotations

import math
import secrets
from datetime import UTC, datetime
from typing import Any

from launch.embedded.jobs import Answer, Draw, Job, Stop, Work
from launch.embedded.protocol import ChatRequest, bad_request, check_ids, within
from launch.embedded.served import Served
from launch.embedded.tokens import Tokens

LOWEST = -9999.0
"""Stand-in for minus infinity on the wire, as in vLLM (JSON has no infinity)."""

_INT_64 = 1 << 63


def chat(request: ChatRequest, served: Served) -> Work:
    """Draw the answer of a chat.

    Raises:
        ApiError: 400 for what can't be done.
    """
    ids = served.encode(request)
    wanted = request.max_completion_tokens
    wanted = request.max_tokens if wanted is None else wanted
    limit = token_limit(wanted, len(ids), served)
    vocabulary = served.runner.vocabulary
    n_top = request.top_logprobs or 0
    within("top_logprobs", n_top, -1, math.inf)
    n_top = vocabulary if n_top == -1 else min(n_top, vocabulary)
    given = request.logprob_token_ids
    if (n_top or given is not None) and not request.logprobs:
        name = "top_logprobs" if n_top else "logprob_token_ids"
        raise bad_request(f"when using {name}, logprobs must be set to true.", name)
    if given is not None:
        check_ids("logprob_token_ids", given, vocabulary)
    drawn = answer_of(request, served, limit, n_top, None if given is None else tuple(given))
    job = Job(ids, len(ids), unresolved, answer=drawn, reuse=len(ids) - 1)
    return Work(job, lambda: chat_reply(request, served, job, drawn))


def answer_of(
    request: ChatRequest,
    served: Served,
    max_tokens: int,
    n_top: int,
    ids: tuple[int, ...] | None,
) -> Answer:
    """The answer that a request wants drawn after its prompt.

    Raises:
        ApiError: 400 for settings out of range.
    """
    temperature = 1.0 if request.temperature is None else request.temperature
    top_p = 1.0 if request.top_p is None else request.top_p
    top_k = max(request.top_k or 0, 0)
    within("temperature", temperature, 0, math.inf)
    if not 0 < top_p <= 1:
        raise bad_request(f"top_p must be in (0, 1], got {top_p}", "top_p")
    if request.top_k is not None and request.top_k < -1:
        raise bad_request(f"top_k must be 0 or -1 (off), or at least 1, got {top_k}", "top_k")
    seed = secrets.randbits(64) if request.seed is None else request.seed
    within("seed", seed, -_INT_64, 2 * _INT_64 - 1)
    strings = [request.stop] if isinstance(request.stop, str) else request.stop or []
    if not all(strings):
        raise bad_request("stop strings must not be empty", "stop")
    extra = request.stop_token_ids or []
    check_ids("stop_token_ids", extra, served.runner.vocabulary)
    eos: frozenset[int] = frozenset() if request.ignore_eos else served.tokens.eos
    stop = Stop(max_tokens, eos | frozenset(extra), eos - frozenset(extra), tuple(strings))
    return Answer(Draw(temperature, top_k, top_p, seed % (2 * _INT_64), n_top, ids), stop)


def token_limit(wanted: int | None, n_prompt: int, served: Served) -> int:
    """Return the token limit of an answer: the requested one, clamped to the room that is left.

    Raises:
        ApiError: 400 for a number out of range or a prompt that leaves no room.
    """
    if wanted is not None and wanted < 1:
        raise bad_request(f"max_tokens must be at least 1, got {wanted}.", "max_tokens")
    if wanted is not None and wanted > served.max_len:
        text = f"max_tokens={wanted} cannot be greater than max_model_len={served.max_len}."
        raise bad_request(text, "max_tokens")
    served.check_length(n_prompt)
    room = served.max_len - n_prompt
    return room if wanted is None else min(wanted, room)


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


def chat_reply(request: ChatRequest, served: Served, job: Job, answer: Answer) -> dict[str, object]:
    """The fields of a chat reply."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": text_of(answer, served.tokens)},
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
    drawn = len(answer.ids)
    reply: dict[str, Any] = {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "object": "chat.completion",
        "created": int(datetime.now(UTC).timestamp()),
        "model": served.name,
        "system_fingerprint": served.fingerprint,
        "choices": [choice],
        "usage": {
            "prompt_tokens": job.n_prompt,
            "completion_tokens": drawn,
            "total_tokens": job.n_prompt + drawn,
            "prompt_tokens_details": {"cached_tokens": job.n_cached},
        },
    }
    if request.return_token_ids:
        reply["prompt_token_ids"] = job.ids
    return reply


def finite(logprob: float) -> float | None:
    """A log-probability as the wire has it: clamped, None where it is not a number."""
    if logprob != logprob:
        return None
    return max(logprob, LOWEST)


def text_of(answer: Answer, tokens: Tokens) -> str:
    """The text of an answer, without its stop token and what follows a stop string."""
    if answer.finish_reason != "stop":
        return tokens.decode(answer.ids)
    if isinstance(answer.stop_reason, str):
        text = tokens.decode(answer.ids)
        return text[: text.find(answer.stop_reason)]
    return tokens.decode(answer.ids[:-1])


def token_text(request: ChatRequest, token: int, tokens: Tokens) -> str:
    """A token as the reply names it."""
    if request.return_tokens_as_token_ids:
        return f"token_id:{token}"
    return tokens.piece(token).text


def alternatives(answer: Answer, place: int) -> dict[int, float]:
    """The drawn token, then the tokens read beside it, by id; each once."""
    found = {answer.ids[place]: answer.logprobs[place]}
    for token, logprob in zip(*answer.top[place], strict=True):
        found.setdefault(token, logprob)
    return found


def unresolved(error: Exception | None) -> None:
    """Stands in a job until it is queued."""
