"""Places and times of servers: packed on GPUs or nodes, in waves if not all fit together.

Pure arithmetic over an inventory and what each server needs; nothing here asks a machine. A server
gets the fewest GPUs that hold it (tensor parallel, over GPUs of equal memory, where one is too
small: a server is told one share for all of them). Servers of a wave are spread over the GPUs, and
share one while their least needs fit into it where there are fewer; what is left over is shared out
for key-value caches. On a cluster a server gets the CPUs, GPUs and memory that the recipe asks for,
of one node or of each of several. A server stands in exactly one wave. Packing is searched exactly,
up to a bounded number of trials.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import msgspec

from orchestrator.serving import Footprint

# vLLM takes 0.92 of a GPU by default; the rest is for the driver, other processes and fragments.
USABLE_FRACTION = 0.92
GIB = 1 << 30
# Positions tried for the servers of one wave before it counts as too full.
_MAX_TRIALS = 5_000


class Gpu(msgspec.Struct, frozen=True):
    """One GPU.

    Attributes:
        index: As `CUDA_VISIBLE_DEVICES` counts, or the identifier given there.
        name: Of the product.
        total: Bytes of memory.
        free: Bytes that nobody holds now.
    """

    index: str
    name: str
    total: int
    free: int

    @property
    def usable(self) -> int:
        """Bytes that servers may take."""
        return max(0, min(self.free, int(self.total * USABLE_FRACTION)))


class Size(msgspec.Struct, frozen=True):
    """Resources that a server takes of a node, or that a node has.

    Attributes:
        cpus: CPUs.
        gpus: GPUs.
        n_bytes: Memory; None where it is not counted, so that there is always enough.
        nodes: Nodes of each of which a server takes so much.
    """

    cpus: int
    gpus: int = 0
    n_bytes: int | None = None
    nodes: int = 1

    def __str__(self) -> str:
        counts = [(self.cpus, "CPU"), (self.gpus, "GPU")]
        words = [f"{n} {what}{'s' * (n != 1)}" for n, what in counts if n or what == "CPU"]
        if self.n_bytes is not None:
            words.append(_gib(self.n_bytes))
        return ", ".join(words) + (f" on each of {self.nodes} nodes" if self.nodes > 1 else "")


class Node(msgspec.Struct, frozen=True):
    """A machine of a cluster.

    Attributes:
        name: Of the machine.
        size: Resources that servers may take.
    """

    name: str
    size: Size


class Inventory(msgspec.Struct, frozen=True):
    """GPUs of a machine or nodes of a cluster, and the bound on their servers.

    Attributes:
        gpus: Of this machine; empty where there is none.
        max_servers: Server processes at a time; None for no bound.
        nodes: Of a cluster, in place of GPUs; empty where its scheduler chooses them.
    """

    gpus: tuple[Gpu, ...] = ()
    max_servers: int | None = None
    nodes: tuple[Node, ...] = ()


class Demand(msgspec.Struct, frozen=True):
    """A server that is to be placed.

    Attributes:
        name: Of the server.
        footprint: GPU memory that it needs; None where it runs on the CPU.
        depth: 0 where what it says needs no other model's answer, 1 for a judge.
        replicas: Processes asked for; as many run as there is room for, at least one.
        size: Resources that each process takes of a node of a cluster.
    """

    name: str
    footprint: Footprint | None = None
    depth: int = 0
    replicas: int = 1
    size: Size = Size(1)


class Share(msgspec.Struct, frozen=True):
    """GPUs and memory of one process of a server, or its node.

    Attributes:
        gpus: `Gpu.index` of each; empty on the CPU.
        n_bytes: Memory it may take on each of them.
        fraction: The same as a share of the whole memory of each, rounded down.
        node: Name of its node, or of several with commas between them; empty on this machine.
        size: Resources that it takes of each.
    """

    gpus: tuple[str, ...] = ()
    n_bytes: int = 0
    fraction: float = 0.0
    node: str = ""
    size: Size = Size(0)

    @property
    def nodes(self) -> list[str]:
        """Names of its nodes; none on this machine."""
        return self.node.split(",") if self.node else []


Wave = Mapping[str, tuple[Share, ...]]
"""Servers that run together, each with a share for each of its processes."""


class Placement(msgspec.Struct, frozen=True):
    """Servers in waves, and the servers that can't run.

    Attributes:
        waves: In the order they begin with.
        impossible: What servers that are in none would need, and what there is, by name.
    """

    waves: tuple[Wave, ...]
    impossible: Mapping[str, str] = {}


_Amounts = tuple[int, ...]
"""Resources: bytes of a GPU; or GPUs, CPUs and bytes of a node."""


class _Piece(msgspec.Struct, frozen=True):
    """One process to place: the least it takes of each of `n` GPUs, or of `n` nodes.

    `wanted` is the number of bytes that it would like of each GPU.
    """

    name: str
    n: int
    least: _Amounts
    wanted: int = 0


_Packed = tuple[_Piece, tuple[int, ...]]
"""A process and the positions of its GPUs, or of its nodes, in the inventory."""

_Room = tuple[int, _Amounts]
"""Of a GPU: its whole memory, and what is left of it. Of a node: 0, and what is left."""


def place(demands: Sequence[Demand], inventory: Inventory) -> Placement:
    """Put every server that fits anywhere into a wave, in as few waves as first-fit finds.

    Args:
        demands: With different names, in the order of the recipe.
        inventory: Of the machine.
    """
    pieces: dict[str, _Piece | None] = {}
    impossible = {}
    for demand in demands:
        piece = _piece(demand, inventory)
        if isinstance(piece, str):
            impossible[demand.name] = piece
        else:
            pieces[demand.name] = piece
    possible = [demand for demand in demands if demand.name in pieces]
    # Waves by first fit, in the order of depth or of size, whichever gives fewer.
    by_depth = sorted(possible, key=lambda demand: demand.depth)
    by_size = sorted(possible, key=lambda demand: _size(pieces[demand.name]), reverse=True)
    found = [_first_fit(order, pieces, inventory) for order in (by_depth, by_size)]
    groups = min(found, key=len)
    place_of = {demand.name: number for number, demand in enumerate(by_depth)}
    # What answers goes first: then each wave finds its judgments ready.
    groups.sort(key=lambda group: sum(place_of[demand.name] for demand in group) / len(group))
    waves = [_wave(group, pieces, inventory) for group in groups]
    return Placement(tuple(waves), impossible)


def fits(shares: Iterable[Share], inventory: Inventory) -> bool:
    """Return True if processes with these shares may run at the same time."""
    left, n_servers = _left(shares, inventory)
    room = inventory.max_servers is None or n_servers <= inventory.max_servers
    return room and all(n >= 0 for amounts in left.values() for n in amounts)


def beside(shares: Iterable[Share], inventory: Inventory) -> Inventory:
    """Return what processes with these shares leave of the nodes of a cluster."""
    left, n_servers = _left(shares, inventory)
    nodes = []
    for node in inventory.nodes:
        gpus, cpus, n_bytes = left[node.name]
        size = Size(cpus, gpus, None if node.size.n_bytes is None else n_bytes)
        nodes.append(Node(node.name, size))
    most = inventory.max_servers
    return Inventory((), None if most is None else max(0, most - n_servers), tuple(nodes))


def _left(shares: Iterable[Share], inventory: Inventory) -> tuple[dict[str, _Amounts], int]:
    """Resources that processes leave, by GPU or node, below 0 for too many; and their number."""
    left: dict[str, _Amounts] = {gpu.index: (gpu.usable,) for gpu in inventory.gpus}
    left |= {node.name: _amounts(node.size) for node in inventory.nodes}
    n_servers = 0
    for share in shares:
        n_servers += 1
        for gpu in share.gpus:
            left[gpu] = minus(left.get(gpu, (0,)), (share.n_bytes,))
        for name in share.nodes:
            left[name] = minus(left.get(name, (0, 0, 0)), _amounts(share.size, 0))
    return left, n_servers


def _amounts(size: Size, uncounted: int = sys.maxsize) -> _Amounts:
    """The resources of a node, or, with 0 for `uncounted`, of a server; the scarcest first."""
    return (size.gpus, size.cpus, uncounted if size.n_bytes is None else size.n_bytes)


def minus(amounts: _Amounts, taken: _Amounts) -> _Amounts:
    """Return what is left of resources."""
    return tuple(n - m for n, m in zip(amounts, taken, strict=True))


def _holds(amounts: _Amounts, least: _Amounts) -> bool:
    return all(n >= m for n, m in zip(amounts, least, strict=True))


def _piece(demand: Demand, inventory: Inventory) -> _Piece | str | None:
    """Return the share of a process on the fewest GPUs that hold it; None on the CPU; or why not.

    On a cluster it is a share of each of its nodes.
    """
    if inventory.nodes:
        least, n_nodes = _amounts(demand.size, 0), demand.size.nodes
        n_able = sum(_holds(_amounts(node.size), least) for node in inventory.nodes)
        if n_able >= n_nodes:
            return _Piece(demand.name, n_nodes, least)
        needs = f"{demand.size}{' on one node' * (n_nodes == 1)}"
        if n_able:
            return f"it needs {needs}; nodes with so much: {n_able}"
        largest = max(inventory.nodes, key=lambda node: _amounts(node.size))
        return f"it needs {needs}; the largest node, {largest.name}, has {largest.size}"
    return _piece_of_gpus(demand, inventory)


def _piece_of_gpus(demand: Demand, inventory: Inventory) -> _Piece | str | None:
    footprint = demand.footprint
    if footprint is None:
        return None
    largest = max((gpu.total for gpu in inventory.gpus), default=0)
    fixed = int(min(footprint.fraction, USABLE_FRACTION) * largest)
    for n_gpus in sorted(footprint.splits):
        least = max(footprint.least(n_gpus), fixed)
        able = Counter(gpu.total for gpu in inventory.gpus if gpu.usable >= least)
        if max(able.values(), default=0) >= n_gpus:
            return _Piece(demand.name, n_gpus, (least,), max(least, footprint.wanted(n_gpus)))
    needs = " or ".join(
        f"{_gib(footprint.least(n))} on each of {n} GPUs" if n > 1 else _gib(footprint.least(1))
        for n in sorted(footprint.splits)
    )
    there = ", ".join(_gib(gpu.usable) for gpu in inventory.gpus) or "no GPU"
    return (
        f"it needs at least {needs} (weights {_gib(footprint.weights)}, cache of one longest "
        f"sequence {_gib(footprint.cache)}, overhead {_gib(footprint.overhead)}); usable here: "
        f"{there}"
    )


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / GIB:.1f} GiB"


def _size(piece: _Piece | None) -> tuple[int, _Amounts]:
    return (0, ()) if piece is None else (piece.n, piece.least)


def _first_fit(
    demands: Sequence[Demand], pieces: Mapping[str, _Piece | None], inventory: Inventory
) -> list[list[Demand]]:
    groups: list[list[Demand]] = []
    for demand in demands:
        for group in groups:
            if _packed([*group, demand], pieces, inventory) is not None:
                group.append(demand)
                break
        else:
            groups.append([demand])
    return groups


def _packed(
    group: Sequence[Demand],
    pieces: Mapping[str, _Piece | None],
    inventory: Inventory,
    *,
    spread: bool = False,
) -> tuple[_Packed, ...] | None:
    """GPUs or nodes for each server of a wave that needs some, the tightest or the emptiest first.

    None where they don't fit, or no fit was found among the trials.
    """
    if inventory.max_servers is not None and len(group) > inventory.max_servers:
        return None
    wanted = [piece for demand in group if (piece := pieces[demand.name]) is not None]
    wanted.sort(key=_size, reverse=True)
    room: list[_Room] = [(0, _amounts(node.size)) for node in inventory.nodes] or [
        (gpu.total, (gpu.usable,)) for gpu in inventory.gpus
    ]
    # Together they may already need more than there is, which saves the search.
    needs = zip(*([n * piece.n for n in piece.least] for piece in wanted), strict=True)
    there = zip(*(left for _, left in room), strict=True)
    if any(sum(need) > sum(has) for need, has in zip(needs, there, strict=False)):
        return None
    return _search(wanted, room, spread=spread)


def _search(
    pieces: Sequence[_Piece], room: Sequence[_Room], *, spread: bool
) -> tuple[_Packed, ...] | None:
    """Depth first over the GPUs or nodes of each piece, the largest piece first."""
    packed: list[_Packed] = []
    rooms = [room]
    # Of each piece that is packed, and of the next one.
    untried: list[Iterator[tuple[int, ...]]] = []
    n_trials = 0
    while len(packed) < len(pieces):
        piece = pieces[len(packed)]
        if len(untried) == len(packed):
            kin = Counter(n for one, on in packed if spread and one.name == piece.name for n in on)
            untried.append(_choices(piece, rooms[-1], kin, spread=spread))
        chosen = next(untried[-1], None)
        if chosen is None:
            untried.pop()
            if not untried:
                return None
            packed.pop()
            rooms.pop()
            continue
        n_trials += 1
        if n_trials > _MAX_TRIALS:
            return None
        packed.append((piece, chosen))
        left = [*rooms[-1]]
        for number in chosen:
            total, amounts = left[number]
            left[number] = (total, minus(amounts, piece.least))
        rooms.append(left)
    return tuple(packed)


def _choices(
    piece: _Piece, room: Sequence[_Room], kin: Mapping[int, int], *, spread: bool
) -> Iterator[tuple[int, ...]]:
    """Sets of equal GPUs, or nodes, with room for it; of sets that leave the same room, one.

    Spread, those come first with the fewest replicas of its server (`kin`), then the emptiest.
    """
    sign = -1 if spread else 1
    able = sorted(
        (kin.get(number, 0), tuple(sign * n for n in amounts), total, number)
        for number, (total, amounts) in enumerate(room)
        if _holds(amounts, piece.least)
    )
    seen: set[tuple[tuple[int, _Amounts, int], ...]] = set()
    for chosen in combinations(able, piece.n):
        mark = tuple(one[:3] for one in chosen)
        if mark not in seen and len({total for _, _, total, _ in chosen}) == 1:
            seen.add(mark)
            yield tuple(sorted(number for *_, number in chosen))


def _wave(
    group: Sequence[Demand], pieces: Mapping[str, _Piece | None], inventory: Inventory
) -> Wave:
    """The servers of a wave with their shares, and replicas where there is room."""
    processes = list(group)
    full: set[str] = set()
    # One more of each in turn, so that no server gets its third before another its second.
    for number in range(2, max((demand.replicas for demand in group), default=1) + 1):
        more = [one for one in group if one.replicas >= number and one.name not in full]
        if _packed([*processes, *more], pieces, inventory) is not None:
            processes += more
            continue
        for demand in more:
            if _packed([*processes, demand], pieces, inventory) is not None:
                processes.append(demand)
            else:
                full.add(demand.name)
    # That they fit is known; spread, each has the more of a GPU's speed and memory.
    packed = (
        _packed(processes, pieces, inventory, spread=True)
        or _packed(processes, pieces, inventory)
        or ()
    )
    shares: dict[str, list[Share]] = {demand.name: [] for demand in group}
    for demand in processes:
        if pieces[demand.name] is None:
            shares[demand.name].append(Share())
    for piece, share in _shared_out(packed, inventory):
        shares[piece.name].append(share)
    return {name: tuple(found) for name, found in shares.items()}


def _shared_out(packed: Sequence[_Packed], inventory: Inventory) -> Iterator[tuple[_Piece, Share]]:
    """Shares: the least, and of what is left of GPUs a part by how much more is wanted."""
    if inventory.nodes:
        for piece, numbers in packed:
            n_gpus, cpus, n_bytes = piece.least
            size = Size(cpus, n_gpus, n_bytes or None, piece.n)
            node = ",".join(inventory.nodes[number].name for number in numbers)
            yield piece, Share(node=node, size=size)
        return
    spare = [gpu.usable for gpu in inventory.gpus]
    wishes = [0] * len(spare)
    for piece, chosen in packed:
        for gpu in chosen:
            spare[gpu] -= piece.least[0]
            wishes[gpu] += piece.wanted - piece.least[0] + 1
    for piece, chosen in packed:
        (least,) = piece.least
        wish = piece.wanted - least + 1
        # In integers, so that parts never add up to more than the whole.
        more = min(spare[gpu] * wish // wishes[gpu] for gpu in chosen)
        n_bytes = least + more
        total = inventory.gpus[chosen[0]].total
        yield (
            piece,
            Share(
                tuple(inventory.gpus[gpu].index for gpu in chosen),
                n_bytes,
                math.floor(1000 * n_bytes / total) / 1000,
            ),
        )
