"""Degrees of freedom over clusters of unlike sizes, against the matrices of their definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.statistics.means import clustered_mean
from orchestrator.statistics.resampling import student_interval
from orchestrator.statistics.student import (
    N_POWERS,
    degrees_of_freedom,
    from_powers,
    variance_factor,
)

SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=30)


def by_definition(sizes):
    """(trace A)^2 / trace A^2 for residuals A y of clusters' means y, of one variance."""
    known = np.array([size for size in sizes if size], float)
    share = known / known.sum()
    residuals = np.diag(share) @ (np.eye(len(share)) - share[None, :])
    squared = residuals @ residuals.T
    return np.trace(squared) ** 2 / np.trace(squared @ squared)


@given(SIZES)
def test_they_follow_from_the_residuals(sizes):
    (found,) = degrees_of_freedom(np.array(sizes, float)[:, None])
    n = np.count_nonzero(sizes)
    if n < 2:
        assert found == 0.0
    else:
        assert found == pytest.approx(by_definition(sizes), rel=1e-6)
        assert 0.0 < found <= n - 1


@given(st.integers(2, 10_000), st.integers(1, 50))
def test_clusters_of_one_size_have_one_less_exactly(n, size):
    sizes = np.full((n, 1), float(size))
    assert degrees_of_freedom(sizes)[0] == n - 1
    powers = np.array([[float(n) * float(size) ** k] for k in range(1, N_POWERS + 1)])
    assert from_powers(powers, np.array([n]))[0] == pytest.approx(n - 1, rel=1e-9)


def test_columns_are_told_apart():
    sizes = np.array([[1.0, 9.0], [1.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
    found = degrees_of_freedom(sizes)
    assert found[0] == 2.0
    assert found[1] == pytest.approx(by_definition([9, 1, 1, 1]))


def test_unlike_clusters_make_a_longer_interval():
    values, prompts = np.random.default_rng(0).normal(size=30), np.repeat(np.arange(10), 3)
    even = clustered_mean(values, prompts).interval
    assert even is not None
    alike = student_interval(0.0, 1.0, np.full(10, 3.0), 0.95)
    unlike = student_interval(0.0, 1.0, np.array([12.0, *[2.0] * 9]), 0.95)
    assert not isinstance(alike, str)
    assert not isinstance(unlike, str)
    assert unlike.high > 1.2 * alike.high


def test_clusters_that_leave_no_degree_of_freedom_give_no_interval():
    said = student_interval(0.0, 1.0, np.array([20.0, 20.0, 1.0, 1.0]), 0.95, n_strata=2)
    # Two of them have nearly all points, so it is not said to be one.
    assert said == "4 independent prompts of too unequal sizes for an interval"


@given(st.lists(st.integers(1, 30), min_size=2, max_size=30))
def test_the_factor_makes_the_variance_unbiased(sizes):
    share = np.array(sizes, float) / sum(sizes)
    residuals = np.diag(share) @ (np.eye(len(share)) - share[None, :])
    expected = (share**2).sum() / np.trace(residuals @ residuals.T)
    (found,) = variance_factor(np.array(sizes, float)[:, None])
    assert found == pytest.approx(expected)
    assert found >= len(sizes) / (len(sizes) - 1) - 1e-9


def test_few_clusters_have_no_factor():
    assert variance_factor(np.array([[3.0, 0.0], [0.0, 0.0]])).tolist() == [1.0, 1.0]
