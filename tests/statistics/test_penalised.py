"""Penalised logistic regressions: each of many at once is the optimum of its own problem."""

from functools import partial

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.statistics.length import Rows, fit_penalised, log_losses


def objective(rows, weight, penalty, at):
    logit = rows.features @ at
    loss = weight @ (np.logaddexp(0.0, logit) - rows.target * logit)
    return np.abs(at).sum() + penalty * loss


def problems(seed, *, hard):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(40, 3))
    target = (features[:, 0] > 0).astype(float) if hard else rng.random(40)
    weights = rng.multinomial(40, np.full(40, 1 / 40), size=6) * rng.uniform(0.1, 1.0, 40)
    return Rows(features, target, np.ones(40)), weights, np.logspace(-3, 4, 6)


@given(st.integers(0, 200), st.booleans())
@settings(max_examples=40, deadline=None)
def test_each_problem_meets_the_conditions_of_an_optimum(seed, hard):
    rows, weights, penalties = problems(seed, hard=hard)
    for at, weight, penalty in zip(
        fit_penalised(rows, weights, penalties), weights, penalties, strict=True
    ):
        p = scipy.special.expit(rows.features @ at)
        slope = penalty * (weight * (p - rows.target)) @ rows.features
        away = at != 0.0
        np.testing.assert_allclose(slope[away], -np.sign(at[away]), atol=1e-5)
        assert np.all(np.abs(slope[~away]) <= 1 + 1e-5)


@given(st.integers(0, 200), st.booleans())
@settings(max_examples=20, deadline=None)
def test_no_search_of_another_kind_finds_less(seed, hard):
    rows, weights, penalties = problems(seed, hard=hard)
    found = fit_penalised(rows, weights, penalties)
    for at, weight, penalty in zip(found, weights, penalties, strict=True):
        own = objective(rows, weight, penalty, at)
        search = partial(objective, rows, weight, penalty)
        other = scipy.optimize.minimize(search, at, method="Nelder-Mead")
        assert own <= other.fun + 1e-7 * abs(own)


def test_problems_do_not_depend_on_one_another():
    rows, weights, penalties = problems(1, hard=False)
    together = fit_penalised(rows, weights, penalties)
    for i in range(len(weights)):
        alone = fit_penalised(rows, weights[[i]], penalties[[i]])
        np.testing.assert_allclose(alone[0], together[i], atol=1e-8)


def test_where_the_search_begins_does_not_matter():
    rows, weights, penalties = problems(2, hard=False)
    begun = fit_penalised(rows, weights, penalties, np.array([3.0, -4.0, 5.0]))
    np.testing.assert_allclose(begun, fit_penalised(rows, weights, penalties), atol=1e-6)


def test_a_strong_penalty_leaves_nothing():
    rows, weights, _ = problems(3, hard=False)
    found = fit_penalised(rows, weights, np.full(len(weights), 1e-4))
    np.testing.assert_array_equal(found, np.zeros((len(weights), 3)))


def test_log_losses_are_weighted_sums():
    found = log_losses(np.array([[1.0, 2.0]]), np.array([[0.3, 0.6]]), np.array([1.0, 0.25]))
    p = scipy.special.expit([0.3, 0.6])
    expected = -np.log(p[0]) - 2 * (0.25 * np.log(p[1]) + 0.75 * np.log(1 - p[1]))
    assert found[0] == pytest.approx(expected)
