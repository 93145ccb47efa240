"""Reply bodies: pure functions of model, request content and seed."""

import math
import re
from collections.abc import Sequence
from typing import Any, Final

from tests.fake import features, judge, language
from tests.fake.protocol import (
    Prompt,
    RefusedError,
    Request,
    check_ids,
    encode,
    prompt_of,
    turn_text,
)
from tests.fake.rules import Rules, Verdict

_SHORTEST, _LONGEST = 12, 40
_QUALITY: Final = re.compile(r":(0?\.\d+|[01](?:\.\d+)?)$")
_DEFAULT_TOKENS: Final = {"chat": 1024, "completions": 16}
FINGERPRINT: Final = "fake-1"


class Speaker:
    """Answers for all models of a server."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def quality(self, model: str) -> float:
        """Return the quality of a model, in [0, 1]."""
        if model in self._rules.quality:
            return self._rules.quality[model]
        stated = _QUALITY.search(model)
        return float(stated[1]) if stated else 0.2 + 0.6 * language.fraction("quality", model)

    def chat(self, request: Request, verdict: Verdict) -> tuple[bytes, int]:
        """A chat completion, and how many tokens it generated."""
        prompt = self._prompt(request)
        most = self._rules.top_logprobs
        if request.top_logprobs and not request.logprobs:
            raise RefusedError(400, "when using `top_logprobs`, `logprobs` must be set to true.")
        if (request.top_logprobs or 0) > most:
            raise RefusedError(
                400,
                f"Requested sample logprobs of {request.top_logprobs}, which is greater than max "
                f"allowed: {most}",
            )
        limit = request.limit(_DEFAULT_TOKENS["chat"])
        if limit < 1:
            raise RefusedError(400, f"max_tokens must be at least 1, got {limit}")
        choices, generated = [], 0
        for index in range(request.n):
            ids, reason = self._draw(request, prompt, index, verdict)
            generated += len(ids)
            choices.append(self._chat_choice(request, prompt, index, ids, reason, verdict))
        how = (request.seed, request.temperature, request.top_p, request.stops(), limit)
        listed = (request.logprobs, request.top_logprobs, request.return_token_ids)
        number = language.number(prompt.context, prompt.begun, *how, *listed)
        body = {
            "id": f"chatcmpl-{number:016x}",
            "object": "chat.completion",
            "model": request.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
            "usage": usage(prompt.n_tokens, generated),
        }
        return encode(body), generated

    def score(self, request: Request) -> bytes:
        """Log-probabilities of given ids and alternatives, the same as when they were drawn."""
        prompt = self._prompt(request)
        ids = request.token_ids
        if ids is None:
            ids = language.encode(request.text or "")
        check_ids(ids)
        ids = [*ids, language.END] if request.end_of_turn else ids
        features.check(request.features)
        k = request.top_logprobs or 0
        if not 0 <= k < language.VOCABULARY:
            most = language.VOCABULARY - 1
            raise RefusedError(400, f"top_logprobs must be between 0 and {most}, got {k}")
        start = len(prompt.begun)
        values = [
            language.logprob(prompt.context, at, token_id) for at, token_id in enumerate(ids, start)
        ]
        body: dict[str, Any] = {
            "logprobs": values,
            "token_ids": ids,
            "usage": usage(prompt.n_tokens, 0),
        }
        if k:
            rows = [
                sorted(
                    alternatives(prompt.context + at, token_id, value, k + 1),
                    key=lambda pair: -pair[1],
                )[:k]
                for at, (token_id, value) in enumerate(zip(ids, values, strict=True), start)
            ]
            body["top_token_ids"] = [[token_id for token_id, _ in row] for row in rows]
            body["top_logprobs"] = [[value for _, value in row] for row in rows]
        if request.features:
            body["features"] = {
                name: features.observe(name, prompt.context, start, ids)
                for name in request.features
            }
        return encode(body)

    def pool(self, request: Request) -> bytes:
        """Return the reward of the last answer, as vLLM's `/pooling` does."""
        reward, n_tokens = self._reward(request)
        return self._of_rewards(request, {"object": "pooling", "data": [reward]}, n_tokens)

    def classify(self, request: Request) -> bytes:
        """Return the reward of the last answer, as vLLM's `/classify` does."""
        reward, n_tokens = self._reward(request)
        one = {"label": "reward", "probs": [reward], "num_classes": 1}
        return self._of_rewards(request, one, n_tokens)

    def _of_rewards(self, request: Request, one: dict[str, object], n_tokens: int) -> bytes:
        body = {
            "object": "list",
            "model": request.model,
            "data": [{"index": 0, **one}],
            "usage": usage(n_tokens, 0),
        }
        return encode(body)

    def _reward(self, request: Request) -> tuple[float, int]:
        """Return the reward, through a sigmoid by default, and the tokens of the prompt."""
        prompt = self._prompt(request)
        answer = turn_text(request.messages[-1])
        reward = judge.reward(answer, prompt.judged, request.model, self.quality(request.model))
        if request.use_activation is not False:
            reward = 1 / (1 + math.exp(-reward))
        return reward, prompt.n_tokens

    def choose(self, request: Request, verdict: Verdict) -> bytes:
        """Log-probabilities of labels, as the model judges the answers in the prompt."""
        prompt = self._prompt(request)
        if not request.labels or not all(request.labels):
            raise RefusedError(400, "labels must be lists of spellings")
        names = [spellings[0] for spellings in request.labels]
        case = judge.read(prompt.judged, request.model, self.quality(request.model))
        if verdict.judge_first:
            case = case._replace(view=judge.FIRST)
        values = judge.distribution(case, names, evenly=verdict.judge_evenly)
        if verdict.label_mass is not None:
            values = [verdict.label_mass * value / sum(values) for value in values]
        body = {
            "logprobs": [math.log(value) for value in values],
            "usage": usage(prompt.n_tokens, 0, cached=prompt.n_tokens // 2),
        }
        return encode(body)

    def _prompt(self, request: Request) -> Prompt:
        prompt = prompt_of(request)
        limit = self._rules.context_tokens
        if prompt.n_tokens >= limit:
            raise RefusedError(
                400,
                f"This model's maximum context length is {limit} tokens. However, your prompt "
                f"contains {prompt.n_tokens} input tokens.",
            )
        return prompt

    def _draw(
        self, request: Request, prompt: Prompt, index: int, verdict: Verdict
    ) -> tuple[list[int], str]:
        """Ids, the end token included where the text ends by itself, and the finish reason."""
        limit = request.limit(_DEFAULT_TOKENS["chat"])
        if limit == 1 and request.logprobs and request.top_logprobs:
            found = self._one_token(request, prompt, verdict)
            if found:
                return [max(found, key=found.__getitem__)], "length"
        if verdict.text is not None:
            ids = language.encode(verdict.text)
        else:
            seed = (request.seed, request.temperature, index) if request.temperature > 0 else ()
            key = language.number(self._rules.seed, prompt.context, prompt.begun, *seed)
            n_words = _SHORTEST + key % (_LONGEST - _SHORTEST + 1)
            quality = self.quality(request.model)
            spread = 0.3 * (language.fraction("spread", key) - 0.5)
            ids = language.write(key, min(max(quality + spread, 0.0), 1.0), n_words)
            case = judge.read(prompt.judged, request.model, quality)
            said = judge.verdict(prompt.judged, case, evenly=verdict.judge_evenly)
            ids += language.encode(said)
        ids = [*ids, language.END][:limit]
        return ids, "stop" if ids[-1] == language.END else "length"

    def _one_token(
        self, request: Request, prompt: Prompt, verdict: Verdict
    ) -> dict[int, float] | None:
        """Probabilities of the single tokens that a judge would answer with."""
        case = judge.read(prompt.judged, request.model, self.quality(request.model))
        names = verdict.labels or judge.one_token_labels(prompt.judged, case)
        if not names:
            return None
        values = judge.distribution(case, names, evenly=verdict.judge_evenly)
        return {language.encode(name)[0]: p for name, p in zip(names, values, strict=True)}

    def _chat_choice(
        self,
        request: Request,
        prompt: Prompt,
        index: int,
        ids: list[int],
        reason: str,
        verdict: Verdict,
    ) -> dict[str, object]:
        text = language.decode([token_id for token_id in ids if token_id != language.END])
        text, ids, stop = cut(text, ids, request.stops())
        reason = "stop" if stop else reason
        entries = None
        if request.logprobs:
            entries = self._entries(request, prompt, ids, verdict)
        choice: dict[str, Any] = {
            "index": index,
            "finish_reason": reason,
            "stop_reason": stop,
            "message": {"role": "assistant", "content": text},
            "logprobs": None if entries is None else {"content": entries},
        }
        if request.return_token_ids:
            choice["token_ids"] = ids
        return choice

    def _entries(
        self, request: Request, prompt: Prompt, ids: list[int], verdict: Verdict
    ) -> list[dict[str, object]]:
        k = request.top_logprobs or 0
        named = request.return_token_ids
        if k and len(ids) == 1 and request.limit(0) == 1:
            found = self._one_token(request, prompt, verdict)
            if found:
                return [_judged_entry(found, k, named=named)]
        start = len(prompt.begun)
        entries = []
        for at, token_id in enumerate(ids, start):
            value = language.logprob(prompt.context, at, token_id)
            entry = shown(token_id, value, named=named)
            listed = alternatives(prompt.context + at, token_id, value, k)
            entry["top_logprobs"] = [shown(i, v, named=named) for i, v in listed]
            entries.append(entry)
        return entries


def shown(token_id: int, value: float, *, named: bool) -> dict[str, Any]:
    """A token and its log-probability as chat replies show them."""
    token = language.token(token_id)
    entry: dict[str, Any] = {
        "token": token.text,
        "logprob": value,
        "bytes": [*token.utf8],
    }
    if named:
        entry["id"] = token_id
    return entry


def usage(n_prompt: int, n_generated: int, cached: int = 0) -> dict[str, Any]:
    """Token counts."""
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_generated,
        "total_tokens": n_prompt + n_generated,
        "cached_tokens": cached,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def alternatives(key: int, token_id: int, value: float, k: int) -> list[tuple[int, float]]:
    """The drawn token first, then others that share what it leaves, as vLLM lists them."""
    if k < 1:
        return []
    listed = [(token_id, value)]
    rest = math.log1p(-math.exp(value))
    for place in range(1, k):
        other = (token_id + 1 + (key + 7919 * place) % (language.VOCABULARY - 1)) % (
            language.VOCABULARY
        )
        listed.append((other, round(rest - place * math.log(2), 6)))
    return listed


def _judged_entry(found: dict[int, float], k: int, *, named: bool) -> dict[str, object]:
    ranked: Sequence[tuple[int, float]] = sorted(found.items(), key=lambda pair: -pair[1])
    least = min(found.values())
    fill = [i for i in range(ord(" "), 127) if i not in found]
    # What the labels leave is spread thinly, so that they stay on top.
    thin = min(1 - sum(found.values()), least) / (2 * len(fill))
    if thin > 0:
        ranked = [*ranked, *((i, thin) for i in fill)]
    listed = [shown(i, math.log(p), named=named) for i, p in ranked[:k]]
    return {**listed[0], "top_logprobs": listed}


def cut(text: str, ids: list[int], stops: list[str]) -> tuple[str, list[int], str | None]:
    """Text before the first stop string, ids up to the token that completes it, and which."""
    places = [(at, stop) for stop in stops if stop and (at := text.find(stop)) >= 0]
    if not places:
        return text, ids, None
    at, stop = min(places)
    end = len(text[: at + len(stop)].encode())
    kept, length = 0, 0
    while kept < len(ids) and length < end:
        length += len(language.token(ids[kept]).utf8)
        kept += 1
    return text[:at], ids[:kept], stop
