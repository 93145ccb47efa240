"""Tests that are decided together: adjustment, and the level of each interval."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.statistics.multiple import _most_equal, adjusted, holm


def test_holm_multiplies_the_smallest_most():
    found = holm(np.array([0.01, 0.04, math.nan, 0.03]))
    np.testing.assert_allclose(found, [0.03, 0.06, math.nan, 0.06])


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_lowers_and_keeps_the_order(values):
    p = np.array(values)
    found = holm(p)
    assert np.all(found >= p - 1e-12)
    assert np.all(found <= 1.0)
    assert np.all(np.diff(found[np.argsort(p, kind="stable")]) >= 0)


@pytest.mark.parametrize("n_models", [2, 3, 4, 5, 6])
def test_as_many_pairs_can_be_equal_as_groups_of_models_allow(n_models):
    pairs = list(combinations(range(n_models), 2))
    equal = {
        sum(group[i] == group[j] for i, j in pairs)
        for group in product(range(n_models), repeat=n_models)
    }
    most = [max(one for one in equal if one <= len(pairs) - n) for n in range(len(pairs))]
    assert _most_equal(n_models).tolist() == most


@given(st.integers(2, 6), st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.2]), st.booleans())
def test_each_interval_says_what_its_decision_says(n_models, seed, error, is_ranking):
    """An interval at level 1 - e leaves the value out where p <= e: so must the decision."""
    rng = np.random.default_rng(seed)
    p = rng.random(n_models * (n_models - 1) // 2) ** rng.choice([1, 3, 8])
    p[rng.random(len(p)) < 0.1] = np.nan
    found = adjusted(p, error, all_pairs_of=n_models if is_ranking else 0)
    known = ~np.isnan(p)
    assert np.array_equal(found.is_resolved[known], (p <= found.errors)[known])
    assert np.array_equal(found.is_resolved[known], (found.p_values <= error)[known])
    assert np.all(found.errors[known] <= error)
    if is_ranking:
        assert np.all(found.p_values[known] <= holm(p)[known] + 1e-15)
