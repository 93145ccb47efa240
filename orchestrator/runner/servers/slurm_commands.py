"""Commands of Slurm and their answers: the nodes of a job or a partition, with their resources.

No answer means "not known": the controller may be down or busy while jobs and nodes are well.
"""

import logging
import re
import subprocess
from collections.abc import Iterable
from typing import Final, NamedTuple

from orchestrator.placement import Node, Size
from orchestrator.recipe.settings import Cluster

_log = logging.getLogger(__name__)

_ANSWER_S: Final = 30.0
_MIB: Final = 2**20
# Of `scontrol show job --details`: what the job has on some nodes.
_OF_NODES: Final = re.compile(r"\bNodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)")
# With or without a type: gpu:2(IDX:0-1), gpu:a100:4.
_GPUS: Final = re.compile(r"\bgpu(?::[^:,()]+)?:(\d+)")


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


def nodes_of_job(job: str) -> tuple[Node, ...]:
    """Return the nodes of a job with what it has of each; empty if Slurm does not tell."""
    text = answer("scontrol", "show", "job", "--details", "--oneliner", job)
    if isinstance(text, NoAnswer):
        _log.warning("cannot list the nodes of job %s, so Slurm alone places: %s", job, text.why)
        return ()
    found: list[Node] = []
    for names, cpus, megabytes, gres in _OF_NODES.findall(text):
        size = _size(_count(cpus), gres, int(megabytes))
        found.extend(Node(name, size) for name in _hosts(names))
    return tuple(found)


def nodes_of_partition(cluster: Cluster) -> tuple[Node, ...]:
    """Return a node of each size in the partition of a recipe's jobs; empty if it is not known."""
    if "clusters" in cluster.options:
        return ()
    where = [f"--partition={cluster.partition}"] if cluster.partition else []
    text = answer("sinfo", "--noheader", "--Node", *where, "--format=%N|%c|%m|%G")
    found: dict[Size, Node] = {}
    for line in "" if isinstance(text, NoAnswer) else text.splitlines():
        words = line.split("|")
        if len(words) == 4 and words[1].isdecimal() and words[2].isdecimal():
            size = _size(int(words[1]), words[3], int(words[2]))
            found.setdefault(size, Node(words[0], size))
    return tuple(found.values())


def is_down(node: str) -> bool:
    """Return True if Slurm says that a node is down."""
    text = answer("sinfo", "--noheader", f"--nodes={node}", "--format=%t")
    return isinstance(text, str) and text.startswith("down")


def _size(cpus: int, gres: str, megabytes: int) -> Size:
    n_gpus = sum(map(int, _GPUS.findall(gres)))
    # 0 where Slurm does not share out memory.
    return Size(cpus, n_gpus, megabytes * _MIB or None)


def _count(ids: str) -> int:
    """Count the numbers in a list such as 0-3,8."""
    n = 0
    for part in ids.split(","):
        first, _, last = part.partition("-")
        n += int(last or first) - int(first) + 1
    return n


def _hosts(names: str) -> Iterable[str]:
    if "[" not in names and "," not in names:
        return [names]
    text = answer("scontrol", "show", "hostnames", names)
    return () if isinstance(text, NoAnswer) else text.split()
