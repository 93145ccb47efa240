"""What servers that are asked by token ids have in common.

That is how numbers of given ids and distributions are written down, and vLLM's tokenizer routes
(`/tokenize` and `/detokenize`, vLLM 0.32), which others have too.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from orchestrator.records import Failure, FloatArray, TopLogprobs
from orchestrator.wire.agreement import overfull
from orchestrator.wire.parsing import Decoder, TokenId, error_in
from orchestrator.wire.requests import encode
from orchestrator.wire.trie import Path, Reading


class Forced(msgspec.Struct, frozen=True):
    """Teacher-forced log-probabilities: arrays of shape (T,) and, where asked for, (T, k)."""

    logprobs: FloatArray
    top: TopLogprobs | None
    n_cached: int


class Looked(msgspec.Struct, frozen=True):
    """Distributions at several nodes, in the order they were asked."""

    readings: tuple[Reading, ...]
    n_cached: int


def top_of(rows: Sequence[Sequence[tuple[int, float]]], k: int) -> TopLogprobs | Failure:
    """The first k tokens at each place; nan and -1 where fewer are listed.

    Args:
        rows: At each place id and ln p of tokens, most likely first.
        k: Width of the result.
    """
    ids = np.full((len(rows), k), -1, dtype=np.int32)
    values = np.full((len(rows), k), np.nan, dtype=np.float32)
    for place, row in enumerate(rows):
        for column, (token, value) in enumerate(row[:k]):
            ids[place, column], values[place, column] = token, value
    return overfull(values) or TopLogprobs(ids, values)


class _Tokenized(msgspec.Struct, gc=False):
    tokens: list[TokenId] | None = None
    token_strs: list[str] | None = None
    error: Any = None


class _Detokenized(msgspec.Struct, gc=False):
    prompt: str | None = None
    error: Any = None


_tokenized: Final = Decoder(_Tokenized)
_detokenized: Final = Decoder(_Detokenized)


def tokenize_text(model: str, text: str, *, special: bool = False, strings: bool = False) -> bytes:
    """Body of `/tokenize` for a text; `special` adds what the tokenizer puts around one (BOS).

    Raises:
        UnicodeEncodeError: If the text holds a lone surrogate.
    """
    body: dict[str, Any] = {"model": model, "prompt": text, "add_special_tokens": special}
    if strings:
        body["return_token_strs"] = True
    return encode(body)


def detokenize(model: str, ids: Path) -> bytes:
    """Body of `/detokenize`."""
    return encode({"model": model, "tokens": ids})


def token_ids(body: bytes, secret: str) -> tuple[int, ...] | Failure:
    """The ids in a reply of `/tokenize`."""
    reply = _tokenized(body, secret)
    if isinstance(reply, Failure):
        return reply
    return error_in(body, secret) if reply.tokens is None else tuple(reply.tokens)


def token_texts(body: bytes, secret: str) -> tuple[str, ...] | Failure:
    """The tokens' texts in a reply of `/tokenize`, as the vocabulary spells them."""
    reply = _tokenized(body, secret)
    if isinstance(reply, Failure):
        return reply
    return error_in(body, secret) if reply.token_strs is None else tuple(reply.token_strs)


def text(body: bytes, secret: str) -> str | Failure:
    """The text in a reply of `/detokenize`."""
    reply = _detokenized(body, secret)
    if isinstance(reply, Failure):
        return reply
    return error_in(body, secret) if reply.prompt is None else reply.prompt
