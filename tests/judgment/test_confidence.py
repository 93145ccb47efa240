"""Confidence from the most likely tokens and from samples: by hand, by properties, as published.

The reference values were computed by the authors' code on inputs of our own, in float64:
`deepconf` 0.1.0 (`facebookresearch/deepconf`), `backprop07/Self-Certainty` at 4914466 and
`jlko/semantic_uncertainty` at b48e3c1; and by `lm-polygraph` 0.7.0 (`IINemo/lm-polygraph`).
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from orchestrator.errors import StatisticsError
from orchestrator.judgment.confidence import (
    group_confidence,
    predictive_entropy,
    self_certainty_low,
    semantic_entropy,
    token_confidence,
)

NAN = math.nan
LOGITS = np.array(
    [
        [2.0, 1.0, 0.5, -1.0, -3.0, 0.25],
        [4.0, 0.0, -0.5, 1.5, -2.0, -1.0],
        [0.1, 0.2, 0.3, 0.0, -0.1, -0.2],
        [1.0, 3.0, -4.0, 2.5, 0.75, -1.5],
    ]
)
LOGPROBS = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True))
CONFIDENCES = (
    *(12.5, 9.25, 3.0, 14.75, 8.5, 0.625, 7.0, 11.375, 2.25, 6.5, 15.0, 4.125, 10.0),
    *(1.75, 13.25, 5.5, 9.75, 3.625, 8.0, 12.0, 0.875, 7.75, 6.25, 11.0, 2.5),
)
SAMPLES = (
    (-0.25, -1.5, -0.125),
    (-2.0, -0.5),
    (-0.75, -0.75, -0.25, -3.0),
    (-0.0625,),
    (-1.25, -0.5, -2.25),
    (-4.0, -1.0),
    (-0.5, -0.375),
)
"""ln p of the tokens of seven samples."""
MEANINGS = (0, 1, 0, 2, 1, 3, 0)


@st.composite
def distributions(draw):
    """ln p over small vocabularies, shape (T, V), most likely first."""
    shape = draw(st.tuples(st.integers(1, 4), st.integers(2, 9)))
    logits = draw(arrays.arrays(np.float64, shape, elements=st.floats(-12, 12)))
    logits = -np.sort(-logits, axis=1)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


# -- tokens ---------------------------------------------------------------------------------------


def test_token_confidence_by_hand():
    found, n_short = token_confidence(np.log([[0.5, 0.25], [0.9, 0.01]]))
    assert found == pytest.approx([1.5 * math.log(2), -(math.log(0.9) + math.log(0.01)) / 2])
    assert n_short == 0


def test_token_confidence_of_the_authors_code():
    # compute_conf of deepconf's processors, the 3 and the 6 most likely of 6 tokens.
    top = -np.sort(-LOGPROBS, axis=1)
    three = [1.4328885651596204, 2.280643653590245, 1.656298092697771, 1.453525901142078]
    six = [2.641221898492953, 3.7806436535902446, 1.8062980926977712, 3.328525901142078]
    assert token_confidence(top[:, :3])[0] == pytest.approx(three, abs=1e-9)
    assert token_confidence(top)[0] == pytest.approx(six, abs=1e-9)


@given(distributions(), st.data())
def test_a_position_with_fewer_tokens_gives_a_lower_bound(whole, data):
    k = data.draw(st.integers(1, whole.shape[1]))
    top = whole[:, :k].copy()
    exact, _ = token_confidence(top)
    n_left = data.draw(st.integers(1, k))
    top[:, n_left:] = NAN
    found, n_short = token_confidence(top)
    assert n_short == (len(top) if n_left < k else 0)
    assert (found <= exact + 1e-9).all()


def test_a_position_without_tokens_is_undefined():
    found, _ = token_confidence([[-1.0, -2.0], [NAN, NAN]])
    assert found[0] == pytest.approx(1.5)
    assert math.isnan(found[1])
    assert all(math.isnan(one) for one in group_confidence(found, 2, 2))


def test_a_list_of_no_tokens_is_refused():
    with pytest.raises(StatisticsError, match="shape"):
        token_confidence(np.zeros((3, 0)))


# -- groups ---------------------------------------------------------------------------------------


def test_groups_by_hand():
    # Windows of two: 3, 2, 1.5, 3, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5; a fifth of ten are two.
    found = group_confidence([4, 2, 2, 1, 5, 4, 7, 6, 9, 8, 11], 2, 3, 0.2)
    assert found == pytest.approx((59 / 11, 1.5, 1.75, 28 / 3))


@pytest.mark.parametrize(
    ("window", "tail", "share", "expected"),
    [
        (2, 3, 0.1, (3.8125, 4.0625, 6.583333333333333)),
        (2, 3, 0.3, (3.8125, 4.982142857142857, 6.583333333333333)),
        (5, 10, 0.1, (5.55, 5.6125, 6.725)),
        (5, 10, 0.3, (5.55, 6.195833333333333, 6.725)),
        (24, 7, 0.1, (7.276041666666667, 7.276041666666667, 6.910714285714286)),
        (25, 25, 0.1, (7.485, 7.485, 7.485)),
        (26, 30, 0.1, (7.485, 7.485, 7.485)),
    ],
)
def test_groups_of_the_authors_code(window, tail, share, expected):
    # deepconf's calculate_{mean,bottom_window,tail}_confidence.
    found = group_confidence(CONFIDENCES, window, tail, share)
    assert found == pytest.approx((7.485, *expected), abs=1e-9)


values = arrays.arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 50))


@given(values)
def test_a_short_answer_is_one_group_to_the_last_bit(x):
    assert group_confidence(x, 2048, 2048) == (x.mean(),) * 4


@given(values, st.integers(1, 40), st.integers(1, 40), st.floats(0.01, 1))
def test_the_lowest_group_is_below_the_bottom_ones_and_these_below_the_most(x, window, tail, share):
    _, lowest, bottom, last = group_confidence(x, window, tail, share)
    groups = [x[at : at + window].mean() for at in range(max(len(x) - window + 1, 1))]
    assert lowest == pytest.approx(min(groups), abs=1e-9)
    assert lowest - 1e-9 <= bottom <= max(groups) + 1e-9
    assert last == pytest.approx(x[-tail:].mean())


@pytest.mark.parametrize(("window", "tail", "share"), [(0, 1, 0.1), (1, 0, 0.1), (1, 1, 0.0)])
def test_groups_of_nothing_are_refused(window, tail, share):
    with pytest.raises(StatisticsError, match="at least 1 token"):
        group_confidence([1.0], window, tail, share)


# -- self-certainty -------------------------------------------------------------------------------


def self_certainty(logprobs):
    """KL(U || p) = -(1/V) sum_v ln(V p(v)) at each position (Kang et al., Eq. 5)."""
    return -np.log(logprobs.shape[-1]) - logprobs.mean(axis=-1)


def test_self_certainty_of_the_authors_code():
    # confidence_logits of Self-Certainty; the mean is what lm-polygraph's SelfCertainty negates.
    found = self_certainty(LOGPROBS)
    theirs = [0.8494624292648985, 1.98888418436219, 0.014538623469716239, 1.536766431914023]
    assert found == pytest.approx(theirs, abs=1e-9)
    assert found.mean() == pytest.approx(1.097412917252707, abs=1e-9)
    assert self_certainty_low(LOGPROBS, 6) == pytest.approx(theirs, abs=1e-9)


@given(distributions(), st.data())
def test_self_certainty_is_not_below_its_bound(whole, data):
    k = data.draw(st.integers(1, whole.shape[1]))
    low = self_certainty_low(whole[:, :k], whole.shape[1])
    exact = self_certainty(whole)
    assert (low <= exact + 1e-9).all()
    if k == whole.shape[1]:
        assert low == pytest.approx(exact)


@given(distributions(), st.data())
def test_more_tokens_do_not_loosen_the_bound(whole, data):
    k = data.draw(st.integers(1, whole.shape[1] - 1))
    fewer, more = (self_certainty_low(whole[:, :n], whole.shape[1]) for n in (k, k + 1))
    assert (fewer <= more + 1e-9).all()


def test_the_bound_is_self_certainty_where_the_rest_is_alike():
    whole = np.log([[0.7, 0.1, 0.1, 0.1]])
    assert self_certainty_low(whole[:, :1], 4) == pytest.approx(self_certainty(whole), rel=1e-4)


@given(distributions(), st.data())
def test_the_bound_holds_for_rounded_log_probabilities(whole, data):
    k = data.draw(st.integers(1, whole.shape[1]))
    rounded = whole[:, :k].astype(np.float32)
    low = self_certainty_low(rounded, whole.shape[1])
    assert (low <= self_certainty(whole) + 1e-6).all()


def test_what_is_no_distribution_has_no_self_certainty():
    assert np.isnan(self_certainty_low([[-0.01, -0.01], [NAN, NAN]], 9)).all()


def test_more_tokens_than_the_vocabulary_has_are_refused():
    with pytest.raises(StatisticsError, match="3 tokens are listed of a vocabulary of 2"):
        self_certainty_low([[-1.0, -1.0, -1.0]], 2)


# -- samples --------------------------------------------------------------------------------------


def test_discrete_semantic_entropy_of_the_released_code_s_example():
    # The code of Farquhar et al. names p = [1/4, 2/4, 1/4] for these meanings.
    assert semantic_entropy(None, [0, 1, 2, 1]) == pytest.approx(1.5 * math.log(2))


def test_entropies_of_the_authors_code():
    # logsumexp_by_id and predictive_entropy_rao, cluster_assignment_entropy, predictive_entropy of
    # semantic_uncertainty; lm-polygraph has the latter two as well.
    logprobs = [np.mean(tokens) for tokens in SAMPLES]
    assert semantic_entropy(logprobs, MEANINGS) == pytest.approx(1.1189879286681597, abs=1e-9)
    assert semantic_entropy(None, MEANINGS) == pytest.approx(1.277034259466139, abs=1e-9)
    assert predictive_entropy(logprobs) == pytest.approx(1.056547619047619, abs=1e-9)


def test_semantic_entropy_by_hand():
    # p = 0.2, 0.2, 0.1 in two meanings: 0.3 and 0.2 of 0.5.
    found = semantic_entropy(np.log([0.2, 0.2, 0.1]), [0, 1, 0])
    assert found == pytest.approx(-(0.6 * math.log(0.6) + 0.4 * math.log(0.4)))


@given(st.lists(st.tuples(st.floats(-30, 0), st.integers(0, 3)), min_size=1, max_size=12))
def test_semantic_entropy_lies_between_none_and_that_of_as_many_meanings(samples):
    logprobs, meanings = (list(column) for column in zip(*samples, strict=True))
    for found in (semantic_entropy(logprobs, meanings), semantic_entropy(None, meanings)):
        assert 0 <= found <= math.log(len(set(meanings))) + 1e-9
    shifted = semantic_entropy([value - 500 for value in logprobs], meanings)
    assert shifted == pytest.approx(semantic_entropy(logprobs, meanings), abs=1e-6)


def test_one_meaning_has_no_entropy():
    # Exactly, and no -0.0, which a table would show.
    for logprobs in ([-1.0, -2.0], [-0.1, -0.7, -29.3], [-3.0]):
        found = semantic_entropy(logprobs, [0] * len(logprobs))
        assert math.copysign(1.0, found) == 1.0
        assert found == 0.0
    assert semantic_entropy(None, [5]) == 0


def test_without_samples_or_likelihoods_there_is_no_entropy():
    assert math.isnan(semantic_entropy([], []))
    assert math.isnan(semantic_entropy([-1.0, NAN], [0, 1]))
    assert math.isnan(predictive_entropy([]))
    assert math.isnan(predictive_entropy([-1.0, NAN]))


def test_each_sample_has_a_meaning():
    with pytest.raises(StatisticsError, match="one meaning a sample"):
        semantic_entropy([-1.0], [0, 1])


def test_predictive_entropy_by_hand():
    assert predictive_entropy([-1.0, -2.0, -6.0]) == pytest.approx(3)
