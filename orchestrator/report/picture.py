"""Intervals on a common axis: drawn with characters, and as places of a forest plot in percent."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from orchestrator.report.questions import Question, Standing

# Steps between the axis' labels, times a power of ten.
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
# Columns that a label needs to stand apart from the next.
_LABEL_WIDTH: Final = 7
MIN_SPAN: Final = 40.0
"""Ratings nearer than this are drawn on an axis of this length: noise is not made a contest."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from `low` to `high` on `width` columns."""

    low: float
    high: float
    width: int
    step: float

    def column(self, value: float) -> int:
        """The column of a value, clipped to the axis."""
        share = (value - self.low) / (self.high - self.low)
        return min(max(round(share * (self.width - 1)), 0), self.width - 1)

    def label(self, value: float, *, percent: bool = False) -> str:
        """A value at a tick, with the decimals that tell it from the next one."""
        step = 100 * self.step if percent else self.step
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        # Steps of 2.5 times a power of ten need one decimal more.
        decimals += not math.isclose(step * 10**decimals, round(step * 10**decimals))
        text = f"{round(100 * value if percent else value, decimals) + 0.0:,.{decimals}f}"
        return f"{text} %" if percent else text

    def labels(self, *, percent: bool = False) -> str:
        """A line with the values at the ticks, as many as fit."""
        line = [" "] * self.width
        free_from = 0
        for value in self.ticks():
            text = self.label(value, percent=percent)
            begin = self.column(value) - len(text) // 2
            begin = min(max(begin, 0), self.width - len(text))
            if begin >= free_from and len(text) <= self.width:
                line[begin : begin + len(text)] = text
                free_from = begin + len(text) + 2
        return "".join(line)

    def ticks(self) -> list[float]:
        """Multiples of the step on the axis."""
        first = math.ceil(self.low / self.step - 1e-9)
        last = math.floor(self.high / self.step + 1e-9)
        return [self.step * k for k in range(first, last + 1)]

    def draw(self, bounds: Standing) -> tuple[str, str, str]:
        """Return the parts left of the point, the point, and right of it; `width` in all."""
        if bounds.value is None:
            if bounds.high_open and not bounds.low_open:
                return " " * (self.width - 1), "▶", ""
            if bounds.low_open and not bounds.high_open:
                return "", "◀", " " * (self.width - 1)
            return " " * self.width, "", ""
        at = self.column(bounds.value)
        room = self.width - at - 1
        low = at if bounds.low is None else min(self.column(bounds.low), at)
        high = at if bounds.high is None else max(self.column(bounds.high), at)
        left = _side(at, at - low, "◀" if bounds.low_open else "", "╺")[::-1]
        return left, "●", _side(room, high - at, "▶" if bounds.high_open else "", "╸")


def _side(room: int, length: int, beyond: str, end: str) -> str:
    """What is drawn on one side of a point, outwards: to the edge where the data give no bound."""
    if beyond:
        return "" if room == 0 else "━" * (room - 1) + beyond
    drawn = "" if length == 0 else "━" * (length - 1) + end
    return drawn + " " * (room - length)


def make_axis(
    values: Iterable[float | None], width: int, least_span: float = MIN_SPAN
) -> Axis | None:
    """An axis that holds all finite values; None where there are none.

    Args:
        values: Points and ends of intervals; None is not known.
        width: Columns.
        least_span: Least difference of the ends of the axis; 0 fits it to the values.
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known or width < 1:
        return None
    low, high = min(known), max(known)
    missing = (least_span or (0.0 if high > low else abs(low) or 1.0)) - (high - low)
    if missing > 0:
        low, high = low - missing / 2, high + missing / 2
    at_least = (high - low) / max(1, width // _LABEL_WIDTH)
    power = 10.0 ** math.floor(math.log10(at_least))
    step = next(step * power for step in _STEPS if step * power >= at_least * (1 - 1e-9))
    # A little room at both ends, so that no interval seems to be cut off by the frame.
    margin = 0.02 * (high - low)
    return Axis(low - margin, high + margin, width, step)


# Characters that the axis is laid out for: room for some four labels on a telephone.
_WIDTH: Final = 30


def forest(question: Question) -> tuple[list[tuple[float, str]], list[Standing]] | None:
    """Return the forest plot of a question, in percent of its width.

    That is the place and the label of each tick, and what is drawn of each model. None where there
    is nothing that may be drawn.
    """
    if not question.is_drawn:
        return None
    ends = [end for one in question.standings for end in (one.value, one.low, one.high)]
    axis = make_axis(ends, _WIDTH, question.least_span)
    if axis is None:
        return None

    def place(value: float | None) -> float | None:
        if value is None:
            return None
        return round(100 * (value - axis.low) / (axis.high - axis.low), 2)

    ticks = [
        (place(value) or 0.0, axis.label(value, percent=question.is_percent))
        for value in axis.ticks()
    ]
    marks = [
        msgspec.structs.replace(
            one,
            value=place(one.value),
            low=0.0 if one.low_open else place(one.low),
            high=100.0 if one.high_open else place(one.high),
        )
        for one in question.standings
    ]
    return ticks, marks
