"""Weighted sums of criteria, held against every combination of labels written out."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.judgment.distribution import LabelDistribution, from_logprobs
from orchestrator.judgment.rubric import (
    CriterionReading,
    bounds_with_missing,
    points_of,
    read_criterion,
    score_rubric,
)


def reading(p, values=None):
    points = points_of(values or range(len(p)))
    mean = float(np.dot(p, points))
    return CriterionReading(
        tuple(p),
        points,
        mean,
        mean,
        LabelDistribution(tuple(p), tuple(p), tuple(p), 1.0, exact=True),
    )


def enumerated(criteria, weights):
    """Return all sums with their probabilities, criteria independent."""
    found = []
    for labels in itertools.product(*(range(len(one.points)) for one in criteria)):
        p = math.prod(one.probabilities[at] for one, at in zip(criteria, labels, strict=True))
        total = sum(
            w * one.points[at] for w, one, at in zip(weights, criteria, labels, strict=True)
        )
        found.append((total, p))
    sums, p = np.array(found).T
    return sums, p


distributions = st.lists(st.floats(0.01, 1.0), min_size=2, max_size=5).map(
    lambda raw: tuple(x / sum(raw) for x in raw)
)


@given(st.lists(st.tuples(distributions, st.floats(0.1, 5.0)), min_size=1, max_size=4))
def test_mean_and_spread_are_those_of_all_combinations(criteria):
    given_weights = [w for _, w in criteria]
    weights = [w / sum(given_weights) for w in given_weights]
    read = [reading(p) for p, _ in criteria]
    sums, p = enumerated(read, weights)
    score = score_rubric([read], read, weights)
    mean = float(sums @ p)
    assert score["mean"] == pytest.approx(mean, abs=1e-9)
    assert score["std"] == pytest.approx(math.sqrt(p @ (sums - mean) ** 2), abs=1e-6)
    assert score["std"] <= score["std_high"] + 1e-9
    assert sum(score["p"]) == pytest.approx(1.0)
    # The grid keeps the mean; it adds a quarter of a squared point, and a little.
    grid = np.arange(101)
    assert grid @ np.array(score["p"]) == pytest.approx(mean, abs=1e-6)
    added = np.array(score["p"]) @ (grid - mean) ** 2 - score["std"] ** 2
    assert -1e-6 <= added <= 0.3


def test_a_rubric_of_many_criteria_keeps_its_mean_and_spread():
    rng = np.random.default_rng(0)
    read = [reading(tuple(rng.dirichlet(np.ones(20)))) for _ in range(12)]
    weights = rng.dirichlet(np.ones(12)).tolist()
    score = score_rubric([read], read, weights)
    grid = np.arange(101)
    assert grid @ np.array(score["p"]) == pytest.approx(score["mean"], abs=1e-9)
    added = np.array(score["p"]) @ (grid - score["mean"]) ** 2 - score["std"] ** 2
    assert 0 <= added <= 0.3


def test_perfectly_dependent_criteria_reach_the_bound_of_the_spread():
    # Two criteria that always agree: the spread of the sum is that of either.
    read = [reading((0.5, 0.5))] * 2
    score = score_rubric([read], read, [0.5, 0.5])
    assert score["std_high"] == pytest.approx(50.0)
    assert score["std"] == pytest.approx(50.0 / math.sqrt(2))


def test_replies_that_agree_within_show_their_dependence():
    # In one reply both criteria are certain and good, in the other certain and bad.
    good, bad = reading((0.0, 1.0)), reading((1.0, 0.0))
    score = score_rubric([[good, good], [bad, bad]], [reading((0.5, 0.5))] * 2, [0.5, 0.5])
    assert score["mean"] == pytest.approx(50.0)
    assert score["std"] == pytest.approx(50.0)
    assert (score["p"][0], score["p"][100], score["p"][50]) == pytest.approx((0.5, 0.5, 0.0))


def test_weights_of_llm_as_a_verifier_are_equal():
    # R = 1/C sum of expectations, phi from 0 to 1: here times 100.
    p = np.full(20, 0.05)
    score = score_rubric(
        [[reading(p), reading((0.25, 0.75))]], [reading(p), reading((0.25, 0.75))], [0.5, 0.5]
    )
    assert score["mean"] == pytest.approx(100 * (0.5 + 0.75) / 2)


def test_labels_stand_at_their_values():
    read = read_criterion(from_logprobs([math.log(0.4), math.log(0.4)]), (1, 5))
    assert read is not None
    assert read.points == (0.0, 100.0)
    assert (read.mean, read.distribution.coverage) == pytest.approx((50.0, 0.8))
    assert points_of((1, 2, 5)) == pytest.approx((0.0, 25.0, 100.0))


def test_a_distribution_without_mass_is_missing():
    assert read_criterion(from_logprobs([-math.inf, -math.inf]), (0, 1)) is None


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([(i * 7 % 11 + 1.5) / 200 for i in range(20)], 0.49917763157894746),
        ([0.6, *[0.0] * 18, 0.2], 0.7499999999999999),
    ],
)
def test_letters_are_read_as_by_llm_as_a_verifier(weights, expected):
    # extract_score of llm-verifier 0.3.0, which has one spelling of each letter, A the best.
    logprobs = [math.log(p) if p else -math.inf for p in weights]
    read = read_criterion(from_logprobs(logprobs), range(20, 0, -1))
    assert read is not None
    assert read.mean / 100 == pytest.approx(expected, abs=1e-9)


def test_a_missing_criterion_may_be_anything():
    low, high = bounds_with_missing([reading((0.0, 1.0)), None], [0.75, 0.25])
    assert (low, high) == pytest.approx((75.0, 100.0))


def test_a_bounded_label_widens_the_bounds():
    read = read_criterion(from_logprobs([math.log(0.6), math.nan], [math.log(0.6), -3.0]), (0, 1))
    assert read is not None
    assert not read.distribution.exact
    score = score_rubric([[read]], [read], [1.0])
    assert score["mean_low"] == pytest.approx(0.0)
    assert score["mean_high"] == pytest.approx(100 * math.exp(-3) / (0.6 + math.exp(-3)))


def test_lengths_must_agree():
    with pytest.raises(StatisticsError, match="2 criteria"):
        score_rubric([[reading((0.5, 0.5))]], [reading((0.5, 0.5))] * 2, [0.5, 0.5])
    with pytest.raises(StatisticsError):
        score_rubric([], [], [])
