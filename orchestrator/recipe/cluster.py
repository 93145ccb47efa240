"""Settings of servers on a cluster; they change no number, so no revision holds them."""

from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import Field, model_validator

from orchestrator.settings import Settings

Count = Annotated[int, Field(ge=1)]
Words = tuple[Annotated[str, Field(min_length=1)], ...]
Option = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
Duration = Annotated[str, Field(pattern=r"^[1-9][0-9]*[mhd]$")]

_BYTES: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_MINUTES: Final = {"m": 1, "h": 60, "d": 24 * 60}
# Options of srun and sbatch that choose resources and priorities; they run and write nothing.
_HARMLESS: Final = frozenset((
    "account", "clusters", "comment", "constraint", "exclude", "exclusive", "gpu-bind",
    "gpus-per-node", "hint", "licenses", "mail-type", "mem-per-cpu", "mem-per-gpu", "network",
    "nice", "nodelist", "partition", "priority", "qos", "reservation", "switches", "wckey",
))  # fmt: skip
# They are decided elsewhere in the section, or by this program.
_OURS: Final = frozenset((
    "array", "batch", "chdir", "cpus-per-task", "dependency", "error", "exact", "export", "gpus",
    "gres", "immediate", "input", "job-name", "jobid", "label", "mem", "mpi", "multi-prog", "nodes",
    "ntasks", "output", "overlap", "pty", "requeue", "signal", "time", "unbuffered", "wait",
))  # fmt: skip


def minutes(duration: str) -> int:
    """Minutes of a duration such as 4h."""
    return int(duration[:-1]) * _MINUTES[duration[-1]]


class ServerSize(Settings):
    """Resources of one server on a cluster, which its step, job or actor asks for."""

    cpus: Count = 1
    """CPUs."""
    gpus: int = Field(0, ge=0)
    """GPUs, all on one node: as many as the server's tensor parallelism."""
    memory: str | None = Field(None, pattern=r"^[1-9][0-9]*[KMGT]$")
    """Memory, such as 32G. null shares what the job has on the node with other servers (Slurm), or
    asks for none (Ray)."""

    def memory_bytes(self) -> int:
        """Return the memory in bytes; 0 where it is left open."""
        return 0 if self.memory is None else int(self.memory[:-1]) * _BYTES[self.memory[-1]]


class Cluster(ServerSize):
    """Resources of each launched server with `--on slurm` or `--on ray`, and of their jobs."""

    address: str | None = Field(None, min_length=1)
    """Address of the Ray cluster, such as 10.0.0.1:6379. null takes RAY_ADDRESS, or else the
    cluster of this machine."""

    autoscaling: bool = False
    """The Ray cluster adds nodes when servers wait for them. false: servers are planned on nodes
    that are there, in waves if not all fit together."""

    models: dict[str, ServerSize] = Field({})
    """Resources of the servers of single models, in place of those above."""
    jobs: bool | None = None
    """Each server is a job of its own, rather than a step of the job that the command runs in.
    Default: outside a job."""
    partition: str | None = Field(None, min_length=1)
    """Partition of these jobs; null: the cluster's default."""
    time: Duration | None = None
    """Time limit of these jobs, such as 4h; null: the partition's default."""
    nodes: Count | None = None
    """With `--submit`, nodes of the client's job, on which servers are steps. Default: the
    client's job is small, and servers are jobs of their own."""
    drain: Duration = "10m"
    """With `--submit`, how long before the time limit the client stops and another job continues.
    Slurm may begin up to a minute earlier."""
    options: dict[Option, str] = Field({})
    """Further options of srun and sbatch by their long names, such as `account`."""
    setup: Words = ()
    """Lines for bash on the node before a server starts, such as `module load cuda`."""
    container: Words = ()
    """Words before a server's command, such as `[apptainer, exec, --nv, vllm.sif]`."""
    python: str | None = Field(None, min_length=1)
    """Python on the nodes, 3.11 or newer; null: the one that runs this command, by its path."""

    @model_validator(mode="after")
    def _keep_ours(self) -> "Cluster":
        ours = sorted(self.options.keys() & _OURS)
        if ours:
            raise ValueError(f"options: {ours[0]!r} is decided by the other settings of `cluster`")
        return self

    def size(self, models: tuple[str, ...]) -> ServerSize:
        """Return the resources of the server of these models: those of the first that has its own.

        Args:
            models: All models of the server.
        """
        return next((self.models[name] for name in models if name in self.models), self)

    def programs(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the settings that run something of the recipe's choice: where, and what it is."""
        for name in ("setup", "container", "python"):
            if getattr(self, name):
                yield (name,), f"{name}: a program of the recipe's choice"
        for name in sorted(self.options.keys() - _HARMLESS):
            yield ("options", name), f"options: srun's --{name}, which may run something,"
