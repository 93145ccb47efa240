"""Means that are equal but for rounding, and values whose sums and squares are no overflow."""

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROUNDING: Final = 1e-12


def scaled(values: Floats) -> tuple[Floats, int]:
    """Return values over a power of two that brings the largest to [0.5, 1), and its exponent.

    Nothing is rounded, save values that are 1e300 times smaller than the largest.

    Args:
        values: Shape (n,), finite.
    """
    exponent = int(np.frexp(np.abs(values).max(initial=0.0))[1])
    result: Floats = np.ldexp(values, -exponent)
    return result, exponent


def levelled(means: Floats, size: float) -> Floats:
    """Return means of which those that differ by rounding alone are equal.

    The means of z-scores within each model are 0 for every model but for the last digits of a sum,
    which must not put the models in an order.

    Args:
        means: Shape (M,); nan where there is none.
        size: Mean absolute value of what they are means of, by which rounding is measured.

    Returns:
        Shape (M,): each mean, or the next greater one where less than rounding lies between.
    """
    result = means.copy()
    descending = np.argsort(-means, kind="stable")
    for before, after in pairwise(descending):
        if means[before] - means[after] <= _ROUNDING * size:
            result[after] = result[before]
    return result
