"""Recipe and machine to servers in their places, and which of them can be asked now."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from orchestrator.placement import (
    GIB,
    Demand,
    Inventory,
    Node,
    Placement,
    Share,
    Size,
    beside,
    fits,
    place,
)
from orchestrator.recipe.schema import ModelSpec
from orchestrator.runner.models.identity import launch_of
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.servers.launched import PlacedServer, grouped
from orchestrator.serving import ServedModel

_log = logging.getLogger(__name__)

# Waves: which models can be asked now, where not all servers run at the same time.
#
# The plan of waves is `orchestrator.placement`'s. Here is where a run stands in it: the next wave
# is the next one in turn with something to do, and servers of the wave before stay where there is
# room for them, so that nothing is loaded again that need not be. When a node of a cluster is lost,
# what was planned on it gets other places. Pure: nothing is started or ended here.


class Loss(msgspec.Struct):
    """Changes of a plan whose node is lost.

    Attributes:
        node: That is lost.
        moved: New places of the processes of servers that were planned on it, by the name of the
            server. A process that has none any more has the share `Share()`.
        waiting: Names of those servers that wait for another wave.
        without_room: By name, why a server fits on no node that is left; it keeps its place.
    """

    node: str
    moved: dict[str, tuple[Share, ...]] = {}
    waiting: tuple[str, ...] = ()
    without_room: dict[str, str] = {}

    def kept(self, server: PlacedServer) -> list[Share]:
        """Return the places of a server's processes on other nodes."""
        return [one for one in server.shares if one.node and self.node not in one.nodes]

    def moves(self, server: PlacedServer, shares: Sequence[Share]) -> PlacedServer:
        """Return a server with new places for as many of its processes as there are any."""
        n_missing = len(server.shares) - len(shares)
        self.moved[server.name] = (*shares, *[Share()] * n_missing)
        return msgspec.structs.replace(server, shares=self.moved[server.name])


class Waves:
    """The place of a run among its waves.

    A single wave has begun.

    Attributes:
        absent: Models that can't be asked now.
    """

    def __init__(self, waves: Sequence[Sequence[PlacedServer]], inventory: Inventory) -> None:
        self._waves = [list(wave) for wave in waves]
        self._inventory = inventory
        self._everybody = frozenset(
            model for wave in waves for server in wave for model in server.models
        )
        has_begun = len(waves) == 1
        self._now = 0 if has_begun else -1
        self._present: list[PlacedServer] = [*self._waves[0]] if has_begun else []
        self.absent: frozenset[str] = frozenset() if has_begun else self._everybody

    @property
    def number(self) -> int:
        """Of the current wave, from 1; 0 before the first."""
        return self._now + 1

    def __len__(self) -> int:
        return len(self._waves)

    @property
    def present(self) -> tuple[str, ...]:
        """Names of the servers that may run now."""
        return tuple(server.name for server in self._present)

    @property
    def models(self) -> tuple[str, ...]:
        """Models of the servers that may run now."""
        return tuple(model for server in self._present for model in server.models)

    def turn(
        self, waits_for: Callable[[str], bool], dead: Collection[str] = ()
    ) -> tuple[str, ...] | None:
        """Go to the next wave that has something to do.

        Dead models were given up: what they are asked fails at once, in any wave. Returns the
        models that were there and are not any more; None where no wave has anything to do.
        """
        n_waves = len(self._waves)
        for step in range(1, n_waves + 1):
            number = (self._now + step) % n_waves
            served = [model for server in self._waves[number] for model in server.models]
            if any(waits_for(model) for model in served if model not in dead):
                return self._enter(number, dead)
        return self._enter(max(0, self._now), dead) if any(map(waits_for, dead)) else None

    def _enter(self, number: int, dead: Collection[str]) -> tuple[str, ...]:
        before = self._present
        present = list(self._waves[number])
        for server in before:
            shares = [share for one in (*present, server) for share in one.shares]
            if server not in present and fits(shares, self._inventory):
                present.append(server)
        self._now, self._present = number, present
        there = {model for server in present for model in server.models} | set(dead)
        self.absent = self._everybody - there
        staying = {server.name for server in present}
        gone = [server for server in before if server.name not in staying]
        return tuple(model for server in gone for model in server.models)

    def lose(self, node: str) -> Loss | None:
        """Place anew what is planned on a node that is lost; None if it is none of several.

        Servers with processes on other nodes stay. One of the current wave that has lost them all
        gets a place beside those that stay, else a wave after this one. Other waves are planned
        anew, and divided where their servers do not fit together any more.
        """
        left = tuple(one for one in self._inventory.nodes if one.name != node)
        if len(left) in (0, len(self._inventory.nodes)):
            return None
        _log.warning("node %s is out of reach, so its servers are planned anew", node)
        self._inventory = msgspec.structs.replace(self._inventory, nodes=left)
        before, loss, now = self._present, Loss(node), self._now
        waves: list[list[PlacedServer]] = []
        stays = {server.name for server in before if loss.kept(server)}
        for number, wave in enumerate(self._waves):
            if number == self._now:
                lost = [one for one in wave if not loss.kept(one)]
                here, later = self._divided(wave, lost, before, loss)
                # Where nothing is left of it, the next wave is the first of those that follow.
                now = len(waves) if here else len(waves) - 1
                # Those that stay from another wave go on where they run.
                stays |= {server.name for server in here}
            else:
                is_hit = any(node in share.nodes for one in wave for share in one.shares)
                here, later = self._divided(wave, wave if is_hit else (), (), loss)
            waves += [here, *later] if here else later
        found = {server.name: server for wave in waves for server in wave}
        self._waves, self._now = waves, now
        self._present = [found[server.name] for server in before if server.name in stays]
        waiting = [server for server in before if server.name not in stays]
        self.absent |= {model for server in waiting for model in server.models}
        loss.waiting = tuple(server.name for server in waiting)
        for line in _words(waves):
            _log.info("%s", line)
        for name, why in loss.without_room.items():
            _log.warning("no node that is left has room for the server of %r: %s", name, why)
        return loss

    def _divided(
        self,
        wave: Sequence[PlacedServer],
        lost: Sequence[PlacedServer],
        running: Sequence[PlacedServer],
        loss: Loss,
    ) -> tuple[list[PlacedServer], list[list[PlacedServer]]]:
        """Return the servers of a wave with room beside those that go on, and waves of the rest.

        Of a wave `lost` are the servers to be placed as a whole; others get new places, as far as
        there are any, for single processes.
        """
        by_name = {server.name: server for server in lost}
        others = {one.name: one for one in (*wave, *running) if one not in lost}
        taken = [share for one in others.values() for share in loss.kept(one)]
        room, here = beside(taken, self._inventory), list[PlacedServer]()
        if room.max_servers != 0:
            for name, shares in next(iter(place(list(map(_demand, lost)), room).waves), {}).items():
                here.append(loss.moves(by_name.pop(name), shares))
                taken += shares
        for server in wave:
            if server in lost or not any(loss.node in share.nodes for share in server.shares):
                here += [server] if server not in lost else []
                continue
            anew = list(server.shares)
            for at, share in enumerate(anew):
                if loss.node in share.nodes:
                    demand = Demand(server.name, size=share.size)
                    found = place([demand], beside(taken, self._inventory)).waves
                    anew[at] = found[0][server.name][0] if found else Share()
                    taken.append(anew[at])
            here.append(loss.moves(server, anew))
        rest = place(list(map(_demand, by_name.values())), self._inventory)
        loss.without_room.update(rest.impossible)
        later = [
            *([loss.moves(by_name[name], at) for name, at in one.items()] for one in rest.waves),
            *([by_name[name]] for name in rest.impossible),
        ]
        # Nothing has to end before the first of them can begin.
        return (here, later) if here or others or not later else (later[0], later[1:])


def _demand(server: PlacedServer) -> Demand:
    size = next(share.size for share in server.shares if share.node)
    return Demand(server.name, replicas=len(server.shares), size=size)


class Placed(msgspec.Struct, frozen=True):
    """Places of a recipe's servers.

    Attributes:
        inventory: Of the machine or cluster.
        waves: Servers that run together; empty where none is launched.
        without_room: A line for each server that fits nowhere.
    """

    inventory: Inventory
    waves: tuple[tuple[PlacedServer, ...], ...]
    without_room: tuple[str, ...] = ()

    @property
    def servers(self) -> tuple[PlacedServer, ...]:
        """The servers of all waves."""
        return tuple(server for wave in self.waves for server in wave)

    def turns(self) -> Waves | None:
        """The waves of a run; None where all servers run at the same time, whatever happens.

        Where a node of a cluster is lost, those of a single wave may need several.
        """
        needed = len(self.waves) > 1 or (self.waves and self.inventory.nodes)
        return Waves(self.waves, self.inventory) if needed else None

    def words(self) -> tuple[str, ...]:
        """A line for each wave, and one for the machine; nothing where there is nothing to say."""
        on_gpus = any(share.gpus for one in self.servers for share in one.shares)
        nodes = self.inventory.nodes if self.waves else ()
        missing = [f"no room for {line}" for line in self.without_room]
        short = any(len(one.shares) < one.wanted for one in self.servers)
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
        return (*lines, *_words(self.waves), *missing)


def _words(waves: Sequence[Sequence[PlacedServer]]) -> Iterator[str]:
    """Yield a line for each wave, with the places of its servers."""
    for number, wave in enumerate(waves, 1):
        head = f"wave {number} of {len(waves)}: " if len(waves) > 1 else "servers: "
        yield head + "; ".join(map(_server, wave))


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


def placed(prepared: Prepared, inventory: Inventory) -> Placed:
    """Return the servers that a run launches, in their places in an inventory.

    Raises:
        LaunchError: If the weights of a server can't be read.
    """
    plan, allow_code = prepared.plan, prepared.allow_code
    cluster = prepared.recipe.settings.cluster
    specs = (prepared.models[name] for name in prepared.identities)
    launched = {spec.name: spec for spec in specs if spec.server is not None}
    # Models that only judge wait for answers.
    depths = {one.gate: int(one.gate not in plan.free_gates) for _, one in plan.combinations}

    def place_all(groups: Sequence[tuple[str, ...]]) -> Placement:
        demands = []
        for models in groups:
            served = [launched[name] for name in models]
            # Without a GPU servers run on the CPU, those too that would take one.
            need = None
            if inventory.gpus:
                weights = tuple(ServedModel(spec.name, spec.weights or "") for spec in served)
                need = launch_of(served[0], allow_code=allow_code).footprint(weights)
            depth = min(depths.get(name, 0) for name in models)
            own = cluster.size(models)
            size = Size(own.cpus, own.gpus, own.memory_bytes() or None, own.nodes or 1)
            demands.append(Demand(models[0], need, depth, _replicas(models, launched), size))
        return place(demands, inventory)

    groups = grouped(list(launched.values()), allow_code=allow_code)
    placement = place_all(groups)
    # Models that share a process for which there is no room; alone each may have some
    names = placement.impossible.keys()
    apart = frozenset(
        name for group in groups if group[0] in names for name in group[:] if group[1:]
    )
    if apart:
        groups = grouped(list(launched.values()), apart=apart, allow_code=allow_code)
        placement = place_all(groups)
    models = {group[0]: group for group in groups}
    waves = [
        tuple(
            PlacedServer(name, models[name], shares, _replicas(models[name], launched))
            for name, shares in wave.items()
        )
        for wave in placement.waves
    ]
    lines = [f"the server of {name!r}: {why}" for name, why in placement.impossible.items()]
    return Placed(inventory, tuple(waves), tuple(lines))


def _replicas(models: Sequence[str], specs: Mapping[str, ModelSpec]) -> int:
    return max(specs[name].entry.replicas for name in models)
