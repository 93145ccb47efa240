"""Back-ends whose server is a recording that goes wrong where a test wants it to."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from backends._transport import Read, Reply
from orchestrator import contracts
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Backend, BackendKind, Endpoint, Provenance, ServerLoad
from orchestrator.records import Failure, Message, Outcome, Prefix, Sampling, labels
from tests.fake.main import serving
from tests.recorded.replay import Recorder, request_of

KEY = "sk-fuzz-0123456789"
MESSAGES = (Message("user", "A: bade kege lafe\nB: xoxo kofu zuku"),)
SYMBOLS = labels("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")
LETTERS = labels("A", "B", "C")
TEXT = "bade kege"

Answer = Outcome | Failure | Provenance | ServerLoad | None
Call = Callable[[Backend], Any]
CALLS: dict[str, Call] = {
    "draw": lambda server: server.generate(GenerateAsk("m", MESSAGES, Sampling()), 1),
    "listed draw": lambda server: server.generate(
        GenerateAsk("m", MESSAGES, Sampling(), top_logprobs=2, offsets=True), 1
    ),
    "score": lambda server: server.score(ScoreAsk("m", MESSAGES, (), TEXT)),
    "listed score": lambda server: server.score(
        ScoreAsk("m", MESSAGES, (), TEXT, top_logprobs=2)
    ),
    "ended score": lambda server: server.score(ScoreAsk("m", MESSAGES, (), TEXT, end_of_turn=True)),
    "choice": lambda server: server.choose(ChooseAsk("m", MESSAGES, LETTERS)),
    "long choice": lambda server: server.choose(ChooseAsk("m", MESSAGES, SYMBOLS)),
    "begun choice": lambda server: server.choose(
        ChooseAsk("m", MESSAGES, LETTERS, Prefix("So: "))
    ),
    "provenance": lambda server: server.provenance(),
    "load": lambda server: server.load(),
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A back-end and the dialect of the fake server that it speaks."""

    speaks: str
    dialect: str
    settings: Mapping[str, Any] = field(default_factory=dict)


KINDS = {
    "embedded": Kind("embedded", "native"),
    "fake": Kind("fake", "native"),
    "openai": Kind("openai", "openai", {"transport": "aiohttp"}),
    "vllm_v1": Kind("vllm", "vllm_v1"),
    "vllm_v2": Kind("vllm", "vllm_v2"),
    "sglang": Kind("sglang", "sglang"),
    "tgi": Kind("tgi", "tgi"),
    "llamacpp": Kind("llamacpp", "llama_server"),
}


class Garbler:
    """Answers from a recording; the reply of number `at`, counted from 0, is another one.

    What is not in the recording, since it follows from a reply that went wrong, is refused.
    """

    def __init__(self, recorded: Mapping[str, Reply], at: int, body: bytes) -> None:
        self._recorded = recorded
        self._at = at
        self._body = body
        self._n = 0

    async def post(self, path: str, body: bytes, timeout_s: float, read: Read[Any]) -> Any:
        reply = self._answer(request_of(path, body))
        return reply if isinstance(reply, Failure) else read(reply)

    async def get(self, path: str, timeout_s: float) -> Reply | Failure:
        return self._answer(path)

    async def close(self) -> None:
        pass

    def _answer(self, request: str) -> Reply | Failure:
        number, self._n = self._n, self._n + 1
        if number == self._at:
            return Reply(200, {}, self._body)
        return self._recorded.get(request) or Failure("refused", "not recorded")


@cache
def recorded(kind: str) -> dict[str, dict[str, Reply]]:
    """For each call the exchanges of a back-end with the fake server, in order."""
    return asyncio.run(_record(KINDS[kind]))


async def _record(kind: Kind) -> dict[str, dict[str, Reply]]:
    found: dict[str, dict[str, Reply]] = {}
    async with serving({"dialect": kind.dialect}, models=["m"], key=KEY) as (url, _):
        for name, call in CALLS.items():
            backend = connected(kind, url)
            kept: dict[str, Reply] = {}
            backend._transport = Recorder(backend._transport, kept.__setitem__)
            await call(backend)
            await backend.close()
            found[name] = kept
    return found


def connected(kind: Kind, url: str = "http://127.0.0.1:1") -> Any:
    """A connection of a kind."""
    found = contracts.load(BackendKind, kind.speaks)
    endpoint = Endpoint(base_url=url, model="m", api_key=KEY, timeout_s=5.0)
    return found(found.Config(**kind.settings)).connect(endpoint)


def answer(kind: str, call: str, at: int, body: bytes) -> Answer:
    """Return the answer of a back-end to a call whose reply of number `at` is `body`."""

    async def made() -> Answer:
        backend = connected(KINDS[kind])
        await backend.close()
        backend._transport = Garbler(recorded(kind)[call], at, body)
        found: Answer = await CALLS[call](backend)
        return found

    return asyncio.run(made())
