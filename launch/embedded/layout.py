"""Keys and values: their layout, and how much memory the requests under way may take."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import psutil
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from launch.embedded.jobs import Job

_CLEAN_STEP = 64


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Heads and widths of one layer's keys and values."""

    heads: int
    key_width: int
    value_width: int

    @property
    def width(self) -> int:
        """Numbers that one token takes in this layer."""
        return self.heads * (self.key_width + self.value_width)


class Layout:
    """Layout of the keys and values of one token in a flat vector of `width` numbers."""

    def __init__(self, layers: dict[int, LayerShape]) -> None:
        self.layers = dict(sorted(layers.items()))
        self.offsets: dict[int, int] = {}
        self.width = 0
        for index, shape in self.layers.items():
            self.offsets[index] = self.width
            self.width += shape.width

    def layer(self, flat: Tensor, index: int) -> tuple[Tensor, Tensor]:
        """Views of one layer's keys and values: `(..., width)` to two `(..., heads, size)`."""
        shape, start = self.layers[index], self.offsets[index]
        middle = start + shape.heads * shape.key_width
        lead = flat.shape[:-1]
        keys = flat[..., start:middle].view(*lead, shape.heads, shape.key_width)
        values = flat[..., middle : start + shape.width]
        return keys, values.view(*lead, shape.heads, shape.value_width)

    def flatten(self, fresh: dict[int, tuple[Tensor, Tensor]], row: int, length: int) -> Tensor:
        """Copy one row of a prefill, shape `(length, width)`."""
        parts = []
        for index in self.layers:
            keys, values = fresh[index]
            parts += [keys[row, :length].flatten(1), values[row, :length].flatten(1)]
        return torch.cat(parts, 1)


class PrefillCache(Cache):
    """Puts known keys and values in front of fresh ones, and keeps the fresh ones.

    Attributes:
        fresh: By layer: keys and values of shape `(rows, time, heads, size)`.
    """

    def __init__(self, layout: Layout, prefix: Tensor | None) -> None:
        super().__init__(layers=[])
        self._layout = layout
        self._prefix = prefix
        self.fresh: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Take what is fresh of a layer; return all that the pass is to see of it."""
        self.fresh[layer_idx] = (key_states.transpose(1, 2), value_states.transpose(1, 2))
        if self._prefix is None:
            return key_states, value_states
        keys, values = self._layout.layer(self._prefix, layer_idx)
        return (
            torch.cat((keys.transpose(1, 2), key_states), 2),
            torch.cat((values.transpose(1, 2), value_states), 2),
        )


def grown(slots: int, wanted: int) -> int:
    """Return the slots of a pool that has `slots` when it makes room for `wanted` rows."""
    return slots if wanted <= slots else max(2 * slots, wanted)


def clean_length(length: int, capacity: int) -> int:
    """Return the places of each slot that are in use when the longest row has `length`."""
    return min(capacity, -(-length // _CLEAN_STEP) * _CLEAN_STEP)


class Slots:
    """The size of a pool: places of each slot, slots, and how many places are in use."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.slots = 0
        self.n_clean = 0


class Pool(Slots):
    """Keys and values of rows that decode together; row `i` of `n` is slot `i`.

    A layer's tensors have shape `(slots, capacity, heads, size)`, so that a token's numbers are
    written and copied in one piece. Places before `n_clean` hold finite numbers in every slot
    (what is masked is multiplied by zero, and zero times nan is nan); those behind are untouched,
    so that memory is taken as rows grow.
    """

    def __init__(self, layout: Layout, capacity: int, like: Tensor) -> None:
        super().__init__(capacity)
        self.layout = layout
        self._like = like
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}

    @property
    def n_bytes(self) -> int:
        """Memory in use."""
        return self.slots * self.n_clean * self.layout.width * self._like.element_size()

    def reserve(self, slots: int) -> None:
        """Make room for at least so many rows."""
        if slots <= self.slots:
            return
        wanted = grown(self.slots, slots)
        for index, shape in self.layout.layers.items():
            for store, width in ((self.keys, shape.key_width), (self.values, shape.value_width)):
                larger = self._like.new_empty((wanted, self.capacity, shape.heads, width))
                larger[self.slots :, : self.n_clean] = 0
                if self.slots:
                    larger[: self.slots, : self.n_clean] = store[index][:, : self.n_clean]
                store[index] = larger
        self.slots = wanted

    def clean(self, length: int) -> None:
        """Make the first `length` places fit to be looked at."""
        if length <= self.n_clean:
            return
        stop = clean_length(length, self.capacity)
        for store in (self.keys, self.values):
            for tensor in store.values():
                tensor[:, self.n_clean : stop] = 0
        self.n_clean = stop

    def release(self) -> None:
        """Give the memory of all slots back."""
        self.keys.clear()
        self.values.clear()
        self.slots = self.n_clean = 0

    def scrub(self, slot: int) -> None:
        """Forget numbers that may not be finite."""
        for store in (self.keys, self.values):
            for tensor in store.values():
                tensor[slot, : self.n_clean] = 0

    def write(self, slot: int, start: int, flat: Tensor) -> None:
        """Write flat vectors, shape `(n, width)`, to places from `start` on."""
        stop = start + flat.shape[0]
        self.clean(stop)
        for index in self.layout.layers:
            keys, values = self.layout.layer(flat, index)
            self.keys[index][slot, start:stop] = keys
            self.values[index][slot, start:stop] = values

    def copy(self, source: int, target: int, length: int, into: Pool | None = None) -> None:
        """Copy a row's first `length` places to another slot, here or in another pool."""
        other = self if into is None else into
        other.clean(length)
        for index in self.layout.layers:
            other.keys[index][target, :length] = self.keys[index][source, :length]
            other.values[index][target, :length] = self.values[index][source, :length]


class StepCache(Cache):
    """Writes one token a row at the row's own position, and shows all rows up to the longest."""

    def __init__(self, pool: Pool, positions: Tensor, longest: int) -> None:
        super().__init__(layers=[])
        self._pool = pool
        self._n_rows = positions.shape[0]
        self._longest = longest
        pool.clean(longest)
        slots = torch.arange(self._n_rows, device=positions.device)
        self._index = slots * pool.capacity + positions

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """See `PrefillCache`."""
        return (
            self._put(self._pool.keys[layer_idx], key_states),
            self._put(self._pool.values[layer_idx], value_states),
        )

    def _put(self, store: Tensor, states: Tensor) -> Tensor:
        store.flatten(0, 1).index_copy_(0, self._index, states.squeeze(2))
        return store[: self._n_rows, : self._longest].transpose(1, 2)


_GROUP: Final = Path("/sys/fs/cgroup")
# Of control groups of versions 2 and 1: limit, what is taken, and what of that are cached files.
_GROUP_FILES: Final = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)
_MANY: Final = 1 << 62
_PROMPT_COPIES: Final = 2
"""Of a prompt's keys and values: its own, and one beside the others of its batch."""


def free_bytes(device: torch.device) -> int:
    """Free memory of a device; of the CPU's no more than the control group leaves."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min(int(psutil.virtual_memory().available), _left_in_group(_GROUP))


def _left_in_group(folder: Path) -> int:
    """Bytes that the control group of a container may still take; many without a limit."""
    left = _MANY
    for limit, taken, statistics, cached in _GROUP_FILES:
        try:
            most = int((folder / limit).read_text(encoding="ascii"))
            used = int((folder / taken).read_text(encoding="ascii"))
            lines = (folder / statistics).read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            continue
        # Files that were read count as used until the room is needed.
        held = dict(line.split(maxsplit=1) for line in lines if " " in line)
        left = min(left, max(0, most - used + int(held.get(cached, 0))))
    return left


class Need(NamedTuple):
    """Sequences of a job.

    Attributes:
        tokens: To compute before anything is drawn; 0 when that is done.
        rows: Answers to draw, 0 or 1.
        first: Tokens in the cache when drawing begins.
        last: Most tokens there when it ends.
    """

    tokens: int
    rows: int = 0
    first: int = 0
    last: int = 0

    @classmethod
    def of(cls, job: Job) -> Need:
        """The need of a job before it starts."""
        most = 0 if job.answer is None else job.answer.stop.max_tokens
        return cls(len(job.ids), job.n_rows, job.n_prompt, job.n_prompt + max(0, most - 1))


class Account:
    """Keys and values of the jobs under way, and of all that they may still come to draw.

    Args:
        most: Bytes to stay within.
        token_bytes: Of one token.
        pools: In which rows decode, the shortest first.
    """

    def __init__(self, most: int, token_bytes: int, pools: Sequence[Slots]) -> None:
        self._most = most
        self._token_bytes = token_bytes
        self._pools = pools
        self._needs: dict[Job, Need] = {}

    @property
    def n_rows(self) -> int:
        """Answers that are being drawn or will be."""
        return sum(need.rows for need in self._needs.values())

    def fits(self, job: Job) -> bool:
        """Return whether a job can be added; the first one always can."""
        needs = (*self._needs.values(), Need.of(job))
        return not self._needs or self.n_bytes(needs) <= self._most

    def add(self, job: Job) -> None:
        """Count a job."""
        self._needs[job] = Need.of(job)

    def computed(self, job: Job) -> None:
        """Count no longer what a job needed before it drew."""
        self._needs[job] = self._needs[job]._replace(tokens=0)

    def drop(self, job: Job) -> None:
        """Count a job no longer; one that is not counted is let be."""
        self._needs.pop(job, None)

    def n_bytes(self, needs: Iterable[Need]) -> int:
        """Return the most bytes that these jobs take together, with the pools as they are now."""
        needs = tuple(needs)
        n_tokens = _PROMPT_COPIES * sum(need.tokens for need in needs)
        below = 0
        for pool in self._pools:
            # A row begins in the first pool that is longer than it, and moves on as it grows.
            inside = [need for need in needs if need.first < pool.capacity and need.last >= below]
            rows = sum(need.rows for need in inside)
            longest = max((need.last for need in inside if need.rows), default=0)
            length = clean_length(min(longest, pool.capacity), pool.capacity)
            n_tokens += grown(pool.slots, rows) * max(pool.n_clean, length)
            below = pool.capacity
        return n_tokens * self._token_bytes


def longest_sequence(most: int, token_bytes: int, capacities: Sequence[int]) -> int:
    """Return the longest sequence whose keys and values fit into `most` bytes, 0 if none does."""
    alone = Account(most, token_bytes, [Slots(n) for n in capacities])
    return bisect_left(
        range(1, capacities[-1] + 1),
        x=True,
        key=lambda length: alone.n_bytes([Need(length, 1, 1, length)]) > most,
    )
