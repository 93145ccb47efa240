import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.agreement import ordering
from orchestrator.statistics.resampling import Resampling


def ordered(values, truth=None, counts=None, n_resamples=200):
    values = np.asarray(values, dtype=np.float64)
    counts = np.ones_like(values) if counts is None else np.asarray(counts, dtype=np.float64)
    truth = range(values.shape[1]) if truth is None else truth
    return ordering(
        values * counts,
        counts,
        truth,
        Resampling(n_resamples, np.random.default_rng(1)),
    )


def noisy(gaps, n=60):
    return np.random.default_rng(0).normal(size=(n, len(gaps))) + np.asarray(gaps)


def test_models_far_apart_are_put_in_order_and_all_pairs_are_right():
    found = ordered(noisy([4.0, 2.0, 0.0]))
    assert found.means[0] > found.means[1] > found.means[2]
    assert (found.count("right"), found.count("wrong"), found.count("open")) == (3, 0, 0)
    assert found.share_right == 1.0


def test_a_score_that_goes_the_wrong_way_is_called_wrong():
    found = ordered(noisy([0.0, 2.0]))
    assert found.means[1] > found.means[0]
    assert found.verdicts == {(0, 1): "wrong"}
    assert found.share_right == 0.0


def test_equal_models_are_open():
    found = ordered(noisy([0.0, 0.0]))
    assert found.verdicts == {(0, 1): "open"}


def test_models_that_tie_in_every_resample_are_not_in_the_true_order():
    assert ordered(np.ones((10, 2))).share_right == 0.0


def test_a_model_without_a_value_has_no_place_and_no_share():
    counts = np.ones((30, 2))
    counts[:, 1] = 0
    found = ordered(noisy([1.0, 0.0], n=30), counts=counts)
    assert np.isfinite(found.means).tolist() == [True, False]
    assert found.share_right is None
    assert found.verdicts == {(0, 1): "open"}


def test_no_prompts_leave_everything_open():
    found = ordered(np.zeros((0, 2)))
    assert np.isnan(found.means).all()
    assert found.share_right is None


def test_an_order_of_other_models_is_refused():
    with pytest.raises(StatisticsError, match="of the same models"):
        ordered(noisy([1.0, 0.0]), truth=[0, 0])


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(4)), st.integers(0, 2**32 - 1))
def test_renaming_the_models_changes_nothing(permutation, seed):
    values = np.random.default_rng(seed).normal([1.0, 0.5, 0.0, 0.0], size=(20, 4))
    one = ordered(values)
    two = ordered(values[:, permutation], truth=[permutation.index(i) for i in range(4)])
    assert two.means == pytest.approx(one.means[list(permutation)])
    assert two.share_right == one.share_right
    assert two.count("open") == one.count("open")
