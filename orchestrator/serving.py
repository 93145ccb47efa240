"""The seam to launching: what a file in `launch/` must offer.

A launch module exports

* `Config`: a frozen pydantic model of the server's settings (threads, device, extra arguments, …),
* `BACKEND`: the kind of back-end that speaks to the server,
* `MULTI_MODEL`: whether one process serves several models,
* `identity(config, weights)`: what decides the numbers, read without starting anything,
* `start(config, models, log_path)`: an awaitable `RunningServer` that is ready to answer.
"""

from pathlib import Path
from typing import Protocol

import msgspec
from pydantic import BaseModel


class ServedModel(msgspec.Struct, frozen=True):
    """A model to serve: the name it is asked by, and where its weights are."""

    name: str
    weights: str


class RunningServer(Protocol):
    """A server process that this program started and will end."""

    base_url: str
    api_key: str
    pid: int
    log_path: Path

    def exit_code(self) -> int | None:
        """None while it runs."""
        ...

    def log_tail(self, n_lines: int = 20) -> str:
        """The last lines of its log."""
        ...

    async def stop(self) -> None:
        """End the process group; returns when it is gone. May be called twice."""
        ...


class LaunchModule(Protocol):
    """The contract of a module in `launch/`."""

    Config: type[BaseModel]
    BACKEND: str
    MULTI_MODEL: bool

    def identity(self, config: BaseModel, weights: str) -> dict[str, str]:
        """What decides the numbers: hashes of weights, tokenizer, template; dtype; kind.

        Raises:
            LaunchError: If the weights are not there.
        """
        ...

    async def start(
        self, config: BaseModel, models: tuple[ServedModel, ...], log_path: Path
    ) -> RunningServer:
        """Start a server and wait until it answers.

        Raises:
            LaunchError: With the tail of its log and the likely cause.
        """
        ...
