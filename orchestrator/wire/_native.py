"""Replies of our own routes, `/v1/score` and `/v1/choose` -> `Scored`, `Choice` or `Failure`."""

from typing import Any, Final

import msgspec
import numpy as np

from orchestrator.records import Choice, Failure, Scored, TopLogprobs
from orchestrator.wire._parsing import (
    NO_USAGE,
    Decoder,
    TokenId,
    Usage,
    error_in,
    logprob,
    logprob_array,
)


class _Scores(msgspec.Struct, gc=False):
    logprobs: list[float | None] | None = None
    token_ids: list[TokenId] | None = None
    usage: Usage | None = None
    error: Any = None


class _ListedScores(_Scores, gc=False):
    top_token_ids: list[list[TokenId]] | None = None
    top_logprobs: list[list[float | None]] | None = None


class _Choices(msgspec.Struct, gc=False):
    logprobs: list[float | None] | None = None
    usage: Usage | None = None
    error: Any = None


_scores: Final = Decoder(_Scores)
_listed_scores: Final = Decoder(_ListedScores)
_choices: Final = Decoder(_Choices)


def scored(
    body: bytes, token_ids: tuple[int, ...] | None, method: str, secret: str, top: int = 0
) -> Scored | Failure:
    """Teacher-forced log-probabilities from our own `/v1/score`; the ids must be those asked.

    With `token_ids` None a text was asked, and the ids are the server's. With `top` the reply must
    list that many alternatives at each position; they are put in order, most likely first.

    Failures: "unparseable", "no_logprobs", and what an error in the reply says.
    """
    reply = (_listed_scores if top else _scores)(body, secret)
    if isinstance(reply, Failure):
        return reply
    if reply.error or reply.logprobs is None:
        return error_in(body, secret)
    ids = token_ids if reply.token_ids is None else tuple(reply.token_ids)
    said = _mismatch(ids, token_ids, len(reply.logprobs))
    if ids is None or said:
        return Failure("unparseable", said, permanent=True)
    values = logprob_array(reply.logprobs)
    if isinstance(values, Failure):
        return values
    listed = _listed(reply, len(ids), top) if isinstance(reply, _ListedScores) else None
    if isinstance(listed, Failure):
        return listed
    usage = reply.usage or NO_USAGE
    return Scored(
        np.array(ids, dtype=np.int32),
        values,
        usage.n_prompt,
        method=method,
        n_cached_tokens=usage.n_cached,
        top=listed,
    )


def scored_nothing(method: str, top: int = 0) -> Scored:
    """The log-probabilities of no tokens: none, known without asking."""
    ids, values = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
    none = TopLogprobs(ids.reshape(0, top), values.reshape(0, top)) if top else None
    return Scored(ids, values, method=method, top=none)


def choice(body: bytes, n_labels: int, method: str, secret: str) -> Choice | Failure:
    """Label probabilities from our own `/v1/choose`, in the order of the labels."""
    reply = _choices(body, secret)
    if isinstance(reply, Failure):
        return reply
    if reply.error or reply.logprobs is None:
        return error_in(body, secret)
    if len(reply.logprobs) != n_labels:
        said = f"{n_labels} labels were asked and {len(reply.logprobs)} answered"
        return Failure("unparseable", said, permanent=True)
    values = tuple(map(logprob, reply.logprobs))
    # Where the server knows nothing, the only bound is that of any probability: ln 1.
    upper = tuple(0.0 if value != value else value for value in values)
    usage = reply.usage or NO_USAGE
    return Choice(values, upper, method, usage.n_prompt, usage.n_cached)


def _mismatch(given: tuple[int, ...] | None, asked: tuple[int, ...] | None, n_logprobs: int) -> str:
    if given is None:
        return "the server does not say which ids it scored"
    if asked is not None and given != asked:
        return "the server scored other ids than asked"
    if n_logprobs != len(given):
        return f"the server gave {n_logprobs} log-probabilities for {len(given)} ids"
    return ""


def _listed(reply: _ListedScores, n_tokens: int, k: int) -> TopLogprobs | Failure:
    """The alternatives of a reply, both arrays of shape (n_tokens, k), most likely first."""
    ids, rows = reply.top_token_ids, reply.top_logprobs
    if ids is None or rows is None:
        return Failure("no_logprobs", "the reply lists no alternatives", permanent=True)
    widths = {*map(len, ids), *map(len, rows)}
    if not len(ids) == len(rows) == n_tokens or widths - {k}:
        said = f"the server does not list {k} alternatives at each of {n_tokens} positions"
        return Failure("unparseable", said, permanent=True)
    values = logprob_array([value for row in rows for value in row])
    if isinstance(values, Failure):
        return values
    values = values.reshape(n_tokens, k)
    order = np.argsort(-values, axis=1, kind="stable")
    return TopLogprobs(
        np.take_along_axis(np.array(ids, dtype=np.int32).reshape(n_tokens, k), order, axis=1),
        np.take_along_axis(values, order, axis=1),
    )
