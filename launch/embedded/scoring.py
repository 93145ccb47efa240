"""`/v1/score`, `/v1/choose`, `/pooling`: what a model gives to texts that it did not write.

Both continue a rendered chat (with the generation prompt, unless the request says otherwise) and
an optional `prefix` that the assistant has already written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from launch.embedded.chat import LOWEST, finite, unresolved
from launch.embedded.features import Wanted, check_names
from launch.embedded.jobs import Branches, Forced, Job, Outputs
from launch.embedded.protocol import (
    ChooseRequest,
    PoolingRequest,
    Prefix,
    ScoreRequest,
    bad_request,
    check_ids,
    within,
)
from launch.embedded.served import Served
from launch.embedded.tokens import Context, Continuation
from orchestrator.wire.by_ids import Path, log_sum_exp, nested

# Labels as token paths, and the trie of all paths that one forward pass walks.
#
# The prompt is computed once. The trie's inner nodes are appended to it as further tokens, each
# seeing the prompt and its own ancestors only, so one pass gives the distribution at every branch.


def close_paths(paths: Sequence[Path], end_of_turn: int | None) -> list[Path]:
    """End each path that is a prefix of another, and that other, by the end-of-turn token.

    Raises:
        ApiError: 400 where a path is empty or paths can't be told apart.
    """
    if any(not path for path in paths):
        raise bad_request("a label has no tokens", "labels")
    open_ones = nested(paths)
    if not open_ones:
        return list(paths)
    if end_of_turn is None:
        text = "a label begins with another, and the tokenizer has no end-of-turn token"
        raise bad_request(text, "labels")
    closed = [(*path, end_of_turn) if path in open_ones else path for path in paths]
    if nested(closed):
        raise bad_request("a label begins with another one and the end of the turn", "labels")
    return closed


@dataclass(frozen=True, slots=True)
class Trie:
    """The inner nodes of the trie below the last prompt token.

    Attributes:
        paths: The distinct paths.
        tokens: Token of each node but the root, parents before children.
        depths: 1 for the root's children, and so on.
        sees: Which nodes each node sees (its ancestors and itself), bool of shape `(n, n)`.
        children: Tokens that may follow: of the root first, then of each node.
        nodes: By proper prefix of a path: its index into `children`.
    """

    paths: list[Path]
    tokens: list[int]
    depths: list[int]
    sees: Tensor
    children: list[list[int]]
    nodes: dict[Path, int]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Trie:
        """Build the trie of paths none of which is a prefix of another."""
        distinct = list(dict.fromkeys(paths))
        prefixes = {path[:end] for path in distinct for end in range(len(path))}
        ordered = sorted(prefixes, key=lambda prefix: (len(prefix), prefix))
        nodes = {prefix: place for place, prefix in enumerate(ordered)}
        children: list[dict[int, None]] = [{} for _ in ordered]
        for path in distinct:
            for end, token in enumerate(path):
                children[nodes[path[:end]]][token] = None
        inner = ordered[1:]
        sees = torch.zeros((len(inner), len(inner)), dtype=torch.bool)
        for place, prefix in enumerate(inner):
            for end in range(1, len(prefix) + 1):
                sees[place, nodes[prefix[:end]] - 1] = True
        return cls(
            paths=distinct,
            tokens=[prefix[-1] for prefix in inner],
            depths=[len(prefix) for prefix in inner],
            sees=sees,
            children=[list(tokens) for tokens in children],
            nodes=nodes,
        )

    def reader(self, n_prompt: int) -> Branches:
        """Reads the root at the last prompt token and the nodes behind it."""
        places = [n_prompt - 1, *range(n_prompt, n_prompt + len(self.tokens))]
        return Branches(places, self.children)

    def logprob(self, path: Path, read: Branches) -> float:
        """Natural log of a path's probability by the chain rule."""
        return math.fsum(
            read.logprobs[self.nodes[path[:end]]][token] for end, token in enumerate(path)
        )


_MOST_NODES = 1024


def begin(request: ScoreRequest | ChooseRequest, served: Served) -> tuple[list[int], Context]:
    """Render the chat and add the prefix; return its tokens, and the context that they are.

    Raises:
        ApiError: 400 where the messages or the prefix can't be used.
    """
    tokens = served.tokens
    text = served.render(request)
    ids = served.encode(request, text)
    prefix = request.prefix or Prefix()
    if prefix.token_ids:
        check_ids("prefix.token_ids", prefix.token_ids, served.runner.vocabulary)
        text += tokens.decode(prefix.token_ids, skip_special=False)
        ids += prefix.token_ids
    elif prefix.text:
        ids += tokens.continuation(tokens.context(text, ids), prefix.text).ids
        text += prefix.text
    return ids, tokens.context(text, ids)


@dataclass(frozen=True, slots=True)
class Scoring:
    """A score request under way."""

    job: Job
    reader: Forced
    continuation: Continuation
    wanted: Wanted

    @classmethod
    def of(cls, request: ScoreRequest, served: Served) -> Scoring:
        """Read a request, which has either token ids or a text.

        Raises:
            ApiError: 400 for what can't be scored.
        """
        n_top = request.top_logprobs or 0
        # Refused rather than cut, so that every row of a reply is as long as asked.
        within("top_logprobs", n_top, 0, served.runner.vocabulary)
        check_names(request.features or ())
        begun, context = begin(request, served)
        found = _continuation(request, served, context)
        n_prompt, n_scored = len(begun), len(found.ids)
        served.check_length(n_prompt + n_scored, 0)
        wanted = Wanted.of(request.features or (), n_prompt)
        if wanted.attention is not None:
            served.check_attention(n_prompt + n_scored)
        ids = [*begun, *found.ids]
        targets, places = found.ids, range(n_prompt - 1, n_prompt - 1 + n_scored)
        if wanted.after_last and n_scored:
            targets, places = [*targets, ids[0]], range(n_prompt - 1, n_prompt + n_scored)
        elif wanted.attention is None:
            # The last token predicts nothing that is asked.
            ids = ids[: n_prompt + max(0, n_scored - 1)]
        reader = Forced(list(places), targets, n_top, wanted.observers)
        job = Job(ids, n_prompt, unresolved, reader=reader, reuse=n_prompt - 1)
        job.attention = wanted.attention
        return cls(job, reader, found, wanted)

    def reply(self) -> dict[str, Any]:
        """The reply's fields."""
        n_prompt, n_scored = self.job.n_prompt, len(self.continuation.ids)
        reply: dict[str, Any] = {
            "logprobs": [finite(value) for value in self.reader.logprobs[:n_scored]],
            "token_ids": self.continuation.ids,
            "boundary": self.continuation.boundary,
            "usage": {
                "prompt_tokens": n_prompt,
                "total_tokens": n_prompt + n_scored,
                "cached_tokens": self.job.n_cached,
            },
        }
        if self.reader.n_top:
            top = self.reader.top[:n_scored]
            reply["top_token_ids"] = [ids for ids, _ in top]
            reply["top_logprobs"] = [[finite(value) for value in values] for _, values in top]
        if self.wanted.names:
            reply["features"] = self.wanted.reply(
                self.reader.logprobs, self.reader.observations, n_scored
            )
        return reply


def _continuation(request: ScoreRequest, served: Served, context: Context) -> Continuation:
    """Return the continuation to score.

    Raises:
        ApiError: 400 for ids that there are not, or an end of the turn that the model has not.
    """
    if (request.token_ids is None) == (request.text is None):
        raise bad_request("give either token_ids or text", "token_ids")
    if request.text is not None:
        found = served.tokens.continuation(context, request.text)
    else:
        found = Continuation(request.token_ids or [], "ids")
        check_ids("token_ids", found.ids, served.runner.vocabulary)
    if not request.end_of_turn:
        return found
    if served.tokens.end_of_turn is None:
        raise bad_request("the tokenizer has no end-of-turn token", "end_of_turn")
    return found._replace(ids=[*found.ids, served.tokens.end_of_turn])


@dataclass(frozen=True, slots=True)
class Choosing:
    """A choose request under way.

    Attributes:
        job: What the engine computes.
        reader: Distributions at the trie's nodes.
        trie: Of all paths.
        paths: By label and spelling.
        boundaries: How each spelling met its context, likewise.
    """

    job: Job
    reader: Branches
    trie: Trie
    paths: list[list[Path]]
    boundaries: list[list[str]]

    @classmethod
    def of(cls, request: ChooseRequest, served: Served) -> Choosing:
        """Read a request.

        Raises:
            ApiError: 400 for labels that are empty or can't be told apart.
        """
        if not request.labels or not all(request.labels):
            raise bad_request("labels must hold at least one spelling each", "labels")
        begun, context = begin(request, served)
        continuations = [
            [served.tokens.continuation(context, text) for text in spellings]
            for spellings in request.labels
        ]
        flat = [tuple(found.ids) for group in continuations for found in group]
        closed = iter(close_paths(flat, served.tokens.end_of_turn))
        paths = [[next(closed) for _ in group] for group in continuations]
        _check_distinct(paths, request.labels)
        trie = Trie.of([path for group in paths for path in group])
        if len(trie.tokens) > _MOST_NODES:
            raise bad_request(f"the labels have more than {_MOST_NODES} tokens", "labels")
        n_prompt = len(begun)
        served.check_length(n_prompt, max(trie.depths, default=0) + 1)
        reader = trie.reader(n_prompt)
        job = Job(
            [*begun, *trie.tokens],
            n_prompt,
            unresolved,
            positions=[*range(n_prompt), *(n_prompt - 1 + depth for depth in trie.depths)],
            tree=trie.sees if trie.tokens else None,
            reader=reader,
            reuse=n_prompt - 1,
        )
        boundaries = [[found.boundary for found in group] for group in continuations]
        return cls(job, reader, trie, paths, boundaries)

    def reply(self) -> dict[str, Any]:
        """The reply's fields."""
        spellings = [
            [self.trie.logprob(path, self.reader) for path in group] for group in self.paths
        ]
        totals = [
            # Two spellings with the same tokens are one continuation, counted once.
            log_sum_exp(list(dict(zip(group, values, strict=True)).values()))
            for group, values in zip(self.paths, spellings, strict=True)
        ]
        return {
            "logprobs": [_wire(value) for value in totals],
            "spellings": [[_wire(value) for value in values] for values in spellings],
            "paths": self.paths,
            "boundaries": self.boundaries,
            "usage": {"prompt_tokens": self.job.n_prompt, "cached_tokens": self.job.n_cached},
        }


def _wire(value: float) -> float | None:
    return LOWEST if value == float("-inf") else finite(value)


def _check_distinct(paths: list[list[Path]], labels: list[list[str]]) -> None:
    owner: dict[Path, int] = {}
    for label, group in enumerate(paths):
        for path in group:
            other = owner.setdefault(path, label)
            if other != label:
                text = f"the labels {labels[other]!r} and {labels[label]!r} share a spelling"
                raise bad_request(text, "labels")


@dataclass(frozen=True, slots=True)
class Pooling:
    """A request under way."""

    job: Job
    reader: Outputs
    activates: bool

    @classmethod
    def of(cls, request: PoolingRequest, served: Served) -> Pooling:
        """Read a request, which has either messages or a text.

        Raises:
            ApiError: 400 for what can't be rated.
        """
        if (request.input is None) == (request.messages is None):
            raise bad_request("give either messages or input", "messages")
        if request.input is not None:
            special = request.add_special_tokens is not False
            ids = served.tokens.encode(request.input, special=special)
        else:
            if request.add_generation_prompt is None:
                request.add_generation_prompt = False
            ids = served.encode(request)
        served.check_length(len(ids), 0)
        reader = Outputs([len(ids) - 1])
        job = Job(ids, len(ids), unresolved, reader=reader, reuse=len(ids) - 1)
        return cls(job, reader, request.use_activation is not False)

    def reply(self) -> dict[str, Any]:
        """Return the reply's fields."""
        (outputs,) = self.reader.values
        values = activated(outputs) if self.activates else outputs
        # null stands for what is no number; the client refuses it.
        data = [value if math.isfinite(value) else None for value in values]
        row = {"index": 0, "object": "pooling", "data": data}
        n_prompt = self.job.n_prompt
        usage = {
            "prompt_tokens": n_prompt,
            "total_tokens": n_prompt,
            "completion_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": self.job.n_cached},
        }
        return {"data": [row], "usage": usage}


def activated(outputs: Sequence[float]) -> list[float]:
    """Return the sigmoid of a single output, or the softmax of several, as vLLM does by default."""
    if len(outputs) == 1:
        return [0.5 + 0.5 * math.tanh(outputs[0] / 2)]
    highest = max(outputs)
    weights = [math.exp(value - highest) for value in outputs]
    return [weight / sum(weights) for weight in weights]
