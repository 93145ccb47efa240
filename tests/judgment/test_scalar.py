"""Numbers computed for one judgment at a time equal those computed for many at once."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.judgment import pairwise
from orchestrator.judgment.distribution import from_logprobs, mixture
from orchestrator.judgment.pointwise import compare_scores, describe_scores, score_table
from tests.oracles import pairwise as oracle

weights = st.lists(st.integers(0, 8), min_size=2, max_size=11).filter(any)
shares = st.floats(0, 1)


def spread(row):
    return [value / sum(row) for value in row]


@given(weights, st.integers(0, 5))
def test_a_description_is_the_summary_of_one(row, lowest):
    p, scores = spread(row), range(lowest, lowest + len(row))
    one, many = describe_scores(p, scores), score_table([p])
    for name in ("mode", "mean", "median"):
        assert one[name] - lowest == pytest.approx(many[name][0], abs=1e-9), name
    assert one["first_percentile"] - lowest == many["first_percentile"][0]
    assert one["lower_semideviation"] == pytest.approx(many["lower_semideviation"][0], abs=1e-9)
    assert one["std"] ** 2 == pytest.approx(many["variance"][0], abs=1e-9)


@given(weights, st.data())
def test_rounded_means_and_percentiles_decide_as_the_comparison(row, data):
    other = data.draw(st.lists(st.integers(0, 8), min_size=len(row), max_size=len(row)).filter(any))
    p, q, scores = spread(row), spread(other), range(1, len(row) + 1)
    one, two = describe_scores(p, scores), describe_scores(q, scores)
    found = compare_scores(score_table([p, q]), np.array([0]), np.array([1]))
    for name in ("median", "first_percentile"):
        assert np.sign(one[name] - two[name]) == found[name][0]
    gap = [abs(mean - math.floor(mean) - 0.5) for mean in (one["mean"], two["mean"])]
    if min(gap) > 1e-9:
        assert np.sign(one["rounded_mean"] - two["rounded_mean"]) == found["rounded_mean"][0]


@given(shares, shares)
def test_two_labels_expand_as_many_do(first, second):
    one, many = pairwise.expand_two(first, second), oracle.expand_binary([first], [second])[0]
    np.testing.assert_allclose(one, many)


@given(st.lists(weights.filter(lambda row: len(row) == 4), min_size=1, max_size=5))
def test_a_mixture_is_the_average_and_does_not_depend_on_the_order(rows):
    made = [from_logprobs([math.log(p) if p else -math.inf for p in spread(row)]) for row in rows]
    found, turned = mixture(made), mixture(made[::-1])
    expected = np.mean([spread(row) for row in rows], axis=0)
    assert found.probabilities == pytest.approx(expected, abs=1e-12)
    assert turned.probabilities == pytest.approx(found.probabilities, abs=1e-12)
    assert found.coverage == pytest.approx(1.0)


def test_a_mixture_keeps_what_is_not_known():
    exact = from_logprobs([math.log(0.5), math.log(0.5)])
    bounded = from_logprobs([math.log(0.6), math.nan], [math.log(0.6), math.log(0.2)])
    found = mixture([exact, bounded])
    assert not found.exact
    assert found.probabilities is not None
    assert found.low is not None
    assert found.low[0] < found.probabilities[0]
    undefined = from_logprobs([math.nan, math.nan])
    assert mixture([exact, undefined]).probabilities is None


def test_a_mixture_of_nothing_or_of_different_labels_is_refused():
    with pytest.raises(StatisticsError):
        mixture([])
    with pytest.raises(StatisticsError):
        mixture([from_logprobs([-1.0, -1.0]), from_logprobs([-2.0, -2.0, -2.0])])
