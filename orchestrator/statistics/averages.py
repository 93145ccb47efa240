"""Micro averages and rounding, as published tables have them; means equal but for rounding."""

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError

Floats = NDArray[np.float64]

_HALF: Final = Fraction(1, 2)
_ROUNDING: Final = 1e-12


def micro_average(means: Mapping[str, float], counts: Mapping[str, int]) -> float:
    """Mean over items: category means weighted by their numbers of items.

    Raises:
        StatisticsError: If the categories differ, or there are no items.
    """
    if means.keys() != counts.keys():
        raise StatisticsError("means and counts are of different categories")
    total = sum(counts.values())
    if total <= 0:
        raise StatisticsError("an average needs at least one item")
    return sum(means[name] * counts[name] for name in means) / total


def percent_half_up(count: int, total: int, digits: int) -> float:
    """100 count / total, rounded exactly, halves up: 49 of 160 is 30.63, not 30.62.

    Raises:
        StatisticsError: If the total is not positive.
    """
    if total <= 0:
        raise StatisticsError("a percentage needs a positive total")
    scaled = Fraction(100 * count * 10**digits, total)
    return float(Fraction((scaled + _HALF).__floor__(), 10**digits))


def round_half_up(value: float, digits: int) -> float:
    """A number rounded in its shortest decimal form, halves away from zero: 2.675 is 2.68."""
    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


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
