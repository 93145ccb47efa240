"""Micro averages and rounding, as published tables have them."""

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction


def micro_average(means: Mapping[str, float], counts: Mapping[str, int]) -> float:
    """Mean over items: category means weighted by their numbers of items."""
    assert means.keys() == counts.keys()
    return sum(means[name] * counts[name] for name in means) / sum(counts.values())


def percent_half_up(count: int, total: int, digits: int) -> float:
    """100 count / total, rounded exactly, halves up: 49 of 160 is 30.63, not 30.62."""
    scaled = Fraction(100 * count * 10**digits, total)
    return float(Fraction((scaled + Fraction(1, 2)).__floor__(), 10**digits))


def round_half_up(value: float, digits: int) -> float:
    """A number rounded in its shortest decimal form, halves away from zero: 2.675 is 2.68."""
    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
