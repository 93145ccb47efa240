"""Keys and values of prompt heads met before, in blocks, the least recently used dropped first."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 32


class Known(NamedTuple):
    """Cached part of a prompt: keys and values of its first tokens, and the blocks' names."""

    flat: Tensor | None
    names: list[bytes]


class Prefixes:
    """Blocks of 32 tokens, named by all tokens up to their end.

    Args:
        max_bytes: Size of all blocks together; 0 keeps nothing.
        token_bytes: Size of one token's keys and values.
    """

    def __init__(self, max_bytes: int, token_bytes: int) -> None:
        self._most = max_bytes // (BLOCK * token_bytes)
        self._blocks: OrderedDict[bytes, Tensor] = OrderedDict()

    def names(self, ids: Sequence[int]) -> list[bytes]:
        """Names of the whole blocks of a sequence."""
        if not self._most:
            return []
        found, last = [], b""
        packed = array("q", ids).tobytes()
        size = BLOCK * 8
        for start in range(0, len(packed) - size + 1, size):
            last = blake2b(last + packed[start : start + size], digest_size=16).digest()
            found.append(last)
        return found

    def find(self, ids: Sequence[int], limit: int) -> Known:
        """The longest known head of a sequence, at most `limit` tokens."""
        names = self.names(ids)
        hits = []
        for name in names[: max(0, limit) // BLOCK]:
            block = self._blocks.get(name)
            if block is None:
                break
            hits.append(block)
        self._touch(names[: len(hits)])
        return Known(torch.cat(hits) if hits else None, names)

    def missing(self, names: Sequence[bytes]) -> bool:
        """Return True if any of the blocks is not kept yet."""
        return any(name not in self._blocks for name in names)

    def keep(self, names: Sequence[bytes], flat: Tensor) -> None:
        """Keep the blocks of a sequence whose flat keys and values have shape `(n, width)`."""
        for place, name in enumerate(names[: flat.shape[0] // BLOCK]):
            if name not in self._blocks:
                self._blocks[name] = flat[place * BLOCK : (place + 1) * BLOCK].clone()
        self._touch(names)
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)

    def _touch(self, names: Sequence[bytes]) -> None:
        # A block is of no use without those before it, so these must be dropped after it.
        for name in reversed(names):
            if name in self._blocks:
                self._blocks.move_to_end(name)
