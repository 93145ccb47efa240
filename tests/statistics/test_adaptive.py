"""Adaptive choice of comparisons: unbiased scores, bounded cost, choices that look at the past."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path

from orchestrator.errors import StatisticsError
from orchestrator.statistics.adaptive import (
    MULTIPLES,
    SHARES,
    AdaptiveTest,
    consequences,
    rounds_of,
)
from orchestrator.statistics.sequential import LAG

BLOCK = 10


def means_of(qualities):
    """Mean results of all pairs, from the difference of two qualities."""
    first, second = np.triu_indices(len(qualities), 1)
    return np.tanh(np.asarray(qualities)[first] - np.asarray(qualities)[second])


def verdicts(means, n_prompts, seed=0):
    """A win or a loss on each prompt, with the means of the pairs."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n_prompts, len(means))) < (1 + means) / 2, 1.0, -1.0)


def run(values, n_models, seed=0, sizes=(), error=0.05, **options):
    """Ask and look as a run does it; return the test and what was chosen."""
    n = len(values)
    test = AdaptiveTest(n_models, error=error, n_prompts=n, sizes=sizes, **options)
    n_blocks, chosen = -(-n // BLOCK), []
    for block in range(n_blocks + LAG - 1):
        if block < n_blocks:
            rng = np.random.default_rng([seed, block])
            chosen.append(test.design(min(BLOCK, n - block * BLOCK), rng))
        if block >= LAG - 1:
            first = (block - LAG + 1) * BLOCK
            test.look(values[first : first + BLOCK], _sizes_in(sizes, first))
    return test, np.vstack(chosen)


def _sizes_in(sizes, first):
    if not sizes:
        return None
    ends = np.cumsum(sizes)
    return [s for s, end in zip(sizes, ends, strict=True) if first < end <= first + BLOCK]


@given(st.integers(2, 17))
def test_everybody_meets_everybody_once_and_nobody_twice_in_a_round(n):
    rounds = rounds_of(n)
    pairs = sorted(tuple(sorted(pair)) for met in rounds for pair in met)
    assert pairs == [(a, b) for a in range(n) for b in range(a + 1, n)]
    for met in rounds:
        players = [player for pair in met for player in pair]
        assert len(players) == len(set(players)) == 2 * (n // 2)


@given(st.integers(0, 2**32), st.integers(2, 8))
def test_consequences_are_the_paths_of_the_orders(seed, n):
    rng = np.random.default_rng(seed)
    better = np.triu(rng.random((n, n)) < 0.3, 1)
    paths = np.isfinite(shortest_path(better.astype(float), unweighted=True))
    assert (consequences(better) == (paths & ~np.eye(n, dtype=bool))).all()


@pytest.mark.parametrize("n_models", [4, 5])
def test_scores_are_mean_win_rates_whatever_the_matrix_and_the_share(n_models):
    # No Bradley-Terry model: predictions are wrong, and scores must not be.
    means = np.random.default_rng(3).uniform(-0.9, 0.9, n_models * (n_models - 1) // 2)
    first, second = np.triu_indices(n_models, 1)
    expected = np.zeros(n_models)
    np.add.at(expected, first, means)
    np.add.at(expected, second, -means)
    expected = 0.5 + 0.5 * expected / (n_models - 1)
    rates = []
    for seed in range(120):
        # Nothing is ever declared, so that no look selects what is averaged.
        values = verdicts(means, 30, seed)
        test, _ = run(values, n_models, seed, error=1e-30, share=0.4)
        assert not test.better.any()
        rates.append([place.win_rate for place in test.places()])
    error = np.std(rates, axis=0) / np.sqrt(len(rates))
    assert (np.abs(np.mean(rates, axis=0) - expected) < 4 * error).all()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(2, 9),
    st.floats(0.02, 1.0),
    st.sampled_from([{}, {"top": 1}, {"baseline": 1}]),
)
def test_no_more_is_asked_than_the_share_and_extreme_results_break_no_bet(seed, n, share, goal):
    # All wins on one side, then all on the other: the worst that may happen to a bet.
    rng = np.random.default_rng(seed)
    values = np.where(np.arange(60)[:, None] < 30, 1.0, -1.0) * np.ones(n * (n - 1) // 2)
    values[rng.random(values.shape) < 0.1] = np.nan
    test, chosen = run(values, n, seed, share=share, **goal)
    # A share may be a rounding below 1.
    assert chosen.sum() == test.n_asked <= share * values.size + 1e-6
    assert test.n_missing == np.isnan(values[chosen]).sum()
    assert not (test.better & test.better.T).any()


def test_a_full_share_asks_everything_while_nothing_is_settled():
    values = np.zeros((40, 10))
    test, chosen = run(values, 5, share=1.0)
    assert chosen.all()
    assert not test.better.any()


def test_a_block_is_chosen_from_what_was_known_a_block_before_it():
    values = verdicts(means_of([4, 2, 0, -2]), 80)
    _, chosen = run(values, 4, share=0.9)
    other = values.copy()
    other[10:20] = -other[10:20]
    _, again = run(other, 4, share=0.9)
    # Block 1 decides on block 3 and later ones, and on no earlier one.
    assert (again[:30] == chosen[:30]).all()
    assert (again[30:] != chosen[30:]).any()


def test_clear_orders_are_settled_and_right_from_some_of_the_comparisons():
    values = verdicts(means_of([3, 2, 1, 0, -1, -2]), 300)
    test, chosen = run(values, 6, share=0.5)
    assert (test.better == np.triu(np.ones((6, 6), bool), 1)).all()
    assert chosen.mean() < 0.4
    ranks = [(place.highest_rank, place.lowest_rank) for place in test.places()]
    assert ranks == [(n, n) for n in range(1, 7)]
    assert all(test.p(a, b) <= 0.05 for a in range(6) for b in range(a + 1, 6))


def test_equal_models_are_compared_to_the_end_of_the_share():
    test, chosen = run(verdicts(np.zeros(15), 100), 6, share=0.4)
    assert not test.better.any()
    # Five comparisons a round, three of which do not fit into what is left.
    assert 0.4 * 1500 - 3 <= chosen.sum() <= 0.4 * 1500
    assert all(len(place.unsettled) == 5 for place in test.places())


def test_the_best_two_are_found_and_then_nothing_is_asked():
    values = verdicts(means_of([3, 2.9, -1, -1.1, -1.2, -1.3]), 300)
    test, chosen = run(values, 6, share=1.0, top=2)
    assert [place.verdict for place in test.places()] == [1, 1, -1, -1, -1, -1]
    assert chosen.mean() < 0.3
    assert not any(place.unsettled for place in test.places())


def test_only_the_baseline_is_compared_with_others():
    values = verdicts(means_of([2, 1.5, 0, -1.5]), 200)
    test, chosen = run(values, 4, share=1.0, baseline=2)
    asked = [pair for pair, any_of in zip(test.pairs, chosen.any(axis=0), strict=True) if any_of]
    assert asked == [(0, 2), (1, 2), (2, 3)]
    assert [place.verdict for place in test.places()] == [1, 1, 0, -1]
    assert not test.better[0, 1]
    assert test.places()[0].win_rate > 0.9


def test_clusters_are_the_draws():
    # One answer copied ten times is no more evidence than one.
    values = np.repeat(verdicts(means_of([1, 0, -1]), 12), 10, axis=0)
    alone, _ = run(values, 3, share=1.0)
    together, _ = run(values, 3, share=1.0, sizes=(10,) * 12)
    assert alone.better.sum() > together.better.sum()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0.0}, "share"),
        ({"share": 1.0, "top": 3}, "top 3 of 3"),
        ({"share": 1.0, "baseline": 3}, "baseline 3 is none"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(StatisticsError, match=message):
        AdaptiveTest(3, error=0.05, n_prompts=10, **options)


def test_a_block_is_looked_at_as_it_was_chosen():
    test = AdaptiveTest(3, error=0.05, n_prompts=10, share=1.0)
    with pytest.raises(StatisticsError, match="not chosen yet"):
        test.look(np.zeros((5, 3)))
    test.design(5, np.random.default_rng(0))
    with pytest.raises(StatisticsError, match="other shapes"):
        test.look(np.zeros((4, 3)))
    with pytest.raises(StatisticsError, match=r"in \[-1, 1\]"):
        test.look(np.full((5, 3), 2.0))


def test_the_capital_of_a_long_block_is_that_of_its_bets_multiplied_prompt_by_prompt():
    """The highest of all looks at a mixture of bets, by the formula."""
    n = 300
    results = np.random.default_rng(1).uniform(-0.4, 1.0, size=n)
    test = AdaptiveTest(2, error=0.05, n_prompts=n, share=1.0, baseline=1)
    test.design(n, np.random.default_rng(0))
    test.look(results[:, None])
    # Before the first prompt a second moment of 1 is assumed; two orders are open.
    best = math.sqrt(2 * (math.log(2 / 0.05) + 0.9) / n)
    capitals = [
        sum(
            share * math.prod(1 + min(0.97, best * multiple) * x for x in results[:seen])
            for multiple, share in zip(MULTIPLES, SHARES, strict=True)
        )
        for seen in range(1, n + 1)
    ]
    assert test.better[0, 1]
    assert test.p(0, 1) == pytest.approx(2 / max(capitals), rel=1e-9)
