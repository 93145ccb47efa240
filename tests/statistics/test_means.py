import math
import statistics

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.statistics.means import (
    clustered_mean,
    levelled,
    paired_difference,
    unseen_variance,
)
from orchestrator.statistics.results import SKEWED, Interval


def mean_of(*values, **options):
    return clustered_mean(*values, **options)


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=30))
def test_mean_of_one_point_a_prompt_has_students_interval(values):
    x = np.array(values)
    found = mean_of(x, np.arange(x.size))
    assert found.value == pytest.approx(x.mean(), abs=1e-9)
    # The squares of the least numbers vanish in the oracle.
    if found.interval is not None and (error := scipy.stats.sem(x)) > 0.0:
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


@given(
    st.lists(st.integers(-9, 9).map(float), min_size=3, max_size=12),
    st.integers(-1000, 1000),
)
def test_a_mean_is_the_same_at_any_size_of_its_values(values, exponent):
    given_values, prompts = np.array(values), np.arange(len(values))
    one = clustered_mean(given_values, prompts)
    two = clustered_mean(np.ldexp(given_values, exponent), prompts)
    assert two.value == np.ldexp(one.value, exponent)
    assert (one.interval is None) == (two.interval is None)
    if one.interval is not None and two.interval is not None:
        ends = np.ldexp([one.interval.low, one.interval.high], exponent)
        assert [two.interval.low, two.interval.high] == ends.tolist()


def test_the_mean_of_the_greatest_numbers_is_finite():
    assert clustered_mean(np.full(3, 1e308), np.arange(3)).value == pytest.approx(1e308)


# Few values, so that many draws are symmetric, or have one rare large value.
_LISTS = st.lists(st.sampled_from([0.0, 1.0, 2.0, 50.0]), min_size=3, max_size=60)


@given(_LISTS, st.integers(-1000, 900), st.integers(1, 3), st.sampled_from([1.0, -1.0]))
def test_a_mean_is_in_doubt_by_cochrans_rule_in_any_unit(values, exponent, copies, sign):
    x = sign * np.array(values)
    prompts = np.repeat(np.arange(x.size), copies)
    interval = clustered_mean(np.ldexp(x.repeat(copies), exponent), prompts).interval
    gap = paired_difference(np.zeros(x.size), x, np.arange(x.size)).estimate(0.95).interval
    if np.ptp(x) == 0.0:
        assert interval is None
        return
    needed = 25 * scipy.stats.skew(x) ** 2
    assume(abs(needed - x.size) > 1e-6)
    doubt = SKEWED if needed > x.size else ""
    assert isinstance(interval, Interval)
    assert isinstance(gap, Interval)
    assert interval.doubt == gap.doubt == doubt


def test_an_interval_between_known_ends_is_never_in_doubt():
    rare = np.r_[np.zeros(30), 1.0]
    for ends, doubt in ((None, SKEWED), ((0.0, 1.0), "")):
        found = clustered_mean(rare, np.arange(31), ends=ends).interval
        assert found is not None
        assert found.doubt == doubt


def with_a_prompt_not_seen(means):
    """The variance of `unseen_variance` for prompts of one size, number by number."""
    n = len(means)
    centre, middle = statistics.fmean(means), statistics.median(means)
    variance = statistics.pvariance(means)
    # Geary's ratio of an ordinary sample is sqrt(2/pi); a thousandth counts as agreement.
    apart = statistics.fmean(max(abs(one - middle) - 1e-3, 0.0) for one in means)
    ratio = math.sqrt(2 / math.pi) * math.sqrt(variance) / apart if apart else math.inf
    whole = (centre**2 + (1 - centre) ** 2) / 2
    share = 1.0 if math.isinf(ratio) else min(1.0, variance * min(ratio, 1e9) ** 8 / whole)
    mean = (sum(means) + 0.5 * share) / (n + share)
    squares = sum((one - mean) ** 2 for one in means)
    squares += share * (mean**2 + (1 - mean) ** 2) / 2
    n_added = n + share
    return squares / n_added**2 * n_added / max(n_added - 1, 0.5)


@given(
    st.lists(st.sampled_from((0.0, 0.25, 0.5, 1.0)) | st.floats(0, 1), min_size=2, max_size=40),
    st.sampled_from((1.0, 3.0)),
)
def test_a_prompt_not_seen_adds_to_the_variance_what_its_formula_says(means, size):
    x = np.array(means)
    found = unseen_variance(x * size, np.full(x.size, size))
    assert found == pytest.approx(with_a_prompt_not_seen(means), rel=1e-6, abs=1e-12)
