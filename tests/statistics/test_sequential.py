"""Orders by sequential test: when they settle, what is dropped, and how often they are wrong."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.sequential import LAG, OrderTest, pair_orders


def blocks_of(rng, means, n, sd=0.3, block=20):
    """Differences of models with these mean strengths, in blocks."""
    pairs = [(a, b) for a in range(len(means)) for b in range(a + 1, len(means))]
    gaps = np.array([means[a] - means[b] for a, b in pairs])
    x = np.clip(gaps + rng.normal(0, sd, (n, len(pairs))), -1, 1)
    return [x[first : first + block] for first in range(0, n, block)]


def look_at(test, blocks):
    for block in blocks:
        test.look(block)
    return test


def test_clear_orders_settle_with_the_right_direction():
    test = look_at(OrderTest(3, error=0.05), blocks_of(np.random.default_rng(0), [0, 0.9, 0.4], 80))
    assert test.settled.tolist() == [-1, -1, 1]
    assert (test.settled_at > 0).all()
    assert (test.settled_at % 20 == 0).all()


def test_a_pair_stays_open_for_the_lag_and_is_then_closed():
    test = OrderTest(2, error=0.05)
    assert test.is_open(0).all()
    assert test.is_open(1).all()
    test.look(np.ones((20, 1)))
    assert test.settled.tolist() == [1]
    assert test.is_open(1).all()
    assert not test.is_open(LAG).any()


def test_values_of_closed_pairs_are_never_looked_at():
    test = OrderTest(2, error=0.05)
    for _ in range(LAG):
        test.look(np.ones((20, 1)))
    before = test.adjusted_p()
    test.look(-np.ones((500, 1)))
    assert np.array_equal(test.adjusted_p(), before)
    assert test.settled.tolist() == [1]


@given(st.integers(0, 2**32 - 1), st.none() | st.integers(1, 2))
@settings(max_examples=25)
def test_what_is_settled_and_closed_stays_so(seed, top):
    rng = np.random.default_rng(seed)
    test = OrderTest(3, error=0.05, top=top)
    settled, is_open = test.settled.copy(), test.is_open(9)
    for block in blocks_of(rng, rng.uniform(-0.3, 0.3, 3), 200):
        test.look(block)
        assert np.array_equal(test.settled[settled != 0], settled[settled != 0])
        assert not (test.is_open(10**6) & ~is_open).any()
        settled, is_open = test.settled.copy(), test.is_open(10**6)


def test_without_a_difference_nothing_settles():
    test = look_at(OrderTest(2, error=0.05), [np.zeros((20, 1))] * 10)
    assert test.settled.tolist() == [0]
    assert (test.adjusted_p() == 1).all()


def test_missing_differences_settle_nothing():
    test = look_at(OrderTest(2, error=0.05), [np.full((20, 1), np.nan)] * 3)
    assert test.settled.tolist() == [0]
    assert test.n_prompts == 60


def test_a_prompt_set_that_is_asked_whole_settles_every_order_that_is_no_tie():
    x = np.random.default_rng(1).permutation([0.01] * 21 + [-0.01] * 19)[:, None]
    census = look_at(OrderTest(2, error=0.05, population=40), [x[:20], x[20:]])
    sample = look_at(OrderTest(2, error=0.05), [x[:20], x[20:]])
    assert census.settled.tolist() == [1]
    assert sample.settled.tolist() == [0]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_pairs_that_cannot_change_the_best_are_dropped(order):
    # The best is far ahead; the others are alike.
    means = np.array([0.9, 0.0, 0.0, 0.0])[list(order)]
    test = look_at(
        OrderTest(4, error=0.05, top=1), blocks_of(np.random.default_rng(2), means, 60, sd=0.1)
    )
    best = int(np.argmax(means))
    for pair, (a, b) in enumerate(test.pairs):
        assert not test.matters[pair]
        assert (test.settled[pair] != 0) == (best in (a, b))
    assert not test.is_open(10**6).any()


def test_top_keeps_pairs_of_those_whose_place_is_open():
    # Two far ahead and alike: who of them is the best is still asked, not the rest.
    test = look_at(
        OrderTest(4, error=0.05, top=1),
        blocks_of(np.random.default_rng(3), [0.8, 0.8, 0.0, 0.0], 200, sd=0.1),
    )
    still = [pair for pair, is_open in zip(test.pairs, test.is_open(10**6), strict=True) if is_open]
    assert still == [(0, 1)]


def test_holm_goes_over_both_directions_of_all_pairs():
    test = look_at(OrderTest(3, error=0.05), [np.full((20, 3), 0.1)])
    p = np.exp(-test._largest)
    smallest = p.min()
    assert test.adjusted_p().min() == pytest.approx(min(1.0, 6 * smallest))


def test_pair_orders_say_what_they_rest_on():
    blocks = blocks_of(np.random.default_rng(5), [0.8, 0.0], 120, sd=0.1)
    blocks[0][3] = np.nan
    test = look_at(OrderTest(2, error=0.05), blocks)
    (pair,) = pair_orders(test, np.vstack(blocks), range(0, 120, 20), error=0.05, population=None)
    assert (pair.better, pair.settled_at) == (1, 20)
    assert (pair.n, pair.n_missing) == (20 * LAG - 1, 1)
    assert pair.low < 0.8 < pair.high
    assert pair.low > 0
    assert pair.p <= 0.05


def test_bounds_are_about_the_prompts_with_a_difference_where_some_are_missing():
    x = np.full((40, 1), np.nan)
    x[::2] = 0.5
    test = look_at(OrderTest(2, error=0.05, population=40), [x[:20], x[20:]])
    (pair,) = pair_orders(test, x, (0, 20), error=0.05, population=40)
    assert pair.difference == pytest.approx(0.5)
    assert pair.low <= 0.5 <= pair.high
    assert pair.better == 1


@pytest.mark.parametrize("settings_", [{"n_models": 1}, {"error": 0.0}, {"error": 1.0}])
def test_impossible_tests_are_refused(settings_):
    with pytest.raises(StatisticsError, match="a ranking needs at least 2 models"):
        OrderTest(**{"n_models": 2, "error": 0.05, **settings_})


@pytest.mark.parametrize("population", [None, 100])
def test_equal_models_are_hardly_ever_ordered(population):
    rng = np.random.default_rng(6)
    wrong = 0
    for _ in range(200):
        half = rng.uniform(-1, 1, (50, 3))
        x = rng.permuted(np.vstack([half, -half]), axis=0)
        test = look_at(OrderTest(3, error=0.05, population=population), np.split(x, 5))
        wrong += bool((test.settled != 0).any())
    assert wrong <= 10 + 3 * np.sqrt(200 * 0.05 * 0.95)
