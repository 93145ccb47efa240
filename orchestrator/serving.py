"""The seam to launching: what a file in `launch/` must offer.

A launch module exports

* `Config`: a frozen pydantic model of the server's settings (threads, device, extra arguments, …),
* `BACKEND`: the kind of back-end that speaks to the server,
* `MULTI_MODEL`: whether one process serves several models,
* `identity(config, weights)`: what decides the numbers, read without starting anything,
* `start(config, models, log_path)`: an awaitable `RunningServer` that is ready to answer,
* perhaps `backend_settings(config, model)`: settings of the back-end that follow from how the
  server of this model is started, for those that a recipe leaves open,

and, where it can run on GPUs,

* `footprint(config, models)`: the GPU memory it needs, a `Footprint`; None with settings that keep
  it on the CPU or that name its GPUs,
* `placed(config, gpus, memory_fraction)`: the settings with which it runs on these GPUs.
"""

import math
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec
from pydantic import BaseModel


class ServedModel(msgspec.Struct, frozen=True):
    """A model to serve: the name it is asked by, and where its weights are."""

    name: str
    weights: str


class Footprint(msgspec.Struct, frozen=True):
    """GPU memory that a server needs, in bytes.

    Attributes:
        weights: Of all its models, shared out over the GPUs of tensor parallel.
        cache: Keys and values of one sequence of the greatest length it serves.
        cache_wanted: The same for as many sequences as are to be answered at a time.
        overhead: On each GPU: context of the driver, activations, workspaces.
        splits: Numbers of GPUs that it can be split over, 1 among them.
        cache_splits: Over how many GPUs keys and values can be split; on more they are copied.
        fraction: Of each GPU, which it takes whatever it needs; 0 where that is left to placement.
    """

    weights: int
    cache: int
    cache_wanted: int
    overhead: int
    splits: tuple[int, ...] = (1,)
    cache_splits: int = 1
    fraction: float = 0.0

    def least(self, n_gpus: int) -> int:
        """Bytes on each of `n_gpus`, below which it does not start."""
        return self._on_each(n_gpus, self.cache)

    def wanted(self, n_gpus: int) -> int:
        """Bytes on each of `n_gpus` with which it answers as many at a time as asked."""
        return self._on_each(n_gpus, max(self.cache, self.cache_wanted))

    def _on_each(self, n_gpus: int, cache: int) -> int:
        part = math.ceil(cache / min(n_gpus, self.cache_splits))
        return math.ceil(self.weights / n_gpus) + part + self.overhead


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

    def first_error(self) -> str:
        """Its own first error since it was ready, on one line without secrets; perhaps empty."""
        ...

    async def stop(self) -> None:
        """End the process group; returns when it is gone. May be called twice."""
        ...


@runtime_checkable
class Keepable(Protocol):
    """An optional ability of a running server: to outlive this program."""

    def keep(self) -> int:
        """Let it run on when this program has ended; it is not ours to end from here on.

        Returns the process id that SIGTERM is sent to in order to end it with its children.
        """
        ...


class RunsOnGpus(Protocol):
    """Optional exports of a module in `launch/` whose servers can run on GPUs."""

    def footprint(self, config: BaseModel, models: tuple[ServedModel, ...]) -> Footprint | None:
        """The GPU memory it needs; None where it needs none or is told its GPUs by the recipe.

        Raises:
            LaunchError: If the weights are not there.
        """
        ...

    def placed(self, config: BaseModel, gpus: tuple[str, ...], memory_fraction: float) -> BaseModel:
        """The settings with which it runs on these GPUs and takes this share of their memory."""
        ...


class LaunchModule(Protocol):
    """The contract of a module in `launch/`."""

    Config: type[BaseModel]
    BACKEND: str
    MULTI_MODEL: bool

    def identity(self, config: BaseModel, weights: str) -> dict[str, str]:
        """Return all that decides the numbers: hashes of weights, tokenizer, template; dtype; kind.

        Raises:
            LaunchError: If the weights are not there.
        """
        ...

    def programs(self, config: BaseModel) -> tuple[tuple[str, str], ...]:
        """Settings that have this machine run code of the recipe's choice, with the reasons."""
        ...

    async def start(
        self, config: BaseModel, models: tuple[ServedModel, ...], log_path: Path
    ) -> RunningServer:
        """Start a server and wait until it answers.

        Raises:
            LaunchError: With the tail of its log and the likely cause.
        """
        ...
