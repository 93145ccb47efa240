"""Measure, on a real vLLM, the cost of keeping unlisted labels from spoiling other requests.

`python benchmarks/vllm_gate.py [N] [REPEATS]` launches vLLM with a bundled judge on this machine's
CPU (nothing is measured where there is no vLLM) and asks for verdicts over five symbols, among
draws that list alternatives. Four ways take turns: as set by default; with every label exact and
few listed, so that each verdict lacks some, which are drawn by force, asked for by id behind the
gate, or asked for by id at any time (which spoils replies, so that its requests are sent again: no
numbers to use, and no way to go faster). Printed for each: verdicts a second (median of the
repeats), the processor time of the server for one (a busy machine changes it less), how many needed
more than the list, requests a verdict, and the share of the time in which readers of alternatives
were held up. The bound of that share is 2 %.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import psutil

from backends import vllm as backend_kind
from backends.vllm.gate import gate_of
from backends.vllm.wire import MIXED_UP
from launch import vllm as launch_kind
from orchestrator.ask import ChooseAsk, GenerateAsk
from orchestrator.backend import Endpoint
from orchestrator.errors import LaunchError
from orchestrator.records import Choice, Failure, Message, Sampling, labels
from orchestrator.serving import RunningServer, ServedModel

SYMBOLS: Final = labels("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")
SETTINGS: Final = launch_kind.Config(
    dtype="float32", max_model_len=1024, enforce_eager=True, cpu_kv_cache_gb=1, cpu_threads=2
)
FEW: Final = {"choose_negligible": 0, "choose_top_logprobs": 8}
CASES: Final = {
    "as set by default": backend_kind.Config(),
    "every label, forced": backend_kind.Config(**FEW),
    "every label, ids behind the gate": backend_kind.Config(raw_logprobs=False, **FEW),
    "every label, ids at any time": backend_kind.Config(gate=False, **FEW),
}


class Measured(msgspec.Struct):
    """One case's figures of one turn."""

    seconds: float
    cpu_s: float
    n_unlisted: int
    n_requests: int
    n_spoilt: int
    lost_s: float


def prompt(i: int, n_digits: int = 6) -> tuple[Message, ...]:
    """A verdict to give; no two are the same."""
    words = " ".join(f"{i:0{n_digits}d}")
    text = f"Task: repeat: {words}\nReference: {words}\nAnswer A: {words}\nAnswer B: {words[::-1]}"
    return (Message("user", f"Compare two answers. Verdict only.\n{text}"),)


async def measure(
    server: RunningServer, config: backend_kind.Config, first: int, n: int
) -> Measured:
    """Ask for `n` verdicts, 32 at a time, and as many draws."""
    endpoint = Endpoint(
        base_url=server.base_url, model="judge", api_key=server.api_key, max_in_flight=64
    )
    backend = backend_kind.VllmKind(config).connect(endpoint)
    gate = gate_of(endpoint.base_url)
    lost, room = gate.lost_s, asyncio.Semaphore(32)
    verdicts: list[Choice] = []
    spoilt: list[Failure] = []

    async def one(i: int) -> None:
        async with room:
            chosen = await backend.choose(ChooseAsk("judge", prompt(i), SYMBOLS))
            drawing = GenerateAsk("judge", prompt(i), Sampling(max_tokens=8), top_logprobs=5)
            drawn = await backend.generate(drawing, 1)
        if isinstance(chosen, Choice):
            verdicts.append(chosen)
        spoilt.extend(outcome for outcome in (chosen, drawn) if isinstance(outcome, Failure))

    start, before = time.perf_counter(), processor_s(server.pid)
    async with asyncio.TaskGroup() as group:
        for i in range(first, first + n):
            group.create_task(one(i))
    seconds, used = time.perf_counter() - start, processor_s(server.pid) - before
    await backend.close()
    others = [failure for failure in spoilt if failure != MIXED_UP]
    if others:
        raise SystemExit(f"failed: {others[0]}")
    return Measured(
        seconds,
        used,
        sum("+" in verdict.method for verdict in verdicts),
        sum(verdict.n_requests for verdict in verdicts),
        len(spoilt),
        gate.lost_s - lost,
    )


def processor_s(pid: int) -> float:
    """Processor time of a server and its processes so far."""
    server = psutil.Process(pid)
    times = [one.cpu_times() for one in (server, *server.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


async def run(n: int, repeats: int) -> None:
    """Launch, warm up, measure in turns, print."""
    with tempfile.TemporaryDirectory() as folder:
        models = (ServedModel("judge", "bundled:judge"),)
        server = await launch_kind.VllmLaunch(SETTINGS).start(models, Path(folder) / "vllm.log")
        found: dict[str, list[Measured]] = {name: [] for name in CASES}
        try:
            await measure(server, backend_kind.Config(), 900_000, 32)
            for turn in range(repeats):
                for place, (name, config) in enumerate(CASES.items()):
                    first = (turn * len(CASES) + place) * n
                    found[name].append(await measure(server, config, first, n))
        finally:
            await server.stop()
    for name, turns in found.items():
        print(f"{name}: {described(turns, n)}")


def described(turns: Sequence[Measured], n: int) -> str:
    """A case's turns of `n` verdicts each in a line."""
    speeds = sorted(n / one.seconds for one in turns)
    seconds, lost = sum(one.seconds for one in turns), sum(one.lost_s for one in turns)
    total = n * len(turns)
    return (
        f"{statistics.median(speeds):.1f} verdicts/s beside as many draws "
        f"({speeds[0]:.1f} to {speeds[-1]:.1f}), "
        f"{sum(one.cpu_s for one in turns) / total:.2f} s of the server's processors each; "
        f"{sum(one.n_unlisted for one in turns)} of {total} lacked labels, "
        f"{sum(one.n_requests for one in turns) / total:.1f} requests a verdict; "
        f"{sum(one.n_spoilt for one in turns)} of {2 * total} replies spoilt; "
        f"{lost / seconds:.1%} of the time lost to the gate"
    )


def main() -> None:
    """`python benchmarks/vllm_gate.py [N] [REPEATS]`."""
    try:
        launch_kind.find_command(SETTINGS)
    except LaunchError as error:
        print(f"not measured: {error}")
        return
    given = [int(text) for text in sys.argv[1:]]
    asyncio.run(run(*(given + [200, 3][len(given) :])))


if __name__ == "__main__":
    main()
