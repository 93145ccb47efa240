"""The first token after a chat: asked of vLLM by its messages, answered by token ids (vLLM 0.32).

The server renders and tokenises where it computes, so that no request to its tokenizer goes before.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from orchestrator.records import Failure, Messages
from orchestrator.wire._parsing import NO_USAGE, Decoder, TokenId, Usage, error_in
from orchestrator.wire.requests import encode, messages_of
from orchestrator.wire.trie import Path, Reading
from orchestrator.wire.vllm import MIXED_UP, NO_ALTERNATIVES, NOT_BY_IDS, by_id, kept, one_token


class _Alternative(msgspec.Struct, gc=False):
    token: str = ""
    logprob: float | None = None


class _Place(msgspec.Struct, gc=False):
    top_logprobs: list[_Alternative] = []


class _Lists(msgspec.Struct, gc=False):
    content: list[_Place] | None = None


class _Choice(msgspec.Struct, gc=False):
    logprobs: _Lists | None = None


class _Chat(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    prompt_token_ids: list[TokenId] | None = None
    usage: Usage | None = None
    error: Any = None


_chat: Final = Decoder(_Chat)


class Begun(msgspec.Struct, frozen=True):
    """What follows a chat.

    Attributes:
        ids: The prompt as the server reads it; empty where it does not say.
        reading: The distribution of the first token.
        n_cached: Prompt tokens that were in the server's cache, 0 if unknown.
    """

    ids: Path
    reading: Reading
    n_cached: int


def begin(model: str, messages: Messages, top_logprobs: int, template: Mapping[str, Any]) -> bytes:
    """Body of `/v1/chat/completions` that reads the most likely first tokens of an answer.

    Raises:
        UnicodeEncodeError: If a message holds a lone surrogate, which is no text.
    """
    body = {
        **one_token(model),
        "messages": messages_of(messages),
        "add_generation_prompt": True,
        "logprobs": True,
        "top_logprobs": top_logprobs,
        "return_tokens_as_token_ids": True,
        "return_token_ids": True,
    }
    if template:
        body["chat_template_kwargs"] = template
    return encode(body)


def begun(body: bytes, n_least: int, secret: str) -> Begun | Failure:
    """What the reply to `begin` says; `n_least` entries at least must be listed.

    Failures: "unparseable" where the server counts another prompt than it states, "server_error"
    where its V1 runner mixed the request up with another one, and what an error in the reply says.
    """
    reply = _chat(body, secret)
    if isinstance(reply, Failure):
        return reply
    if reply.error or not reply.choices:
        return error_in(body, secret)
    reading = _reading(reply.choices[0].logprobs, n_least)
    usage, ids = reply.usage or NO_USAGE, tuple(reply.prompt_token_ids or ())
    if ids and usage.n_prompt != len(ids):
        said = f"the prompt has {len(ids)} tokens and {usage.n_prompt} were read by the server"
        return Failure("unparseable", said, permanent=True)
    return reading if isinstance(reading, Failure) else Begun(ids, reading, usage.n_cached)


def _reading(lists: _Lists | None, n_least: int) -> Reading | Failure:
    if lists is None or not lists.content or not lists.content[0].top_logprobs:
        return NO_ALTERNATIVES
    row = by_id({one.token: one.logprob for one in lists.content[0].top_logprobs})
    if row is None:
        return NOT_BY_IDS
    row, least = kept(row)
    return Reading(row, least) if len(row) >= n_least else MIXED_UP
