"""Servers on a Slurm cluster: its nodes, and the command that brings a server to one.

Inside an allocation, by `salloc` or in a job's script, a server is a step of it; elsewhere it is a
job of its own. Slurm finds the node and the GPUs; this program only asks. See
docs/design/0023-servers-on-a-cluster.md.
"""

import getpass
import logging
import os
import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from orchestrator.errors import UsageError
from orchestrator.placement import Inventory, Node, Share, Size
from orchestrator.recipe.settings import SHARED, Cluster, minutes
from orchestrator.records import Failure
from orchestrator.runner.models.identity import launch_of
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.servers.launched import CarrierOf
from orchestrator.runner.servers.machine import inventory
from orchestrator.runner.servers.placement import Placed, placed
from orchestrator.runner.servers.ray import RayActor, address_of, nodes_of, ray_actors, set_up
from orchestrator.serving import Carrier

_log = logging.getLogger(__name__)

_ANSWER_S: Final = 30.0
MIB: Final = 2**20
# Of `scontrol show job --details`: what the job has on some nodes.
_OF_NODES: Final = re.compile(r"\bNodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)")
# With or without a type: gpu:2(IDX:0-1), gpu:a100:4.
_GPUS: Final = re.compile(r"\bgpu(?::[^:,()]+)?:(\d+)")


def answer(*words: str) -> str | Failure:
    """Return the output of a command of Slurm, or why there is none."""
    try:
        ended = subprocess.run(  # noqa: S603 (no shell)
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Failure("connection", str(error))
    if ended.returncode:
        return Failure("connection", ended.stderr.strip() or f"exit code {ended.returncode}")
    return ended.stdout


def nodes_of_job(job: str) -> tuple[Node, ...]:
    """Return the nodes of a job with what it has of each; empty if Slurm does not tell."""
    text = answer("scontrol", "show", "job", "--details", "--oneliner", job)
    if isinstance(text, Failure):
        _log.warning(
            "cannot list the nodes of job %s, so Slurm alone places: %s", job, text.message
        )
        return ()
    found: list[Node] = []
    for names, cpus, megabytes, gres in _OF_NODES.findall(text):
        # Numbers of CPUs, such as 0-3,8.
        parts = (part.partition("-") for part in cpus.split(","))
        n_cpus = sum(int(last or first) - int(first) + 1 for first, _, last in parts)
        size = _size(n_cpus, gres, int(megabytes))
        found.extend(Node(name, size) for name in _hosts(names))
    return tuple(found)


def nodes_of_partition(cluster: Cluster) -> tuple[Node, ...]:
    """Return nodes of each size in the partition of a recipe's jobs; empty if it is not known.

    Of a size there are as many as one server may take.
    """
    if "clusters" in cluster.options:
        return ()
    where = [f"--partition={cluster.partition}"] if cluster.partition else []
    text = answer("sinfo", "--noheader", "--Node", *where, "--format=%N|%c|%m|%G|%P")
    n_most = max((size.nodes or 1 for size in cluster.models.values()), default=1)
    found: dict[Size, list[Node]] = {}
    for line in "" if isinstance(text, Failure) else text.splitlines():
        words = line.split("|")
        # A star marks the partition that jobs go to where they name none.
        is_theirs = cluster.partition or words[-1].endswith("*")
        if len(words) == 5 and is_theirs and words[1].isdecimal() and words[2].isdecimal():
            size = _size(int(words[1]), words[3], int(words[2]))
            alike = found.setdefault(size, [])
            alike += [Node(words[0], size)] * (len(alike) < n_most)
    return tuple(node for alike in found.values() for node in alike)


def _size(cpus: int, gres: str, megabytes: int) -> Size:
    n_gpus = sum(map(int, _GPUS.findall(gres)))
    # 0 where Slurm does not share out memory.
    return Size(cpus, n_gpus, megabytes * MIB or None)


def _hosts(names: str) -> Iterable[str]:
    if "[" not in names and "," not in names:
        return [names]
    text = answer("scontrol", "show", "hostnames", names)
    return () if isinstance(text, Failure) else text.split()


On = Literal["local", "slurm", "ray"]
"""Machines that launched servers run on."""

# Variables by which srun finds the cluster. The others of a job would be options of each step: a
# job of eight GPUs would have each server ask for eight.
_NEEDED: Final = ("SLURM_CONF",)
# How long a step may wait for a node that is not the one to avoid, or for the one that is planned,
# seconds: a busy slurmctld takes a while, and a server of the wave before may just be ending. After
# that Slurm might choose a node that is silent, of which it does not know yet.
_CHOOSY_S: Final = 10
# The end of one part of a server ends the others after so many seconds.
_TOGETHER: Final = ("--ntasks-per-node=1", "--kill-on-bad-exit=1", "--wait=10")
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

    Without nodes of an allocation it is a job of its own.
    """

    def __init__(self, cluster: Cluster, models: tuple[str, ...], n_nodes: int = 1) -> None:
        self._cluster, self._size = cluster, cluster.size(models)
        self.avoid = ""
        self._models = models
        self._n_nodes = n_nodes
        self._name = ""
        self.queues = n_nodes == 0
        self.n_nodes = self._size.nodes or 1

    def command(self, words: Sequence[str]) -> tuple[str, ...]:
        """See `Carrier`; `avoid` and `prefer` hold for one command."""
        size, avoid, prefer = self._size, self.avoid, self.prefer
        self.avoid = self.prefer = ""
        choosy: list[str] = []
        has_others = self.queues or self._n_nodes > self.n_nodes
        if avoid and avoid not in self.lost and has_others:
            choosy = [f"--exclude={','.join([*self.lost, avoid])}", f"--immediate={_CHOOSY_S}"]
        elif prefer and (not avoid or avoid in self.lost):
            choosy = [f"--nodelist={prefer}", f"--immediate={_CHOOSY_S}"]
        elif self.lost:
            choosy = [f"--exclude={','.join(self.lost)}"]
        if self.queues:
            # By its name it is found before it has a number.
            self._name = f"orch-{self._models[0]}-{secrets.token_hex(4)}"
            own = [f"--job-name={self._name}", *options_of(self._cluster)]
            own += [f"--mem={size.memory}"] if size.memory else []
        else:
            # What is asked for and no more, so that several steps share a node. A step that asks
            # for no GPUs would take all that the job has there.
            own = ["--exact", f"--mem={size.memory or 0}", *([] if size.gpus else ["--gres=none"])]
        return (
            "srun",
            *own,
            f"--nodes={self.n_nodes}",
            f"--ntasks={self.n_nodes}",
            *(_TOGETHER if self.n_nodes > 1 else ()),
            f"--cpus-per-task={size.cpus}",
            *([f"--gres=gpu:{size.gpus}"] if size.gpus else []),
            "--unbuffered",
            "--mpi=none",
            "--export=ALL",
            *choosy,
            *set_up(self._cluster, words),
        )

    def inside(self, words: Sequence[str]) -> tuple[str, ...]:
        """See `Carrier`."""
        return (*self._cluster.container, *words)

    def environment(self) -> Mapping[str, str]:
        """See `Carrier`."""
        needed = _NEEDED if self.queues else (*_NEEDED, "SLURM_JOB_ID")
        found = {name: os.environ[name] for name in needed if name in os.environ}
        return {**found, "ORCHESTRATOR_OWN_JOB": ""} if self.queues else found

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
        found = _CANCELLED.search(said)
        # That is what srun says first where it ends what is left of a step after one of its tasks.
        return found is not None and "Terminating StepId" not in said[: found.start()]

    def lost_machine(self, said: str) -> str:
        """See `Carrier`."""
        found = _LOST.search(said)
        return "" if found is None else found[1] or found[2]

    def is_down(self, machine: str) -> bool:
        """See `Carrier`."""
        text = answer("sinfo", "--noheader", f"--nodes={machine}", "--format=%t")
        return isinstance(text, str) and text.startswith("down")

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
    if on == "local" or are_shared(prepared):
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
    return not os.environ.get("SLURM_JOB_ID") if cluster.jobs is None else cluster.jobs is True


def are_shared(prepared: Prepared) -> bool:
    """Return True if a run uses the servers that `orchestrator servers start` keeps."""
    return prepared.recipe.settings.cluster.jobs == SHARED


def check(prepared: Prepared, on: On = "slurm", *, keep_servers: bool = False) -> None:
    """See that the servers of a run can be started on a cluster."""
    known = set(prepared.recipe.models)
    unknown = sorted(set(prepared.recipe.settings.cluster.models) - known)
    if unknown:
        raise UsageError(
            f"cluster.models: unknown model {unknown[0]!r}; available: {', '.join(sorted(known))}"
        )
    if keep_servers:
        raise UsageError(
            f"--keep-servers can't be used with --on {on}: use `orchestrator servers start`"
        )
    for name in prepared.identities:
        spec = prepared.models[name]
        if spec.server is None:
            continue
        kind = launch_of(spec, allow_code=prepared.allow_code)
        if not kind.carried:
            raise UsageError(
                f"model {name!r}: servers of kind {spec.server.kind!r} can't be started "
                f"with --on {on}"
            )
        n_nodes = prepared.recipe.settings.cluster.size((name,)).nodes or 1
        why = "" if on == "ray" else kind.no_split(n_nodes)
        if on == "ray" and n_nodes > 1:
            # Its watchdogs would be actors of several bundles that begin and end as one.
            why = (
                "on Ray a server has one node, in one bundle: use --on slurm, or start it yourself "
                "and give its `base_url`"
            )
        if n_nodes > 1 and why:
            raise UsageError(
                f"cluster.models.{name}.nodes: {n_nodes} of kind {spec.server.kind!r}: {why}"
            )


def places_on(prepared: Prepared, on: On) -> Placed:
    """Return the servers of a run on this machine or the nodes of this job, in waves if need be.

    On Ray the nodes are those that are there now. In jobs of their own, and where Ray adds nodes,
    the cluster places them, and none waits for a wave.

    Raises:
        UsageError: If a server fits nowhere, with what it would need.
        LaunchError: If its weights can't be read.
    """
    settings = prepared.recipe.settings
    cluster, n_most = settings.cluster, settings.resources.max_servers
    if are_shared(prepared):
        return placed(prepared, Inventory())
    job, hint = os.environ.get("SLURM_JOB_ID"), ""
    nodes: tuple[Node, ...] = ()
    if on == "slurm" and job and not has_jobs(cluster):
        # Of the element that has the number of its array, Slurm tells of all elements.
        array, task = (os.environ.get(f"SLURM_ARRAY_{name}_ID") for name in ("JOB", "TASK"))
        nodes = nodes_of_job(f"{array}_{task}" if array and task else job)
    elif on == "slurm":
        see_that_all_fit(prepared)
    elif on == "ray":
        nodes = () if cluster.autoscaling else nodes_of(address_of(cluster))
        hint = "\nif it adds nodes when servers wait for them, set cluster.autoscaling: true"
    there = inventory(settings.resources) if on == "local" else Inventory((), n_most, nodes)
    found = placed(prepared, there)
    _refuse(found, {"local": "machine", "slurm": "job", "ray": "Ray cluster"}[on], hint)
    for line in found.words():
        _log.info("%s", line)
    return found


def see_that_all_fit(prepared: Prepared) -> None:
    """See that each server fits on a node of its partition: its job would wait for ever.

    Raises:
        UsageError: If one does not.
        LaunchError: If its weights can't be read.
    """
    nodes = nodes_of_partition(prepared.recipe.settings.cluster)
    if not are_shared(prepared):
        _refuse(placed(prepared, Inventory(nodes=nodes)), "partition")


def _refuse(placed: Placed, where: str, hint: str = "") -> None:
    if placed.without_room:
        here = "not enough memory on this machine for"
        head = here if where == "machine" else f"no node of the {where} has room for"
        raise UsageError("\n".join([head, *placed.without_room]) + hint)


def commands(prepared: Prepared, on: On = "slurm") -> tuple[str, ...]:
    """Return where servers run, and a line for each of a run: its models and its command.

    Raises:
        UsageError: If they can't be started there.
    """
    if are_shared(prepared):
        return ("servers: those that `orchestrator servers start` keeps on a cluster",)
    if on == "local":
        return placed(prepared, inventory(prepared.recipe.settings.resources)).words()
    check(prepared, on)
    found = places_on(prepared, on)
    lines = [*found.words()]
    for server in found.servers:
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
