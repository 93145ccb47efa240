"""A client as a Slurm job that hands the run on to another one before its time limit.

The successor is a new job with the same name, which waits for the end of this one: a requeued one
would wait two minutes (docs/design/0023-servers-on-a-cluster.md). An element of an array of shards
keeps its number and does wait: near its limit it stops in order and is put back into the queue.
"""

import hashlib
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.placement import Inventory, Node, Size
from orchestrator.recipe.settings import SHARED, Cluster, ServerSize, minutes
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.servers.placement import placed
from orchestrator.runner.servers.slurm import (
    MIB,
    answer,
    are_shared,
    nodes_of_partition,
    options_of,
)

HANDS_ON: Final = "ORCHESTRATOR_HANDS_ON"
"""Variable that tells a client that, if it is interrupted, a successor shows the results."""
OF_A_SHARD: Final = "shard"
"""Its value for the client of a shard, whose results are shown with those of the others."""

SHARD: Final = "$SLURM_ARRAY_TASK_ID"
"""The number of an array's element, which bash writes in place of this into its command."""

# Braces that stay are doubled.
_SCRIPT: Final = Path(__file__).with_name("job.sh")
_SUCCESSOR: Final = """\
  # Steps that Slurm ends with the job; then it starts the next one at once.
  srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpus-per-task=1 --mem=0 --overlap \\
    --mpi=none --job-name=hand-on sleep infinity &>/dev/null &"""
# A client that was killed (137: for its memory, say) may end well elsewhere, but not for ever.
_AGAIN: Final = """\
if [ "$early$code" = USR1130 ] ||
    { [ -z "$early" ] && [ "$code" -gt 130 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 3 ]; }; then
  say "goes back into the queue"
  # The number of the first element alone is that of the array.
  scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
fi
"""


def name_of(run: Path) -> str:
    """Return the name of the jobs of a run, by which only one of them runs at a time."""
    # Slurm takes commas for several names, and others would have to be quoted.
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", run.name)
    return f"orch-{plain}-{hashlib.blake2b(os.fsencode(run), digest_size=4).hexdigest()}"


def script(  # noqa: PLR0913 (what a job is made of, most of it by keyword)
    cluster: Cluster,
    run: Path,
    folder: Path,
    command: Sequence[str],
    room: Sequence[str] = (),
    *,
    array: str = "",
    hands_on: bool = True,
) -> str:
    """Return the text of the job that runs a client.

    The run directory is absolute; the command is run in `folder`, and `room` says what a job with
    nodes asks for on each of them. `array` has the numbers of an array's elements, such as 1-8%2;
    `SHARD` stands for it in the command. A job that `hands_on` to none ends at its limit.

    Raises:
        UsageError: If the job would end before it could hand on, or Slurm can't read its path.
    """
    if re.search(r"[\n\\]", str(run)):
        raise UsageError(f"{run}: a run in jobs must have no line break or backslash in its path")
    name = name_of(run)
    drain = minutes(cluster.drain)
    if cluster.time is not None and minutes(cluster.time) <= drain:
        raise UsageError(f"cluster.time: {cluster.time} must be longer than drain, {cluster.drain}")
    options = [
        f"--job-name={name}",
        f"--array={array}" if array else "--dependency=singleton",
        f"--signal=B:USR1@{60 * drain}",
        "--requeue",
        "--open-mode=append",
        f"--output={str(run).replace('%', '%%')}/slurm-{'%A_%a' if array else '%j'}.log",
        *options_of(cluster),
        # With nodes its servers are steps of it; without, it is small and they are jobs.
        # Not --no-kill: after the loss of its first node a job would stay without its script.
        *([f"--nodes={cluster.nodes}", *room] if cluster.nodes else ["--ntasks=1"]),
    ]
    words = [*command, *(f"--set={one}" for one in overrides_of(cluster))]
    file = shlex.quote(str(file_of(run)))
    successor = f"handing on to job $(sbatch --parsable {file})" if hands_on else "ends"
    return _SCRIPT.read_text(encoding="utf-8").format(
        name=name,
        hands_on=f"{HANDS_ON}={OF_A_SHARD if array else 1}",
        head="\n".join(f"#SBATCH {shlex.quote(option)}" for option in options),
        near="stops, and goes on after the queue" if array else successor,
        hand_on="  early=USR1" if array or not hands_on else _SUCCESSOR,
        end=_AGAIN if array else "",
        folder=shlex.quote(str(folder)),
        command=" ".join(f'"{SHARD}"'.join(map(shlex.quote, word.split(SHARD))) for word in words),
    )


def overrides_of(cluster: Cluster) -> tuple[str, ...]:
    """Return the settings that the job of a client adds to its recipe."""
    if cluster.jobs == SHARED:
        return ()
    return (f"cluster.jobs={str(cluster.nodes is None).lower()}",)


def is_handed_on(interrupted: object) -> bool:
    """Return True if another job waits for the end of this call, and will show the results."""
    said = os.environ.get(HANDS_ON)
    return said == OF_A_SHARD or bool(said and interrupted)


def file_of(run: Path, *, is_array: bool = False) -> Path:
    """Return the file of the job, which successors are submitted from, or of an array of shards."""
    return run / ("slurm-shards.sh" if is_array else "slurm.sh")


def room_of_all(prepared: Prepared, sizes: Iterable[Size]) -> Counter[str]:
    """Return the most that the servers of a run need on one node: `cpus`, `gpus` and `memory`.

    They are planned on nodes of the smallest of the sizes on which all run at once; where none is
    so large, or none is known, a node has room for any one of them. Memory is in MiB, and absent
    unless it is known of each.

    Raises:
        UsageError: If a server fits on no node.
        LaunchError: If its weights can't be read.
    """
    cluster, taken = prepared.recipe.settings.cluster, Counter[str]()
    if are_shared(prepared):
        return taken
    for size in sorted(sizes, key=lambda size: (size.gpus, size.cpus, size.n_bytes or 0)):
        nodes = tuple(Node(str(n), size) for n in range(cluster.nodes or 1))
        found = placed(prepared, Inventory(nodes=nodes))
        if len(found.waves) == 1 and not found.without_room:
            break
    else:
        found = placed(prepared, Inventory())
    used: dict[str, list[ServerSize]] = {}
    for server in found.servers:
        for number, share in enumerate(server.shares):
            for where in share.nodes or [f"{server.name} {number}"]:
                used.setdefault(where, []).append(cluster.size(server.models))
    for each in used.values():
        taken |= Counter(
            cpus=sum(one.cpus for one in each),
            gpus=sum(one.gpus for one in each),
            # As Slurm counts each step.
            memory=sum(-(-one.memory_bytes() // MIB) for one in each),
        )
    if not all(one.memory for each in used.values() for one in each):
        del taken["memory"]
    return taken


def room_of_job(prepared: Prepared) -> list[str]:
    """Return the options by which each node of a client's job has room for its servers.

    What `cluster.options` say of GPUs and memory counts.

    Raises:
        UsageError: If a server fits on no node.
        LaunchError: If its weights can't be read.
    """
    cluster = prepared.recipe.settings.cluster
    taken = room_of_all(prepared, [one.size for one in nodes_of_partition(cluster)])
    given = cluster.options.keys()
    has_gpus = taken["gpus"] and "gpus-per-node" not in given
    has_memory = taken["memory"] and not given & {"mem-per-cpu", "mem-per-gpu"}
    return [
        "--ntasks-per-node=1",
        f"--cpus-per-task={max(1, taken['cpus'])}",
        *([f"--gres=gpu:{taken['gpus']}"] if has_gpus else []),
        *([f"--mem={taken['memory']}M"] if has_memory else []),
    ]


def submit(file: Path, *options: str) -> str:
    """Submit a job; return its number.

    Raises:
        UsageError: If Slurm refuses it.
    """
    said = answer("sbatch", "--parsable", *options, str(file))
    if isinstance(said, str):
        return said.strip().partition(";")[0]
    raise UsageError(f"sbatch {file}: {said.message}")


def waiting(run: Path) -> list[str]:
    """Return the jobs of a run that wait or run, a line each: number, state and reason.

    Raises:
        UsageError: If Slurm does not tell.
    """
    said = answer("squeue", "--me", "--noheader", f"--name={name_of(run)}", "--format=%i %T %r")
    if isinstance(said, str):
        return said.splitlines()
    raise UsageError(f"squeue does not say which jobs the run has: {said.message}")
