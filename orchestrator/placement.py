"""Places and times of servers: models packed on GPUs, in waves if not all fit together.

Pure arithmetic over an inventory and what each server needs; nothing here asks a machine. A server
gets the fewest GPUs that hold it (tensor parallel, over GPUs of equal memory, where one is too
small: a server is told one share for all of them). Servers of a wave are spread over the GPUs, and
share one while their least needs fit into it where there are fewer; what is left over is shared out
for key-value caches. A server stands in exactly one wave. Packing is searched exactly, up to a
bounded number of trials.
"""

import math
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


class Inventory(msgspec.Struct, frozen=True):
    """GPUs of a machine, and the bound on its servers.

    Attributes:
        gpus: Of the machine; empty where there is none.
        max_servers: Server processes at a time; None for no bound.
    """

    gpus: tuple[Gpu, ...] = ()
    max_servers: int | None = None


class Demand(msgspec.Struct, frozen=True):
    """A server that is to be placed.

    Attributes:
        name: Of the server.
        footprint: GPU memory that it needs; None where it runs on the CPU.
        depth: 0 where what it says needs no other model's answer, 1 for a judge.
        replicas: Processes asked for; as many run as there is room for, at least one.
    """

    name: str
    footprint: Footprint | None = None
    depth: int = 0
    replicas: int = 1


class Share(msgspec.Struct, frozen=True):
    """GPUs and memory of one process of a server.

    Attributes:
        gpus: `Gpu.index` of each; empty on the CPU.
        n_bytes: Memory it may take on each of them.
        fraction: The same as a share of the whole memory of each, rounded down.
    """

    gpus: tuple[str, ...] = ()
    n_bytes: int = 0
    fraction: float = 0.0


class Impossible(msgspec.Struct, frozen=True):
    """A server that fits nowhere.

    Attributes:
        name: Of the server.
        why: What it would need, and what there is.
    """

    name: str
    why: str


Wave = Mapping[str, tuple[Share, ...]]
"""Servers that run together, each with a share for each of its processes."""


class Placement(msgspec.Struct, frozen=True):
    """Servers in waves, and the servers that can't run.

    Attributes:
        waves: In the order they begin with.
        impossible: Servers that are in none.
    """

    waves: tuple[Wave, ...]
    impossible: tuple[Impossible, ...] = ()


class _Piece(msgspec.Struct, frozen=True):
    """One process to place: bytes on each of `n_gpus`, at least and as wanted."""

    name: str
    n_gpus: int
    least: int
    wanted: int


_Packed = tuple[_Piece, tuple[int, ...]]
"""A process and the positions of its GPUs in the inventory."""


def place(demands: Sequence[Demand], inventory: Inventory) -> Placement:
    """Put every server that fits anywhere into a wave, in as few waves as first-fit finds.

    Args:
        demands: With different names, in the order of the recipe.
        inventory: Of the machine.
    """
    pieces: dict[str, _Piece | None] = {}
    impossible = []
    for demand in demands:
        piece = _piece(demand, inventory)
        if isinstance(piece, Impossible):
            impossible.append(piece)
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
    return Placement(tuple(waves), tuple(impossible))


def fits(shares: Iterable[Share], inventory: Inventory) -> bool:
    """Return True if processes with these shares may run at the same time."""
    taken: dict[str, int] = {}
    n_servers = 0
    for share in shares:
        n_servers += 1
        for gpu in share.gpus:
            taken[gpu] = taken.get(gpu, 0) + share.n_bytes
    usable = {gpu.index: gpu.usable for gpu in inventory.gpus}
    room = inventory.max_servers is None or n_servers <= inventory.max_servers
    return room and all(n_bytes <= usable.get(gpu, 0) for gpu, n_bytes in taken.items())


def _piece(demand: Demand, inventory: Inventory) -> _Piece | Impossible | None:
    """Return the share of a process on the fewest GPUs that hold it; None on the CPU."""
    footprint = demand.footprint
    if footprint is None:
        return None
    largest = max((gpu.total for gpu in inventory.gpus), default=0)
    fixed = int(min(footprint.fraction, USABLE_FRACTION) * largest)
    for n_gpus in sorted(footprint.splits):
        least = max(footprint.least(n_gpus), fixed)
        able = Counter(gpu.total for gpu in inventory.gpus if gpu.usable >= least)
        if max(able.values(), default=0) >= n_gpus:
            return _Piece(demand.name, n_gpus, least, max(least, footprint.wanted(n_gpus)))
    needs = " or ".join(
        f"{_gib(footprint.least(n))} on each of {n} GPUs" if n > 1 else _gib(footprint.least(1))
        for n in sorted(footprint.splits)
    )
    there = ", ".join(_gib(gpu.usable) for gpu in inventory.gpus) or "no GPU"
    return Impossible(
        demand.name,
        f"it needs at least {needs} (weights {_gib(footprint.weights)}, cache of one longest "
        f"sequence {_gib(footprint.cache)}, overhead {_gib(footprint.overhead)}); usable here: "
        f"{there}",
    )


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / GIB:.1f} GiB"


def _size(piece: _Piece | None) -> tuple[int, int]:
    return (0, 0) if piece is None else (piece.n_gpus, piece.least)


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
    """GPUs for each server of a wave that needs some, the tightest or the emptiest first.

    None where they don't fit, or no fit was found among the trials.
    """
    if inventory.max_servers is not None and len(group) > inventory.max_servers:
        return None
    wanted = [piece for demand in group if (piece := pieces[demand.name]) is not None]
    wanted.sort(key=_size, reverse=True)
    room = [(gpu.total, gpu.usable) for gpu in inventory.gpus]
    trials = iter(range(_MAX_TRIALS))
    return _search(wanted, room, trials, spread=spread)


def _search(
    pieces: Sequence[_Piece],
    room: Sequence[tuple[int, int]],
    trials: Iterator[int],
    before: tuple[_Packed, ...] = (),
    *,
    spread: bool,
) -> tuple[_Packed, ...] | None:
    """Depth first over the GPUs of each piece, the largest piece first.

    `room` holds the whole memory and what of it is left, for each GPU; `before` what is packed.
    """
    if not pieces:
        return before
    piece, rest = pieces[0], pieces[1:]
    kin = Counter(gpu for other, on in before if spread and other.name == piece.name for gpu in on)
    for chosen in _choices(piece, room, kin, spread=spread):
        if next(trials, None) is None:
            return None
        left = [
            (total, n - piece.least if gpu in chosen else n) for gpu, (total, n) in enumerate(room)
        ]
        found = _search(rest, left, trials, (*before, (piece, chosen)), spread=spread)
        if found is not None:
            return found
    return None


def _choices(
    piece: _Piece, room: Sequence[tuple[int, int]], kin: Mapping[int, int], *, spread: bool
) -> Iterator[tuple[int, ...]]:
    """Sets of equal GPUs with room for it; of sets that leave the same room, one.

    Spread, those come first with the fewest replicas of its server (`kin`), then the emptiest.
    """
    able = sorted(
        (kin.get(gpu, 0), -n if spread else n, total, gpu)
        for gpu, (total, n) in enumerate(room)
        if n >= piece.least
    )
    seen: set[tuple[tuple[int, int, int], ...]] = set()
    for chosen in combinations(able, piece.n_gpus):
        mark = tuple(one[:3] for one in chosen)
        if mark not in seen and len({total for _, _, total, _ in chosen}) == 1:
            seen.add(mark)
            yield tuple(sorted(gpu for *_, gpu in chosen))


def _wave(
    group: Sequence[Demand], pieces: Mapping[str, _Piece | None], inventory: Inventory
) -> Wave:
    """The servers of a wave with their shares, and replicas where there is room."""
    processes = list(group)
    # One more of each in turn, so that no server gets its third before another its second.
    for number in range(2, max((demand.replicas for demand in group), default=1) + 1):
        for demand in group:
            if demand.replicas < number:
                continue
            if _packed([*processes, demand], pieces, inventory) is not None:
                processes.append(demand)
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
    """Shares: the least, and of what is left a part by how much more is wanted."""
    spare = [gpu.usable for gpu in inventory.gpus]
    wishes = [0] * len(spare)
    for piece, chosen in packed:
        for gpu in chosen:
            spare[gpu] -= piece.least
            wishes[gpu] += piece.wanted - piece.least + 1
    for piece, chosen in packed:
        wish = piece.wanted - piece.least + 1
        # In integers, so that parts never add up to more than the whole.
        more = min(spare[gpu] * wish // wishes[gpu] for gpu in chosen)
        n_bytes = piece.least + more
        total = inventory.gpus[chosen[0]].total
        yield (
            piece,
            Share(
                tuple(inventory.gpus[gpu].index for gpu in chosen),
                n_bytes,
                math.floor(1000 * n_bytes / total) / 1000,
            ),
        )
