"""`/v1/completions` and `/tokenize` of the fake server."""

from typing import Any

from tests.fake import language
from tests.fake.protocol import RefusedError, Request, check_ids, encode, render
from tests.fake.replies import usage


def tokenize(request: Request) -> bytes:
    """Ids of a text, or of a rendered chat with the assistant's mark."""
    if request.messages:
        ids = [*language.encode(render(request.messages)), language.ASSISTANT]
    else:
        ids = _ids(request.prompt)
    body = {"tokens": ids, "count": len(ids), "max_model_len": 131_072}
    return encode(body)


def complete(request: Request, quality: float) -> tuple[bytes, int]:
    """A completion with `prompt_logprobs` and `echo`, and how many tokens it generated.

    Ids after the last assistant's mark have the log-probabilities that a chat gives them.
    """
    given = request.prompt
    if isinstance(given, list) and given and not isinstance(given[0], int):
        prompts = [_ids(one) for one in given]
    else:
        prompts = [_ids(given)]
    limit = request.limit(16)
    if limit < 1 and not request.echo:
        raise RefusedError(400, f"max_tokens must be at least 1, got {limit}")
    choices, n_prompt, generated = [], 0, 0
    for index, ids in enumerate(prompts):
        seed = request.seed if request.temperature > 0 else None
        key = language.number(request.model, seed, *ids[-64:], len(ids))
        new = [*language.write(key, quality, 12 + key % 29), language.END][: max(limit, 0)]
        n_prompt += len(ids)
        generated += len(new)
        choices.append(_choice(request, index, ids, new))
    body = {
        "id": "cmpl-fake",
        "object": "text_completion",
        "model": request.model,
        "choices": choices,
        "usage": usage(n_prompt, generated),
    }
    return encode(body), generated


def _choice(request: Request, index: int, ids: list[int], new: list[int]) -> dict[str, object]:
    values = [None, *_logprobs(request.model, ids + new)[1:]]
    listed = slice(0 if request.echo else len(ids), None)
    shown = (ids + new)[listed]
    choice: dict[str, Any] = {
        "index": index,
        "text": language.decode([i for i in shown if i != language.END]),
        "finish_reason": "stop" if new[-1:] == [language.END] else "length",
        "logprobs": None,
    }
    if request.logprobs is not None and request.logprobs is not False:
        tokens = [language.token(i).text for i in shown]
        choice["logprobs"] = {
            "tokens": tokens,
            "token_logprobs": values[listed],
            "top_logprobs": [
                None if value is None else {token: value}
                for token, value in zip(tokens, values[listed], strict=True)
            ],
            "text_offset": [0] * len(tokens),
        }
    if request.prompt_logprobs is not None:
        choice["prompt_logprobs"] = [
            None
            if value is None
            else {str(i): {"logprob": value, "rank": 1, "decoded_token": language.token(i).text}}
            for i, value in zip(ids, values[: len(ids)], strict=True)
        ]
    if request.return_token_ids:
        choice["prompt_token_ids"] = ids
        choice["token_ids"] = new
    return choice


def _logprobs(model: str, ids: list[int]) -> list[float]:
    split = len(ids)
    while split and ids[split - 1] != language.ASSISTANT:
        split -= 1
    plain = language.number("completions", model)
    values = [language.logprob(plain, at, token_id) for at, token_id in enumerate(ids[:split])]
    # With no mark everything is continuation of an empty prompt.
    chat = language.number(model, language.decode(ids[: split - 1])) if split else plain
    return values + [language.logprob(chat, at, i) for at, i in enumerate(ids[split:])]


def _ids(prompt: object) -> list[int]:
    if isinstance(prompt, str):
        return language.encode(prompt)
    if not isinstance(prompt, list) or not all(type(i) is int for i in prompt):
        raise RefusedError(400, "prompt must be text or token ids")
    check_ids(prompt)
    return list(prompt)
