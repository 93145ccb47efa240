"""From sampling fields to answers, and from answers to the parts of a reply."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from launch.embedded.jobs import Answer, Draw, Forced, Job, Stop, row_key
from launch.embedded.protocol import Sampled, bad_request, check_ids, within
from launch.embedded.served import Served
from launch.embedded.tokens import Tokens

LOWEST = -9999.0
"""Stand-in for minus infinity on the wire, as in vLLM (JSON has no infinity)."""

_INT_64 = 1 << 63


def finite(logprob: float) -> float | None:
    """A log-probability as the wire has it: clamped, None where it is not a number."""
    if logprob != logprob:
        return None
    return max(logprob, LOWEST)


def answers(
    request: Sampled,
    served: Served,
    max_tokens: int,
    n_top: int = 0,
    ids: tuple[int, ...] | None = None,
) -> list[Answer]:
    """The answers that a request wants drawn after each of its prompts.

    Raises:
        ApiError: 400 for settings out of range.
    """
    temperature = 1.0 if request.temperature is None else request.temperature
    top_p = 1.0 if request.top_p is None else request.top_p
    top_k = max(request.top_k or 0, 0)
    n = 1 if request.n is None else request.n
    within("temperature", temperature, 0, math.inf)
    within("n", n, 1, served.engine.limits.max_rows)
    if not 0 < top_p <= 1:
        raise bad_request(f"top_p must be in (0, 1], got {top_p}", "top_p")
    if request.top_k is not None and request.top_k < -1:
        raise bad_request(f"top_k must be 0 or -1 (off), or at least 1, got {top_k}", "top_k")
    if n > 1 and temperature == 0:
        raise bad_request(f"n must be 1 when using greedy sampling, got {n}.", "n")
    seed = secrets.randbits(64) if request.seed is None else request.seed
    within("seed", seed, -_INT_64, 2 * _INT_64 - 1)
    strings = [request.stop] if isinstance(request.stop, str) else request.stop or []
    if not all(strings):
        raise bad_request("stop strings must not be empty", "stop")
    extra = request.stop_token_ids or []
    check_ids("stop_token_ids", extra, served.runner.vocabulary)
    eos: frozenset[int] = frozenset() if request.ignore_eos else served.tokens.eos
    stop = Stop(max_tokens, eos | frozenset(extra), eos - frozenset(extra), tuple(strings))
    return [
        Answer(Draw(temperature, top_k, top_p, row_key(seed, choice), n_top, ids), stop)
        for choice in range(n)
    ]


def token_limit(wanted: int | None, n_prompt: int, served: Served, least: int = 1) -> int:
    """Return the token limit of an answer: the requested one, clamped to the room that is left.

    Raises:
        ApiError: 400 for a number out of range or a prompt that leaves no room.
    """
    if wanted is not None and wanted < least:
        raise bad_request(f"max_tokens must be at least {least}, got {wanted}.", "max_tokens")
    if wanted is not None and wanted > served.max_len:
        text = f"max_tokens={wanted} cannot be greater than max_model_len={served.max_len}."
        raise bad_request(text, "max_tokens")
    served.check_length(n_prompt, 0 if wanted == 0 else 1)
    room = served.max_len - n_prompt
    return room if wanted is None else min(wanted, room)


def top_count(name: str, wanted: int, vocabulary: int) -> int:
    """A number of alternatives; -1 is the whole vocabulary.

    Raises:
        ApiError: 400 below -1.
    """
    within(name, wanted, -1, math.inf)
    return vocabulary if wanted == -1 else min(wanted, vocabulary)


def prompt_reader(ids: Sequence[int], n_top: int) -> Forced:
    """Reads the log-probability of each prompt token but the first."""
    return Forced(list(range(len(ids) - 1)), list(ids[1:]), n_top, ranked=True)


def text_of(request: Sampled, answer: Answer, tokens: Tokens) -> str:
    """The text of an answer so far: without its stop token and what follows a stop string."""
    ids, keep = answer.ids, bool(request.include_stop_str_in_output)
    by_token = answer.finish_reason == "stop" and not isinstance(answer.stop_reason, str)
    if by_token and not keep:
        ids = ids[:-1]
    text = tokens.decode(ids, skip_special=request.skip_special_tokens is not False)
    if answer.finish_reason == "stop" and isinstance(answer.stop_reason, str):
        cut = text.find(answer.stop_reason)
        text = text[: cut + (len(answer.stop_reason) if keep else 0)]
    return text


def token_text(request: Sampled, token: int, tokens: Tokens) -> str:
    """A token as the reply names it."""
    if request.return_tokens_as_token_ids:
        return f"token_id:{token}"
    return tokens.piece(token).text


def alternatives(answer: Answer, place: int, n_top: int | None = None) -> dict[int, float]:
    """The drawn token, then the tokens read beside it, by id; each once."""
    found = {answer.ids[place]: answer.logprobs[place]}
    if answer.top:
        ids, logprobs = answer.top[place]
        for token, logprob in zip(ids[:n_top], logprobs[:n_top], strict=True):
            found.setdefault(token, logprob)
    return found


def prompt_logprobs(read: Forced, tokens: Tokens) -> list[dict[str, object] | None]:
    """As vLLM writes them: null, then by id as a string; the actual token comes first."""
    rows: list[dict[str, Any] | None] = [None]
    for place, token in enumerate(read.targets):
        ranked = [(token, read.logprobs[place], read.ranks[place])]
        if read.top:
            ids, logprobs = read.top[place]
            ranked += zip(ids, logprobs, range(1, len(ids) + 1), strict=True)
        row: dict[str, Any] = {}
        for id_, logprob, rank in ranked:
            entry = {
                "logprob": finite(logprob),
                "rank": rank,
                "decoded_token": tokens.piece(id_).text,
            }
            row.setdefault(str(id_), entry)
        rows.append(row)
    return rows


def usage(jobs: Sequence[Job]) -> dict[str, Any]:
    """Token counts of a request."""
    prompt = sum(job.n_prompt for job in jobs)
    drawn = sum(len(answer.ids) for job in jobs for answer in job.answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": drawn,
        "total_tokens": prompt + drawn,
        "prompt_tokens_details": {"cached_tokens": sum(job.n_cached for job in jobs)},
    }


def envelope(kind: str, prefix: str, served: Served) -> dict[str, object]:
    """Return the fields that begin every reply of the OpenAI routes."""
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(datetime.now(UTC).timestamp()),
        "model": served.name,
        "system_fingerprint": served.fingerprint,
    }


def unresolved(error: Exception | None) -> None:
    """Stands in a job until it is queued."""
