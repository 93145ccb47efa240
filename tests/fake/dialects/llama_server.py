"""llama-server of llama.cpp: `/completion` by ids, its template and tokenizer, its load figures."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from tests.fake import language
from tests.fake.dialects import Dialect, ids_in, number
from tests.fake.http import respond
from tests.fake.protocol import RefusedError, check_ids, encode
from tests.fake.rules import Verdict
from tests.fake.toy import Draw, Sampling, Toy, encode_marked

BUILD: Final = "b0-fake"
_CERTAIN: Final = 100.0
_LOWEST: Final = -3.4028234663852886e38
_FORCED: Final = re.compile(r"<\[(\d+)\]>")
_TYPES: Final = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}


class LlamaServer(Dialect):
    """One server of one model."""

    routes: ClassVar[Mapping[str, str]] = {
        "/completion": "completions",
        "/apply-template": "tokenize",
        "/tokenize": "tokenize",
        "/detokenize": "detokenize",
    }

    def model_of(self, body: Mapping[str, object]) -> str:
        """See `Dialect`."""
        return self.toy.models[0] if self.toy.models else "default"

    def answer(self, path: str, body: dict[str, Any], verdict: Verdict) -> tuple[bytes, int]:
        """See `Dialect`."""
        match path:
            case "/apply-template":
                messages = body.get("messages")
                begun = isinstance(messages, list) and messages[-1:] and messages[-1].get("role")
                # A last message of the assistant is gone on from, whatever is asked.
                goes_on = begun == "assistant"
                opens = not goes_on and bool(body.get("add_generation_prompt", True))
                ids = self.toy.chat(messages, opens=opens, goes_on=goes_on)
                return encode({"prompt": language.decode(ids)}), 0
            case "/tokenize":
                return encode({"tokens": self._tokenize(body)}), 0
            case "/detokenize":
                return encode({"content": language.decode(ids_in(body.get("tokens"), "tokens"))}), 0
            case _:
                return self._complete(body, verdict)

    def get(self, path: str, running: Mapping[str, int]) -> bytes | None:
        """See `Dialect`."""
        match path:
            case "/health":
                return respond(200, encode({"status": "ok"}))
            case "/props":
                drafts = "draft" if self.toy.has("drafts") else "none"
                props = {
                    "default_generation_settings": {
                        "params": {"speculative.types": drafts},
                        "n_ctx": self.toy.rules.context_tokens,
                    },
                    "total_slots": 4,
                    "model_ftype": "fake",
                    "chat_template": "fake",
                    "eos_token": language.token(language.END).text,
                    "build_info": BUILD,
                }
                return respond(200, encode(props))
            case "/v1/models":
                meta = {"n_vocab": language.VOCABULARY, "n_params": 1, "size": 4}
                models = [{"id": name, "aliases": [], "meta": meta} for name in self.toy.models]
                return respond(200, encode({"object": "list", "data": models}))
            case "/metrics":
                lines = (
                    f"llamacpp:requests_processing {sum(running.values())}\n"
                    "llamacpp:requests_deferred 0\n"
                )
                return respond(200, lines.encode(), content_type="text/plain")
            case _:
                return None

    def error(self, path: str, status: int, message: str, kind: str) -> bytes:
        """See `Dialect`."""
        said = {"code": status, "message": message, "type": _TYPES.get(status, "server_error")}
        return encode({"error": said})

    def _tokenize(self, body: Mapping[str, Any]) -> list[Any]:
        given = body.get("content", "")
        parts = given if isinstance(given, list) else [given]
        ids = [
            token
            for part in parts
            for token in ([part] if isinstance(part, int) else encode_marked(str(part)))
        ]
        check_ids(ids)
        if not body.get("with_pieces"):
            return ids
        return [{"id": token, "piece": _piece(language.token(token).utf8)} for token in ids]

    def _complete(self, body: Mapping[str, Any], verdict: Verdict) -> tuple[bytes, int]:
        model, given = self.model_of(body), body.get("prompt")
        ids = self.toy.received(
            encode_marked(given) if isinstance(given, str) else ids_in(given, "prompt")
        )
        how = Sampling(
            limit=int(number(body, "n_predict", 128)),
            temperature=number(body, "temperature", 0.8),
            seed=body.get("seed"),
            stops=tuple(body.get("stop") or ()),
        )
        forced = self._forced(body, how.limit)
        if forced is None:
            draw = self.toy.draw(model, ids, how, verdict)
        else:
            shown = [token for token in forced if token != language.END]
            reason = "stop" if forced[-1] == language.END else "length"
            draw = Draw(forced, language.decode(shown), reason)
        reply = {
            "content": draw.text,
            "tokens": draw.ids,
            "stop_type": "word" if draw.stop else {"stop": "eos"}.get(draw.reason, "limit"),
            "tokens_predicted": len(draw.ids),
            "tokens_evaluated": len(ids),
            "truncated": False,
            "timings": {"cache_n": len(ids) // 2},
        }
        n_listed = int(number(body, "n_probs", 0))
        if n_listed > 0 and not self.toy.has("ignored_fields"):
            entries = self._entries(model, ids, draw, n_listed, verdict)
            if entries:
                reply["completion_probabilities"] = entries
        return encode(reply), len(draw.ids)

    def _forced(self, body: Mapping[str, Any], limit: int) -> list[int] | None:
        """Tokens that a grammar or a bias makes certain.

        Raises:
            RefusedError: For a grammar that can't be followed.
        """
        grammar = body.get("grammar")
        if grammar:
            if self.toy.has("no_token_grammar"):
                said = "Failed to initialize samplers: failed to parse grammar"
                raise RefusedError(400, said)
            tokens = [int(token) for token in _FORCED.findall(grammar)]
            if any(isinstance(_piece(language.token(token).utf8), list) for token in tokens):
                said = "got exception: Unexpected empty grammar stack after accepting piece"
                raise RefusedError(500, said)
            return [*tokens, language.END][:limit]
        for token, bias in body.get("logit_bias") or ():
            if bias >= _CERTAIN:
                return [token] if token == language.END else [token] * limit
        return None

    def _entries(
        self, model: str, ids: Sequence[int], draw: Draw, k: int, verdict: Verdict
    ) -> list[dict[str, object]]:
        """One for each token after which the text ends with a whole character."""
        found, text = [], b""
        for at, token in enumerate(draw.ids):
            text += language.token(token).utf8
            if _ends_inside(text):
                continue
            place = self.toy.place(model, [*ids, *draw.ids[:at]])
            value = self.toy.logprob(place, token, verdict)
            listed = self.toy.top(place, token, min(k + 1, language.VOCABULARY), verdict)
            ranked = sorted(listed, key=lambda pair: -pair[1])[:k]
            found.append(
                _entry(token, value) | {"top_logprobs": [_entry(*pair) for pair in ranked]}
            )
        cut = len(language.encode(draw.stop)) if draw.stop else 0
        return found[: max(len(found) - cut, 0)]


def create(toy: Toy) -> Dialect:
    """A server of this kind."""
    return LlamaServer(toy)


def _entry(token: int, value: float) -> dict[str, object]:
    shown = b"" if token in {language.END, language.ASSISTANT} else language.token(token).utf8
    known = value if math.isfinite(value) else _LOWEST
    text = shown.decode("utf-8", "replace")
    return {"id": token, "token": text, "bytes": list(shown), "logprob": known}


def _piece(utf8: bytes) -> str | list[int]:
    try:
        return utf8.decode("utf-8")
    except UnicodeDecodeError:
        return list(utf8)


def _ends_inside(text: bytes) -> bool:
    """Return True if a text ends inside a character."""
    for n_after, byte in enumerate(reversed(text[-3:])):
        wanted = 3 if byte >= 0xF0 else 2 if byte >= 0xE0 else 1 if byte >= 0xC0 else 0
        if n_after < wanted:
            return True
    return False
