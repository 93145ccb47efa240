"""Recipe and machine to servers in their places: what `plan` shows and a run keeps to."""

import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from orchestrator.errors import UsageError
from orchestrator.placement import GIB, Demand, Inventory, Node, Placement, Size, place
from orchestrator.recipe.schema import ModelSpec
from orchestrator.runner.models.launch_kinds import launch_of
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.servers.launched import Places, grouped
from orchestrator.runner.servers.machine import inventory
from orchestrator.runner.servers.waves import PlacedServer, Waves
from orchestrator.serving import Footprint, ServedModel
from orchestrator.units import Plan

_log = logging.getLogger(__name__)


class Placed(msgspec.Struct, frozen=True):
    """Places of a recipe's servers.

    Attributes:
        inventory: Of the machine or cluster.
        waves: Servers that run together; empty where none is launched.
        places: Where each of them runs.
        without_room: A line for each server that fits nowhere.
    """

    inventory: Inventory
    waves: tuple[tuple[PlacedServer, ...], ...]
    places: Places
    without_room: tuple[str, ...] = ()

    def turns(self) -> Waves | None:
        """The waves of a run; None where all servers run at the same time, whatever happens.

        Where a node of a cluster is lost, those of a single wave may need several.
        """
        needed = len(self.waves) > 1 or (self.waves and self.inventory.nodes)
        return Waves(self.waves, self.inventory) if needed else None

    def words(self) -> tuple[str, ...]:
        """A line for each wave, and one for the machine; nothing where there is nothing to say."""
        on_gpus = any(share.gpus for shares in self.places.shares.values() for share in shares)
        nodes = self.inventory.nodes if self.waves else ()
        missing = [f"no room for {line}" for line in self.without_room]
        short = any(len(one.shares) < one.wanted for wave in self.waves for one in wave)
        if len(self.waves) < 2 and not on_gpus and not nodes and not short:
            return tuple(missing)
        gpus = ", ".join(
            f"GPU {gpu.index} ({gpu.name}, "
            f"{gpu.usable / GIB:.1f} of {gpu.total / GIB:.1f} GiB usable)"
            for gpu in self.inventory.gpus
        )
        lines = [gpus or "no GPU"] if on_gpus else []
        if nodes:
            lines.append(f"nodes: {_nodes(nodes)}")
        for number, wave in enumerate(self.waves, 1):
            head = f"wave {number} of {len(self.waves)}: " if len(self.waves) > 1 else "servers: "
            lines.append(head + "; ".join(map(_server, wave)))
        return (*lines, *missing)

    def log(self) -> None:
        """Write the same lines to the log of the run."""
        for line in self.words():
            _log.info("%s", line)


def _nodes(nodes: Sequence[Node]) -> str:
    """Names and sizes, nodes of one size together."""
    names: dict[Size, list[str]] = {}
    for node in nodes:
        names.setdefault(node.size, []).append(node.name)
    return "; ".join(
        f"{', '.join(alike)} ({size}{' each' * (len(alike) > 1)})" for size, alike in names.items()
    )


def _server(server: PlacedServer) -> str:
    where = []
    for share in server.shares:
        if share.gpus:
            gpus = "+".join(share.gpus)
            where.append(f"GPU {gpus}, {share.n_bytes / GIB:.1f} GiB{' each' * ('+' in gpus)}")
        elif share.node:
            where.append(share.node)
    if len(server.shares) < server.wanted:
        where.insert(0, f"room for {len(server.shares)} of {server.wanted} replicas")
    names = ", ".join(server.models)
    return f"{names} ({' and '.join(where)})" if where else names


def find_places(prepared: Prepared) -> Placed:
    """Places on this machine for the servers that a run launches.

    Raises:
        UsageError: If a server fits nowhere, with what it would need.
        LaunchError: If its weights can't be read.
    """
    placed = look_for_places(prepared)
    if placed.without_room:
        raise UsageError("\n".join(["not enough memory on this machine for", *placed.without_room]))
    placed.log()
    return placed


def look_for_places(prepared: Prepared) -> Placed:
    """As `find_places`; a server that fits nowhere is named in the result.

    Raises:
        LaunchError: If its weights can't be read.
    """
    return place_servers(
        prepared.plan,
        [prepared.models[name] for name in prepared.identities],
        inventory(prepared.recipe.settings.resources),
        allow_code=prepared.allow_code,
    )


def place_servers(
    plan: Plan,
    specs: Sequence[ModelSpec],
    inventory: Inventory,
    *,
    allow_code: bool = False,
    size_of: Callable[[tuple[str, ...]], Size] = lambda _: Size(1),
) -> Placed:
    """Find places for the servers that a run launches.

    Args:
        plan: Says who needs whose answers.
        specs: The models of the run.
        inventory: Of the machine or cluster.
        allow_code: Load kinds from outside this project.
        size_of: Gives what a server of these models takes of a node of a cluster.

    Raises:
        LaunchError: If the weights of a server can't be read.
    """
    launched = {spec.name: spec for spec in specs if spec.server is not None}
    depths = _depths(plan)

    def placed(groups: Sequence[tuple[str, ...]]) -> Placement:
        demands = []
        for models in groups:
            served = [launched[name] for name in models]
            # Without a GPU servers run on the CPU, those too that would take one.
            need = footprint_of(served, allow_code=allow_code) if inventory.gpus else None
            depth = min(depths.get(name, 0) for name in models)
            n_replicas = _replicas(models, launched)
            demands.append(Demand(models[0], need, depth, n_replicas, size_of(models)))
        return place(demands, inventory)

    groups = grouped(list(launched.values()), allow_code=allow_code)
    placement = placed(groups)
    # Models that share a process for which there is no room; alone each may have some
    names = {found.name for found in placement.impossible}
    apart = frozenset(
        name for group in groups if group[0] in names for name in group[:] if group[1:]
    )
    if apart:
        groups = grouped(list(launched.values()), apart=apart, allow_code=allow_code)
        placement = placed(groups)
    models = {group[0]: group for group in groups}
    waves = [
        tuple(
            PlacedServer(name, models[name], shares, _replicas(models[name], launched))
            for name, shares in wave.items()
        )
        for wave in placement.waves
    ]
    shares = {name: one.shares for wave in waves for one in wave for name in one.models}
    lines = [f"the server of {found.name!r}: {found.why}" for found in placement.impossible]
    return Placed(inventory, tuple(waves), Places(shares, apart), tuple(lines))


def _replicas(models: Sequence[str], specs: Mapping[str, ModelSpec]) -> int:
    return max(specs[name].replicas for name in models)


def footprint_of(specs: Sequence[ModelSpec], *, allow_code: bool = False) -> Footprint | None:
    """GPU memory of a server that serves these models; None where its kind says it needs none.

    Raises:
        LaunchError: If the weights can't be read.
    """
    models = tuple(ServedModel(spec.name, spec.weights or "") for spec in specs)
    return launch_of(specs[0], allow_code=allow_code).footprint(models)


def _depths(plan: Plan) -> dict[str, int]:
    """0 for models that are asked before anything is answered, 1 for those that only judge."""
    gates = {one.judge or one.models[-1] for _, one in plan.combinations}
    return {gate: int(gate not in plan.free_gates) for gate in gates}
