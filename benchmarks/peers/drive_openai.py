"""The openai package, as its documentation shows it: one AsyncOpenAI, a semaphore, gather.

By its defaults it keeps 100 connections and makes the others anew, each within 5 s; after three
timeouts it fails. At 512 in flight that can happen where it is starved of its core for seconds
(`APITimeoutError` from `ConnectTimeout`).
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI


async def ask_all(settings: dict[str, Any], prompts: list[str]) -> None:
    """Ask all prompts and print how many were answered."""
    limit = asyncio.Semaphore(settings["in_flight"])
    with_logprobs = 0

    async with AsyncOpenAI(base_url=settings["url"], api_key="none") as client:

        async def ask(prompt: str) -> None:
            nonlocal with_logprobs
            async with limit:
                reply = await client.chat.completions.create(
                    model="model",
                    messages=[{"role": "user", "content": prompt}],
                    max_tokens=settings["max_tokens"],
                    temperature=0,
                    logprobs=True,
                    top_logprobs=settings["top"],
                )
            observed = reply.choices[0].logprobs
            with_logprobs += bool(observed and observed.content)

        async with asyncio.TaskGroup() as group:
            for prompt in prompts:
                group.create_task(ask(prompt))
    print(json.dumps({"answered": len(prompts), "with_logprobs": with_logprobs}))


def main() -> None:
    """Ask all prompts; the settings are the JSON of the first argument."""
    settings = json.loads(sys.argv[1])
    with Path(settings["prompts"]).open(encoding="utf-8") as file:
        prompts = [json.loads(line)["prompt"] for line in file]
    asyncio.run(ask_all(settings, prompts))


if __name__ == "__main__":
    main()
