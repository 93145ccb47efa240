"""Replies of a real chat model, recorded once, for benchmarks that need its vocabulary.

SmolLM2 (`orchestrator get weights smollm2`), served by the embedded server on this machine, draws
answers, judges pairs of them, and scores them with features. The replies lie in the cache folder
(`benchmarks/` in it) and hold the tokens of a vocabulary of 49,152 as often as the model draws and
lists them. They are written here as vLLM writes its own.
"""

import asyncio
import json
import tempfile
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import aiohttp

from launch import _weights, embedded
from orchestrator.disk.paths import cache_folder
from orchestrator.serving import RunningServer, ServedModel
from orchestrator.weights import PUBLISHED

N_TOKENS: Final = 256
N_TOP: Final = 20
FEATURES: Final = (
    "attention_entropy",
    "entropy",
    "vocab_logprob_var",
    "vocab_mean_logp_logit",
)
_VERSION: Final = 1
_NAME: Final = "m"
_DRAWS: Final = "draws"
_JUDGMENTS: Final = "judgments"
_SCORES: Final = "scores"
_SUBJECTS: Final = (
    "a lighthouse keeper who finds a map",
    "how bread is made, from the field to the table",
    "the history of the bicycle",
    "two neighbours who quarrel about a tree",
    "why the sea is salty",
    "a day in a hospital, told by a nurse",
    "how to plan a small garden",
    "a train journey through the mountains in winter",
    "how a computer adds two numbers",
    "a letter from a soldier to his sister",
    "the life of bees through the year",
    "a town that decides to have no cars",
    "how prices come about in a market",
    "an old clockmaker and his last apprentice",
    "what happens in the body while one runs",
    "a debate about school uniforms",
)
_WRITE: Final = "Write a long and detailed text about {}. Use at least 600 words."
_JUDGE: Final = (
    "Which text about {} is better, A or B? Reply with one letter.\n\nText A: {}\n\nText B: {}"
)

Dtype = Literal["bfloat16", "float32"]
Reply = dict[str, Any]
Replies = Mapping[str, Sequence[Reply]]


def recorded(dtype: Dtype = "bfloat16") -> Replies:
    """Return the recorded replies: "draws", "judgments" and "scores", as many of each.

    The first call takes about a minute of processor time.

    Args:
        dtype: Of the model. Servers mostly compute in 16 bits: their log-probabilities differ by
            multiples of a step, and take fewer bytes.

    Raises:
        LaunchError: If the weights are not installed.
    """
    weights = PUBLISHED[0].weights
    name = f"{_weights.identity(weights)['weights'][:16]}-{dtype}-{_VERSION}.json"
    path = cache_folder() / "benchmarks" / name
    if not path.exists():
        found = asyncio.run(_record(weights, dtype))
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(found), encoding="utf-8")
        part.replace(path)
    replies: Replies = json.loads(path.read_bytes())
    return replies


def bodies(replies: Replies, model: Reply) -> dict[str, list[bytes]]:
    """Return replies as servers write them, by kind of run.

    *judge*: one token with 20 alternatives. *words*: an answer of 256 tokens, 20 alternatives
    each, all named by their texts. *reply*: the same named by ids. *score*: of the embedded server.

    Args:
        replies: What `recorded` gives.
        model: A reply of vLLM, whose other fields are kept.
    """
    return {
        "judge": [_as_vllm(one, model, by_id=False) for one in replies[_JUDGMENTS]],
        "words": [_as_vllm(one, model, by_id=False) for one in replies[_DRAWS]],
        "reply": [_as_vllm(one, model, by_id=True) for one in replies[_DRAWS]],
        "score": [_compact(one) for one in replies[_SCORES]],
    }


def _as_vllm(reply: Reply, model: Reply, *, by_id: bool) -> bytes:
    (choice,), (other,) = reply["choices"], model["choices"]
    content = [
        {
            **_entry(entry, by_id=by_id),
            # vLLM too lists the drawn token first, but cuts the list to the length asked for.
            "top_logprobs": [_entry(one, by_id=by_id) for one in entry["top_logprobs"][:N_TOP]],
        }
        for entry in choice["logprobs"]["content"]
    ]
    written = {
        **other,
        "message": {**other["message"], "content": choice["message"]["content"]},
        "logprobs": {**other["logprobs"], "content": content},
        "finish_reason": choice["finish_reason"],
    }
    usage = {**model["usage"], **{name: reply["usage"][name] for name in _COUNTS}}
    return _compact({**model, "choices": [written], "usage": usage})


_COUNTS: Final = ("prompt_tokens", "completion_tokens", "total_tokens")


def _entry(entry: Reply, *, by_id: bool) -> Reply:
    token = f"token_id:{entry['id']}" if by_id else entry["token"]
    return {"token": token, "logprob": entry["logprob"], "bytes": entry["bytes"]}


def _compact(body: Reply) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


# -- recording ------------------------------------------------------------------------------------


async def _record(weights: str, dtype: Dtype) -> dict[str, list[Reply]]:
    launch = embedded.Launch(embedded.Config(max_model_len=2048, dtype=dtype))
    with tempfile.TemporaryDirectory() as folder:
        server = await launch.start((ServedModel(_NAME, weights),), Path(folder) / "server.log")
        try:
            headers = {"Authorization": f"Bearer {server.api_key}"}
            timeout = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
                return await _Recording(server, session).all()
        finally:
            await server.stop()


class _Recording:
    def __init__(self, server: RunningServer, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session

    async def all(self) -> dict[str, list[Reply]]:
        """Answers that were cut at their length, judgments of them and scores of them."""
        drawn = await _together(self._draw(n) for n in range(len(_SUBJECTS)))
        kept = [n for n, one in enumerate(drawn) if one["choices"][0]["finish_reason"] == "length"]
        draws = [drawn[n] for n in kept]
        judged = (self._judge(_SUBJECTS[n], drawn[n], drawn[n - 1]) for n in kept)
        scored = (self._score(n, drawn[n]) for n in kept)
        return {
            _DRAWS: draws,
            _JUDGMENTS: await _together(judged),
            _SCORES: await _together(scored),
        }

    async def _draw(self, number: int) -> Reply:
        sampling = {"max_tokens": N_TOKENS, "temperature": 1.0, "seed": number}
        return await self._chat(_written(number), sampling | {"return_token_ids": True})

    async def _judge(self, subject: str, one: Reply, other: Reply) -> Reply:
        texts = [reply["choices"][0]["message"]["content"] for reply in (one, other)]
        asked = _JUDGE.format(subject, *texts)
        return await self._chat(asked, {"max_tokens": 1, "temperature": 0})

    async def _score(self, number: int, drawn: Reply) -> Reply:
        body = {
            "messages": [{"role": "user", "content": _written(number)}],
            "token_ids": drawn["choices"][0]["token_ids"],
            "top_logprobs": N_TOP,
            "features": FEATURES,
        }
        return await self._post("/v1/score", body)

    async def _chat(self, text: str, sampling: Reply) -> Reply:
        listed = {"logprobs": True, "top_logprobs": N_TOP}
        body = {"messages": [{"role": "user", "content": text}], **sampling, **listed}
        return await self._post("/v1/chat/completions", body)

    async def _post(self, path: str, body: Reply) -> Reply:
        url = f"{self._server.base_url}{path}"
        async with self._session.post(url, json={"model": _NAME, **body}) as reply:
            found: Reply = await reply.json()
            if reply.status != 200:
                raise RuntimeError(f"{path}: status {reply.status}: {found}")
            return found


async def _together(asked: Iterable[Coroutine[Any, Any, Reply]]) -> list[Reply]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in asked]
    return [task.result() for task in tasks]


def _written(number: int) -> str:
    return _WRITE.format(_SUBJECTS[number])
