import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.judgments import EDGES, calibration


def study(seed, n_prompts=300, sharpen=1.0):
    """Cases whose probability of being right is known; `sharpen` makes the judge too sure."""
    rng = np.random.default_rng(seed)
    prompts = np.repeat(np.arange(n_prompts), 3)
    logits = rng.normal(0.0, 1.5, prompts.size)
    truth = (rng.random(prompts.size) < 1 / (1 + np.exp(-logits))).astype(np.float64)
    return 1 / (1 + np.exp(-sharpen * logits)), truth, prompts


def calibrated(*made):
    p, truth, prompts = study(*made)
    return calibration(p, truth, prompts, 0.95)


def test_a_calibrated_judge_is_as_often_right_as_it_says():
    found = calibrated(1, 3000)
    assert abs(found.overconfidence.value) < 0.015
    assert found.expected_error < 0.02
    for one in found.bins:
        assert one.bounds[0] <= one.confidence <= one.bounds[1]
        assert one.accuracy.value == pytest.approx(one.confidence, abs=0.04)


@pytest.mark.parametrize(("sharpen", "sign"), [(3.0, 1), (0.3, -1)])
def test_a_judge_that_is_too_sure_is_told_from_one_that_is_not_sure_enough(sharpen, sign):
    found = calibrated(2, 1000, sharpen)
    interval = found.overconfidence.interval
    assert interval is not None
    assert min(sign * interval.low, sign * interval.high) > 0.03


@given(seed=st.integers(0, 10_000))
def test_which_side_is_called_first_does_not_matter(seed):
    p, truth, prompts = study(seed, 20)
    one, two = calibration(p, truth, prompts, 0.95), calibration(1 - p, 1 - truth, prompts, 0.95)
    assert one.brier.value == pytest.approx(two.brier.value)
    assert one.accuracy.value == pytest.approx(two.accuracy.value)
    assert [b.n for b in one.bins] == [b.n for b in two.bins]


@given(seed=st.integers(0, 10_000))
def test_every_case_is_in_one_bin_and_the_bins_give_the_accuracy(seed):
    found = calibrated(seed, 20)
    assert sum(one.n for one in found.bins) == found.n == 60
    total = sum(one.n * one.accuracy.value for one in found.bins if one.n)
    assert total / found.n == pytest.approx(found.accuracy.value)


def test_the_ends_of_the_scale_are_in_the_bins_beside_them():
    p = np.array([0.0, 1.0, 0.5, 0.9, 0.1])
    found = calibration(p, np.array([0.0, 1.0, 1.0, 1.0, 1.0]), np.arange(5), 0.95)
    assert [one.n for one in found.bins] == [1, 0, 0, 0, 4]
    assert found.accuracy.value == pytest.approx((1 + 1 + 0.5 + 1 + 0) / 5)
    assert found.brier.value == pytest.approx((0 + 0 + 0.25 + 0.01 + 0.81) / 5)
    assert len(EDGES) == len(found.bins) + 1


def test_what_was_not_judged_is_left_out_and_nothing_judged_is_undefined():
    p, truth, prompts = study(3, 10)
    p[5:] = np.nan
    assert calibration(p, truth, prompts, 0.95).n == 5
    nothing = calibration(np.full(3, np.nan), np.ones(3), np.arange(3), 0.95)
    assert nothing.n == 0
    assert np.isnan(nothing.expected_error)
    assert nothing.overconfidence.undefined


@pytest.mark.parametrize(("p", "truth"), [(1.2, 1.0), (-0.1, 1.0), (0.3, 0.5), (0.3, np.nan)])
def test_what_is_no_probability_or_no_truth_is_refused(p, truth):
    with pytest.raises(StatisticsError):
        calibration(np.array([p]), np.array([truth]), np.array([0]), 0.95)
