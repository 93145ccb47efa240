import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.report.picture import Axis, make_axis
from orchestrator.report.questions import Standing
from orchestrator.report.text import own_words

AXIS = Axis(0.0, 10.0, 11, 5.0)


@pytest.mark.parametrize(
    ("bounds", "drawn"),
    [
        (Standing("a", 5, 2, 8), "  ╺━━●━━╸  "),
        (Standing("a", 5, 5, 5), "     ●     "),
        (Standing("a", 5, None, None), "     ●     "),
        (Standing("a", 5, 2, None, high_open=True), "  ╺━━●━━━━▶"),
        (Standing("a", 5, None, 8, low_open=True), "◀━━━━●━━╸  "),
        (Standing("a", 5, None, None, low_open=True, high_open=True), "◀━━━━●━━━━▶"),
        (Standing("a", None, None, None, high_open=True), "          ▶"),
        (Standing("a", None, None, None, low_open=True), "◀          "),
        (Standing("a", None, None, None), "           "),
        (Standing("a", 0, -5, 3), "●━━╸       "),
    ],
)
def test_an_interval_is_drawn_where_it_lies(bounds, drawn):
    assert "".join(AXIS.draw(bounds)) == drawn


def test_labels_stand_at_their_values():
    assert AXIS.labels() == "0    5   10"


def test_no_value_makes_no_axis():
    assert make_axis([None, math.nan, math.inf], 20) is None


def test_equal_values_are_not_blown_up():
    axis = make_axis([1000.0, 1001.0], 40)
    assert axis is not None
    assert abs(axis.column(1001.0) - axis.column(1000.0)) <= 1


_floats = st.floats(-1e6, 1e6)


@given(st.lists(_floats, min_size=3, max_size=3), st.integers(1, 60), st.booleans(), st.booleans())
def test_every_drawing_has_the_width_of_its_axis(values, width, low_open, high_open):
    low, value, high = sorted(values)
    axis = make_axis(values, width)
    assert axis is not None
    bounds = Standing("a", value, low, high, low_open, high_open)
    drawn = "".join(axis.draw(bounds))
    assert len(drawn) == len(own_words(drawn, ascii_only=True)) == width
    assert len(axis.labels()) == width
