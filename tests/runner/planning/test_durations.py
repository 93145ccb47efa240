"""The time of a plan: a range from the pace of earlier runs, or that it is not known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.report.planned import StageCount
from orchestrator.runner.planning.counts import duration_of

PACES = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.floats(1e-4, 1e3), min_size=1), max_size=5
)


def stages(**left):
    return [
        StageCount("answers", name, n, 0, n, exact=True, max_tokens=0) for name, n in left.items()
    ]


def paces(*seconds):
    return {f"run{number}": one for number, one in enumerate(seconds)}


def test_the_slowest_model_decides():
    found = duration_of(stages(a=100, b=10), paces({"a": 0.1, "b": 2.0}))
    # b: 10 x 2 s = 20 s, within a factor of two.
    assert (found.low_s, found.high_s) == (10, 40)
    assert found.runs == ("run0",)


def test_earlier_runs_span_the_range():
    found = duration_of(stages(a=10), paces({"a": 1.0}, {"x": 9.0}, {"a": 4.0}))
    assert (found.low_s, found.high_s) == (5, 80)
    assert found.runs == ("run0", "run2")


def test_a_model_without_a_pace_makes_it_unknown():
    found = duration_of(stages(a=10, b=1), paces({"a": 1.0}))
    assert (found.low_s, found.high_s, found.missing) == (None, None, ("b",))
    assert "not known yet; no earlier run here asked b" in found.words()


def test_what_is_complete_takes_no_time_and_needs_no_pace():
    assert duration_of(stages(a=0), {}).high_s == 0


@given(PACES, st.dictionaries(st.sampled_from("abc"), st.integers(1, 10**6), min_size=1))
def test_ranges_are_ordered_and_grow_with_what_is_left(seconds, left):
    found = duration_of(stages(**left), paces(*seconds))
    more = duration_of(stages(**{name: 2 * n for name, n in left.items()}), paces(*seconds))
    if found.low_s is None or found.high_s is None:
        assert set(found.missing) == set(left) - {name for one in seconds for name in one}
        return
    assert 0 < found.low_s < found.high_s
    assert (more.low_s, more.high_s) == pytest.approx((2 * found.low_s, 2 * found.high_s))
