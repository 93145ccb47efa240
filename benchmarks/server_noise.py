"""Measure the noise of a server's log-probabilities, and the distance of another model's.

    python -m benchmarks.server_noise [KIND] [--dtype bfloat16]

KIND is embedded (the default) or vllm. The probe's prompts are asked alone and all at once beside
other requests, of the bundled judge; then of the same weights with noise added, and of the other
bundled models. Writes a table. Some minutes for vllm, which is started once for each model.
"""

import argparse
import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file

from launch import _weights
from orchestrator import contracts
from orchestrator.backend import Endpoint
from orchestrator.probing.record import PROMPTS, TOKENS, Seen, compare, of_chat
from orchestrator.probing.replies import chat
from orchestrator.records import Message, Messages
from orchestrator.runner.models.asking import Http
from orchestrator.runner.models.probe import chat_request
from orchestrator.serving import LaunchKind, ServedModel
from orchestrator.wire.requests import messages_of

MODEL: Final = "judge"
NOISES: Final = (0.005, 0.01, 0.02, 0.05, 0.1)
OTHERS: Final = ("novice", "apprentice", "expert")
_ROUNDS: Final = 6
_LOAD: Final = 24
_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "embedded": {"threads": 1},
    "vllm": {
        "dtype": "float32",
        "max_model_len": 1024,
        "enforce_eager": True,
        "cpu_kv_cache_gb": 1,
        "cpu_threads": 1,
    },
}


def with_noise(weights: Path, folder: Path, relative: float, rng: torch.Generator) -> Path:
    """A copy of a model's folder whose weights have noise added.

    Args:
        weights: The folder.
        folder: Where the copy is put; must not be there.
        relative: Standard deviation of the noise in that of each tensor's values.
        rng: Draws it.
    """
    shutil.copytree(weights, folder)
    for file in folder.glob("*.safetensors"):
        tensors = load_file(file)
        noisy = {
            name: (one + relative * one.float().std() * torch.randn(one.shape, generator=rng)).to(
                one.dtype
            )
            for name, one in tensors.items()
        }
        save_file(noisy, file, metadata={"format": "pt"})
    return folder


@contextlib.asynccontextmanager
async def served(
    kind: str, weights: str, settings: dict[str, Any], log: Path
) -> AsyncIterator[Http]:
    """A server of these weights, and a client of it."""
    launch = contracts.load(LaunchKind, kind)
    server = await launch(launch.Config(**settings)).start((ServedModel(MODEL, weights),), log)
    try:
        async with Http(
            Endpoint(base_url=server.base_url, model="", api_key=server.api_key)
        ) as http:
            yield http
    finally:
        await server.stop()


async def _one(http: Http, messages: Messages, **more: Any) -> Seen:  # noqa: ANN401 (any JSON)
    body = chat_request(MODEL, **{"messages": messages_of(messages), "max_tokens": TOKENS, **more})
    return of_chat(chat(await http.post("/v1/chat/completions", body)))


async def alone(http: Http) -> list[Seen]:
    """The prompts one after the other."""
    return [await _one(http, messages) for messages in PROMPTS]


async def together(http: Http, round_: int) -> list[Seen]:
    """All prompts at once, among others of various lengths."""
    async with asyncio.TaskGroup() as group:
        for n in range(_LOAD):
            other = (Message("user", f"{round_} {n} " + "a b c " * (3 * n % 40)),)
            group.create_task(_one(http, other, max_tokens=4 + n % 24, temperature=1.0, seed=n))
        tasks = [group.create_task(_one(http, messages)) for messages in PROMPTS]
    return [task.result() for task in tasks]


def _said(name: str, found: tuple[float, int] | None) -> str:
    return f"| {name} | {found[0]:.2g} | {found[1]} |" if found else f"| {name} | - | 0 |"


async def measure(kind: str, settings: dict[str, Any], folder: Path) -> Sequence[str]:
    """Lines of a table."""
    bundled = str(_weights.resolve(f"bundled:{MODEL}"))
    lines = ["| against the judge, asked alone | mean abs. difference of ln p | values |",
             "| --- | --- | --- |"]  # fmt: skip
    async with served(kind, bundled, settings, folder / "0.log") as http:
        first = await alone(http)
        lines.append(_said("the same, alone", compare(first, await alone(http))))
        for round_ in range(_ROUNDS):
            found = compare(first, await together(http, round_))
            lines.append(_said(f"the same, in a batch ({round_ + 1})", found))
    rng = torch.Generator().manual_seed(0)
    others = {
        f"noise of {relative:.1%}": with_noise(
            Path(bundled), folder / f"noise-{relative}", relative, rng
        )
        for relative in NOISES
    }
    others |= {name: Path(_weights.resolve(f"bundled:{name}")) for name in OTHERS}
    for n, (name, weights) in enumerate(others.items(), 1):
        async with served(kind, str(weights), settings, folder / f"{n}.log") as http:
            lines.append(_said(name, compare(first, await alone(http))))
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", nargs="?", default="embedded", choices=sorted(_SETTINGS))
    parser.add_argument("--dtype", help="of vllm: float32 (the default) or bfloat16")
    options = parser.parse_args()
    settings = dict(_SETTINGS[options.kind])
    if options.dtype:
        settings["dtype"] = options.dtype
    with tempfile.TemporaryDirectory() as folder:
        lines = asyncio.run(measure(options.kind, settings, Path(folder)))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
