"""A small server without a model: `python -m launch._fake_server --port N --model NAME ...`.

A reply is a pure function of model, request and seed. Texts are made of invented words. A word is
good if its first vowel is a, e or i; the share of good words is the quality of a text. A model
writes texts of about its own quality; a judge compares the qualities of the answers in its prompt.
See `docs/fake-server.md`.
"""

import argparse
import asyncio
import contextlib
import hmac
import json
import math
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from launch._spec import given

_SYLLABLES: Final = tuple(c + v for c in "bcdfghjklmnpqrstvwxz" for v in "aeiou")
_GOOD: Final = tuple(one for one in _SYLLABLES if one[1] in "aei")
_POOR: Final = tuple(one for one in _SYLLABLES if one[1] in "ou")
_WORDS: Final = tuple(first + second for first in _SYLLABLES for second in _SYLLABLES)
_END: Final = 256
_LARGEST_BODY: Final = 2**26
# By id: bytes, the end of an answer, words, and words after a space.
_TOKENS: Final = (
    *(bytes([n]) for n in range(256)),
    b"<|end|>",
    *(f"{space}{word}".encode() for space in ("", " ") for word in _WORDS),
)
_IDS: Final = {token.decode(): at for at, token in enumerate(_TOKENS[_END + 1 :], _END + 1)}
_WORD: Final = r"(?<![A-Za-z])(?:[b-df-hj-np-tv-xz][aeiou]){2}(?![A-Za-z])"
_PIECES: Final = re.compile(rf" ?{_WORD}|.", re.DOTALL)
_ANSWERS: Final = re.compile(rf"(?:{_WORD}[ ,.]*){{3,}}")
_RATING: Final = re.compile(r"\b(?:rate|rating|score|grade)\b", re.IGNORECASE)
_SYMBOLS: Final = (">>", ">", "=", "<", "<<")
_PLACES: Final = {
    ">>": 1.0, ">": 0.5, "=": 0.0, "<": -0.5, "<<": -1.0,
    "a": 1.0, "b": -1.0, "c": 0.0, "tie": 0.0,
    "yes": 1.0, "no": -1.0, "true": 1.0, "false": -1.0,
}  # fmt: skip


class FakeServer:
    """Replies to requests.

    Args:
        models: Names it answers to; any name where empty.
        quality: Of models by name, in [0, 1]; for others a hash of the name decides.
        key: Required on all paths but `/health` where not empty.
    """

    def __init__(self, models: Sequence[str], quality: Mapping[str, float], key: str = "") -> None:
        self._models = models
        self._quality = quality
        self._key = f"Bearer {key}".encode() if key else b""

    def reply(self, path: str, body: bytes, authorization: str = "") -> tuple[int, dict[str, Any]]:
        """Return status and body of the reply to a request."""
        if path == "/health":
            return 200, {}
        if self._key and not hmac.compare_digest(authorization.encode(), self._key):
            return _error(401, "Unauthorized")
        if path == "/version":
            return 200, {"version": "fake-2"}
        if path == "/v1/models":
            listed = [{"id": name, "owned_by": "orchestrator-fake"} for name in self._models]
            return 200, {"object": "list", "data": listed}
        route = {
            "/v1/chat/completions": _chat,
            "/v1/score": _score,
            "/v1/choose": _choose,
            "/pooling": _reward,
        }.get(path)
        if route is None:
            return _error(404, "Not Found")
        try:
            asked = json.loads(body)
            name = asked["model"]
            if self._models and name not in self._models:
                return _error(404, f"The model `{name}` does not exist.")
            quality = self._quality.get(name, 0.2 + 0.6 * _fraction("quality", name))
            return 200, route(asked, _Prompt(asked, quality))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            return _error(400, f"malformed request: {error!r}")

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until it is closed."""
        with contextlib.closing(writer), contextlib.suppress(EOFError, OSError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                fields = dict(re.findall(r"^([\w-]+): *(.*?)\r$", head.lower(), re.MULTILINE))
                said = re.search(r"^authorization: *(.*?)\r$", head, re.IGNORECASE | re.MULTILINE)
                length = int(fields.get("content-length", 0))
                if length > _LARGEST_BODY:
                    return
                body = await reader.readexactly(length)
                path = head.split(" ", 2)[1].partition("?")[0]
                status, reply = self.reply(path, body, said[1] if said else "")
                content = json.dumps(reply).encode()
                writer.write(
                    b"HTTP/1.1 %d Fake\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%b" % (status, len(content), content)
                )
                await writer.drain()


class _Prompt:
    """The part of a request that a model goes by; `view` is in [-1, 1].

    It says how much better the first of two answers is, or how good one answer is.
    """

    def __init__(self, asked: dict[str, Any], quality: float) -> None:
        self.quality = quality
        self.text = "\n".join(f"{turn['role']}: {turn['content']}" for turn in asked["messages"])
        begun = asked.get("prefix") or {}
        self.begun = begun.get("token_ids") or _encode(begun.get("text", ""))
        self.context = _number(asked["model"], self.text, self.begun)
        words = [re.findall(_WORD, one) for one in _ANSWERS.findall(self.text)[-2:]]
        shown = [sum(word[1] in "aei" for word in one) / len(one) for one in words]
        noise = (_fraction("noise", asked["model"], self.text) - 0.5) * (1 - quality)
        match shown:
            case [first, second]:
                self.view = math.tanh(2.5 * (first - second) + 0.08 + noise)
            case [only]:
                self.view = max(-1.0, min(1.0, 2 * only - 1 + noise))
            case _:
                self.view = 2 * _fraction("view", asked["model"], self.text) - 1

    def usage(self, generated: int = 0) -> dict[str, int]:
        n = len(_encode(self.text)) + 1 + len(self.begun)
        return {"prompt_tokens": n, "completion_tokens": generated, "total_tokens": n + generated}


def _chat(asked: dict[str, Any], prompt: _Prompt) -> dict[str, Any]:
    limit = asked.get("max_tokens") or asked.get("max_completion_tokens") or 1024
    k = asked.get("top_logprobs") or 0
    temperature = asked.get("temperature", 1)
    seed = (asked.get("seed"), temperature) if temperature else ()
    text = _text(_number(prompt.context, *seed), prompt.quality) + _verdict(prompt)
    stops = asked.get("stop") or []
    for stop in [stops] if isinstance(stops, str) else stops:
        text = text.partition(stop)[0]
    ids = [*_encode(text), _END][:limit]
    rows = [_listed(prompt.context, at, one, k) for at, one in enumerate(ids)]
    # Of a judge that is to give its verdict in one token.
    labels = "123456789" if _RATING.search(prompt.text) else ""
    if re.search(r"Answer B:|Assistant B's Answer", prompt.text):
        labels = "ABC"
    if limit == 1 and k and labels:
        shares = sorted(zip(_shares(labels, prompt.view), labels, strict=True), reverse=True)
        rows = [[(_encode(label)[0], math.log(share)) for share, label in shares[:k]]]
        ids = [rows[0][0][0]]
    entries = [
        {**_shown(*row[0]), "top_logprobs": [_shown(*one) for one in row[:k]]} for row in rows
    ]
    said = b"".join(_TOKENS[one] for one in ids if one != _END).decode("utf-8", "replace")
    choice = {
        "index": 0,
        "finish_reason": "stop" if ids[-1] == _END else "length",
        "message": {"role": "assistant", "content": said},
        "logprobs": {"content": entries} if asked.get("logprobs") else None,
        **({"token_ids": ids} if asked.get("return_token_ids") else {}),
    }
    name = {"id": f"chatcmpl-{prompt.context:016x}", "object": "chat.completion"}
    return {**name, "model": asked["model"], "choices": [choice], "usage": prompt.usage(len(ids))}


def _score(asked: dict[str, Any], prompt: _Prompt) -> dict[str, Any]:
    ids = asked.get("token_ids") or _encode(asked.get("text") or "")
    ids = [*ids, _END] if asked.get("end_of_turn") else ids
    k = asked.get("top_logprobs") or 0
    rows = [_listed(prompt.context, at, one, k) for at, one in enumerate(ids)]
    reply = {"logprobs": [row[0][1] for row in rows], "token_ids": ids, "usage": prompt.usage()}
    if k:
        reply["top_token_ids"] = [[one for one, _ in row] for row in rows]
        reply["top_logprobs"] = [[value for _, value in row] for row in rows]
    if features := asked.get("features"):
        reply["features"] = {name: _feature(name, prompt.context, len(ids)) for name in features}
    return reply


def _choose(asked: dict[str, Any], prompt: _Prompt) -> dict[str, Any]:
    shares = _shares([spellings[0] for spellings in asked["labels"]], prompt.view)
    return {"logprobs": [math.log(share) for share in shares], "usage": prompt.usage()}


def _reward(asked: dict[str, Any], prompt: _Prompt) -> dict[str, Any]:
    reward = 3 * prompt.view
    value = 1 / (1 + math.exp(-reward)) if asked.get("use_activation", True) else reward
    return {"data": [{"index": 0, "data": [value]}], "usage": prompt.usage()}


def _shares(labels: Sequence[str], view: float) -> list[float]:
    """Probabilities of labels, 0.97 in all; unknown ones go from the first answer to the second."""
    plain = [label.strip().strip('[]"().').lower() for label in labels]
    last = max(len(plain) - 1, 1)
    places = [_PLACES.get(one, 1 - 2 * at / last) for at, one in enumerate(plain)]
    if len(plain) > 1 and all(one.isdecimal() for one in plain):
        low, high = min(map(int, plain)), max(map(int, plain))
        places = [2 * (int(one) - low) / (high - low) - 1 for one in plain]
    weights = [math.exp(-(((place - view) / 0.4) ** 2)) + 1e-6 for place in places]
    return [0.97 * weight / sum(weights) for weight in weights]


def _verdict(prompt: _Prompt) -> str:
    """The end of a judge's reasons; empty if the prompt asks for no verdict."""
    if "ank all assistants from best to worst" in prompt.text:
        return "\n" + " > ".join(re.findall(r"\[Start of Assistant ([A-Z])'s", prompt.text))
    if re.search(r"Rate both answers|rate each response", prompt.text):
        lead = round(3 * prompt.view)
        return f" {5 + lead} {5 - lead}"
    if re.search(r"\[\[[<=>]{1,2}\]\]|: Compare two answers\.", prompt.text):
        shares = _shares(_SYMBOLS, prompt.view)
        return f" [[{_SYMBOLS[shares.index(max(shares))]}]]"
    if _RATING.search(prompt.text):
        rating = 5 + round(4 * prompt.view)
        return f" [[{rating}]]" if "[[" in prompt.text else f" Rating: {rating}"
    return ""


def _text(key: int, quality: float) -> str:
    share = quality + 0.3 * (_fraction(key, "spread") - 0.5)
    words = []
    for at in range(12 + key % 29):
        first = _GOOD if _fraction(key, at) < share else _POOR
        number = _number(key, at, "word")
        words.append(first[number % len(first)] + _SYLLABLES[number // 128 % len(_SYLLABLES)])
    return " ".join(words)


def _listed(context: int, at: int, token_id: int, k: int) -> list[tuple[int, float]]:
    """A token with its log-probability, then `k - 1` others, which share what it leaves."""
    if not 0 <= token_id < len(_TOKENS) or not 0 <= k < len(_TOKENS):
        raise ValueError("out of vocabulary")
    value = round(-0.05 - 0.6 * _fraction(context, at, token_id), 6)
    rest = math.log1p(-math.exp(value))
    others = range(1, max(k, 1))
    return [(token_id, value)] + [
        ((token_id + n) % len(_TOKENS), round(rest - n * math.log(2), 6)) for n in others
    ]


def _feature(name: str, context: int, n: int) -> list[Any]:
    if name == "attention_entropy":
        return [[_fraction(name, context, layer, head) for head in range(4)] for layer in range(2)]
    sign = -1 if name == "compat_logprob" else 4
    return [sign * _fraction(name, context, at) for at in range(n)]


def _encode(text: str) -> list[int]:
    pieces = ((one, _IDS.get(one)) for one in _PIECES.findall(text))
    return [
        at for one, n in pieces for at in (one.encode("utf-8", "replace") if n is None else (n,))
    ]


def _shown(token_id: int, value: float) -> dict[str, Any]:
    utf8 = _TOKENS[token_id]
    text = utf8.decode("utf-8", "replace")
    return {"token": text, "logprob": value, "bytes": [*utf8], "id": token_id}


def _error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"error": {"message": message, "type": "error", "code": status}}


def _number(*parts: object) -> int:
    text = "\x1f".join(map(str, parts)).encode("utf-8", "replace")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def _fraction(*parts: object) -> float:
    return _number(*parts) / 2**64


async def _serve(options: argparse.Namespace) -> None:
    key = os.environ.get("ORCHESTRATOR_SERVER_KEY", "")
    fake = FakeServer(options.model, options.quality, key)
    bound = given()
    place = {"host": options.host, "port": options.port} if bound is None else {"sock": bound}
    server = await asyncio.start_server(fake.connected, **place, backlog=4096)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    host, port = server.sockets[0].getsockname()[:2]
    sys.stderr.write(f"ready http://{host}:{port}\n")
    sys.stderr.flush()
    await stopped.wait()
    server.close()


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m launch._fake_server", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--model", action="append", default=[], help="a name to answer to")
    parser.add_argument("--quality", type=json.loads, default={}, help="by model, as JSON")
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
