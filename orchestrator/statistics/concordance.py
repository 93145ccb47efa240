"""Concordance of each point of a scatter with all others: agreeing, opposed or tied pairs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PairSums:
    """Sums over the pairs that each of n points is in; arrays of shape (n,).

    Attributes:
        agree: Pairs ordered alike in x and y, minus those ordered oppositely.
        differ_x: Pairs that differ in x.
        differ_y: Pairs that differ in y.
    """

    agree: Floats
    differ_x: Floats
    differ_y: Floats

    @property
    def parts(self) -> tuple[Floats, Floats, Floats]:
        """The three arrays in their order."""
        return self.agree, self.differ_x, self.differ_y


def pair_sums(x: Floats, y: Floats) -> PairSums:
    """Sums over pairs for each point, in O(n (log n)^2) time and O(n) memory.

    Args:
        x: Shape (n,), no nan.
        y: Shape (n,), no nan.
    """
    code_x, code_y = _codes(x), _codes(y)
    same_x, same_y = np.bincount(code_x)[code_x], np.bincount(code_y)[code_y]
    order = np.lexsort((code_y, code_x))
    agree = np.empty(x.size)
    agree[order] = _signed_order(code_y[order])
    # Points of one x stand in the order of y, which says nothing: taken out again.
    both = np.unique(code_x * (int(code_y.max()) + 1) + code_y, return_inverse=True)[1].reshape(-1)
    agree -= same_x - np.bincount(both)[both]
    return PairSums(agree, (x.size - same_x).astype(float), (x.size - same_y).astype(float))


def _codes(values: Floats) -> Ints:
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _signed_order(codes: Ints) -> Floats:
    """For each place i, the sum over j of sign(i - j) sign(codes[i] - codes[j]); shape (n,).

    Merges sorted blocks of doubling length, all blocks of a length at once: the numbers smaller
    and larger in the neighbouring block are what two searches in one sorted array tell.
    """
    n, span = codes.size, int(codes.max()) + 1
    result = np.zeros(n, dtype=np.int64)
    place = np.arange(n)
    order = place.copy()
    size = 1
    while size < n:
        block = place // size
        # `order` lists the places block by block, each block sorted by code.
        keys = block[order] * span + codes[order]
        other = (block ^ 1)[order] * span + codes[order]
        start = np.searchsorted(keys, (block ^ 1)[order] * span)
        stop = np.searchsorted(keys, ((block ^ 1)[order] + 1) * span)
        less = np.searchsorted(keys, other, side="left") - start
        more = stop - np.searchsorted(keys, other, side="right")
        result[order] += np.where(block[order] & 1, less - more, more - less)
        size *= 2
        order = np.argsort((place // size) * span + codes, kind="stable")
    return result.astype(np.float64)
