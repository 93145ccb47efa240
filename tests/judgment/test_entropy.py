"""Entropy and its bounds from the most likely tokens."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from orchestrator.errors import StatisticsError
from orchestrator.judgment.glass_box import entropy_bounds
from tests.oracles.glass_box import entropy

logit_rows = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 4), st.integers(2, 30)), elements=st.floats(-20, 20)
)


def log_softmax(logits):
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


@given(logit_rows, st.data())
def test_the_entropy_lies_between_its_bounds(logits, data):
    logprobs = log_softmax(logits)
    k = data.draw(st.integers(1, logits.shape[1]))
    listed = -np.sort(-logprobs, axis=-1)[:, :k]
    lower, upper = entropy_bounds(listed, logits.shape[1])
    assert upper is not None
    assert (lower <= entropy(logprobs) + 1e-9).all()
    assert (entropy(logprobs) <= upper + 1e-9).all()


@given(logit_rows)
def test_the_whole_vocabulary_leaves_nothing_open(logits):
    logprobs = log_softmax(logits)
    lower, upper = entropy_bounds(logprobs, logits.shape[1])
    np.testing.assert_array_equal(lower, upper)
    np.testing.assert_allclose(lower, entropy(logprobs), atol=1e-12)


def test_bounds_are_the_formulas():
    listed = np.log([[0.5, 0.3]])
    known = -(0.5 * math.log(0.5) + 0.3 * math.log(0.3))
    lower, upper = entropy_bounds(listed, 12)
    assert upper is not None
    assert lower[0] == pytest.approx(known - 0.2 * math.log(0.2), abs=1e-12)
    assert upper[0] == pytest.approx(known - 0.2 * math.log(0.2 / 10), abs=1e-12)


def test_both_bounds_are_met():
    lower, upper = entropy_bounds(np.log([[0.5, 0.3]]), 4)
    assert lower[0] == pytest.approx(entropy(np.log([0.5, 0.3, 0.2])))
    assert upper is not None
    assert upper[0] == pytest.approx(entropy(np.log([0.5, 0.3, 0.1, 0.1])))


def test_an_unknown_vocabulary_leaves_no_upper_bound():
    assert entropy_bounds(np.log([[0.5]]), None)[1] is None


def test_a_certain_token_has_no_entropy():
    lower, upper = entropy_bounds([[0.0, -math.inf]], 9)
    assert upper is not None
    assert (lower.tolist(), upper.tolist()) == ([0.0], [0.0])


def test_numbers_that_are_no_distribution_give_no_bounds():
    lower, upper = entropy_bounds([[0.0, 0.0], [math.nan, -1.0]], 9)
    assert upper is not None
    assert np.isnan(lower).all()
    assert np.isnan(upper).all()


def test_rounding_above_one_is_taken_for_one():
    lower, _ = entropy_bounds([[math.log(0.5), math.log(0.5) + 1e-6]], 9)
    assert lower[0] == pytest.approx(math.log(2), abs=1e-5)


def test_no_tokens_have_no_bounds():
    lower, _ = entropy_bounds(np.empty((0, 5)), 9)
    assert lower.shape == (0,)


@pytest.mark.parametrize(("shape", "vocabulary"), [((3,), 9), ((2, 5), 4)])
def test_other_shapes_are_refused(shape, vocabulary):
    with pytest.raises(StatisticsError):
        entropy_bounds(np.full(shape, -3.0), vocabulary)
