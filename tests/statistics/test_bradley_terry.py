import math

import evalica
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from orchestrator.errors import StatisticsError
from orchestrator.statistics.bradley_terry import describe_gaps, fit_bradley_terry, to_elo

INF = math.inf


def fit(wins):
    return fit_bradley_terry(np.asarray(wins, float))


@st.composite
def win_matrices(draw):
    n = draw(st.integers(2, 6))
    cells = draw(st.lists(st.floats(0.05, 20), min_size=n * n, max_size=n * n))
    wins = np.array(cells).reshape(n, n)
    np.fill_diagonal(wins, 0.0)
    return wins


@st.composite
def sparse_matrices(draw):
    n = draw(st.integers(2, 7))
    cell = st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 20.0, 1000.0])
    cells = draw(st.lists(cell, min_size=n * n, max_size=n * n))
    wins = np.array(cells).reshape(n, n)
    np.fill_diagonal(wins, 0.0)
    return wins


def test_reference_with_ties_as_half():
    # 6-2, 5-3, and 4-3 with 2 ties; computed with FastChat's formula in float64.
    wins = [[0, 6, 5], [2, 0, 5], [4, 3, 0]]
    strengths = fit(wins).strengths
    natural = [0.40301060440708053, -0.17176689095, -0.23124371479682643]
    assert strengths == pytest.approx(natural, abs=1e-7)
    elo = [1070.0101126569957, 970.1610350674326, 959.8288522755715]
    assert to_elo(strengths) == pytest.approx(elo, abs=1e-9)


def test_two_models_give_the_log_odds():
    difference = np.ptp(fit([[0, 7.5], [2.5, 0]]).strengths)
    assert difference == pytest.approx(math.log(3), abs=1e-12)


def test_evalica_agrees():
    rng = np.random.default_rng(0)
    true = np.linspace(1, -1, 8)
    first, second = np.triu_indices(8, 1)
    first, second = np.tile(first, 50), np.tile(second, 50)
    p = 1 / (1 + np.exp(true[second] - true[first]))
    draw = rng.random(len(p))
    win = np.where(rng.random(len(p)) < 0.1, 0.5, draw < p)
    names = [f"m{i}" for i in range(8)]
    kinds = {1.0: evalica.Winner.X, 0.0: evalica.Winner.Y, 0.5: evalica.Winner.Draw}
    theirs = evalica.bradley_terry(
        [names[i] for i in first],
        [names[i] for i in second],
        [kinds[w] for w in win],
        tie_weight=0.5,
    ).scores
    wins = np.zeros((8, 8))
    np.add.at(wins, (first, second), win)
    np.add.at(wins, (second, first), 1 - win)
    expected = np.log([theirs[name] for name in names])
    assert fit(wins).strengths == pytest.approx(expected - expected.mean(), abs=1e-6)


@given(win_matrices())
@settings(max_examples=60)
def test_expected_wins_equal_wins(wins):
    result = fit(wins)
    theta = result.strengths
    expected = (wins + wins.T) / (1 + np.exp(theta[None] - theta[:, None]))
    np.fill_diagonal(expected, 0.0)
    assert result.converged
    np.testing.assert_allclose(expected.sum(1), wins.sum(1), rtol=1e-9)


@given(sparse_matrices())
@settings(max_examples=150)
def test_estimate_exists_exactly_where_the_win_graph_is_strongly_connected(wins):
    n_groups, _ = connected_components(wins > 0, directed=True, connection="strong")
    result = fit(wins)
    assert result.converged
    assert result.anchored.all() == (n_groups == 1)
    np.testing.assert_array_equal(np.isfinite(result.strengths), result.anchored)


@given(win_matrices(), st.randoms(), st.floats(0.1, 50))
@settings(max_examples=60)
def test_order_and_scale_of_the_data_do_not_matter(wins, random, scale):
    order = list(range(len(wins)))
    random.shuffle(order)
    plain, mixed = fit(wins).strengths, fit(scale * wins[np.ix_(order, order)]).strengths
    np.testing.assert_allclose(mixed, plain[order], atol=1e-9)


@given(win_matrices())
@settings(max_examples=60)
def test_losses_for_wins_turn_the_order_around(wins):
    np.testing.assert_allclose(fit(wins.T).strengths, -fit(wins).strengths, atol=1e-9)


def test_undefeated_model_is_infinite_and_the_rest_is_rated():
    result = fit([[0, 6, 5], [0, 0, 5], [0, 3, 0]])
    assert result.strengths[0] == INF
    assert np.ptp(result.strengths[1:]) == pytest.approx(math.log(5 / 3))
    assert not result.anchored.all()


def test_a_negligible_share_of_wins_is_no_bound():
    assert fit([[0, 10], [1e-7, 0]]).strengths.tolist() == [INF, -INF]


def test_beaten_by_all_is_minus_infinite():
    assert fit([[0, 5, 4], [3, 0, 4], [0, 0, 0]]).strengths[2] == -INF


def test_chain_of_groups_has_no_anchor():
    assert fit([[0, 1, 1], [0, 0, 1], [0, 0, 0]]).strengths[[0, 2]].tolist() == [INF, -INF]


def test_separate_groups_of_one_size_are_undefined():
    wins = np.zeros((4, 4))
    wins[0, 1] = wins[1, 0] = wins[2, 3] = wins[3, 2] = 1
    assert np.isnan(fit(wins).strengths).all()


def test_largest_group_is_rated_where_groups_are_separate():
    wins = np.zeros((5, 5))
    wins[0, 1] = wins[1, 0] = wins[1, 2] = wins[2, 1] = wins[3, 4] = wins[4, 3] = 1
    strengths = fit(wins).strengths
    assert strengths[:3] == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(strengths[3:]).all()


@pytest.mark.parametrize(
    ("wins", "words"),
    [
        ([[0, 1], [0, 0]], ["a won every comparison", "b lost every comparison"]),
        ([[0, 1, 0], [1, 0, 0], [0, 0, 0]], ["c has no comparison"]),
        ([[0, 1], [1, 0]], []),
    ],
)
def test_gaps_are_said_in_words(wins, words):
    wins = np.asarray(wins, float)
    sentences = describe_gaps(wins, fit(wins).strengths, "abc"[: len(wins)])
    assert len(sentences) == len(words)
    assert all(word in sentence for word, sentence in zip(words, sentences, strict=True))


@pytest.mark.parametrize("wins", [np.zeros((2, 3)), np.zeros((1, 2, 2)), -np.ones((2, 2))])
def test_what_is_no_win_matrix_is_refused(wins):
    with pytest.raises(StatisticsError):
        fit_bradley_terry(wins)


@pytest.mark.parametrize("won", [0.5, 0.03, 0.999, 0.9999])
@pytest.mark.parametrize("n_within", [1, 1_000_000])
def test_one_comparison_between_two_large_groups_is_fitted_as_exactly_as_theirs(won, n_within):
    """The only link between two groups: the gap across it is its log-odds, whatever they hold."""
    wins = np.zeros((6, 6))
    for group in ((0, 1, 2), (3, 4, 5)):
        for i in group:
            for j in group:
                wins[i, j] = 0.0 if i == j else n_within * (0.5 + 0.1 * (j - i))
    wins[0, 3], wins[3, 0] = won, 1.0 - won
    strengths = fit(wins).strengths
    assert strengths[0] - strengths[3] == pytest.approx(math.log(won / (1.0 - won)), abs=1e-5)


@given(st.floats(2e-6, 0.5), st.integers(1, 7))
def test_a_nearly_certain_winner_is_fitted_as_exactly_as_others(lost, n_others):
    """Equal opponents, so that the answer is known however flat the likelihood is there."""
    wins = np.full((n_others + 1, n_others + 1), 0.5)
    np.fill_diagonal(wins, 0.0)
    wins[0, 1:], wins[1:, 0] = 1.0 - lost, lost
    strengths = fit(wins).strengths
    assert strengths[0] - strengths[1] == pytest.approx(math.log((1 - lost) / lost), abs=1e-8)
