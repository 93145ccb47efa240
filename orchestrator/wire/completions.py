"""Replies of `/v1/completions`, the legacy route that base models are asked by -> `Generation`.

Log-probabilities come as parallel lists, alternatives as mappings from a token's text. What is
made of them is what is made of a chat reply.
"""

from typing import Any, Final

import msgspec

from orchestrator.records import Failure, Generation
from orchestrator.wire._drawn import (
    Alternative,
    Answer,
    ListedEntry,
    Logprobs,
    Message,
    Reading,
    drawn,
)
from orchestrator.wire._parsing import NO_USAGE, Decoder, TokenId, Usage, error_in


class _Lists(msgspec.Struct, gc=False):
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None


class _Choice(msgspec.Struct, gc=False):
    text: str | None = None
    logprobs: _Lists | None = None
    finish_reason: str | None = None
    token_ids: list[TokenId] | None = None


class _Completion(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Usage | None = None
    error: Any = None


_completion: Final = Decoder(_Completion)


def generation(body: bytes, reading: Reading) -> Generation | Failure:
    """A drawn text from a completion; failures as those of a chat reply."""
    reply = _completion(body, reading.secret)
    if isinstance(reply, Failure):
        return reply
    if reply.error or not reply.choices or reply.choices[0].text is None:
        return error_in(body, reading.secret)
    choice = reply.choices[0]
    entries = _entries(choice.logprobs, reading.top)
    if isinstance(entries, Failure):
        return entries
    answer = Answer(
        Message(choice.text),
        None if entries is None else Logprobs(entries),
        choice.finish_reason,
        choice.token_ids,
    )
    return drawn(answer, reply.usage or NO_USAGE, reading)


def _entries(found: _Lists | None, n_top: int) -> list[ListedEntry] | Failure | None:
    """One entry a token; None where the reply has no log-probabilities."""
    if found is None or found.tokens is None or found.token_logprobs is None:
        return None
    tokens, values = found.tokens, found.token_logprobs
    listed = found.top_logprobs if n_top and found.top_logprobs else [None] * len(tokens)
    if not len(tokens) == len(values) == len(listed):
        said = f"{len(tokens)} tokens, {len(values)} log-probabilities, {len(listed)} alternatives"
        return Failure("unparseable", said, permanent=True)
    return [
        ListedEntry(
            token,
            value,
            top_logprobs=[Alternative(text, p) for text, p in (others or {}).items()],
        )
        for token, value, others in zip(tokens, values, listed, strict=True)
    ]
