"""`/v1/score` and `/v1/choose`: what a model gives to texts it did not write.

Both continue a rendered chat (with the generation prompt, unless the request says otherwise) and
an optional `prefix` that the assistant has already written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from launch.embedded.drawing import LOWEST, finite, unresolved
from launch.embedded.errors import bad_request
from launch.embedded.features import Wanted, check_names
from launch.embedded.jobs import Job
from launch.embedded.protocol import ChooseRequest, Prefix, ScoreRequest, check_ids, within
from launch.embedded.readers import Branches, Forced
from launch.embedded.served import Served
from launch.embedded.tokens import Context, Continuation
from launch.embedded.trie import Path, Trie, close_paths, log_sum_exp

_MOST_NODES = 1024


@dataclass(frozen=True, slots=True)
class Begun:
    """The context that a continuation follows."""

    ids: list[int]
    context: Context


def begin(request: ScoreRequest | ChooseRequest, served: Served) -> Begun:
    """Render the chat and add the prefix.

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
    return Begun(ids, tokens.context(text, ids))


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
        begun = begin(request, served)
        found = _continuation(request, served, begun)
        n_prompt, n_scored = len(begun.ids), len(found.ids)
        served.check_length(n_prompt + n_scored, 0)
        wanted = Wanted.of(request.features or (), n_prompt)
        if wanted.attention is not None:
            served.check_attention(n_prompt + n_scored)
        ids = [*begun.ids, *found.ids]
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


def _continuation(request: ScoreRequest, served: Served, begun: Begun) -> Continuation:
    """Return the continuation to score.

    Raises:
        ApiError: 400 for ids that there are not, or an end of the turn that the model has not.
    """
    if (request.token_ids is None) == (request.text is None):
        raise bad_request("give either token_ids or text", "token_ids")
    if request.text is not None:
        found = served.tokens.continuation(begun.context, request.text)
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
        begun = begin(request, served)
        continuations = [
            [served.tokens.continuation(begun.context, text) for text in spellings]
            for spellings in request.labels
        ]
        flat = [tuple(found.ids) for group in continuations for found in group]
        closed = iter(close_paths(flat, served.tokens.end_of_turn))
        paths = [[next(closed) for _ in group] for group in continuations]
        _check_distinct(paths, request.labels)
        trie = Trie.of([path for group in paths for path in group])
        if len(trie.tokens) > _MOST_NODES:
            raise bad_request(f"the labels have more than {_MOST_NODES} tokens", "labels")
        n_prompt = len(begun.ids)
        served.check_length(n_prompt, max(trie.depths, default=0) + 1)
        reader = trie.reader(n_prompt)
        job = Job(
            [*begun.ids, *trie.tokens],
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
