"""Servers on the nodes of a Slurm cluster: the command that brings one there.

Inside an allocation, by `salloc` or in a job's script, a server is a step of it; elsewhere it is a
job of its own. Slurm finds the node and the GPUs; this program only asks. See
docs/design/0023-servers-on-a-cluster.md.
"""

import getpass
import os
import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from orchestrator.errors import UsageError
from orchestrator.placement import Inventory
from orchestrator.recipe.cluster import Cluster, minutes
from orchestrator.recipe.schema import ModelSpec
from orchestrator.runner.models.launch_kinds import launch_of
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.servers.launched import CarrierOf, grouped
from orchestrator.runner.servers.placement import Placed, place_servers
from orchestrator.runner.servers.ray import RayActor, address_of, ray_actors, set_up
from orchestrator.serving import Carrier

On = Literal["local", "slurm", "ray"]
"""Machines that launched servers run on."""

# Variables by which srun finds the cluster. The others of a job would be options of each step: a
# job of eight GPUs would have each server ask for eight.
_NEEDED: Final = ("SLURM_CONF",)
# How long a step may look for a node that is not the one to avoid, seconds.
_CHOOSY_S: Final = 3
_ANSWER_S: Final = 30.0
# Of srun, where slurmctld is down or too busy.
_SILENT: Final = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Unable to establish control"
    r"|Zero Bytes were transmitted|slurm_persist_conn|Resource temporarily unavailable"
)
# Of slurmstepd: by scancel, a preemption or a time limit, but not because a node has failed.
_CANCELLED: Final = re.compile(r"\*\*\* STEP \S+ ON \S+ CANCELLED AT (?!.*NODE FAILURE)")


class SlurmServer(Carrier):
    """Brings one server to a node: as a step of this job, or as a job of its own.

    Args:
        cluster: Settings of the recipe.
        models: That the server serves.
        n_nodes: Of the allocation; 0 for a job of its own.

    Attributes:
        avoid: See `Carrier`.
        queues: See `Carrier`.
    """

    def __init__(self, cluster: Cluster, models: tuple[str, ...], n_nodes: int = 1) -> None:
        self._cluster = cluster
        self._size = cluster.size(models)
        self._models = models
        self._n_nodes = n_nodes
        self._name = ""
        self.avoid = ""
        self.queues = n_nodes == 0

    def command(self, words: Sequence[str]) -> tuple[str, ...]:
        """See `Carrier`; `avoid` holds for one command."""
        size, avoid = self._size, self.avoid
        self.avoid = ""
        choosy = [f"--exclude={avoid}", f"--immediate={_CHOOSY_S}"] if avoid else []
        if self._n_nodes == 1:
            choosy = []
        return (
            "srun",
            *(self._of_a_job() if self.queues else self._of_a_step()),
            "--nodes=1",
            "--ntasks=1",
            f"--cpus-per-task={size.cpus}",
            *([f"--gres=gpu:{size.gpus}"] if size.gpus else []),
            "--unbuffered",
            "--mpi=none",
            "--export=ALL",
            *choosy,
            *set_up(self._cluster, words),
        )

    def _of_a_step(self) -> list[str]:
        # What is asked for and no more, so that several steps share a node.
        return ["--exact", f"--mem={self._size.memory or 0}"]

    def _of_a_job(self) -> list[str]:
        cluster = self._cluster
        # By its name it is found before it has a number.
        self._name = f"orch-{self._models[0]}-{secrets.token_hex(4)}"
        return [
            f"--job-name={self._name}",
            *options_of(cluster),
            *([f"--mem={self._size.memory}"] if self._size.memory else []),
        ]

    def inside(self, words: Sequence[str]) -> tuple[str, ...]:
        """See `Carrier`."""
        return (*self._cluster.container, *words)

    def environment(self) -> Mapping[str, str]:
        """See `Carrier`."""
        needed = _NEEDED if self.queues else (*_NEEDED, "SLURM_JOB_ID")
        return {name: os.environ[name] for name in needed if name in os.environ}

    def waiting(self) -> str:
        """See `Carrier`."""
        said = "--noheader", f"--name={self._name}", "--format=%i %T %r"
        found = answer("squeue", *said)
        words = found.split(maxsplit=2) if isinstance(found, str) else []
        if len(words) < 3:
            return ""  # also where squeue fails: what is not known is not gone
        return f"job {words[0]} is {words[1].lower()} ({words[2].strip()})"

    def was_silent(self, said: str) -> bool:
        """See `Carrier`."""
        return _SILENT.search(said) is not None

    def ended_it(self, said: str) -> bool:
        """See `Carrier`."""
        return _CANCELLED.search(said) is not None

    def give_back(self) -> None:
        """See `Carrier`."""
        if self._name:
            answer("scancel", "--quiet", f"--name={self._name}", f"--user={getpass.getuser()}")


def options_of(cluster: Cluster) -> list[str]:
    """Return the options of a job of a recipe, for srun and sbatch."""
    return [
        *([f"--partition={cluster.partition}"] if cluster.partition else []),
        *([f"--time={minutes(cluster.time)}"] if cluster.time else []),
        *(f"--{name}={value}" if value else f"--{name}" for name, value in cluster.options.items()),
    ]


class NoAnswer(NamedTuple):
    """A command of Slurm that failed, and what it said."""

    why: str


def answer(*words: str) -> str | NoAnswer:
    """Return the output of a command of Slurm, or why there is none."""
    try:
        ended = subprocess.run(  # noqa: S603 (no shell)
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return NoAnswer(str(error))
    if ended.returncode:
        return NoAnswer(ended.stderr.strip() or f"exit code {ended.returncode}")
    return ended.stdout


def carriers(prepared: Prepared, on: On, *, keep_servers: bool = False) -> CarrierOf | None:
    """Return what brings the servers of a run to their machines; None where they stay here.

    Raises:
        UsageError: If they can't run there.
    """
    if on == "local":
        return None
    check(prepared, on, keep_servers=keep_servers)
    if on == "ray":
        return ray_actors(prepared.recipe.cluster)
    if shutil.which("srun") is None:
        raise UsageError("--on slurm needs the commands of Slurm, and `srun` is not on the PATH")
    cluster = prepared.recipe.cluster
    if has_jobs(cluster):
        return lambda models: SlurmServer(cluster, models, 0)
    if not os.environ.get("SLURM_JOB_ID"):
        raise UsageError(
            "cluster.jobs: false starts servers as steps of a Slurm job, and this is none: run it "
            "by `salloc --nodes=2 --no-kill … orchestrator run …`, or in the script of a job"
        )
    n_nodes = int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    return lambda models: SlurmServer(cluster, models, n_nodes)


def has_jobs(cluster: Cluster) -> bool:
    """Return True if servers are jobs of their own rather than steps of this job."""
    return not os.environ.get("SLURM_JOB_ID") if cluster.jobs is None else cluster.jobs


def check(prepared: Prepared, on: On = "slurm", *, keep_servers: bool = False) -> None:
    """See that the servers of a run can be started on a cluster.

    Raises:
        UsageError: If not.
    """
    known = set(prepared.recipe.models)
    unknown = sorted(set(prepared.recipe.cluster.models) - known)
    if unknown:
        raise UsageError(
            f"cluster.models: unknown model {unknown[0]!r}; available: {', '.join(sorted(known))}"
        )
    if keep_servers:
        raise UsageError(
            f"--keep-servers can't be used with --on {on}: servers there end with the run"
        )
    for spec in _launched(prepared):
        kind = launch_of(spec, allow_code=prepared.allow_code)
        if not kind.carried:
            name = "" if spec.server is None else spec.server.kind
            raise UsageError(
                f"model {spec.name!r}: servers of kind {name!r} can't be started with --on {on}"
            )


def places_on(prepared: Prepared) -> Placed:
    """Return the servers of a run without GPUs of this machine: the cluster places them."""
    return place_servers(
        prepared.plan,
        [prepared.models[name] for name in prepared.identities],
        Inventory((), prepared.recipe.resources.max_servers),
        allow_code=prepared.allow_code,
    )


def commands(prepared: Prepared, on: On = "slurm") -> tuple[str, ...]:
    """Return a line for each server of a run: its models, and the command that starts it.

    Raises:
        UsageError: If they can't be started there.
    """
    check(prepared, on)
    cluster = prepared.recipe.cluster
    lines = []
    for models in grouped(_launched(prepared), allow_code=prepared.allow_code):
        step: Carrier
        if on == "ray":
            step = RayActor(cluster, models, address_of(cluster))
        else:
            step = SlurmServer(cluster, models, 0 if has_jobs(cluster) else 1)
        replicas = max(prepared.models[name].replicas for name in models)
        count = f" ({replicas} times)" if replicas > 1 else ""
        kind = launch_of(prepared.models[models[0]], allow_code=prepared.allow_code)
        lines.append(f"{', '.join(models)}{count}: {shlex.join(step.command(kind.carried))}")
    return tuple(lines)


def _launched(prepared: Prepared) -> list[ModelSpec]:
    specs = (prepared.models[name] for name in prepared.identities)
    return [spec for spec in specs if spec.server is not None]
