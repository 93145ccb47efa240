"""OpenAI's hosted chat completions, and its legacy completions with `echo`.

Models whose names hold "reasoning" are reasoning models: they refuse what those refuse.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from tests.fake import language
from tests.fake.dialects import Dialect, number
from tests.fake.protocol import RefusedError, encode
from tests.fake.replies import shown
from tests.fake.rules import Verdict
from tests.fake.toy import Draw, Sampling, Toy

FINGERPRINT = "fp_fake"
_MOST_LISTED = 20
_KNOWN = frozenset({
    "frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens",
    "messages", "metadata", "model", "n", "presence_penalty", "reasoning_effort",
    "response_format", "seed", "service_tier", "stop", "store", "stream", "temperature", "tools",
    "top_logprobs", "top_p", "user",
})  # fmt: skip
_THOUGHT = 32


class Openai(Dialect):
    """One endpoint."""

    routes: ClassVar[Mapping[str, str]] = {
        "/v1/chat/completions": "chat",
        "/v1/completions": "completions",
    }
    ignores_unknown = False
    """True if unknown fields are silently ignored."""

    def answer(self, path: str, body: dict[str, Any], verdict: Verdict) -> tuple[bytes, int]:
        """See `Dialect`."""
        if path == "/v1/completions":
            return self._echo(body, verdict)
        self._check(body)
        model = self.model_of(body)
        ids = self.toy.received(self.toy.chat(body.get("messages"), opens=True))
        limit = number(body, "max_completion_tokens", number(body, "max_tokens", 1024))
        given = body.get("stop")
        stops = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        how = Sampling(
            limit=int(limit),
            temperature=number(body, "temperature", 1.0),
            seed=body.get("seed"),
            stops=tuple(map(str, stops)),
        )
        draw = self.toy.draw(model, ids, how, verdict)
        entries = None
        if body.get("logprobs") and not self.toy.has("ignored_fields"):
            entries = self._entries(model, ids, draw, how, body, verdict)
        thought = _THOUGHT if _reasons(model) else 0
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": draw.text, "refusal": None},
            "logprobs": None if entries is None else {"content": entries, "refusal": None},
            "finish_reason": draw.reason,
        }
        if verdict.refusal is not None:
            choice["message"] = {
                "role": "assistant", "content": None, "refusal": verdict.refusal,
            }  # fmt: skip
            if entries is not None:
                choice["logprobs"] = {
                    "content": None,
                    "refusal": [
                        {**shown(i, -0.01, named=False), "top_logprobs": []}
                        for i in language.encode(verdict.refusal)
                    ],
                }
        n_new = len(draw.ids) + thought
        reply = {
            "id": "chatcmpl-fake",
            "object": "chat.completion",
            "model": model,
            "system_fingerprint": FINGERPRINT,
            "choices": [choice],
            "usage": _usage(len(ids), n_new, thought),
        }
        return encode(reply), n_new

    def get(self, path: str, running: Mapping[str, int]) -> bytes | None:
        """See `Dialect`."""
        return self.names() if path == "/v1/models" else None

    def error(self, path: str, status: int, message: str, kind: str) -> bytes:
        """See `Dialect`."""
        said = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        return encode({"error": said})

    def _check(self, body: Mapping[str, object]) -> None:
        """Refuse what the endpoint refuses.

        Raises:
            RefusedError: 400.
        """
        unknown = sorted(body.keys() - _KNOWN)
        if unknown and not self.ignores_unknown:
            raise RefusedError(400, f"Unrecognized request argument supplied: {unknown[0]}")
        if number(body, "top_logprobs", 0) > _MOST_LISTED:
            raise RefusedError(400, f"'top_logprobs' must be less than or equal to {_MOST_LISTED}.")
        if not _reasons(str(body.get("model", ""))):
            return
        if "max_tokens" in body:
            said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            raise RefusedError(400, f"{said}'max_completion_tokens' instead.")
        if body.get("temperature", 1) != 1:
            said = "Unsupported value: 'temperature' does not support 0.0 with this model."
            raise RefusedError(400, said)
        for name in ("top_p", "logprobs", "top_logprobs"):
            if name in body:
                said = f"Unsupported parameter: '{name}' is not supported with this model."
                raise RefusedError(400, said)

    def _entries(
        self,
        model: str,
        ids: list[int],
        draw: Draw,
        how: Sampling,
        body: Mapping[str, object],
        verdict: Verdict,
    ) -> list[dict[str, object]]:
        k = int(number(body, "top_logprobs", 0))
        entries = []
        for at, one in enumerate(draw.ids):
            if one == language.END:
                continue
            place = self.toy.place(model, [*ids, *draw.ids[:at]])
            value = self.toy.drawn_logprob(place, one, how, verdict)
            # The best tokens in order; the drawn one is not put among them if it is not.
            ranked = sorted(self.toy.top(place, one, k, verdict), key=lambda pair: -pair[1])
            listed = [shown(i, logprob, named=False) for i, logprob in ranked]
            entries.append({**shown(one, value, named=False), "top_logprobs": listed})
        return entries

    def _echo(self, body: Mapping[str, object], verdict: Verdict) -> tuple[bytes, int]:
        """A completion without a chat template, as the models of 2021 gave it."""
        model = self.model_of(body)
        prompt = body.get("prompt")
        ids = self.toy.received(language.encode(prompt if isinstance(prompt, str) else ""))
        limit = int(number(body, "max_tokens", 16))
        how = Sampling(limit=limit, temperature=number(body, "temperature", 1.0))
        new = self.toy.draw(model, ids, how, verdict).ids if limit else []
        values = self.toy.forced(model, [*ids, *new], verdict)
        first = 0 if body.get("echo") else len(ids)
        listed = [*ids, *new][first:]
        tokens = [language.token(i).text for i in listed]
        choice: dict[str, Any] = {
            "index": 0,
            "text": "".join(tokens),
            "finish_reason": "length",
            "logprobs": None,
        }
        if body.get("logprobs") is not None:
            choice["logprobs"] = {
                "tokens": tokens,
                "token_logprobs": values[first:],
                "top_logprobs": [
                    None if value is None else {token: value}
                    for token, value in zip(tokens, values[first:], strict=True)
                ],
                "text_offset": [sum(map(len, tokens[:at])) for at in range(len(tokens))],
            }
        reply = {"id": "cmpl-fake", "object": "text_completion", "model": model}
        return encode({**reply, "choices": [choice], "usage": _usage(len(ids), len(new), 0)}), 0


def create(toy: Toy) -> Dialect:
    """An endpoint of this kind."""
    return Openai(toy)


def _reasons(model: str) -> bool:
    return "reasoning" in model


def _usage(n_prompt: int, n_new: int, n_thought: int) -> dict[str, object]:
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_new,
        "total_tokens": n_prompt + n_new,
        "prompt_tokens_details": {"cached_tokens": n_prompt // 2, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": n_thought, "audio_tokens": 0},
    }
