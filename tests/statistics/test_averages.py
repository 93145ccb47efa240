import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.averages import (
    levelled,
    micro_average,
    percent_half_up,
    round_half_up,
)
from orchestrator.statistics.means import clustered_mean


def mean_of(*values, **options):
    return clustered_mean(*values, **options)


@pytest.mark.parametrize(
    ("count", "total", "digits", "expected"),
    [(49, 160, 2, 30.63), (17, 80, 2, 21.25), (1, 3, 1, 33.3), (0, 5, 1, 0.0), (5, 5, 2, 100.0)],
)
def test_percentages_round_halves_up(count, total, digits, expected):
    assert percent_half_up(count, total, digits) == expected


@given(st.integers(0, 500), st.integers(1, 500), st.integers(0, 3))
def test_a_percentage_is_the_nearest(count, total, digits):
    found = Fraction(percent_half_up(count, total, digits)).limit_denominator(10**digits)
    distance = found - Fraction(100 * count, total)
    assert -Fraction(1, 2 * 10**digits) < distance <= Fraction(1, 2 * 10**digits)


@pytest.mark.parametrize(("value", "expected"), [(2.675, 2.68), (30.625, 30.63), (-2.675, -2.68)])
def test_numbers_round_as_they_are_written(value, expected):
    assert round_half_up(value, 2) == expected


def test_micro_weights_by_items():
    assert micro_average({"a": 1.0, "b": 0.0}, {"a": 3, "b": 1}) == 0.75


@pytest.mark.parametrize(
    ("average", "values"),
    [
        (micro_average, ({"a": 1.0}, {"b": 1})),
        (micro_average, ({}, {})),
        (percent_half_up, (0, 0, 1)),
    ],
)
def test_averages_of_nothing_are_refused(average, values):
    with pytest.raises(StatisticsError):
        average(*values)


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=30))
def test_mean_of_one_point_a_prompt_has_students_interval(values):
    x = np.array(values)
    found = mean_of(x, np.arange(x.size))
    assert found.value == pytest.approx(x.mean(), abs=1e-9)
    if found.interval is not None:
        error = scipy.stats.sem(x)
        low, high = scipy.stats.t.interval(0.95, x.size - 1, x.mean(), error)
        assert found.interval.low == pytest.approx(low, rel=1e-6, abs=1e-6)
        assert found.interval.high == pytest.approx(high, rel=1e-6, abs=1e-6)


def test_repeated_points_add_no_certainty():
    x = np.random.default_rng(0).normal(size=20)
    once = mean_of(x, np.arange(20))
    often = mean_of(np.repeat(x, 4), np.repeat(np.arange(20), 4))
    assert often.interval.low == pytest.approx(once.interval.low)
    assert often.n == 20


@pytest.mark.parametrize(
    ("values", "value", "reason"),
    [
        ([], math.nan, "no values"),
        ([math.nan], math.nan, "no values"),
        ([1.0, -math.inf, 2.0], -math.inf, "infinite"),
        ([1.0, 2.0], 1.5, "too few"),
        ([2.0, 2.0, 2.0], 2.0, "no spread"),
    ],
)
def test_means_without_an_interval_say_why(values, value, reason):
    found = mean_of(np.array(values), np.arange(len(values)))
    assert found.value == pytest.approx(value, nan_ok=True)
    assert found.interval is None
    assert reason in found.undefined


def test_means_that_differ_by_rounding_alone_are_equal():
    means = np.array([1e-17, 0.5, -2e-17, np.nan, 0.5 + 1e-16])
    zero, half, tiny, none, close = levelled(means, 1.0).tolist()
    assert (zero, half) == (tiny, close) == (1e-17, 0.5 + 1e-16)
    assert math.isnan(none)
    # Rounding is measured by the values, not by their means, which may cancel.
    assert levelled(np.array([3e-13, 0.0]), 0.1).tolist() == [3e-13, 0.0]
    assert levelled(np.array([3e-13, 0.0]), 1.0).tolist() == [3e-13, 3e-13]
