import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.statistics.correlation import (
    compare_accuracies,
    compare_correlations,
    correlate,
    holm_adjusted,
)
from orchestrator.statistics.resampling import Jackknifed, Resampling, sign_flip_p_value


def correlations_compared(*values, **options):
    return compare_correlations(*values, **options)


def accuracies_compared(*values, **options):
    return compare_accuracies(*values, **options)


def correlated(*values, **options):
    return correlate(*values, **options)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def resampling(n=400, seed=0):
    return Resampling(n, np.random.default_rng(seed))


def evaluators(rng, n, noise):
    gold = rng.normal(size=n)
    return gold, [gold + spread * rng.normal(size=n) for spread in noise]


@pytest.mark.parametrize("kind", ["pearson", "spearman", "kendall"])
def test_difference_is_that_of_the_two_correlations(kind, rng):
    gold, (one, two) = evaluators(rng, 40, (0.5, 2.0))
    found = correlations_compared(one, two, gold, np.arange(40), kind, resampling())
    single = [correlated(s, gold, np.arange(40), kind=kind).value for s in (one, two)]
    assert (found.first, found.second) == pytest.approx(tuple(single))
    assert found.value == pytest.approx(single[0] - single[1])


def test_a_better_evaluator_is_told_from_a_worse_one(rng):
    gold, (one, two) = evaluators(rng, 150, (0.5, 2.0))
    found = correlations_compared(one, two, gold, np.arange(150), "spearman", resampling())
    assert found.interval.low > 0.1
    assert found.p_value == pytest.approx(1 / 401)


def test_swapping_the_evaluators_turns_the_sign(rng):
    gold, (one, two) = evaluators(rng, 30, (1.0, 1.5))
    plain = correlations_compared(one, two, gold, np.arange(30), "pearson", resampling())
    turned = correlations_compared(two, one, gold, np.arange(30), "pearson", resampling())
    assert turned.value == pytest.approx(-plain.value)
    assert turned.interval.low == pytest.approx(-plain.interval.high)
    assert turned.p_value == plain.p_value


def test_two_equal_evaluators_differ_by_nothing(rng):
    gold, (one,) = evaluators(rng, 30, (1.0,))
    found = correlations_compared(one, one, gold, np.arange(30), "kendall", resampling())
    assert (found.value, found.p_value) == (0.0, 1.0)
    assert found.interval is None
    assert "no spread" in found.undefined


def test_points_that_one_evaluator_lacks_are_left_out_for_both(rng):
    gold, (one, two) = evaluators(rng, 30, (1.0, 1.5))
    one[:3], two[5] = np.nan, np.nan
    found = correlations_compared(one, two, gold, np.arange(30), "pearson", resampling())
    assert (found.n, found.n_points) == (26, 26)


def test_a_constant_evaluator_is_not_compared(rng):
    gold, (one,) = evaluators(rng, 30, (1.0,))
    found = correlations_compared(one, np.ones(30), gold, np.arange(30), "pearson", resampling())
    assert np.isnan([found.value, found.p_value]).all()
    assert found.undefined == "the second score is constant"


def test_all_pairs_are_adjusted_together(rng):
    gold, scores = evaluators(rng, 60, (0.5, 1.0, 3.0))
    found = [
        correlations_compared(a, b, gold, np.arange(60), "spearman", resampling())
        for a, b in combinations(scores, 2)
    ]
    undefined = replace(found[0], p_value=math.nan)
    *adjusted, missing = holm_adjusted([*found, undefined])
    plain = np.array([c.p_value for c in found], float)
    together = np.array(adjusted, float)
    assert np.all(together >= plain)
    assert together.min() == pytest.approx(min(1.0, 3 * plain.min()))
    assert missing is None


def test_accuracies_of_one_point_a_prompt_have_the_paired_t_interval(rng):
    one, two = (rng.random((2, 40)) < [[0.8], [0.5]]).astype(float)
    found = accuracies_compared(one, two, np.arange(40), resampling())
    low, high = scipy.stats.ttest_rel(one, two).confidence_interval(0.95)
    assert found.value == pytest.approx(one.mean() - two.mean())
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high))


def test_accuracies_of_repeated_points_are_no_more_certain(rng):
    one, two = (rng.random((2, 40)) < [[0.8], [0.5]]).astype(float)
    once = accuracies_compared(one, two, np.arange(40), resampling())
    often = accuracies_compared(*(np.repeat(v, 5) for v in (one, two, np.arange(40))), resampling())
    assert often.interval.low == pytest.approx(once.interval.low)
    assert often.p_value == once.p_value


def test_nobody_is_compared_on_no_points():
    found = accuracies_compared(np.array([np.nan]), np.ones(1), np.zeros(1, int), resampling())
    assert math.isnan(found.value)


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=2, max_size=10))
def test_all_sign_flips_of_right_and_wrong_are_mcnemars_test(gains):
    one = np.array([float(gain > 0) for gain in gains])
    two = np.array([float(gain < 0) for gain in gains])
    found = accuracies_compared(one, two, np.arange(len(gains)), resampling())
    only_first, discordant = gains.count(1.0), len(gains) - gains.count(0.0)
    exact = scipy.stats.binomtest(only_first, discordant, 0.5).pvalue if discordant else 1.0
    assert found.p_value == pytest.approx(exact)


def test_drawn_flips_come_near_all_flips(rng):
    gains = rng.normal(0.3, 1.0, size=13)
    n = gains.size
    found = Jackknifed(gains.mean(), (gains - gains.mean()) / math.sqrt(n * (n - 1)))
    bits = np.arange(2**n)[:, None] >> np.arange(n) & 1
    exact = (np.abs((1.0 - 2.0 * bits) @ gains) >= abs(gains.sum()) - 1e-9).mean()
    assert sign_flip_p_value(found, resampling(20_000)) == pytest.approx(exact, abs=0.015)
