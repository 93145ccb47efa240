"""The embedded server on a GPU: tokens a second, and its numbers against those of the CPU.

`python benchmarks/gpu.py` starts the server on CUDA with the bundled models and with one of more
than a thousand million random weights, asks over loopback, and prints tokens a second. Then the
same greedy chats are asked in float32 on the GPU and on the CPU: as long as both chose the same
tokens, their log-probabilities are compared. Without a GPU it says so and ends.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
import torch

from benchmarks.embedded_server import BUNDLED, measure, random_model, server

BILLION = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
# Largest difference of a log-probability in float32 that order of addition explains.
ALLOWED = 1e-3
Answer = tuple[list[str], list[float]]


async def greedy(url: str, n_chats: int, n_tokens: int) -> list[Answer]:
    """The tokens and log-probabilities of some chats, one after the other."""
    found: list[Answer] = []
    async with aiohttp.ClientSession() as session:
        for number in range(n_chats):
            body: dict[str, Any] = {
                "model": "m",
                "messages": [
                    {"role": "user", "content": f"Item {number}: sort {number * 7919:x}."}
                ],
                "max_tokens": n_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "logprobs": True,
            }
            async with session.post(f"{url}/v1/chat/completions", json=body) as reply:
                reply.raise_for_status()
                listed = (await reply.json())["choices"][0]["logprobs"]["content"]
            found.append(([one["token"] for one in listed], [one["logprob"] for one in listed]))
    return found


def compare(one: list[Answer], other: list[Answer]) -> tuple[float, int, int]:
    """Largest difference over equal beginnings, tokens compared, and chats equal to the end."""
    worst, n_compared, n_equal = 0.0, 0, 0
    for (tokens, logprobs), (others, their) in zip(one, other, strict=True):
        equal = 0
        while equal < len(tokens) and tokens[equal] == others[equal]:
            equal += 1
        # Where two tokens are as likely, either may be chosen; the number is compared all the same.
        end = min(equal + 1, len(tokens))
        pairs = zip(logprobs[:end], their[:end], strict=True)
        worst = max([worst, *(abs(a - b) for a, b in pairs)])
        if not all(map(math.isfinite, (*logprobs, *their))):
            worst = math.inf
        n_compared += end
        n_equal += equal == len(tokens)
    return worst, n_compared, n_equal


def throughput(place: str, options: argparse.Namespace) -> None:
    """Print tokens a second of one model on the device, by format and requests at a time."""
    fields = {"max_tokens": options.tokens, "temperature": 1.0, "ignore_eos": True}
    fields |= {"return_token_ids": True, "logprobs": True}
    for dtype in ("float32", "bfloat16"):
        more = ("--device", options.device, "--dtype", dtype, "--max-rows", "256")
        with server(place, options.threads, *more) as (url, _):
            for together in (1, 64, 256):
                n = max(4, min(options.requests, 4 * together))
                tokens, seconds = asyncio.run(measure(url, n, together, fields))
                rate = tokens / seconds
                print(f"  {dtype:9} {together:4} at a time: {rate:10,.0f} tokens/s")


def correctness(place: str, options: argparse.Namespace) -> bool:
    """Print how far the device's numbers are from the CPU's; whether that is near enough."""
    found = []
    for device in (options.device, "cpu"):
        with server(place, options.threads, "--device", device) as (url, _):
            found.append(asyncio.run(greedy(url, options.chats, options.tokens)))
    worst, n_compared, n_equal = compare(found[0], found[1])
    print(
        f"  float32 against the CPU: largest difference {worst:.2e} over {n_compared} tokens, "
        f"{n_equal} of {len(found[0])} chats equal to the end"
    )
    return worst <= ALLOWED


def main() -> int:
    """Measure and print; 1 where the numbers differ too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="as torch names it; cpu tries the script")
    parser.add_argument("--requests", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--chats", type=int, default=16)
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--models", nargs="*", help="DIR or bundled:NAME; none: all that is said")
    options = parser.parse_args()
    if options.device.startswith("cuda"):
        if not torch.cuda.is_available():
            print("no GPU is at hand (torch sees no CUDA device): nothing is measured")
            return 0
        print(f"{torch.cuda.get_device_name(options.device)}, torch {torch.__version__}")
    near = True
    with tempfile.TemporaryDirectory() as folder:
        places = options.models
        if places is None:
            bundled = sorted(path.parent.name for path in BUNDLED.glob("*/config.json"))
            n_weights = random_model(Path(folder), BILLION)
            print(f"random: {n_weights / 1e9:.2f} thousand million weights, made here")
            places = [*(f"bundled:{name}" for name in bundled), folder]
        for place in places:
            print("random" if place == folder else place)
            throughput(place, options)
            near = correctness(place, options) and near
    return 0 if near else 1


if __name__ == "__main__":
    sys.exit(main())
