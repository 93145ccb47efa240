"""Numbers in what a judge wrote."""

import math
from typing import Final

NUMBER: Final = r"\d++(?:\.\d*+)?+"
r"""Possessive, so that a long run of digits is read once: the published `\d+\.?\d*` backtracks
through it quadratically. Both accept the same texts where a bracket follows."""


def within(written: str, low: float, high: float) -> float | None:
    """The number, None outside [low, high] (also where it is too long for a float64)."""
    value = float(written)
    return value if math.isfinite(value) and low <= value <= high else None
