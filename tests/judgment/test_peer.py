import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from orchestrator.errors import StatisticsError
from orchestrator.judgment.similarity import f_beta_scores, peer_votes
from tests.oracles.bertscore import f_beta

TIE = 1e-6
unit = st.floats(0.01, 1.0)


def scores(n):
    return arrays(np.float64, (n, n), elements=st.integers(0, 4).map(lambda k: k / 4))


def by_pair(found):
    return {
        (first, second): dict(zip(judges, votes, strict=True))
        for first, second, judges, votes in found
    }


@given(unit, unit, st.floats(0.0, 3.0))
def test_f_beta_is_that_of_one_pair(precision, recall, beta):
    found = f_beta_scores(np.array([precision]), np.array([recall]), beta)
    assert found[0] == pytest.approx(f_beta(precision, recall, beta), rel=1e-12)


def test_f_beta_of_texts_without_tokens_is_0_and_of_an_undefined_one_is_nan():
    found = f_beta_scores(np.array([0.0, math.nan]), np.array([0.0, 0.5]), 1.0)
    assert found[0] == 0.0
    assert math.isnan(found[1])


@pytest.mark.parametrize(("n", "per_item"), [(3, 3), (9, 36 * 7), (20, 190 * 18)])
def test_every_other_model_votes_on_every_pair(n, per_item):
    found = peer_votes(np.random.default_rng(n).random((n, n)), [True] * n, TIE)
    assert sum(len(votes) for *_, votes in found) == per_item


def test_the_published_number_of_votes():
    found = peer_votes(np.random.default_rng(0).random((9, 9)), [True] * 9, TIE)
    assert 79 * sum(len(votes) for *_, votes in found) == 19908


@given(st.integers(3, 6).flatmap(scores))
def test_a_vote_goes_to_the_more_similar_answer(table):
    n = len(table)
    votes = by_pair(peer_votes(table, [True] * n, TIE))
    for i, j in combinations(range(n), 2):
        for k in set(range(n)) - {i, j}:
            expected = 0.5 + 0.5 * np.sign(table[k, i] - table[k, j])
            assert votes[i, j][k] == expected


@given(st.integers(3, 6).flatmap(scores), st.randoms(use_true_random=False))
def test_who_stands_where_plays_no_part(table, random):
    n = len(table)
    order = list(range(n))
    random.shuffle(order)
    plain = by_pair(peer_votes(table, [True] * n, TIE))
    moved = by_pair(peer_votes(table[np.ix_(order, order)], [True] * n, TIE))
    for (i, j), votes in moved.items():
        for k, vote in votes.items():
            a, b, judge = order[i], order[j], order[k]
            expected = plain[a, b][judge] if a < b else 1.0 - plain[b, a][judge]
            assert vote == expected


def test_what_float32_cant_tell_apart_is_a_tie():
    table = np.array([[1, 0, 0], [0, 1, 0], [0.5, 0.5 + 1e-7, 1.0]])
    assert by_pair(peer_votes(table, [True] * 3, TIE))[0, 1] == {2: 0.5}
    assert by_pair(peer_votes(table, [True] * 3, 0.0))[0, 1] == {2: 0.0}


def test_an_empty_answer_does_not_vote_and_loses():
    table = np.zeros((4, 4))
    table[1:, 1:] = 0.5 + 0.1 * np.arange(9).reshape(3, 3)
    votes = by_pair(peer_votes(table, [False, True, True, True], TIE))
    assert math.isnan(votes[1, 2][0])
    assert votes[0, 1] == {2: 0.0, 3: 0.0}


def test_an_undefined_score_is_an_undefined_vote():
    table = np.full((3, 3), 0.5)
    table[2, 0] = math.nan
    assert math.isnan(by_pair(peer_votes(table, [True] * 3, TIE))[0, 1][2])


def test_scores_of_another_shape_are_refused():
    with pytest.raises(StatisticsError, match="shape"):
        peer_votes(np.zeros((2, 3)), [True] * 3, TIE)
