"""`/v1/score`, `/v1/choose`, `/pooling`: what a model gives to texts that it did not write.

Both continue a rendered chat (with the generation prompt, unless the request says otherwise) and
an optional `prefix` that the assistant has already written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from launch.embedded.chat import finite, unresolved
from launch.embedded.features import Wanted, check_names
from launch.embedded.jobs import Branches, Forced, Job, Outputs, Work
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
from orchestrator.wire.by_ids import Path, PathsError, cut, log_sum_exp
from orchestrator.wire.spelling import Context, Continuation

# Labels as token paths, and the trie of all paths that one forward pass walks.
#
# The prompt is computed once. The trie's inner nodes are appended to it as further tokens, each
# seeing the prompt and its own ancestors only, so one pass gives the distribution at every branch.


def visible(nodes: Sequence[Path]) -> Tensor:
    """Return which of the inner nodes each of them sees, its ancestors and itself.

    Shape `(n, n)`, bool; parents come before children.
    """
    at = {node: place for place, node in enumerate(nodes)}
    sees = torch.zeros((len(nodes), len(nodes)), dtype=torch.bool)
    for place, node in enumerate(nodes):
        for end in range(1, len(node) + 1):
            sees[place, at[node[:end]]] = True
    return sees


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


def score(request: ScoreRequest, served: Served) -> Work:
    """Score given tokens after a chat; the request has either token ids or a text.

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
    targets, places = list(found.ids), range(n_prompt - 1, n_prompt - 1 + n_scored)
    if wanted.after_last and n_scored:
        targets, places = [*targets, ids[0]], range(n_prompt - 1, n_prompt + n_scored)
    elif wanted.attention is None:
        # The last token predicts nothing that is asked.
        ids = ids[: n_prompt + max(0, n_scored - 1)]
    reader = Forced(list(places), targets, n_top, wanted.observers)
    job = Job(ids, n_prompt, unresolved, reader=reader, reuse=n_prompt - 1)
    job.attention = None if wanted.attention is None else wanted.attention.see

    def reply() -> dict[str, Any]:
        fields: dict[str, Any] = {
            "object": "score",
            "model": served.name,
            "logprobs": [finite(value) for value in reader.logprobs[:n_scored]],
            "token_ids": list(found.ids),
            "boundary": found.boundary,
            "usage": {
                "prompt_tokens": n_prompt,
                "total_tokens": n_prompt + n_scored,
                "cached_tokens": job.n_cached,
            },
        }
        if n_top:
            top = reader.top[:n_scored]
            fields["top_token_ids"] = [ids for ids, _ in top]
            fields["top_logprobs"] = [[finite(value) for value in values] for _, values in top]
        if wanted.names:
            fields["features"] = wanted.reply(reader.logprobs, reader.observations, n_scored)
        return fields

    return Work(job, reply)


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
        check_ids("token_ids", request.token_ids or [], served.runner.vocabulary)
        found = Continuation(tuple(request.token_ids or ()), "ids")
    if not request.end_of_turn:
        return found
    if served.tokens.end_of_turn is None:
        raise bad_request("the tokenizer has no end-of-turn token", "end_of_turn")
    return found._replace(ids=(*found.ids, served.tokens.end_of_turn))


def choose(request: ChooseRequest, served: Served) -> Work:
    """Read the probabilities of labels after a chat, by spelling and by label.

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
    groups = [[found.ids for found in group] for group in continuations]
    names = [", ".join(spellings) for spellings in request.labels]
    try:
        paths, tree = cut(groups, names, served.tokens.end_of_turn)
    except PathsError as error:
        raise bad_request(str(error), "labels") from error
    _, *inner = nodes = sorted(tree.children, key=lambda node: (len(node), node))
    if len(inner) > _MOST_NODES:
        raise bad_request(f"the labels have more than {_MOST_NODES} tokens", "labels")
    n_prompt = len(begun)
    served.check_length(n_prompt, max(map(len, nodes)) + 1)
    places = [n_prompt - 1, *range(n_prompt, n_prompt + len(inner))]
    reader = Branches(places, [list(tree.children[node]) for node in nodes])
    job = Job(
        [*begun, *(node[-1] for node in inner)],
        n_prompt,
        unresolved,
        positions=[*range(n_prompt), *(n_prompt - 1 + len(node) for node in inner)],
        tree=visible(inner) if inner else None,
        reader=reader,
        reuse=n_prompt - 1,
    )

    def reply() -> dict[str, Any]:
        read = dict(zip(nodes, reader.logprobs, strict=True))
        # Of a path by the chain rule.
        spellings = [
            [math.fsum(read[path[:end]][token] for end, token in enumerate(path)) for path in group]
            for group in paths
        ]
        totals = [
            # Two spellings with the same tokens are one continuation, counted once.
            log_sum_exp(list(dict(zip(group, values, strict=True)).values()))
            for group, values in zip(paths, spellings, strict=True)
        ]
        return {
            "object": "choice",
            "model": served.name,
            "logprobs": [finite(value) for value in totals],
            "spellings": [[finite(value) for value in values] for values in spellings],
            "paths": paths,
            "boundaries": [[found.boundary for found in group] for group in continuations],
            "usage": {"prompt_tokens": n_prompt, "cached_tokens": job.n_cached},
        }

    return Work(job, reply)


def pool(request: PoolingRequest, served: Served) -> Work:
    """Rate a chat or a text by a reward model; the request has either messages or a text.

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
    n_prompt = len(ids)
    served.check_length(n_prompt, 0)
    reader = Outputs([n_prompt - 1])
    job = Job(ids, n_prompt, unresolved, reader=reader, reuse=n_prompt - 1)

    def reply() -> dict[str, Any]:
        (outputs,) = reader.values
        values = outputs if request.use_activation is False else activated(outputs)
        # null stands for what is no number; the client refuses it.
        data = [value if math.isfinite(value) else None for value in values]
        usage = {
            "prompt_tokens": n_prompt,
            "total_tokens": n_prompt,
            "completion_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": job.n_cached},
        }
        row = {"index": 0, "object": "pooling", "data": data}
        return {"object": "list", "model": served.name, "data": [row], "usage": usage}

    return Work(job, reply)


def activated(outputs: Sequence[float]) -> list[float]:
    """Return the sigmoid of a single output, or the softmax of several, as vLLM does by default."""
    if len(outputs) == 1:
        return [0.5 + 0.5 * math.tanh(outputs[0] / 2)]
    highest = max(outputs)
    weights = [math.exp(value - highest) for value in outputs]
    return [weight / sum(weights) for weight in weights]
