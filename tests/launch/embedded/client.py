"""A plain HTTP client, and jobs run without one."""

from __future__ import annotations

import http.client
import json
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import torch

from launch.embedded.engine import Engine
from launch.embedded.jobs import Answer, Job
from launch.embedded.served import Served

USER = [{"role": "user", "content": "hello world, which is better?"}]


class Work(NamedTuple):
    """A request under way, as the routes begin it."""

    job: Job
    reply: Callable[[], dict[str, Any]]


def begun(begin: Callable[[Any, Served], tuple[Job, Any]], request: object, served: Served) -> Work:
    """Begin a request by what its route begins it by."""
    return Work(*begin(request, served))


class Client:
    """Posts JSON; one connection a request."""

    def __init__(self, url: str, key: str = "") -> None:
        parts = urlsplit(url)
        self.host, self.port, self.key = str(parts.hostname), int(parts.port or 0), key

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=60)

    def raw(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = self.connect()
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {self.key}"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        return json.loads(self.raw("GET", path)[1])

    def post(self, path: str, status: int = 200, **fields: Any) -> Any:
        got, body = self.raw("POST", path, json.dumps({"model": "bos", **fields}).encode())
        assert got == status, body
        return json.loads(body)

    def chat(self, content: str = "hello", status: int = 200, **fields: Any) -> Any:
        messages = [{"role": "user", "content": content}]
        return self.post("/v1/chat/completions", status, **{"messages": messages, **fields})

    def metric(self, name: str, model: str = "bos") -> int:
        text = self.raw("GET", "/metrics")[1].decode()
        wanted = f'orchestrator:{name}{{model_name="{model}"}} '
        return int(next(line for line in text.splitlines() if line.startswith(wanted)).split()[-1])


class Telling(Answer):
    """An answer that tells of each of its tokens, on the engine's thread."""

    tell: Callable[[], None]

    def add(self, *arguments: Any) -> bool:
        self.tell()
        return super().add(*arguments)


def telling(job: Job, tell: Callable[[], None]) -> Job:
    """Return a job whose answer tells of its tokens."""
    answer = Telling(drawn(job).draw, drawn(job).stop)
    answer.tell, job.answer = tell, answer
    return job


def drawn(job: Job) -> Answer:
    """Return the answer of a job that draws one."""
    assert job.answer is not None
    return job.answer


def together(calls: list[Any], n_threads: int = 32) -> list[Any]:
    """Call functions at the same time; their results in order."""
    with ThreadPoolExecutor(n_threads) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


class Ended(threading.Event):
    """The end of a job, and when it came."""

    at = math.inf


def run(engine: Engine, *jobs: Job, wait: bool = True) -> list[Ended]:
    """Queue jobs; raises the first error."""
    errors: list[Exception] = []
    events = []
    for job in jobs:
        event = Ended()
        events.append(event)

        def done(error: Exception | None, event: Ended = event) -> None:
            if error is not None:
                errors.append(error)
            event.at = time.monotonic()
            event.set()

        job.on_done = done
    engine.submit(*jobs)
    if wait:
        for event in events:
            assert event.wait(60)
        if errors:
            raise errors[0]
    return events


def forced(served: Served, ids: list[int]) -> torch.Tensor:
    """Log-probabilities after each token by a direct pass of `transformers`, float32."""
    with torch.inference_mode():
        logits = served.runner.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    found: torch.Tensor = logits.float().log_softmax(-1)
    return found


def taken(logprobs: torch.Tensor, n_prompt: int, ids: list[int]) -> list[float]:
    """Return the log-probabilities of `ids` behind the first `n_prompt` tokens."""
    return [float(logprobs[n_prompt - 1 + place, token]) for place, token in enumerate(ids)]
