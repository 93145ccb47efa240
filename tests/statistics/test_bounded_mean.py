"""The test against exact values that others give, and its interval against the test."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from orchestrator.statistics.bounded_mean import intervals, least_units, p_values

Floats = NDArray[np.float64]

# What the saddlepoint adds to a p-value at most, of this share of it.
NEAR = 0.05


def alone(values: list[float] | Floats) -> tuple[Floats, Floats]:
    totals = np.array(values, float)[None]
    return totals, np.ones_like(totals)


@pytest.mark.parametrize(("n", "c"), [(6, 0.0), (9, 1.0), (20, 0.474), (20, 0.6), (100, 0.474)])
def test_equal_values_have_the_p_value_of_a_closed_form(n, c):
    (found,) = p_values(*alone([c] * n))
    expected = min(1.0, 2 * (0.5 / max(c, 1 - c)) ** n)
    assert expected <= found <= expected * (1 + NEAR)


@pytest.mark.parametrize(
    ("wins", "n"), [(5, 20), (39, 100), (1, 12), (30, 31), (0, 8), (150, 400), (10_200, 20_000)]
)
def test_wins_and_losses_have_the_interval_of_clopper_and_pearson(wins, n):
    values = alone([1.0] * wins + [0.0] * (n - wins))
    (p,), ((low,), (high,)) = p_values(*values), intervals(*values, 0.05)
    exact = stats.binomtest(wins, n)
    ends = exact.proportion_ci(0.95, "exact")
    assert exact.pvalue * (1 - 1e-3) <= p <= exact.pvalue * (1 + NEAR)
    assert (low, high) == pytest.approx((ends.low, ends.high), abs=0.004)
    assert low <= ends.low + 1e-3
    assert high >= ends.high - 1e-3


@pytest.mark.parametrize("kinds", [1, 2, 9, 20_000])
def test_units_that_are_alike_count_as_if_none_were(kinds):
    """Many units are summed by kind; a change of the last digit makes each its own."""
    rng = np.random.default_rng(kinds)
    totals, sizes = alone(rng.integers(0, kinds, 20_000) / max(kinds - 1, 1) * 0.7)
    apart = totals + rng.random(totals.shape) * 1e-13
    assert p_values(totals, sizes, 0.36) == pytest.approx(p_values(apart, sizes, 0.36), rel=1e-6)
    for found, expected in zip(
        intervals(totals, sizes, 0.05), intervals(apart, sizes, 0.05), strict=True
    ):
        assert found == pytest.approx(expected, abs=1e-9)


def test_the_probability_is_that_of_sums_of_exponentials():
    rng = np.random.default_rng(3)
    values = rng.random(7)
    drawn = rng.exponential(size=(400_000, 8))
    unseen = np.append(values - 0.7, 1 - 0.7)
    expected = 2 * ((drawn * unseen).sum(axis=1) >= 0).mean()
    assert p_values(*alone(values), 0.7)[0] == pytest.approx(expected, rel=NEAR)


SIZES = st.sampled_from([0.0, 1.0, 1.0, 2.0, 5.0])


@st.composite
def designs(draw):
    """Rows of units: ties, no spread, rare exceptions, clusters of any sizes, some empty."""
    n = draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    level = draw(st.floats(0, 1))
    values = draw(
        st.sampled_from([
            rng.random((5, n)), np.full((5, n), level), (rng.random((5, n)) < level) * 1.0,
            np.where(rng.random((5, n)) < 0.9, 0.5, rng.random((5, n))),
            np.where(rng.random((5, n)) < 0.05, 1.0, 0.474),
        ])
    )  # fmt: skip
    sizes = rng.choice([0.0, 1.0, 2.0, 5.0], size=(5, n)) if draw(st.booleans()) else 1.0
    sizes = np.broadcast_to(sizes, values.shape)
    return values * sizes, sizes


@given(designs(), st.sampled_from([0.2, 0.05, 0.005, 1e-4]))
def test_the_interval_is_the_inversion_of_the_test(design, error):
    totals, sizes = design
    p, (low, high) = p_values(totals, sizes), intervals(totals, sizes, error)
    there = sizes.sum(axis=1) > 0
    assert np.array_equal(np.isnan(p), ~there)
    assert np.array_equal(np.isnan(low), ~there)
    decided = (low > 0.5) | (high < 0.5)
    assert np.array_equal(decided[there], (p <= error)[there])
    mean = totals.sum(axis=1) / np.where(there, sizes.sum(axis=1), 1)
    assert np.all(
        (low <= mean + 1e-12) & (mean <= high + 1e-12) & (low >= 0) & (high <= 1), where=there
    )
    for bound in (low, high):
        for row in np.flatnonzero(there & (bound > 1e-3) & (bound < 1 - 1e-3)):
            one = totals[row : row + 1], sizes[row : row + 1]
            assert p_values(*one, float(bound[row]))[0] == pytest.approx(error, rel=1e-5)


@given(designs())
def test_both_sides_are_alike(design):
    totals, sizes = design
    np.testing.assert_allclose(p_values(totals, sizes), p_values(sizes - totals, sizes), rtol=1e-6)
    (low, high), (low_of_other, high_of_other) = (
        intervals(totals, sizes, 0.05), intervals(sizes - totals, sizes, 0.05)
    )  # fmt: skip
    np.testing.assert_allclose(low, 1 - high_of_other, atol=1e-8)
    np.testing.assert_allclose(high, 1 - low_of_other, atol=1e-8)


@pytest.mark.parametrize("error", [0.05, 0.005, 0.05 / 435, 0.2])
def test_fewer_units_than_the_least_cannot_decide(error):
    n = least_units(error)
    assert n == math.ceil(math.log2(2 / error))
    assert p_values(*alone([1.0] * (n - 1)))[0] > error
    assert p_values(*alone([1.0] * (n + 1)))[0] < error
