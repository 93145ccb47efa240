import math
from itertools import permutations

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.agreement import (
    cohen_kappa,
    fleiss_kappa,
    ranking_agreement,
    rater_counts,
    raw_agreement,
)
from orchestrator.statistics.jackknife import Resampling

FLEISS_1971 = np.array(
    [
        [0, 0, 0, 0, 14],
        [0, 2, 6, 4, 2],
        [0, 0, 3, 5, 6],
        [0, 3, 9, 2, 0],
        [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0],
        [3, 2, 6, 3, 0],
        [2, 5, 3, 2, 2],
        [6, 5, 2, 1, 0],
        [0, 2, 2, 3, 7],
    ],
    dtype=float,
)
votes = st.lists(
    st.tuples(st.sampled_from([-1.0, 0.0, 1.0]), st.sampled_from([-1.0, 0.0, 1.0])),
    min_size=4,
    max_size=30,
).map(lambda rows: np.array(rows).T)


def cohen(*values, **options):
    return cohen_kappa(*values, **options)


def fleiss(*values, **options):
    return fleiss_kappa(*values, **options)


def rankings_compared(*values, **options):
    return ranking_agreement(*values, **options)


def resampling(n=500):
    return Resampling(n, np.random.default_rng(0))


def alone(ratings):
    return np.arange(len(ratings))


def test_cohens_kappa_of_a_two_by_two_table():
    one = np.repeat([1.0, 1.0, 0.0, 0.0], [20, 5, 10, 15])
    two = np.repeat([1.0, 0.0, 1.0, 0.0], [20, 5, 10, 15])
    found = cohen(one, two, alone(one))
    assert found.value == pytest.approx(0.4)
    assert found.interval.contains(0.4)


def test_fleiss_kappa_of_the_textbook_table():
    assert fleiss(FLEISS_1971, np.arange(10)).value == pytest.approx(0.2099, abs=5e-5)


@given(votes)
@settings(max_examples=50)
def test_kappas_do_not_depend_on_the_codes_or_on_who_comes_first(pair):
    one, two = pair
    assume(np.unique(pair).size > 1)
    found = cohen(one, two, alone(one))
    assert cohen(two, one, alone(one)).value == pytest.approx(found.value)
    assert cohen(5 - 2 * one, 5 - 2 * two, alone(one)).value == pytest.approx(found.value)


@given(votes)
@settings(max_examples=50)
def test_fleiss_of_two_raters_is_scotts_pi(pair):
    one, two = pair
    assume(np.unique(pair).size > 1)
    found = fleiss(rater_counts(pair.T, (-1.0, 0.0, 1.0)), alone(one))
    shares = np.array([(pair == category).mean() for category in (-1.0, 0.0, 1.0)])
    observed, expected = (one == two).mean(), (shares**2).sum()
    assert found.value == pytest.approx((observed - expected) / (1 - expected))


def test_items_with_one_rating_say_nothing():
    more = np.vstack((FLEISS_1971, [[1, 0, 0, 0, 0]]))
    assert fleiss(more, np.arange(11)) == fleiss(FLEISS_1971, np.arange(10))


def test_repeated_items_of_a_prompt_add_no_certainty():
    once = fleiss(FLEISS_1971, np.arange(10))
    often = fleiss(np.repeat(FLEISS_1971, 3, axis=0), np.repeat(np.arange(10), 3))
    assert often.interval.low == pytest.approx(once.interval.low)
    assert often.n == 10


@pytest.mark.parametrize(
    ("one", "two", "reason"),
    [
        ([1, 1, 1], [1, 1, 1], "one category"),
        ([np.nan, 1], [1, np.nan], "no item"),
    ],
)
def test_kappa_is_undefined_with_a_reason(one, two, reason):
    found = cohen(np.array(one, float), np.array(two, float), alone(one))
    assert math.isnan(found.value)
    assert reason in found.undefined


def test_perfect_kappa_has_no_interval():
    ratings = np.array([0.0, 1.0] * 10)
    found = cohen(ratings, ratings, alone(ratings))
    assert (found.value, found.interval) == (1.0, None)
    assert found.undefined


@pytest.mark.parametrize("counts", [np.ones(3), -np.ones((3, 2)), np.full((3, 2), np.nan)])
def test_what_are_no_counts_is_refused(counts):
    with pytest.raises(StatisticsError):
        fleiss(counts, np.arange(3))


def test_unknown_category_is_refused():
    with pytest.raises(StatisticsError):
        rater_counts(np.array([[1.0, 2.0]]), (0.0, 1.0))


def test_agreement_with_and_without_ties():
    one = np.array([1.0, 1.0, 0.0, -1.0, 0.0])
    two = np.array([1.0, -1.0, 0.0, 0.0, 1.0])
    assert raw_agreement(one, two, alone(one)).value == pytest.approx(2 / 5)
    assert raw_agreement(one, two, alone(one), ties=False).value == pytest.approx(1 / 2)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=6))
@settings(max_examples=40, deadline=None)
def test_p_values_count_all_orderings(rows):
    one, two = np.array(rows, float).T
    assume(np.ptp(one) > 0)
    assume(np.ptp(two) > 0)
    found = rankings_compared(one, two, resampling())
    taus = [scipy.stats.kendalltau(one, two[list(p)])[0] for p in permutations(range(one.size))]
    expected = np.mean(np.abs(taus) >= abs(found.tau_b) - 1e-9)
    assert found.exact
    assert found.tau_p == pytest.approx(expected)
    assert found.tau_b == pytest.approx(scipy.stats.kendalltau(one, two)[0])
    assert found.spearman == pytest.approx(scipy.stats.spearmanr(one, two)[0])


def test_exact_p_value_is_scipys_without_ties():
    one, two = np.arange(7.0), np.array([0.0, 2.0, 1.0, 3.0, 5.0, 4.0, 6.0])
    expected = scipy.stats.kendalltau(one, two, method="exact").pvalue
    assert rankings_compared(one, two, resampling()).tau_p == pytest.approx(expected)


def test_four_models_can_not_be_significant():
    found = rankings_compared(np.arange(4.0), np.arange(4.0), resampling())
    assert found.tau_p == pytest.approx(2 / 24)


def test_many_models_draw_orderings():
    one = np.arange(12.0)
    found = rankings_compared(one, one + np.tile([0.0, 3.0], 6), resampling(20_000))
    expected = scipy.stats.kendalltau(one, one + np.tile([0.0, 3.0], 6)).pvalue
    assert not found.exact
    assert found.tau_p == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("one", "two", "reason"), [([1, 1, 1], [1, 2, 3], "tied"), ([1, np.nan], [1, 2], "fewer")]
)
def test_orderings_that_are_none_have_no_agreement(one, two, reason):
    found = rankings_compared(np.array(one, float), np.array(two, float), resampling())
    assert found.tau_b is found.spearman_p is None
    assert reason in found.undefined
