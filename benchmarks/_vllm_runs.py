"""Real recipes on a real vLLM, and the same requests sent again by a bare loop.

One vLLM with the bundled judge on this machine's CPU; the answers that are judged are made up and
given by files, so that every request goes to that server. What a run sends is written down where
it leaves the client, body by body, and can be sent again in any order and any number at a time.
"""

import asyncio
import json
import os
import random
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import psutil

import orchestrator
from backends._aiohttp_transport import AiohttpTransport
from backends._transport import Read, Reply, Transport
from launch import vllm as launch_kind
from orchestrator.backend import Endpoint
from orchestrator.records import Failure
from orchestrator.serving import RunningServer, ServedModel

T = TypeVar("T")
CANDIDATES: Final = ("m1", "m2", "m3", "m4")
METHODS: Final[Mapping[str, dict[str, Any]]] = {
    "pairwise": {"kind": "pairwise_ranking", "judges": ["judge"], "prompt": "compact"},
    "pointwise": {"kind": "pointwise", "judges": ["judge"], "prompt": "compact"},
}
BLOCK: Final = 32
_KEY: Final = "ORCHESTRATOR_BENCHMARK_KEY"
_ROUTES: Final = ("/v1/chat/completions", "/v1/completions", "/tokenize")
_COUNTER: Final = re.compile(
    r"^vllm:(prompt_tokens_total|prefix_cache_hits_total)\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE
)


class Sent(NamedTuple):
    """A request as it left the client."""

    path: str
    body: bytes

    @property
    def computes(self) -> bool:
        """True if the engine takes part; the HTTP server tokenises."""
        return self.path != "/tokenize"


class Processors(NamedTuple):
    """Processor seconds so far, of all threads.

    Attributes:
        client: This process.
        routes: vLLM's HTTP server, which tokenises too.
        engine: Its other processes, which poll while they wait for each other.
    """

    client: float
    routes: float
    engine: float

    def since(self, before: "Processors") -> "Processors":
        """Return the processor time used after `before`."""
        return Processors(*(now - then for now, then in zip(self, before, strict=True)))


def processors(server: RunningServer) -> Processors:
    """Return the processor time that the client and a vLLM have used."""
    started = psutil.Process(server.pid)
    routes = engine = 0.0
    for one in (started, *started.children(recursive=True)):
        times = one.cpu_times()
        if one.cmdline()[0].startswith("VLLM::"):
            engine += times.user + times.system
        else:
            routes += times.user + times.system
    return Processors(time.process_time(), routes, engine)


class Counted(NamedTuple):
    """Prompt tokens since the server started, by its own counters."""

    prompt: int
    cached: int

    @property
    def computed(self) -> int:
        """Those that were not in its cache."""
        return self.prompt - self.cached


@asynccontextmanager
async def judge_server(*extra_args: str) -> AsyncIterator[RunningServer]:
    """A vLLM with the bundled judge, float32.

    Its engine leaves a core to its HTTP server and to the client: threads on all cores wait for
    each other by spinning whenever one of them is taken away.
    """
    config = launch_kind.Config(
        dtype="float32",
        max_model_len=1024,
        enforce_eager=True,
        cpu_kv_cache_gb=1,
        cpu_threads=max(1, (psutil.cpu_count(logical=True) or 1) - 1),
        extra_args=("--block-size", str(BLOCK), *extra_args),
    )
    with tempfile.TemporaryDirectory() as folder:
        models = (ServedModel("judge", "bundled:judge"),)
        server = await launch_kind.Launch(config).start(models, Path(folder) / "vllm.log")
        try:
            yield server
        finally:
            await server.stop()


def write_recipe(
    folder: Path, server: RunningServer, method: str, n_items: int, seed: int = 1
) -> Path:
    """A recipe whose candidates have answered already; its path."""
    rng = random.Random(seed)  # noqa: S311 (made-up text)

    def digits(n: int) -> str:
        return " ".join(rng.choices("0123456789", k=n))

    items = [{"id": str(n), "prompt": digits(60), "reference": digits(20)} for n in range(n_items)]
    _write_lines(folder / "items.jsonl", items)
    for name in CANDIDATES:
        answers = [{"key": item["id"], "text": digits(40)} for item in items]
        _write_lines(folder / f"{name}.jsonl", answers)
    given: dict[str, Any] = {
        name: {"answers": {"path": f"{name}.jsonl", "key": "key", "text": "text"}}
        for name in CANDIDATES
    }
    judge = {"base_url": server.base_url, "backend": "vllm", "api_key_env": _KEY}
    os.environ[_KEY] = server.api_key
    recipe = {
        "name": method,
        "models": {**given, "judge": judge},
        "dataset": {"path": "items.jsonl"},
        "methods": [METHODS[method]],
        "statistics": {"n_resamples": 100},
        "probe": False,
    }
    path = folder / f"{method}.json"
    path.write_text(json.dumps(recipe), encoding="utf-8")
    return path


def _write_lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


async def run(recipe: Path, run_dir: Path, *overrides: str) -> tuple[float, dict[str, Any]]:
    """Run a recipe in this process; wall seconds from start to end, and its last status."""
    started = time.perf_counter()
    await asyncio.to_thread(orchestrator.run, recipe, run_dir=run_dir, overrides=overrides)
    wall_s = time.perf_counter() - started
    status = json.loads((run_dir / "status.json").read_text(encoding="utf-8"))
    return wall_s, status["values"]


@contextmanager
def recorded() -> Iterator[list[Sent]]:
    """Record the requests sent for units inside this block, in the order of their answers."""
    sent: list[Sent] = []
    post = AiohttpTransport.post

    async def recording(
        self: AiohttpTransport, path: str, body: bytes, timeout_s: float, read: Read[T]
    ) -> T | Failure:
        def look_at(reply: Reply) -> T | Failure:
            # What is refused on purpose, to learn the server's bounds, computes nothing.
            if path in _ROUTES and reply.status == 200:
                sent.append(Sent(path, body))
            return read(reply)

        return await post(self, path, body, timeout_s, look_at)

    AiohttpTransport.post = recording  # type: ignore[method-assign]
    try:
        yield sent
    finally:
        AiohttpTransport.post = post  # type: ignore[method-assign]


async def send_again(server: RunningServer, sent: list[Sent], n: int, salt: str) -> float:
    """Send requests, `n` at a time, with nothing of them in the cache; wall seconds.

    Args:
        server: Gets them.
        sent: In this order.
        n: Requests at a time.
        salt: Of the cache; another one for each call.
    """
    transport = _transport(server, n)
    bodies = iter(
        [(one.path, _salted(one.body, salt) if one.computes else one.body) for one in sent]
    )

    async def work() -> None:
        for path, body in bodies:
            reply = await transport.post(path, body, 600.0, _whole)
            if isinstance(reply, Failure) or reply.status != 200:
                raise SystemExit(f"failed: {reply}")

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(n):
            group.create_task(work())
    wall_s = time.perf_counter() - started
    await transport.close()
    return wall_s


async def counted(server: RunningServer) -> Counted:
    """The server's counters."""
    transport = _transport(server, 1)
    reply = await transport.get("/metrics", 30.0)
    await transport.close()
    if isinstance(reply, Failure):
        raise SystemExit(f"no counters: {reply}")
    found = {name: int(float(value)) for name, value in _COUNTER.findall(reply.body.decode())}
    return Counted(found["prompt_tokens_total"], found["prefix_cache_hits_total"])


async def token_ids(server: RunningServer, sent: list[Sent]) -> list[tuple[int, ...]]:
    """The prompts as the server reads them."""
    transport = _transport(server, 8)
    found = []
    for one in sent:
        body = json.loads(one.body)
        prompts = body.get("prompt", [])
        several = isinstance(prompts, list) and bool(prompts) and not isinstance(prompts[0], int)
        for prompt in prompts if several else [prompts]:
            known = isinstance(prompt, list) and bool(prompt)
            ids = prompt if known else await _tokenized(transport, body, prompt)
            found.append(tuple(ids))
    await transport.close()
    return found


def _whole(reply: Reply) -> Reply:
    return reply


async def _tokenized(transport: Transport, body: dict[str, Any], prompt: object) -> list[int]:
    what = {"messages": body["messages"]} if "messages" in body else {"prompt": prompt}
    asked = json.dumps({"model": body["model"], **what}).encode()
    reply = await transport.post("/tokenize", asked, 30.0, _whole)
    if isinstance(reply, Failure) or reply.status != 200:
        raise SystemExit(f"failed: {reply}")
    tokens: list[int] = json.loads(reply.body)["tokens"]
    return tokens


def _transport(server: RunningServer, n: int) -> Transport:
    return AiohttpTransport(
        Endpoint(base_url=server.base_url, model="judge", api_key=server.api_key, max_in_flight=n)
    )


def _salted(body: bytes, salt: str) -> bytes:
    return json.dumps({**json.loads(body), "cache_salt": salt}).encode()
