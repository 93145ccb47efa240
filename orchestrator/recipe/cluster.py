"""Settings of servers on a cluster; they change no number, so no revision holds them."""

from typing import Annotated

from pydantic import Field

from orchestrator.settings import Settings

Count = Annotated[int, Field(ge=1)]


class ServerSize(Settings):
    """Resources of one server on a cluster, which its step asks for."""

    cpus: Count = 1
    """CPUs."""
    gpus: int = Field(0, ge=0)
    """GPUs, all on one node: as many as the server's tensor parallelism."""
    memory: str | None = Field(None, pattern=r"^[1-9][0-9]*[KMGT]$")
    """Memory, such as 32G; null shares all of the job's memory on the node with other servers."""


class Cluster(ServerSize):
    """Resources of each launched server with `--on slurm`."""

    models: dict[str, ServerSize] = Field({})
    """Resources of the servers of single models, in place of those above."""

    def size(self, models: tuple[str, ...]) -> ServerSize:
        """Return the resources of the server of these models: those of the first that has its own.

        Args:
            models: All models of the server.
        """
        return next((self.models[name] for name in models if name in self.models), self)
