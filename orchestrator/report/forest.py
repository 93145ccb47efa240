"""Geometry of a forest plot: places of points, intervals and ticks on one axis, in percent."""

from typing import Final, NamedTuple

from orchestrator.report.picture import make_axis
from orchestrator.report.questions import Question

# Characters that the axis is laid out for: room for some four labels on a telephone.
_WIDTH: Final = 30


class Tick(NamedTuple):
    """A label of the axis and its place."""

    at: float
    label: str


class Mark(NamedTuple):
    """One model's point and interval; None is not drawn."""

    at: float | None
    low: float | None
    high: float | None
    low_open: bool
    high_open: bool


class Forest(NamedTuple):
    """A forest plot, one mark a model of the question."""

    ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]


def forest(question: Question) -> Forest | None:
    """The plot of a question; None where there is nothing that may be drawn."""
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

    ticks = tuple(
        Tick(place(value) or 0.0, axis.label(value, percent=question.is_percent))
        for value in axis.ticks()
    )
    marks = tuple(
        Mark(
            place(one.value),
            0.0 if one.low_open else place(one.low),
            100.0 if one.high_open else place(one.high),
            one.low_open,
            one.high_open,
        )
        for one in question.standings
    )
    return Forest(ticks, marks)
