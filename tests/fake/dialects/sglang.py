"""SGLang 0.5: `/generate` by ids, its tokenizer, its health and load figures."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tests.fake import judge, language
from tests.fake.dialects import Dialect, ids_in, number
from tests.fake.http import respond
from tests.fake.protocol import RefusedError, check_ids, encode
from tests.fake.rules import Verdict
from tests.fake.toy import Sampling, Toy, encode_marked

VERSION = "0.5.23"
_LOWEST = -3.4028234663852886e38


class Sglang(Dialect):
    """One server."""

    routes: ClassVar[Mapping[str, str]] = {
        "/generate": "generate",
        "/classify": "classify",
        "/v1/tokenize": "tokenize",
        "/tokenize": "tokenize",
        "/v1/detokenize": "detokenize",
        "/detokenize": "detokenize",
    }

    def answer(self, path: str, body: dict[str, Any], verdict: Verdict) -> tuple[bytes, int]:
        """See `Dialect`."""
        match self.routes[path]:
            case "tokenize":
                return encode(self._tokenize(body)), 0
            case "detokenize":
                return encode({"text": language.decode(ids_in(body.get("tokens"), "tokens"))}), 0
            case "classify":
                ids = self.toy.received(ids_in(body.get("input_ids"), "input_ids"))
                text, model = language.decode(ids), self.model_of(body)
                meta = {"id": "x", "prompt_tokens": len(ids), "cached_tokens": 0}
                reward = judge.reward(text, "", model, 1.0)
                return encode({"embedding": [reward], "meta_info": meta}), 0
            case _:
                given = body.get("input_ids")
                if given is None:
                    given = encode_marked(str(body.get("text", "")))
                is_batch = isinstance(given, list) and bool(given) and isinstance(given[0], list)
                replies, generated = [], 0
                for at, ids in enumerate(given if is_batch else [given]):
                    one = {
                        name: _of(value, at, name, batch=is_batch) for name, value in body.items()
                    }
                    reply, n_new = self._one(ids_in(ids, "input_ids"), one, verdict)
                    replies.append(reply)
                    generated += n_new
                return encode(replies if is_batch else replies[0]), generated

    def get(self, path: str, running: Mapping[str, int]) -> bytes | None:
        """See `Dialect`."""
        match path:
            case "/ready" | "/health":
                return respond(200, b"")
            case "/server_info" | "/get_server_info":
                model = self.model_of({})
                return respond(200, encode({"version": VERSION, "served_model_name": model}))
            case "/v1/models":
                return self.names()
            case "/metrics":
                lines = [
                    f'sglang:num_running_reqs{{model_name="{name}"}} {running.get(name, 0)}.0\n'
                    f'sglang:num_queue_reqs{{model_name="{name}"}} 0.0\n'
                    f'sglang:token_usage{{model_name="{name}"}} 0.25\n'
                    for name in self.toy.models
                ]
                return respond(200, "".join(lines).encode(), content_type="text/plain")
            case _:
                return None

    def error(self, path: str, status: int, message: str, kind: str) -> bytes:
        """See `Dialect`."""
        if path == "/generate":
            return encode({"error": {"message": message}})
        flat = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
        return encode(flat)

    def _tokenize(self, body: Mapping[str, Any]) -> dict[str, Any]:
        messages = body.get("messages")
        if messages is None:
            ids = encode_marked(str(body.get("prompt", "")))
        elif body.get("continue_final_message"):
            if "add_generation_prompt" in body:
                raise RefusedError(400, "continue_final_message goes without add_generation_prompt")
            *before, last = messages
            # The last text is taken out and encoded by itself behind the opened turn.
            ids = [
                *self.toy.chat(before, opens=True),
                *language.encode(str(last.get("content", ""))),
            ]
        else:
            if isinstance(messages, list) and messages and messages[-1].get("role") == "assistant":
                turns = [*messages[:-1], {**messages[-1], "role": "user"}]
            else:
                turns = messages
            ids = self.toy.chat(turns, opens=bool(body.get("add_generation_prompt", True)))
        return {"tokens": ids, "count": len(ids), "max_model_len": self.toy.rules.context_tokens}

    def _one(
        self, given: list[int], body: Mapping[str, Any], verdict: Verdict
    ) -> tuple[dict[str, Any], int]:
        ids, model = self.toy.received(given), self.model_of({})
        params = body.get("sampling_params") or {}
        limit = int(number(params, "max_new_tokens", 128))
        how = Sampling(
            limit=limit,
            temperature=number(params, "temperature", 1.0),
            seed=params.get("sampling_seed"),
            stops=tuple(params.get("stop") or ()),
        )
        # The token that a bias makes certain.
        bias = params.get("logit_bias") or {}
        forced = next((int(i) for i, value in bias.items() if value >= 100), None)
        new, text, reason = self._draw(model, ids, how, forced, verdict)
        meta: dict[str, Any] = {
            "id": "fake",
            "finish_reason": reason,
            "prompt_tokens": len(ids),
            "completion_tokens": len(new),
            "cached_tokens": len(ids) // 2,
        }
        if body.get("return_logprob") and not self.toy.has("ignored_fields"):
            meta |= self._observed(model, ids, new, body, how, verdict)
        return {"text": text, "output_ids": new, "meta_info": meta}, len(new)

    def _draw(
        self,
        model: str,
        ids: list[int],
        how: Sampling,
        forced: int | None,
        verdict: Verdict,
    ) -> tuple[list[int], str, dict[str, Any]]:
        if how.limit == 0:
            return [], "", {"type": "length", "length": 0}
        if forced is not None:
            new, text, stop = [forced] * how.limit, "", None
            if forced == language.END:
                new, stop = [forced], forced
            return new, text, _reason(stop, len(new))
        draw = self.toy.draw(model, ids, how, verdict)
        matched = language.END if draw.reason == "stop" else None
        return draw.ids, draw.text, _reason(draw.stop or matched, len(draw.ids))

    def _observed(
        self,
        model: str,
        ids: list[int],
        new: list[int],
        body: Mapping[str, object],
        how: Sampling,
        verdict: Verdict,
    ) -> dict[str, object]:
        toy = self.toy
        start = int(number(body, "logprob_start_len", -1))
        if start > len(ids):
            raise RefusedError(400, f"logprob_start_len {start} is longer than the input")
        wanted = ids_in(body.get("token_ids_logprob") or [], "token_ids_logprob")
        check_ids(wanted)
        k = int(number(body, "top_logprobs_num", 0))
        named = bool(body.get("return_text_in_logprobs"))
        places = [toy.place(model, [*ids, *new[:at]]) for at in range(len(new))]
        found: dict[str, Any] = {
            "output_token_logprobs": [
                _triple(i, toy.drawn_logprob(place, i, how, verdict), named=named)
                for place, i in zip(places, new, strict=True)
            ]
        }
        if k:
            found["output_top_logprobs"] = [
                [_triple(i, v, named=named) for i, v in _sorted(toy.top(p, one, k, verdict))]
                for p, one in zip(places, new, strict=True)
            ]
        if wanted:
            hidden = toy.has("missing_label")
            found["output_token_ids_logprobs"] = [
                [[_LOWEST if hidden else toy.logprob(p, i, verdict), i, None] for i in wanted]
                for p in places
            ]
        if start >= 0:
            values = toy.forced(model, ids, verdict, start + 1)[start:]
            found["input_token_logprobs"] = [
                _triple(i, v if at else None, named=named)
                for at, (i, v) in enumerate(zip(ids[start:], values, strict=True))
            ]
            if k:
                places = [toy.place(model, ids[:at]) for at in range(start + 1, len(ids))]
                rows = [
                    [_triple(i, v, named=named) for i, v in _sorted(toy.top(p, own, k, verdict))]
                    for p, own in zip(places, ids[start + 1 :], strict=True)
                ]
                found["input_top_logprobs"] = [None, *rows]
        return found


def create(toy: Toy) -> Dialect:
    """A server of this kind."""
    return Sglang(toy)


def _of(value: Any, at: int, name: str, *, batch: bool) -> Any:
    """Return the part of a batch's field for one of its requests."""
    per_request = name == "token_ids_logprob" and isinstance(value, list)
    per_request = per_request and bool(value) and isinstance(value[0], list)
    if batch and (per_request or (name == "logprob_start_len" and isinstance(value, list))):
        return value[at]
    return value


def _reason(matched: str | int | None, n_new: int) -> dict[str, object]:
    if matched is None:
        return {"type": "length", "length": n_new}
    return {"type": "stop", "matched": matched}


def _triple(token_id: int, value: float | None, *, named: bool) -> list[object]:
    return [value, token_id, language.token(token_id).text if named else None]


def _sorted(listed: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    return sorted(listed, key=lambda pair: -pair[1])
