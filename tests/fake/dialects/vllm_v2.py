"""vLLM 0.32: chat and completions by ids, exact ids, its tokenizer and load figures.

`vllm_v1` is the same with the older model runner, which mixes replies up.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tests.fake import language
from tests.fake.dialects import Dialect, ids_in, number
from tests.fake.http import respond
from tests.fake.protocol import RefusedError, check_ids, encode
from tests.fake.replies import usage
from tests.fake.rules import Verdict
from tests.fake.toy import Draw, Place, Sampling, Toy, encode_marked

VERSION = "0.32.0"
FINGERPRINT = "vllm-0.32.0-fake"
_MOST_EXACT = 128


class Vllm(Dialect):
    """One server."""

    routes: ClassVar[Mapping[str, str]] = {
        "/v1/chat/completions": "chat",
        "/v1/completions": "completions",
        "/tokenize": "tokenize",
        "/detokenize": "detokenize",
    }

    def answer(self, path: str, body: dict[str, Any], verdict: Verdict) -> tuple[bytes, int]:
        """See `Dialect`."""
        match self.routes[path]:
            case "tokenize":
                messages = body.get("messages")
                if messages is None:
                    ids = encode_marked(str(body.get("prompt", "")))
                else:
                    opens = bool(body.get("add_generation_prompt", True))
                    goes_on = bool(body.get("continue_final_message", False))
                    if opens and goes_on:
                        raise RefusedError(400, "Cannot set both to True")
                    ids = self.toy.chat(messages, opens=opens, goes_on=goes_on)
                found: dict[str, Any] = {"tokens": ids, "count": len(ids)}
                if body.get("return_token_strs"):
                    found["token_strs"] = [language.token(i).text for i in ids]
                return encode(found), 0
            case "detokenize":
                return encode({"prompt": language.decode(ids_in(body.get("tokens"), "tokens"))}), 0
            case "chat":
                return self._chat(body, verdict)
            case _:
                return self._complete(body, verdict)

    def get(self, path: str, running: Mapping[str, int]) -> bytes | None:
        """See `Dialect`."""
        match path:
            case "/health":
                return respond(200, b"")
            case "/version":
                return respond(200, encode({"version": VERSION}))
            case "/v1/models":
                return self.names()
            case "/metrics":
                lines = [
                    f'vllm:num_requests_running{{model_name="{name}"}} {running.get(name, 0)}.0\n'
                    f'vllm:num_requests_waiting{{model_name="{name}"}} 0.0\n'
                    for name in self.toy.models
                ]
                return respond(200, "".join(lines).encode(), content_type="text/plain")
            case _:
                return None

    def spoils(self, body: Mapping[str, object]) -> bool:
        """Return True if a request that reads alternatives is answered with those of another."""
        return False

    def _chat(self, body: Mapping[str, object], verdict: Verdict) -> tuple[bytes, int]:
        goes_on = bool(body.get("continue_final_message", False))
        rendered = self.toy.chat(body.get("messages"), opens=not goes_on, goes_on=goes_on)
        model, ids, how = self.model_of(body), self.toy.received(rendered), _sampling(body, 1024)
        self._check(body, int(number(body, "top_logprobs", 0)))
        draw = self.toy.draw(model, ids, how, verdict)
        entries: list[dict[str, Any]] | None = None
        if body.get("logprobs") and not self.toy.has("ignored_fields"):
            k, named = int(number(body, "top_logprobs", 0)), _named(body)
            entries = []
            for at, one in enumerate(draw.ids):
                place = self.toy.place(model, [*ids, *draw.ids[:at]])
                listed = self._listed(place, one, k, body, verdict)
                value = self.toy.drawn_logprob(place, one, how, verdict)
                shown = [_shown(i, v, named=named) for i, v in listed]
                entries.append({**_shown(one, value, named=named), "top_logprobs": shown})
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": draw.text, "reasoning": None},
            "logprobs": None if entries is None else {"content": entries},
            "finish_reason": draw.reason,
            "stop_reason": draw.stop,
        }
        if body.get("return_token_ids"):
            choice["token_ids"] = draw.ids
        return self._reply("chat.completion", model, [choice], len(ids), len(draw.ids))

    def _complete(self, body: Mapping[str, object], verdict: Verdict) -> tuple[bytes, int]:
        model, how = self.model_of(body), _sampling(body, 16)
        k = int(number(body, "logprobs", 0))
        self._check(body, k)
        choices, n_prompt, n_new = [], 0, 0
        for index, given in enumerate(_prompts(body.get("prompt"))):
            ids = self.toy.received(given)
            only: Any = body.get("allowed_token_ids")
            if not only:
                draw = self.toy.draw(model, ids, how, verdict)
            elif only[0] == language.END:
                draw = Draw([language.END], "", "stop")
            else:
                new = [only[0]] * how.limit
                draw = Draw(new, language.decode(new), "length")
            n_prompt, n_new = n_prompt + len(ids), n_new + len(draw.ids)
            choice: dict[str, Any] = {
                "index": index,
                "text": draw.text,
                "finish_reason": draw.reason,
                "logprobs": None,
            }
            if body.get("logprobs") is not None and not self.toy.has("ignored_fields"):
                # The parallel lists of a completion; alternatives by the token's text or
                # placeholder.
                named, rows, values = _named(body), [], []
                for at, one in enumerate(draw.ids):
                    place = self.toy.place(model, [*ids, *draw.ids[:at]])
                    alone = body.get("allowed_token_ids") and self.toy.has("after_temperature")
                    values.append(0.0 if alone else self.toy.logprob(place, one, verdict))
                    listed = dict(self._listed(place, one, k, body, verdict))
                    # The drawn token and k others.
                    rows.append(
                        {_name(i, named=named): v for i, v in ({one: values[-1]} | listed).items()}
                    )
                choice["logprobs"] = {
                    "tokens": [_name(i, named=named) for i in draw.ids],
                    "token_logprobs": values,
                    "top_logprobs": rows,
                    "text_offset": [0] * len(draw.ids),
                }
            if body.get("prompt_logprobs") is not None and not self.toy.has("ignored_fields"):
                choice["prompt_logprobs"] = self._prompt(model, ids, body, verdict)
            if body.get("return_token_ids"):
                choice |= {"prompt_token_ids": ids, "token_ids": draw.ids}
            choices.append(choice)
        return self._reply("text_completion", model, choices, n_prompt, n_new)

    def _prompt(
        self, model: str, ids: list[int], body: Mapping[str, Any], verdict: Verdict
    ) -> list[dict[str, Any] | None]:
        k = int(number(body, "prompt_logprobs", 0))
        found: list[dict[str, Any] | None] = []
        for at, (one, value) in enumerate(
            zip(ids, self.toy.forced(model, ids, verdict), strict=True)
        ):
            if value is None:
                found.append(None)
                continue
            listed = self.toy.top(self.toy.place(model, ids[:at]), one, k, verdict)
            found.append({
                str(i): {"logprob": v, "rank": 1, "decoded_token": language.token(i).text}
                for i, v in [(one, value), *listed[1:]]
            })  # fmt: skip
        return found

    def _listed(
        self, place: Place, one: int, k: int, body: Mapping[str, Any], verdict: Verdict
    ) -> list[tuple[int, float]]:
        """Return the tokens listed beside a drawn one: the requested ones, first the drawn one."""
        exact = body.get("logprob_token_ids")
        if exact:
            check_ids(exact)
            wanted = dict.fromkeys([one, *exact])
            return [(i, self.toy.logprob(place, i, verdict)) for i in wanted]
        listed = self.toy.top(place, one, k, verdict)
        # The older runner fills such a row with what the other request had asked for.
        return listed[:1] if k and self.spoils(body) else listed

    def _check(self, body: Mapping[str, object], k: int) -> None:
        most = self.toy.rules.top_logprobs
        if k > most:
            said = f"Requested sample logprobs of {k}, which is greater than max allowed: {most}"
            raise RefusedError(400, said)
        exact = body.get("logprob_token_ids") or []
        if len(ids_in(exact, "logprob_token_ids")) > _MOST_EXACT:
            raise RefusedError(400, f"logprob_token_ids has more than {_MOST_EXACT} ids")

    def _reply(
        self, kind: str, model: str, choices: list[dict[str, object]], n_prompt: int, n_new: int
    ) -> tuple[bytes, int]:
        reply = {
            "id": "fake",
            "object": kind,
            "model": model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
            "usage": usage(n_prompt, n_new),
        }
        return encode(reply), n_new


def create(toy: Toy) -> Dialect:
    """A server of this kind."""
    return Vllm(toy)


def _sampling(body: Mapping[str, Any], default: int) -> Sampling:
    limit = int(number(body, "max_tokens", default))
    stops = body.get("stop") or ()
    return Sampling(
        limit=limit,
        temperature=number(body, "temperature", 1.0),
        seed=body.get("seed"),
        stops=(stops,) if isinstance(stops, str) else tuple(stops),
    )


def _prompts(given: object) -> Sequence[list[int]]:
    if isinstance(given, str):
        return [encode_marked(given)]
    if isinstance(given, list) and given and isinstance(given[0], list):
        return [ids_in(one, "prompt") for one in given]
    return [ids_in(given, "prompt")]


def _named(body: Mapping[str, object]) -> bool:
    return bool(body.get("return_tokens_as_token_ids"))


def _name(token_id: int, *, named: bool) -> str:
    return f"token_id:{token_id}" if named else language.token(token_id).text


def _shown(token_id: int, value: float, *, named: bool) -> dict[str, object]:
    text = _name(token_id, named=named)
    # With placeholders the bytes are those of the placeholder, not of the token.
    return {"token": text, "logprob": value, "bytes": [*text.encode("utf-8", "replace")]}
