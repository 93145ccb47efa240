"""Servers as steps of a Slurm allocation: the command that brings one to a node.

The client runs inside the allocation, by `salloc`, or in a job's script. Slurm finds the node
and the GPUs of each step; this program only asks. See docs/design/0023-servers-on-a-cluster.md.
"""

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from orchestrator.errors import UsageError
from orchestrator.placement import Inventory
from orchestrator.recipe.cluster import ServerSize
from orchestrator.recipe.schema import ModelSpec
from orchestrator.runner.models.launch_kinds import launch_of
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.servers.launched import CarrierOf, grouped
from orchestrator.runner.servers.placement import Placed, place_servers

On = Literal["local", "slurm"]
"""Machines that launched servers run on."""

# Variables by which srun finds the cluster. The others of a job would be options of each step: a
# job of eight GPUs would have each server ask for eight.
_NEEDED: Final = ("SLURM_CONF", "SLURM_JOB_ID")
# How long a step may look for a node that is not the one to avoid, seconds.
_CHOOSY_S: Final = 3


class SlurmStep:
    """Brings one server to a node of an allocation, as a step.

    Args:
        size: Resources of the step.
        n_nodes: Of the allocation.

    Attributes:
        avoid: See `Carrier`.
    """

    def __init__(self, size: ServerSize, n_nodes: int = 1) -> None:
        self._size = size
        self._n_nodes = n_nodes
        self.avoid = ""

    def command(self, words: Sequence[str]) -> tuple[str, ...]:
        """See `Carrier`; `avoid` holds for one command."""
        size, avoid = self._size, self.avoid
        self.avoid = ""
        choosy = [f"--exclude={avoid}", f"--immediate={_CHOOSY_S}"] if avoid else []
        if self._n_nodes < 2:
            choosy = []
        return (
            "srun",
            "--nodes=1",
            "--ntasks=1",
            # What is asked for and no more, so that several steps share a node.
            "--exact",
            f"--cpus-per-task={size.cpus}",
            *([f"--gres=gpu:{size.gpus}"] if size.gpus else []),
            f"--mem={size.memory or 0}",
            "--unbuffered",
            "--mpi=none",
            "--export=ALL",
            *choosy,
            *words,
        )

    def environment(self) -> Mapping[str, str]:
        """See `Carrier`."""
        return {name: os.environ[name] for name in _NEEDED if name in os.environ}


def carriers(prepared: Prepared, on: On, *, keep_servers: bool = False) -> CarrierOf | None:
    """Return what brings the servers of a run to their machines; None where they stay here.

    Raises:
        UsageError: If they can't run there.
    """
    if on == "local":
        return None
    check(prepared, keep_servers=keep_servers)
    if not os.environ.get("SLURM_JOB_ID") or shutil.which("srun") is None:
        raise UsageError(
            "--on slurm starts servers inside a Slurm allocation, and this is none: run it by "
            "`salloc --nodes=2 --no-kill … orchestrator run …`, or in the script of an sbatch job"
        )
    n_nodes = int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    return lambda models: SlurmStep(prepared.recipe.cluster.size(models), n_nodes)


def check(prepared: Prepared, *, keep_servers: bool = False) -> None:
    """See that the servers of a run can be steps.

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
        raise UsageError("--keep-servers can't be used with --on slurm: steps end with their job")
    for spec in _launched(prepared):
        kind = launch_of(spec, allow_code=prepared.allow_code)
        if not kind.carried:
            name = "" if spec.server is None else spec.server.kind
            raise UsageError(
                f"model {spec.name!r}: servers of kind {name!r} can't be started with --on slurm"
            )


def places_on(prepared: Prepared) -> Placed:
    """Return the servers of a run without GPUs of this machine: Slurm places them."""
    return place_servers(
        prepared.plan,
        [prepared.models[name] for name in prepared.identities],
        Inventory((), prepared.recipe.resources.max_servers),
        allow_code=prepared.allow_code,
    )


def commands(prepared: Prepared) -> tuple[str, ...]:
    """Return a line for each server of a run: its models, and the command that starts it.

    Raises:
        UsageError: If they can't be steps.
    """
    check(prepared)
    lines = []
    for models in grouped(_launched(prepared), allow_code=prepared.allow_code):
        step = SlurmStep(prepared.recipe.cluster.size(models))
        replicas = max(prepared.models[name].replicas for name in models)
        count = f" ({replicas} times)" if replicas > 1 else ""
        kind = launch_of(prepared.models[models[0]], allow_code=prepared.allow_code)
        lines.append(f"{', '.join(models)}{count}: {shlex.join(step.command(kind.carried))}")
    return tuple(lines)


def _launched(prepared: Prepared) -> list[ModelSpec]:
    specs = (prepared.models[name] for name in prepared.identities)
    return [spec for spec in specs if spec.server is not None]
