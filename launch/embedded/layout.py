"""Layout of keys and values: flat vectors between passes, pools of rows while decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

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


class ShapeCache(Cache):
    """Only notes the shapes of what it is given."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.shapes: dict[int, LayerShape] = {}

    def update(  # noqa: D102
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *_args: Any,  # noqa: ANN401 (whatever a model adds)
        **_kwargs: Any,  # noqa: ANN401
    ) -> tuple[Tensor, Tensor]:
        shape = LayerShape(key_states.shape[1], key_states.shape[3], value_states.shape[3])
        self.shapes[layer_idx] = shape
        return key_states, value_states


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

    def update(  # noqa: D102
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *_args: Any,  # noqa: ANN401
        **_kwargs: Any,  # noqa: ANN401
    ) -> tuple[Tensor, Tensor]:
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


class Pool:
    """Keys and values of rows that decode together; row `i` of `n` is slot `i`.

    A layer's tensors have shape `(slots, capacity, heads, size)`, so that a token's numbers are
    written and copied in one piece. Places before `n_clean` hold finite numbers in every slot
    (what is masked is multiplied by zero, and zero times nan is nan); those behind are untouched,
    so that memory is taken as rows grow.
    """

    def __init__(self, layout: Layout, capacity: int, like: Tensor) -> None:
        self.layout = layout
        self.capacity = capacity
        self.slots = 0
        self.n_clean = 0
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

    def copy_row(self, source: int, target: int, length: int, into: Pool | None = None) -> None:
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

    def update(  # noqa: D102
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *_args: Any,  # noqa: ANN401
        **_kwargs: Any,  # noqa: ANN401
    ) -> tuple[Tensor, Tensor]:
        keys = self._put(self._pool.keys[layer_idx], key_states)
        values = self._put(self._pool.values[layer_idx], value_states)
        return keys, values

    def _put(self, store: Tensor, states: Tensor) -> Tensor:
        store.flatten(0, 1).index_copy_(0, self._index, states.squeeze(2))
        return store[: self._n_rows, : self._longest].transpose(1, 2)
