import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.elo import (
    Battles,
    bootstrap_elo,
    rate_elo,
    sequential_elo,
)
from orchestrator.statistics.resampling import Resampling

SCORES = {">": 1.0, "<": 0.0, "=": 0.5}


def battles(text, n_models=3):
    """From "A>B B=C ...", each of its own prompt."""
    rows = text.split()
    first, second = (np.array(["ABCDE".index(row[i]) for row in rows]) for i in (0, 2))
    return Battles(
        np.arange(len(rows)), first, second, n_models, np.array([SCORES[row[1]] for row in rows])
    )


def plain_elo(fought, order):
    """One battle at a time, as published."""
    ratings = [1000.0] * fought.n_models
    for i in order:
        a, b, s = int(fought.first[i]), int(fought.second[i]), float(fought.score[i])
        e_a = 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 400))
        e_b = 1 / (1 + 10 ** ((ratings[a] - ratings[b]) / 400))
        ratings[a], ratings[b] = ratings[a] + 4 * (s - e_a), ratings[b] + 4 * (1 - s - e_b)
    return ratings


def peers(rng, n_prompts, qualities, spread=0.6):
    """All votes of all pairs by all others; what a prompt says depends on the prompt."""
    m = len(qualities)
    rows = []
    for prompt in range(n_prompts):
        answers = np.asarray(qualities) + spread * rng.normal(size=m)
        for i in range(m):
            for j in range(i + 1, m):
                for _ in range(m - 2):
                    gap = answers[i] - answers[j] + 0.5 * rng.normal()
                    rows.append((prompt, i, j, float(gap > 0)))
    table = np.array(rows)
    prompts, first, second = table[:, :3].astype(np.int64).T
    return Battles(prompts, first, second, m, table[:, 3])


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def test_reference_of_nine_battles():
    # methods.md, selfeval_elo.1: A and C as printed, B so that the mean is kept.
    found = sequential_elo(battles("A>B A<B A=B A>C A<C A=C B>C B<C B<C"))[0]
    assert found[[0, 2]] == pytest.approx([999.954869021431, 1002.0451376108722], abs=1e-9)
    assert found.sum() == pytest.approx(3000.0, abs=1e-9)


def test_order_of_battles_matters():
    text = "A>B A<B A=B A>C A<C A=C B>C B<C B<C"
    back = " ".join(reversed(text.split()))
    assert not np.allclose(sequential_elo(battles(text)), sequential_elo(battles(back)), atol=1e-6)


@given(st.lists(st.sampled_from(["A>B", "A<B", "B=C", "C>A", "B>C"]), min_size=1, max_size=30))
@settings(max_examples=40)
def test_all_orders_at_once_equal_one_battle_at_a_time(rows):
    fought = battles(" ".join(rows))
    orders = np.array([np.random.default_rng(i).permutation(len(rows)) for i in range(4)])
    expected = [plain_elo(fought, order) for order in orders]
    found = sequential_elo(fought, orders.astype(np.int32))
    np.testing.assert_allclose(found, expected, atol=1e-9)


@given(st.lists(st.sampled_from(["A>B", "A<B", "B=C", "C>A", "B>C"]), min_size=1, max_size=30))
@settings(max_examples=20)
def test_points_go_from_one_to_the_other(rows):
    assert sequential_elo(battles(" ".join(rows))).sum() == pytest.approx(3000.0)


def test_what_stands_for_no_battle_changes_nothing():
    fought = battles("A>B B>C")
    padded = np.array([[2, 0, 2, 1]], dtype=np.int32)
    np.testing.assert_array_equal(sequential_elo(fought, padded), sequential_elo(fought))


def test_one_seed_gives_one_result(rng):
    fought = peers(rng, 10, (0.5, 0.0, -0.5))
    one, two = (rate_elo(fought, Resampling(50, np.random.default_rng(4))) for _ in range(2))
    np.testing.assert_array_equal(one.values, two.values)
    np.testing.assert_array_equal(one.low, two.low)


def test_results_do_not_depend_on_the_chunks(rng, monkeypatch):
    fought = peers(rng, 12, (0.5, 0.0, -0.5))
    one = rate_elo(fought, Resampling(60, np.random.default_rng(4)))
    monkeypatch.setattr("orchestrator.statistics.elo._CHUNK_CELLS", 500)
    two = rate_elo(fought, Resampling(60, np.random.default_rng(4)))
    np.testing.assert_array_equal(one.order_low, two.order_low)
    np.testing.assert_array_equal(one.high, two.high)


def test_better_models_are_rated_higher(rng):
    found = rate_elo(peers(rng, 40, (1.0, 0.0, -1.0)), Resampling(200, rng))
    assert list(np.argsort(-found.values)) == [0, 1, 2]
    assert found.low[0] > found.high[2]
    assert np.all(found.order_low < found.values)
    assert np.all(found.values < found.order_high)


def test_interval_over_prompts_shrinks_with_them_and_the_spread_over_orders_does_not(rng):
    few, many = (
        rate_elo(peers(rng, n, (0.3, 0.0, -0.3)), Resampling(400, rng)) for n in (250, 1000)
    )
    assert np.all(many.high - many.low < 0.75 * (few.high - few.low))
    assert np.all(many.order_high - many.order_low > 0.9 * (few.order_high - few.order_low))


def test_repeated_battles_of_a_prompt_are_no_evidence(rng):
    """The same votes five times over: the interval over prompts stays, at the same K and length."""
    fought = peers(rng, 80, (0.3, 0.0, -0.3))
    fifth = np.repeat(np.arange(16) * 5, 5)[fought.prompts]
    copied = fifth * 3 + np.arange(fought.n) % 3
    same = Battles(fifth, fought.first, fought.second, 3, fought.score[copied])
    alone = rate_elo(fought, Resampling(600, rng))
    together = rate_elo(same, Resampling(600, rng))
    assert np.mean(together.high - together.low) > 1.4 * np.mean(alone.high - alone.low)


def test_wins_ties_and_battles_are_counted():
    found = rate_elo(battles("A>B A<B B=C C>A"), Resampling(20, np.random.default_rng(0)))
    assert found.wins.tolist() == [1, 1, 1]
    assert found.ties.tolist() == [0, 1, 1]
    assert found.n_battles.tolist() == [3, 3, 2]


def test_two_prompts_give_no_interval():
    found = rate_elo(battles("A>B A<C"), Resampling(20, np.random.default_rng(0)))
    assert np.isnan(found.low).all()
    assert "2 prompts" in found.notes[0]


def test_prompts_that_all_say_the_same_give_no_interval():
    fought = battles(" ".join(["A>B"] * 30), n_models=2)
    found = rate_elo(fought, Resampling(50, np.random.default_rng(0)))
    assert np.isnan(found.low).all()
    assert found.notes


def test_published_convention_has_no_interval_over_prompts(rng):
    fought = peers(rng, 40, (0.5, 0.0, -0.5))
    found = bootstrap_elo(fought, Resampling(200, rng))
    np.testing.assert_allclose(found.values, rate_elo(fought, Resampling(200, rng)).values, atol=15)
    assert np.isnan(found.low).all()


@pytest.mark.parametrize(
    ("second", "score"), [([0], [1.0]), ([1], [np.nan]), ([1], [1.5]), ([1, 1], [1.0, 0.0])]
)
def test_what_is_no_battle_is_refused(second, score):
    with pytest.raises(StatisticsError):
        Battles(np.zeros(1, int), np.zeros(1, int), np.array(second), 2, np.array(score))


@pytest.mark.slow
@pytest.mark.long
def test_a_thousand_orders_of_the_published_size_take_seconds(rng):
    fought = peers(rng, 79, np.linspace(1, -1, 9))
    assert fought.n == 36 * 7 * 79
    begin = time.perf_counter()
    rate_elo(fought, Resampling(1000, rng))
    assert time.perf_counter() - begin < 60
