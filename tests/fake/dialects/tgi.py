"""Text Generation Inference 3: `/generate` by text, with prefill details and grammars."""

import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from tests.fake import language
from tests.fake.dialects import Dialect, number
from tests.fake.http import respond
from tests.fake.protocol import RefusedError, encode
from tests.fake.rules import Verdict
from tests.fake.toy import Sampling, Toy, encode_marked

VERSION = "3.3.6"
_CANDIDATES = tuple(range(32, 127))


class Tgi(Dialect):
    """One server; any model's name will do."""

    routes: ClassVar[Mapping[str, str]] = {
        "/generate": "generate",
        "/tokenize": "tokenize",
        "/chat_tokenize": "tokenize",
    }

    def model_of(self, body: Mapping[str, object]) -> str:
        """See `Dialect`."""
        return self.toy.models[0] if self.toy.models else "default"

    def answer(self, path: str, body: dict[str, Any], verdict: Verdict) -> tuple[bytes, int]:
        """See `Dialect`."""
        if path == "/chat_tokenize":
            ids = self.toy.chat(body.get("messages"), opens=True)
            found = {"tokenize_response": _tokens(ids), "templated_text": language.decode(ids)}
            return encode(found), 0
        inputs = body.get("inputs")
        if not isinstance(inputs, str) or not inputs:
            raise RefusedError(422, "`inputs` cannot be empty")
        ids = encode_marked(inputs)
        if path == "/tokenize":
            return encode(_tokens(ids)), 0
        return self._generate(ids, body.get("parameters") or {}, verdict)

    def get(self, path: str, running: Mapping[str, int]) -> bytes | None:
        """See `Dialect`."""
        match path:
            case "/health":
                return respond(200, b"")
            case "/info":
                info = {
                    "model_id": self.model_of({}),
                    "version": VERSION,
                    "sha": "fake",
                    "max_input_tokens": self.toy.rules.context_tokens - 1,
                    "max_total_tokens": self.toy.rules.context_tokens,
                }
                return respond(200, encode(info))
            case "/v1/models":
                return self.names()
            case "/metrics":
                text = f"tgi_queue_size 0\ntgi_batch_current_size {sum(running.values())}\n"
                return respond(200, text.encode(), content_type="text/plain")
            case _:
                return None

    def error(self, path: str, status: int, message: str, kind: str) -> bytes:
        """See `Dialect`."""
        named = {429: "overloaded", 422: "validation"}.get(status, "generation")
        return encode({"error": message, "error_type": named})

    def _generate(
        self, ids: list[int], params: Mapping[str, Any], verdict: Verdict
    ) -> tuple[bytes, int]:
        if int(number(params, "max_new_tokens", 100)) < 1:
            raise RefusedError(422, "`max_new_tokens` must be strictly positive")
        if (temperature := params.get("temperature")) is not None and temperature <= 0:
            raise RefusedError(422, "`temperature` must be strictly positive")
        if (top_p := params.get("top_p")) is not None and not 0 < top_p < 1:
            raise RefusedError(422, "`top_p` must be > 0.0 and < 1.0")
        if number(params, "top_n_tokens", 0) > self.toy.rules.top_logprobs:
            raise RefusedError(
                422, f"`top_n_tokens` must be >= 0 and <= {self.toy.rules.top_logprobs}"
            )
        given = len(ids)
        try:
            ids = self.toy.received(ids)
        except RefusedError as error:
            limit = self.toy.rules.context_tokens
            said = f"`inputs` must have less than {limit} tokens. Given: {given}"
            raise RefusedError(422, said) from error
        how = Sampling(
            limit=int(number(params, "max_new_tokens", 100)),
            temperature=number(params, "temperature", 1.0) if params.get("do_sample") else 0.0,
            seed=params.get("seed"),
            stops=tuple(params.get("stop") or ()),
        )
        k = int(number(params, "top_n_tokens", 0))
        grammar = params.get("grammar")
        if grammar and not self.toy.has("ignored_fields"):
            text, reason, rows = self._constrained(ids, grammar["value"], k, verdict)
        else:
            text, reason, rows = self._free(ids, how, k, verdict)
        tokens = [row[0] for row in rows]
        details: dict[str, Any] = {
            "finish_reason": reason,
            "generated_tokens": len(tokens),
            "seed": how.seed,
            "prefill": [],
            "tokens": tokens,
        }
        if k and not self.toy.has("ignored_fields"):
            details["top_tokens"] = [row[1:] for row in rows]
        if params.get("decoder_input_details") and not self.toy.has("no_prefill"):
            values = self.toy.forced(self.model_of({}), ids, verdict)
            details["prefill"] = [
                {"id": i, "text": language.token(i).text, "logprob": value}
                for i, value in zip(ids, values, strict=True)
            ]
        return encode({"generated_text": text, "details": details}), len(tokens)

    def _free(
        self, ids: list[int], how: Sampling, k: int, verdict: Verdict
    ) -> tuple[str, str, list[list[dict[str, object]]]]:
        toy, model = self.toy, self.model_of({})
        draw = toy.draw(model, ids, how, verdict)
        rows = []
        for at, one in enumerate(draw.ids):
            place = toy.place(model, [*ids, *draw.ids[:at]])
            value = toy.drawn_logprob(place, one, how, verdict)
            listed = sorted(toy.top(place, one, k, verdict), key=lambda pair: -pair[1])
            rows.append([_token(one, value), *(_token(i, v) for i, v in listed)])
        if draw.stop is not None:
            # The server leaves the stop string in the text.
            return draw.text + draw.stop, "stop_sequence", rows
        return draw.text, "eos_token" if draw.reason == "stop" else "length", rows

    def _constrained(
        self, ids: list[int], pattern: str, k: int, verdict: Verdict
    ) -> tuple[str, str, list[list[dict[str, object]]]]:
        """One token that a pattern allows, with probabilities renormalised over those allowed."""
        place = self.toy.place(self.model_of({}), ids)
        allowed = [i for i in _CANDIDATES if re.fullmatch(pattern, chr(i))]
        values = [self.toy.logprob(place, i, verdict) for i in allowed]
        total = math.log(math.fsum(map(math.exp, values)))
        ranked = sorted(zip(values, allowed, strict=True), reverse=True)
        listed = [_token(i, value - total) for value, i in ranked]
        return chr(ranked[0][1]), "length", [[listed[0], *listed[:k]]]


def create(toy: Toy) -> Dialect:
    """A server of this kind."""
    return Tgi(toy)


def _tokens(ids: list[int]) -> list[dict[str, Any]]:
    found, at = [], 0
    for one in ids:
        text = language.token(one).text
        found.append({"id": one, "text": text, "start": at, "stop": at + len(text)})
        at += len(text)
    return found


def _token(token_id: int, value: float) -> dict[str, object]:
    special = token_id in {language.END, language.ASSISTANT}
    text = language.token(token_id).text
    return {"id": token_id, "text": text, "logprob": value, "special": special}
