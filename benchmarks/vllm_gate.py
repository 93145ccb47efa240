"""What the gate around requests for given ids costs on a real vLLM.

`python benchmarks/vllm_gate.py` launches vLLM with a bundled judge on this machine's CPU (nothing
is measured where there is no vLLM) and asks for verdicts over five symbols, among draws that list
alternatives. Printed: verdicts a second, how many needed given ids, and the share of the time in
which readers of alternatives were held up. The bound is 2 %.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from backends import vllm as backend_kind
from backends._gate import gate_of
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
CASES: Final = {
    "as set by default": backend_kind.Config(),
    "every label exactly": backend_kind.Config(choose_negligible=0, choose_top_logprobs=8),
}


class Measured(msgspec.Struct):
    """One case's figures."""

    seconds: float
    n_exact: int
    n_phases: int
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
    backend = backend_kind.create(endpoint, config)
    gate = gate_of(endpoint.base_url)
    phases, lost, room = gate.n_phases, gate.lost_s, asyncio.Semaphore(32)
    methods: list[str] = []

    async def one(i: int) -> None:
        async with room:
            chosen = await backend.choose(ChooseAsk("judge", prompt(i), SYMBOLS))
            drawing = GenerateAsk("judge", prompt(i), Sampling(max_tokens=8), top_logprobs=5)
            drawn = await backend.generate(drawing, 1)
        for outcome in (chosen, drawn):
            if isinstance(outcome, Failure):
                raise SystemExit(f"failed: {outcome}")
        if isinstance(chosen, Choice):
            methods.append(chosen.method)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for i in range(first, first + n):
            group.create_task(one(i))
    seconds = time.perf_counter() - start
    await backend.close()
    n_exact = sum("token_ids" in method for method in methods)
    return Measured(seconds, n_exact, gate.n_phases - phases, gate.lost_s - lost)


async def run(n: int) -> None:
    """Launch, warm up, measure, print."""
    with tempfile.TemporaryDirectory() as folder:
        models = (ServedModel("judge", "bundled:judge"),)
        server = await launch_kind.start(SETTINGS, models, Path(folder) / "vllm.log")
        try:
            await measure(server, backend_kind.Config(), 900_000, 32)
            for place, (name, config) in enumerate(CASES.items()):
                found = await measure(server, config, place * n, n)
                print(
                    f"{name}: {n / found.seconds:.1f} verdicts/s beside as many draws; "
                    f"{found.n_exact} of {n} needed given ids, let in {found.n_phases} times; "
                    f"{found.lost_s:.2f} of {found.seconds:.1f} s lost to the gate "
                    f"({found.lost_s / found.seconds:.1%})"
                )
        finally:
            await server.stop()


def main() -> None:
    """`python benchmarks/vllm_gate.py [N]`."""
    try:
        launch_kind.find_command(SETTINGS)
    except LaunchError as error:
        print(f"not measured: {error}")
        return
    asyncio.run(run(int(sys.argv[1]) if len(sys.argv) > 1 else 400))


if __name__ == "__main__":
    main()
