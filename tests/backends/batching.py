"""Asking a model in batches at a fake endpoint: requests, connections, outcomes as text."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

from backends import openai
from orchestrator.ask import ChooseAsk, GenerateAsk, Request
from orchestrator.backend import Batch, Endpoint
from orchestrator.records import Generation, Message, Sampling, labels
from tests.backends.kinds import kind_in

KEY = "sk-of-this-endpoint"
QUICK = Batch(wait_s=0.02, poll_s=0.005)
LABELS = labels("A", "B")


def asks(n: int) -> list[GenerateAsk | ChooseAsk]:
    """Requests of both kinds, two of which are equal but for their keys."""
    texts = [f"Question {i // 2 if i < 2 else i}?" for i in range(n)]
    return [
        ChooseAsk("m", (Message("user", text),), LABELS)
        if i % 3 == 2
        else GenerateAsk("m", (Message("user", text),), Sampling(max_tokens=5))
        for i, text in enumerate(texts)
    ]


def connect(url: str, folder: Path, batch: Batch | None = QUICK, **fields):
    kind = kind_in(openai)
    endpoint = Endpoint(
        base_url=url,
        model="m",
        api_key=KEY,
        batch=batch,
        kept_in=str(folder),
        timeout_s=60,
        **fields,
    )
    return kind(kind.Config()).connect(endpoint)


async def answer(backend, i: int, ask):
    request = Request(i.to_bytes(16, "big"), ask, i, i, 0, [], 0)
    asked = backend.for_request(request)
    return await (asked.choose(ask) if isinstance(ask, ChooseAsk) else asked.generate(ask, i))


async def answers(backend, asked, which=None):
    """The outcomes of requests that are asked together."""
    chosen = range(len(asked)) if which is None else which
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(answer(backend, i, asked[i])) for i in chosen]
    return [task.result() for task in tasks]


def told(outcome) -> object:
    """Return what an outcome says, without its arrays."""
    if isinstance(outcome, Generation):
        return outcome.text, repr(outcome.logprobs)
    return repr(outcome)  # nan equals nothing


def begin(work):
    """A task that its test ends."""
    return asyncio.get_running_loop().create_task(work)


async def killed_at(point: str, server, backend, asked) -> None:
    """Ask, and end the call as a kill would when the endpoint comes to a point."""
    server.holds = point
    killed = begin(answers(backend, asked))
    async with asyncio.timeout(60):
        await server.held.wait()
    server.holds = ""
    killed.cancel()
    await asyncio.wait([killed])
    await backend.close()


async def until(is_so) -> None:
    """Wait for what is seen from outside only."""
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def one_by_one(url: str, folder: Path, asked) -> list[object]:
    backend = connect(url, folder, None)
    try:
        return [told(await answer(backend, i, ask)) for i, ask in enumerate(asked)]
    finally:
        await backend.close()


@asynccontextmanager
async def connected(url: str, folder: Path, batch: Batch | None = QUICK):
    backend = connect(url, folder, batch)
    try:
        yield backend
    finally:
        await backend.close()
