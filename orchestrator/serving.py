"""The seam to launching: the base class of launch kinds, and the servers that they start.

A file in `launch/` holds a class derived from `LaunchKind`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import msgspec

from orchestrator.errors import UsageError
from orchestrator.plugins.base import ConfigT, Plugin


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

    def first_error(self) -> str:
        """Its own first error since it was ready, on one line without secrets; perhaps empty."""
        ...

    async def stop(self) -> None:
        """End the process group; returns when it is gone. May be called twice."""
        ...


@runtime_checkable
class Carried(Protocol):
    """An optional ability of a running server: to be on another machine.

    Attributes:
        node: Name of the machine that a carrier has chosen; empty on this one. Of several, the
            first; once one of them is lost, that one.
    """

    node: str

    @property
    def was_told(self) -> bool:
        """True if its machine told it to end, as for a preemption; known once it is stopped."""
        ...

    @property
    def was_lost(self) -> bool:
        """True if the cluster said that its machine is lost; known once it is stopped."""
        ...

    def kill(self) -> None:
        """End what stands for it on this machine, at once; it is not waited for where it is."""
        ...


@runtime_checkable
class Keepable(Protocol):
    """An optional ability of a running server: to outlive this program."""

    def keep(self) -> int:
        """Let it run on when this program has ended; it is not ours to end from here on.

        Returns the process id that SIGTERM is sent to in order to end it with its children.
        """
        ...


class Carrier(Protocol):
    """Brings the processes of servers to other machines.

    Without one a server runs on this machine.

    Attributes:
        avoid: Name of a machine where the server has failed, which is not chosen next if another
            one is free at once; empty for none.
        prefer: Name of the machine that the server is planned on, which is chosen next if it is
            free at once; empty for none. Of several, with commas between them.
        n_nodes: Machines that share the server's model: words are run on each, hear the same on
            stdin, and have one stdout.
        queues: If true, a machine is waited for as long as it takes; else the time to start
            includes the wait.
        lost: Names of machines that are out of reach, none of which is chosen any more.
    """

    avoid: str
    prefer: str = ""
    n_nodes: int = 1
    queues: bool = False
    lost: tuple[str, ...] = ()

    def command(self, words: Sequence[str]) -> Sequence[str]:
        """Return the command line that runs `words` on a machine of the carrier's choice.

        The process that it starts here has the stdin, stdout and stderr of the one there, ends when
        that ends, and closes its stdin when it is ended itself.
        """
        ...

    def inside(self, words: Sequence[str]) -> Sequence[str]:
        """Return a server's command line as it is run there, such as in a container."""
        return words

    def environment(self) -> Mapping[str, str]:
        """Return the variables that this command needs beside those of every server."""
        ...

    def waiting(self) -> str:
        """Tell the state of a wait for a machine; empty if it is not known. May block."""
        return ""

    def was_silent(self, said: str) -> bool:  # noqa: ARG002 (a default)
        """Return True if the command failed because the cluster did not answer.

        Args:
            said: What the command wrote.
        """
        return False

    def ended_it(self, said: str) -> bool:  # noqa: ARG002 (a default)
        """Return True if the cluster ended the server, as for a preemption.

        Args:
            said: What the command wrote.
        """
        return False

    def lost_machine(self, said: str) -> str:  # noqa: ARG002 (a default)
        """Return the name of the machine that the command could not reach; empty for none.

        Args:
            said: What the command wrote.
        """
        return ""

    def is_down(self, machine: str) -> bool:  # noqa: ARG002 (a default)
        """Return True if the cluster has given a machine up. May block."""
        return False

    def give_back(self) -> None:
        """Free what is reserved for the last command, which had to be killed. May block."""
        return


class Program(NamedTuple):
    """A setting that has this machine run code of the recipe's choice.

    Attributes:
        setting: Its name.
        reason: Why it needs permission, as the end of a sentence.
    """

    setting: str
    reason: str


class ServeOptions(msgspec.Struct, frozen=True):
    """The options of `orchestrator servers serve`.

    Attributes:
        models: As the command names them; a kind says which forms it takes.
        host: Address to listen on.
        port: Port to listen on; 0 for a free one.
        threads: CPU threads; None leaves it to the server.
        device: Device of the models, such as "cpu" or "cuda:1".
        dtype: Number format of the weights in memory.
    """

    models: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    threads: int | None = None
    device: str = "cpu"
    dtype: str = "float32"


class LaunchKind(Plugin[ConfigT], ABC):
    """A kind of server that this program can start.

    The type in brackets is the model of the server's settings (threads, device, further arguments),
    at `server:` in a recipe.

    Attributes:
        backend: Kind of the back-end that speaks to the server.
        multi_model: Whether one process serves several models.
        carried: Command line that a carrier brings to another machine; empty where `start` does not
            heed `carrier`.
        carrier: Brings the server's process to another machine; None for this one.
    """

    backend: ClassVar[str]
    multi_model: ClassVar[bool] = False
    carried: ClassVar[tuple[str, ...]] = ()
    carrier: Carrier | None = None

    @abstractmethod
    def identity(self, weights: str) -> Mapping[str, str]:
        """Tell what decides the numbers: hashes of weights, tokenizer, template; dtype; kind.

        Nothing is started for it.

        Raises:
            LaunchError: If the weights are not there.
        """

    @abstractmethod
    async def start(self, models: tuple[ServedModel, ...], log_path: Path) -> RunningServer:
        """Start a server and wait until it answers.

        Args:
            models: To serve; one where the kind is not `multi_model`.
            log_path: File that its output goes to.

        Raises:
            LaunchError: With the tail of its log and the likely cause.
        """

    def no_split(self, n_nodes: int) -> str:  # noqa: ARG002 (a default)
        """Tell why a model can't be shared by so many machines; empty if it can."""
        return "its server runs on one node"

    def backend_settings(self, model: str) -> Mapping[str, object]:  # noqa: ARG002 (a default)
        """Return settings of the back-end that follow from how this model's server is started.

        They hold where a recipe leaves them open.
        """
        return {}

    def programs(self) -> Sequence[Program]:
        """List the settings that have this machine run code of the recipe's choice."""
        return ()

    def check_installed(self) -> None:
        """See that what its servers need is installed on this machine; nothing is by default.

        Raises:
            UsageError: If something is missing, with how to get it.
        """
        return

    def footprint(self, models: tuple[ServedModel, ...]) -> Footprint | None:  # noqa: ARG002
        """Work out the GPU memory it needs; None where it needs none or the recipe names its GPUs.

        Raises:
            LaunchError: If the weights are not there.
        """
        return None

    def placed(self, gpus: tuple[str, ...], memory_fraction: float) -> Self:  # noqa: ARG002
        """Return the same for these GPUs and this share of the memory of each."""
        return self

    def serve_command(self, options: ServeOptions) -> Sequence[str]:  # noqa: ARG002 (a default)
        """Return the command line of a server that a person starts by `orchestrator servers serve`.

        Raises:
            LaunchError: If weights are not there.
            UsageError: If this kind can't be served so, or an option is wrong.
        """
        raise UsageError("this kind can't be started by `orchestrator servers serve`")
