"""The bare loop: aiohttp, typed msgspec, float32 arrays; no store, no retries, no failures."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np


class Alternative(msgspec.Struct, gc=False):
    """A token that might have been drawn."""

    token: str
    logprob: float


class Entry(msgspec.Struct, gc=False):
    """A drawn token."""

    token: str
    logprob: float
    top_logprobs: list[Alternative]


class Logprobs(msgspec.Struct, gc=False):
    """Of all tokens."""

    content: list[Entry]


class Answer(msgspec.Struct, gc=False):
    """One choice."""

    logprobs: Logprobs


class Reply(msgspec.Struct, gc=False):
    """A chat reply."""

    choices: list[Answer]


async def ask_all(settings: dict[str, Any], lines: Iterator[str]) -> None:
    """Ask all prompts and print how many were answered."""
    decoder, encoder = msgspec.json.Decoder(Reply), msgspec.json.Encoder()
    n_done = with_logprobs = 0

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal n_done, with_logprobs
        for line in lines:
            body = encoder.encode(
                {
                    "model": "model",
                    "messages": [{"role": "user", "content": json.loads(line)["prompt"]}],
                    "max_tokens": settings["max_tokens"],
                    "temperature": 0,
                    "logprobs": True,
                    "top_logprobs": settings["top"],
                }
            )
            async with session.post(
                f"{settings['url']}/chat/completions",
                data=body,
                headers={"content-type": "application/json"},
            ) as response:
                reply = decoder.decode(await response.read())
            entries = reply.choices[0].logprobs.content
            values = np.array([entry.logprob for entry in entries], np.float32)
            top = np.array([[a.logprob for a in e.top_logprobs] for e in entries], np.float32)
            n_done += 1
            with_logprobs += bool(values.size and top.size)

    connector = aiohttp.TCPConnector(limit=settings["in_flight"])
    timeout = aiohttp.ClientTimeout(total=600)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(settings["in_flight"]):
            group.create_task(work(session))
    print(json.dumps({"answered": n_done, "with_logprobs": with_logprobs}))


def main() -> None:
    """Ask all prompts; the settings are the JSON of the first argument."""
    settings = json.loads(sys.argv[1])
    with Path(settings["prompts"]).open(encoding="utf-8") as file:
        asyncio.run(ask_all(settings, file))


if __name__ == "__main__":
    main()
