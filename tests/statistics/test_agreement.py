import math
from itertools import permutations

import evalica
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.agreement import (
    cohen_kappa,
    krippendorff_alpha,
    ranking_agreement,
    raw_agreement,
)
from orchestrator.statistics.resampling import Resampling

votes = st.lists(
    st.tuples(st.sampled_from([-1.0, 0.0, 1.0]), st.sampled_from([-1.0, 0.0, 1.0])),
    min_size=4,
    max_size=30,
).map(lambda rows: np.array(rows).T)


def cohen(*values, **options):
    return cohen_kappa(*values, **options)


def rankings_compared(*values, **options):
    return ranking_agreement(*values, **options)


def resampling(n=500):
    return Resampling(n, np.random.default_rng(0))


def alpha(*values, **options):
    return krippendorff_alpha(*values, **options)


def alone(ratings):
    return np.arange(len(ratings))


def test_cohens_kappa_of_a_two_by_two_table():
    one = np.repeat([1.0, 1.0, 0.0, 0.0], [20, 5, 10, 15])
    two = np.repeat([1.0, 0.0, 1.0, 0.0], [20, 5, 10, 15])
    found = cohen(one, two, alone(one))
    assert found.value == pytest.approx(0.4)
    assert found.interval.contains(0.4)


@given(votes)
@settings(max_examples=50)
def test_kappas_do_not_depend_on_the_codes_or_on_who_comes_first(pair):
    one, two = pair
    assume(np.unique(pair).size > 1)
    found = cohen(one, two, alone(one))
    assert cohen(two, one, alone(one)).value == pytest.approx(found.value)
    assert cohen(5 - 2 * one, 5 - 2 * two, alone(one)).value == pytest.approx(found.value)


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


def test_agreement_with_and_without_ties():
    one = np.array([1.0, 1.0, 0.0, -1.0, 0.0])
    two = np.array([1.0, -1.0, 0.0, 0.0, 1.0])
    assert raw_agreement(one, two, alone(one)).value == pytest.approx(2 / 5)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=6))
@settings(max_examples=40, deadline=None)
def test_p_values_count_all_orderings(rows):
    one, two = np.array(rows, float).T
    assume(np.ptp(one) > 0)
    assume(np.ptp(two) > 0)
    found = rankings_compared(one, two, resampling())
    # Equal orderings are equally many of each.
    taus = [scipy.stats.kendalltau(one, other)[0] for other in set(permutations(two.tolist()))]
    expected = np.mean(np.abs(taus) >= abs(found.tau_b) - 1e-9)
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
    assert found.tau_p == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("one", "two", "reason"), [([1, 1, 1], [1, 2, 3], "tied"), ([1, np.nan], [1, 2], "fewer")]
)
def test_orderings_that_are_none_have_no_agreement(one, two, reason):
    found = rankings_compared(np.array(one, float), np.array(two, float), resampling())
    assert found.tau_b is found.spearman is None
    assert reason in found.undefined


# -- Krippendorff's alpha --------------------------------------------------------------------------

NAN = np.nan
# The worked example of Krippendorff 2011, section E: twelve units by four observers.
KRIPPENDORFF_2011 = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
        [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
    ]
).T
ratings = st.integers(2, 4).flatmap(
    lambda n_raters: st.lists(
        st.lists(st.sampled_from([NAN, 1.0, 2.0, 3.0, 5.0]), min_size=n_raters, max_size=n_raters),
        min_size=3,
        max_size=12,
    ).map(np.array)
)


def test_alpha_of_the_published_example():
    found = alpha(KRIPPENDORFF_2011, np.arange(12))
    assert found.value == pytest.approx(0.815, abs=5e-4)
    # One unit has a single rating, which says nothing.
    assert found.n == 11
    assert found.interval.low < found.value < found.interval.high


@given(ratings)
@settings(max_examples=60, deadline=None)
def test_alpha_is_that_of_another_program(given_ratings):
    found = alpha(given_ratings, alone(given_ratings))
    kept = given_ratings[(~np.isnan(given_ratings)).sum(axis=1) >= 2]
    if np.unique(kept[~np.isnan(kept)]).size < 2:
        assert math.isnan(found.value)
        return
    other = evalica.alpha(pd.DataFrame(kept.T), "ordinal").alpha
    assert found.value == pytest.approx(other, abs=1e-9)


@given(ratings, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_alpha_does_not_depend_on_who_comes_first(given_ratings, random):
    order = random.sample(range(given_ratings.shape[1]), given_ratings.shape[1])
    found = alpha(given_ratings, alone(given_ratings))
    other = alpha(given_ratings[:, order], alone(given_ratings))
    assert other.value == pytest.approx(found.value, nan_ok=True)


@given(ratings)
@settings(max_examples=30, deadline=None)
def test_alpha_sees_ranks_and_no_more(given_ratings):
    def value(changed):
        return alpha(changed, alone(changed)).value

    assert value(np.exp(given_ratings)) == pytest.approx(value(given_ratings), nan_ok=True)


def test_alpha_of_repeated_items_of_a_prompt_has_no_more_certainty():
    many = np.tile(KRIPPENDORFF_2011, (50, 1))
    once = alpha(many, np.arange(600))
    often = alpha(np.repeat(many, 3, axis=0), np.repeat(np.arange(600), 3))
    assert often.n == once.n
    # The correction for few ratings, n - 1, is all that differs.
    assert often.interval.low == pytest.approx(once.interval.low, abs=1e-3)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([[1, 1], [1, 1], [1, NAN]], "one category"),
        ([[1, NAN], [NAN, 2]], "no item"),
        ([[2.5, 2.5, 2.5]] * 4, "one category"),
    ],
)
def test_alpha_is_undefined_with_a_reason(rows, reason):
    found = alpha(np.array(rows, float), np.arange(len(rows)))
    assert math.isnan(found.value)
    assert found.interval is None
    assert reason in (found.undefined or "")


def test_perfect_alpha_has_no_interval():
    found = alpha(np.array([[0.0, 0.0], [1.0, 1.0]] * 10), np.arange(20))
    assert found.value == pytest.approx(1.0)
    assert found.interval is None
    assert found.undefined


@pytest.mark.parametrize(
    ("table", "prompts"),
    [(np.ones(3), 3), (np.ones((3, 2)), 2), (np.array([[1.0, np.inf], [1.0, 2.0]]), 2)],
)
def test_what_are_no_ratings_is_refused(table, prompts):
    with pytest.raises(StatisticsError):
        alpha(table, np.arange(prompts))
