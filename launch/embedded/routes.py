"""The routes that a model computes for: a request to a job, the job to a reply.

`/v1/chat/completions` draws a text. `token_ids` and `logprobs` hold every drawn token: the stop
token (end of turn) too, and the tokens of a stop string, as in vLLM; the text holds neither.
Entries of `logprobs` carry an `id` beside vLLM's fields, and `bytes` are the token's own, also
where it is only part of a character.

`/v1/score`, `/v1/choose` and `/pooling` say what a model gives to texts that it did not write. The
first two continue a rendered chat (with the generation prompt, unless the request says otherwise)
and an optional `prefix` that the assistant has already written.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from launch.embedded.features import Wanted
from launch.embedded.jobs import Answer, Branches, Draw, Forced, Job, Outputs, Stop, Work
from launch.embedded.protocol import (
    ChatRequest,
    ChooseRequest,
    PoolingRequest,
    Prefix,
    ScoreRequest,
    bad_request,
    check_ids,
    within,
)
from launch.embedded.served import Served
from launch.embedded.tokens import Tokens
from orchestrator.records import unknown_features
from orchestrator.wire.by_ids import Path, PathsError, cut, ln_sum
from orchestrator.wire.spelling import Context, Continuation

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
    job = Job(ids, len(ids), answer=drawn, reuse=len(ids) - 1)
    return job, lambda: chat_reply(request, served, job, drawn)


def answer_of(
    request: ChatRequest, served: Served, max_tokens: int, n_top: int, ids: tuple[int, ...] | None
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


def chat_reply(request: ChatRequest, served: Served, job: Job, answer: Answer) -> dict[str, object]:
    """The fields of a chat reply."""

    def shown(token: int, logprob: float) -> dict[str, object]:
        utf8 = served.tokens.piece(token)
        as_id = request.return_tokens_as_token_ids
        name = f"token_id:{token}" if as_id else utf8.decode("utf-8", "replace")
        return {"token": name, "logprob": finite(logprob), "bytes": list(utf8), "id": token}

    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": text_of(answer, served.tokens)},
        "logprobs": None,
        "finish_reason": answer.finish_reason,
        "stop_reason": answer.stop_reason,
    }
    if request.logprobs:
        places = range(len(answer.ids))
        content = []
        for place in places:
            others = alternatives(answer, place).items() if answer.top else ()
            drawn = shown(answer.ids[place], answer.logprobs[place])
            content.append({**drawn, "top_logprobs": [shown(*other) for other in others]})
        choice["logprobs"] = {"content": content}
    if request.return_token_ids:
        choice["token_ids"] = answer.ids
    n_drawn = len(answer.ids)
    reply: dict[str, Any] = {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "object": "chat.completion",
        "created": int(datetime.now(UTC).timestamp()),
        "model": served.name,
        "system_fingerprint": served.fingerprint,
        "choices": [choice],
        "usage": {
            "prompt_tokens": job.n_prompt,
            "completion_tokens": n_drawn,
            "total_tokens": job.n_prompt + n_drawn,
            "prompt_tokens_details": {"cached_tokens": job.n_cached},
        },
    }
    if request.return_token_ids:
        reply["prompt_token_ids"] = job.ids
    return reply


def finite(logprob: float) -> float:
    """A log-probability as the wire has it: clamped; what is not a number stays."""
    return max(logprob, LOWEST)


def text_of(answer: Answer, tokens: Tokens) -> str:
    """The text of an answer, without its stop token and what follows a stop string."""
    if answer.finish_reason != "stop":
        return tokens.decode(answer.ids)
    if isinstance(answer.stop_reason, str):
        text = tokens.decode(answer.ids)
        return text[: text.find(answer.stop_reason)]
    return tokens.decode(answer.ids[:-1])


def alternatives(answer: Answer, place: int) -> dict[int, float]:
    """The drawn token, then the tokens read beside it, by id; each once."""
    found = {answer.ids[place]: answer.logprobs[place]}
    for token, logprob in zip(*answer.top[place], strict=True):
        found.setdefault(token, logprob)
    return found


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
    if unknown := unknown_features(request.features or ()):
        raise bad_request(f"there is no feature {', '.join(unknown)}", "features")
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
    job = Job(ids, n_prompt, reader=reader, reuse=n_prompt - 1)
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

    return job, reply


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
        paths, children = cut(groups, names, served.tokens.end_of_turn)
    except PathsError as error:
        raise bad_request(str(error), "labels") from error
    _, *inner = nodes = sorted(children, key=lambda node: (len(node), node))
    if len(inner) > _MOST_NODES:
        raise bad_request(f"the labels have more than {_MOST_NODES} tokens", "labels")
    n_prompt = len(begun)
    served.check_length(n_prompt, max(map(len, nodes)) + 1)
    places = [n_prompt - 1, *range(n_prompt, n_prompt + len(inner))]
    reader = Branches(places, [list(children[node]) for node in nodes])
    job = Job(
        [*begun, *(node[-1] for node in inner)],
        n_prompt,
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
            ln_sum(list(dict(zip(group, values, strict=True)).values()))
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

    return job, reply


def pool(request: PoolingRequest, served: Served) -> Work:
    """Rate a chat or a text by a reward model; the request has either messages or a text.

    Raises:
        ApiError: 400 for what can't be rated.
    """
    if (request.input is None) == (request.messages is None):
        raise bad_request("give either messages or input", "messages")
    if request.use_activation is not False:
        raise bad_request("outputs are raw here: send use_activation: false", "use_activation")
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
    job = Job(ids, n_prompt, reader=reader, reuse=n_prompt - 1)

    def reply() -> dict[str, Any]:
        usage = {
            "prompt_tokens": n_prompt,
            "total_tokens": n_prompt,
            "completion_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": job.n_cached},
        }
        row = {"index": 0, "object": "pooling", "data": reader.values[0]}
        return {"object": "list", "model": served.name, "data": [row], "usage": usage}

    return job, reply
