"""Measure the effect of a request's batch on the embedded server's numbers.

`python benchmarks/batch_effect.py` asks a server about items of the demo dataset one at a time, and
another, just started, up to 32 at a time in other orders: greedy answers with log-probabilities,
scores of given answers, and labels, after prompts of some 20 to 500 tokens. It prints the largest
difference of a log-probability and of a probability, the share of numbers that are equal to the
last bit, and how many texts differ.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np

from benchmarks.embedded_server import server
from orchestrator.datasets import demo

LABELS = [["[[>>]]"], ["[[>]]"], ["[[=]]"], ["[[<]]"], ["[[<<]]"]]
ROUTES = ("chat/completions", "score", "choose")
_LENGTHS = 24
Replies = dict[tuple[str, int], dict[str, Any]]


@dataclass
class Found:
    """Comparisons of one route, over all rounds."""

    gaps: list[float] = field(default_factory=list)
    most: float = 0.0
    n_replies: int = 0
    n_texts: int = 0

    def add(self, route: str, alone: dict[str, Any], together: dict[str, Any]) -> None:
        """Compare two replies to one request; numbers only as far as their tokens are the same."""
        (of_one, one), (of_other, other) = _read(route, alone), _read(route, together)
        self.n_replies += 1
        self.n_texts += of_one != of_other
        same = next(
            (i for i, pair in enumerate(zip(of_one, of_other, strict=False)) if pair[0] != pair[1]),
            len(of_one),
        )
        first, second = (np.array(values[: same or None], np.float64) for values in (one, other))
        self.gaps += np.abs(first - second).tolist()
        self.most = max(self.most, float(np.abs(np.exp(first) - np.exp(second)).max()))

    def line(self, route: str) -> str:
        """One row of the table."""
        gaps = np.array(self.gaps)
        return (
            f"{route:17} {gaps.max():9.1e} {np.quantile(gaps, 0.99):9.1e} {self.most:13.1e} "
            f"{(gaps == 0).mean():7.1%} {self.n_texts:4} of {self.n_replies} {gaps.size:9,}"
        )


def _read(route: str, reply: dict[str, Any]) -> tuple[list[int], list[float]]:
    """Token ids that must be the same for the numbers to be comparable, and the numbers."""
    if route == "choose":
        return [0] * len(LABELS), reply["logprobs"]
    if route == "score":
        return reply["token_ids"], reply["logprobs"]
    content = reply["choices"][0]["logprobs"]["content"]
    return [one["id"] for one in content], [one["logprob"] for one in content]


def _prompt(items: Sequence[demo.DemoItem], number: int) -> str:
    """An item after up to 23 others, so that prompts have 20 to 500 tokens."""
    first = number - number % _LENGTHS
    return "\n".join(one.prompt for one in items[first : number + 1])


def _body(route: str, prompt: str, answer: str, n_tokens: int) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    if route == "score":
        return {**body, "text": answer}
    if route == "choose":
        return {**body, "labels": LABELS}
    return {**body, "max_tokens": n_tokens, "temperature": 0, "logprobs": True}


async def ask_all(
    url: str, bodies: dict[tuple[str, int], dict[str, Any]], order: Sequence[Any], together: int
) -> Replies:
    """Send requests in an order, so many at a time."""
    limit = asyncio.Semaphore(together)
    found: Replies = {}

    async def one(session: aiohttp.ClientSession, key: tuple[str, int]) -> None:
        async with limit, session.post(f"{url}/v1/{key[0]}", json=bodies[key]) as reply:
            reply.raise_for_status()
            found[key] = await reply.json()

    connector = aiohttp.TCPConnector(limit=together)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for key in order:
            group.create_task(one(session, key))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--together", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", default="bundled:expert", help="DIR or bundled:NAME")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    items = list(demo.generate(options.items, seed=0))
    prompts = [_prompt(items, number) for number in range(len(items))]
    bodies = {
        (route, number): _body(route, prompts[number], item.reference, options.tokens)
        for route in ROUTES
        for number, item in enumerate(items)
    }
    rng = np.random.default_rng(0)
    found = {route: Found() for route in ROUTES}
    settings = ("--dtype", options.dtype)
    with server(options.model, options.threads, *settings) as (url, _):
        alone = asyncio.run(ask_all(url, bodies, list(bodies), 1))
    for _ in range(options.rounds):
        order = [list(bodies)[place] for place in rng.permutation(len(bodies))]
        with server(options.model, options.threads, *settings) as (url, _):
            together = asyncio.run(ask_all(url, bodies, order, options.together))
        for key, reply in alone.items():
            found[key[0]].add(key[0], reply, together[key])
    print(
        f"{options.model}, {options.dtype}, {options.threads} threads: alone against up to ", end=""
    )
    print(f"{options.together} at a time, {options.rounds} orders of {options.items} items")
    print("route                largest   99th pc  a probability   equal   other texts   numbers")
    for route in ROUTES:
        print(found[route].line(route))


if __name__ == "__main__":
    main()
