"""What prompts say of a pair among all models, against the fit; missing comparisons."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.statistics.bounded_mean import intervals, p_values
from orchestrator.statistics.bradley_terry import ELO_SCALE, fit_bradley_terry
from orchestrator.statistics.field import field_of
from orchestrator.statistics.prompt_sums import Pairs
from orchestrator.statistics.ratings import rate


def compared(preferences, kept=None):
    """Preferences of shape (n, pairs), of which those that are not kept are missing."""
    n_pairs = preferences.shape[1]
    n_models = round((1 + math.sqrt(1 + 8 * n_pairs)) / 2)
    first, second = np.triu_indices(n_models, 1)
    kept = np.ones(preferences.shape, bool) if kept is None else kept
    prompt, pair = np.nonzero(kept)
    return Pairs(prompt, first[pair], second[pair], n_models).summing()(preferences[kept])


def difference(found, first, second):
    """Of two models, at the level that says what is decided on all pairs."""
    return found.differences(np.array([first]), np.array([second]))[0]


SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(2, 5), st.integers(6, 30))
def test_a_pair_is_tested_by_the_mean_preference_for_each_over_all_others(seed, n_models, n):
    rng = np.random.default_rng(seed)
    x = rng.random((n, n_models * (n_models - 1) // 2))
    sums = compared(x)
    strengths = fit_bradley_terry(sums.win_matrix).strengths
    field = field_of(sums, strengths)
    first, second = np.triu_indices(n_models, 1)
    share = np.zeros((n, n_models))
    for at, (a, b) in enumerate(zip(first, second, strict=True)):
        share[:, a] += x[:, at] / (n_models - 1)
        share[:, b] += (1 - x[:, at]) / (n_models - 1)
    y = np.ascontiguousarray((1 + share[:, first] - share[:, second]).T / 2)
    np.testing.assert_allclose(
        field.p_values(first, second), p_values(y, np.ones(y.shape)), rtol=1e-5
    )
    assert np.array_equal(
        np.sign(y.mean(axis=1) - 0.5), np.sign(strengths[first] - strengths[second])
    )
    low, high = field.differences(first, second, np.full(len(first), 0.05))
    ends = intervals(y, np.ones(y.shape), 0.05)
    for of_gap, of_mean in zip((low, high), ends, strict=True):
        assert np.array_equal(np.sign(of_gap), np.sign(of_mean - 0.5))


def test_of_two_models_all_is_the_win_rate():
    rng = np.random.default_rng(1)
    x = rng.beta(2, 1, (30, 1))
    found = rate(compared(x), ["a", "b"], confidence_level=0.95)
    (low,), (high,) = intervals(x.T, np.ones((1, 30)), 0.05)
    gap = difference(found, 0, 1)
    assert gap.interval is not None
    ends = [ELO_SCALE * math.log(end / (1 - end)) for end in (low, high)]
    assert [gap.interval.low, gap.interval.high] == pytest.approx(ends, abs=1e-4)
    assert 2 * (found.low[0] - 1000) == pytest.approx(ends[0], abs=1e-4)
    assert 2 * (found.high[0] - 1000) == pytest.approx(ends[1], abs=1e-4)


def test_one_missing_comparison_changes_little():
    rng = np.random.default_rng(2)
    x = rng.beta(2, 1, (40, 6))
    kept = np.ones(x.shape, bool)
    kept[3, 2] = False
    names = list("abcd")
    whole, part = (rate(compared(x, k), names, confidence_level=0.95) for k in (None, kept))
    np.testing.assert_allclose(part.p_values, whole.p_values, rtol=0.2, atol=0.05)
    np.testing.assert_allclose(part.low, whole.low, atol=8)
    np.testing.assert_allclose(part.high, whole.high, atol=8)


@given(SEEDS, st.sampled_from([0.05, 0.5, 0.8]))
def test_where_comparisons_are_missing_the_order_is_still_that_of_the_fit(seed, thin):
    rng = np.random.default_rng(seed)
    x = rng.random((25, 10))
    sums = compared(x, rng.random(x.shape) >= thin)
    found = rate(sums, list("abcde"), confidence_level=0.95)
    for a, b in combinations(range(5), 2):
        gap = difference(found, a, b)
        if gap.interval is not None and math.isfinite(gap.value):
            assert gap.interval.low - 1e-6 <= gap.value <= gap.interval.high + 1e-6


def test_a_model_that_won_everything_is_better_by_its_own_comparisons():
    """Also where comparisons are missing: nothing else can be said of it."""
    rng = np.random.default_rng(4)
    x = rng.random((20, 3))
    x[:, :2] = 1.0
    kept = np.ones(x.shape, bool)
    kept[0, 2] = False
    found = rate(compared(x, kept), list("abc"), confidence_level=0.95)
    assert found.values[0] == math.inf
    assert found.p_values[0, 1] == pytest.approx(2 * 0.5**20, rel=0.05)
    assert found.better[0].tolist() == [False, True, True]
