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
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from orchestrator.errors import UsageError
from orchestrator.placement import Inventory, Node, Share, Size
from orchestrator.recipe.schema import ModelSpec
from orchestrator.recipe.settings import Cluster, minutes
from orchestrator.runner.models.launch_kinds import launch_of
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.servers.launched import CarrierOf
from orchestrator.runner.servers.placement import Placed, place_servers
from orchestrator.runner.servers.ray import RayActor, address_of, ray_actors, set_up
from orchestrator.runner.servers.ray_nodes import nodes_of
from orchestrator.runner.servers.slurm_commands import (
    answer,
    is_down,
    nodes_of_job,
    nodes_of_partition,
)
from orchestrator.serving import Carrier

On = Literal["local", "slurm", "ray"]
"""Machines that launched servers run on."""

# Variables by which srun finds the cluster. The others of a job would be options of each step: a
# job of eight GPUs would have each server ask for eight.
_NEEDED: Final = ("SLURM_CONF",)
# How long a step may wait for a node that is not the one to avoid, or for the one that is planned,
# seconds: a busy slurmctld takes a while, and a server of the wave before may just be ending. After
# that Slurm might choose a node that is silent, of which it does not know yet.
_CHOOSY_S: Final = 10
# Of srun, where slurmctld is down or too busy.
_SILENT: Final = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Unable to establish control"
    r"|Zero Bytes were transmitted|slurm_persist_conn|Resource temporarily unavailable"
)
# Of slurmstepd: by scancel, a preemption or a time limit, but not because a node has failed.
_CANCELLED: Final = re.compile(r"\*\*\* STEP \S+ ON \S+ CANCELLED AT (?!.*NODE FAILURE)")
# Of srun, where the node's slurmd can't be reached, or slurmctld has given the node up. A node that
# slurmstepd names in a line about a node's failure is not the one that has failed.
_LOST: Final = re.compile(
    r"^srun: error: (?:Task launch for StepId=\S+ failed on node (\S+): Communication connection "
    r"failure|Node failure on (\S+))$",
    re.MULTILINE,
)


class SlurmServer(Carrier):
    """Brings one server to a node: as a step of this job, or as a job of its own.

    Args:
        cluster: Settings of the recipe.
        models: That the server serves.
        n_nodes: Of the allocation; 0 for a job of its own.

    Attributes:
        avoid: See `Carrier`.
        prefer: See `Carrier`.
        queues: See `Carrier`.
        lost: See `Carrier`.
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
        """See `Carrier`; `avoid` and `prefer` hold for one command."""
        size, avoid, prefer = self._size, self.avoid, self.prefer
        self.avoid = self.prefer = ""
        choosy: list[str] = []
        if avoid and avoid not in self.lost and self._n_nodes != 1:
            choosy = [f"--exclude={','.join([*self.lost, avoid])}", f"--immediate={_CHOOSY_S}"]
        elif prefer and (not avoid or avoid in self.lost):
            choosy = [f"--nodelist={prefer}", f"--immediate={_CHOOSY_S}"]
        elif self.lost:
            choosy = [f"--exclude={','.join(self.lost)}"]
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
        # What is asked for and no more, so that several steps share a node. A step that asks for no
        # GPUs would take all that the job has there.
        no_gpus = [] if self._size.gpus else ["--gres=none"]
        return ["--exact", f"--mem={self._size.memory or 0}", *no_gpus]

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

    def lost_machine(self, said: str) -> str:
        """See `Carrier`."""
        found = _LOST.search(said)
        return "" if found is None else found[1] or found[2]

    def is_down(self, machine: str) -> bool:
        """See `Carrier`."""
        return is_down(machine)

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


def carriers(prepared: Prepared, on: On, *, keep_servers: bool = False) -> CarrierOf | None:
    """Return what brings the servers of a run to their machines; None where they stay here.

    Raises:
        UsageError: If they can't run there.
    """
    if on == "local":
        return None
    check(prepared, on, keep_servers=keep_servers)
    if on == "ray":
        return ray_actors(prepared.recipe.settings.cluster)
    if shutil.which("srun") is None:
        raise UsageError("--on slurm needs the commands of Slurm, and `srun` is not on the PATH")
    cluster = prepared.recipe.settings.cluster
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
    unknown = sorted(set(prepared.recipe.settings.cluster.models) - known)
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


def places_on(prepared: Prepared, on: On) -> Placed:
    """Return the servers of a run on the nodes of this job, in waves if not all fit together.

    On Ray the nodes are those that are there now. In jobs of their own, and where Ray adds nodes,
    the cluster places them, and none waits for a wave.

    Raises:
        UsageError: If a server fits on no node.
        LaunchError: If its weights can't be read.
    """
    settings = prepared.recipe.settings
    cluster, n_most = settings.cluster, settings.resources.max_servers
    job = os.environ.get("SLURM_JOB_ID")
    nodes: tuple[Node, ...] = ()
    if on == "slurm" and job and not has_jobs(cluster):
        nodes = nodes_of_job(job)
    elif on == "slurm":
        see_that_all_fit(prepared)
    elif on == "ray" and not cluster.autoscaling:
        nodes = nodes_of(address_of(cluster))
    placed = _placed(prepared, Inventory((), n_most, nodes))
    if placed.without_room and on == "ray":
        hint = "if it adds nodes when servers wait for them, set cluster.autoscaling: true"
        _refuse(placed, "Ray cluster", hint)
    _refuse(placed, "job")
    return placed


def see_that_all_fit(prepared: Prepared) -> None:
    """See that each server fits on a node of its partition: its job would wait for ever.

    Raises:
        UsageError: If one does not.
        LaunchError: If its weights can't be read.
    """
    nodes = nodes_of_partition(prepared.recipe.settings.cluster)
    _refuse(_placed(prepared, Inventory(nodes=nodes)), "partition")


def _placed(prepared: Prepared, inventory: Inventory) -> Placed:
    cluster = prepared.recipe.settings.cluster

    def size(models: tuple[str, ...]) -> Size:
        found = cluster.size(models)
        return Size(found.cpus, found.gpus, found.memory_bytes() or None)

    specs = [prepared.models[name] for name in prepared.identities]
    return place_servers(
        prepared.plan, specs, inventory, allow_code=prepared.allow_code, size_of=size
    )


def _refuse(placed: Placed, where: str, *hint: str) -> None:
    if placed.without_room:
        lines = [f"no node of the {where} has room for", *placed.without_room, *hint]
        raise UsageError("\n".join(lines))


def commands(prepared: Prepared, on: On = "slurm") -> tuple[str, ...]:
    """Return where servers run, and a line for each of a run: its models and its command.

    Raises:
        UsageError: If they can't be started there.
    """
    check(prepared, on)
    placed = places_on(prepared, on)
    lines = [*placed.words()]
    for server in (server for wave in placed.waves for server in wave):
        for name, share, n_times in _processes(server.name, server.shares):
            others = server.models[1:] if name == server.name else ()
            count = f" ({n_times} times)" if n_times > 1 else ""
            command = shlex.join(_command(prepared, on, server.models, share.node))
            lines.append(f"{', '.join((name, *others))}{count}: {command}")
    return tuple(lines)


def _processes(name: str, shares: Sequence[Share]) -> Iterator[tuple[str, Share, int]]:
    """Yield the processes of a server, alike ones once: name, share, and how many there are."""
    if len(set(shares)) == 1:
        yield name, shares[0], len(shares)
        return
    for number, share in enumerate(shares, 1):
        yield name if number == 1 else f"{name}.{number}", share, 1


def _command(prepared: Prepared, on: On, models: tuple[str, ...], node: str) -> Sequence[str]:
    cluster = prepared.recipe.settings.cluster
    step: Carrier
    if on == "ray":
        step = RayActor(cluster, models, address_of(cluster))
    else:
        step = SlurmServer(cluster, models, 0 if has_jobs(cluster) else 1)
    step.prefer = node
    kind = launch_of(prepared.models[models[0]], allow_code=prepared.allow_code)
    return step.command(kind.carried)


def _launched(prepared: Prepared) -> list[ModelSpec]:
    specs = (prepared.models[name] for name in prepared.identities)
    return [spec for spec in specs if spec.server is not None]
