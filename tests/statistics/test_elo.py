import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.elo import bootstrap_elo, sequential_elo
from orchestrator.statistics.prompt_sums import Pairs
from orchestrator.statistics.resampling import Resampling

SCORES = {">": 1.0, "<": 0.0, "=": 0.5}


def battles(text, n_models=3):
    """From "A>B B=C ...", each of its own prompt."""
    rows = text.split()
    first, second = (np.array(["ABCDE".index(row[i]) for row in rows]) for i in (0, 2))
    scores = np.array([SCORES[row[1]] for row in rows])
    return Pairs(np.arange(len(rows)), first, second, n_models), scores


def in_order(text):
    """Ratings after the battles in the order in which they are given."""
    pairs, scores = battles(text)
    (found,) = sequential_elo(pairs, scores, np.arange(len(scores), dtype=np.int32)[None])
    return found


def plain_elo(pairs, scores, order):
    """One battle at a time, as published."""
    ratings = [1000.0] * pairs.n_models
    for i in order:
        a, b, s = int(pairs.first[i]), int(pairs.second[i]), float(scores[i])
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
    return Pairs(prompts, first, second, m), table[:, 3]


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def test_reference_of_nine_battles():
    # methods.md, selfeval_elo.1: A and C as printed, B so that the mean is kept.
    found = in_order("A>B A<B A=B A>C A<C A=C B>C B<C B<C")
    assert found[[0, 2]] == pytest.approx([999.954869021431, 1002.0451376108722], abs=1e-9)
    assert found.sum() == pytest.approx(3000.0, abs=1e-9)


def test_order_of_battles_matters():
    text = "A>B A<B A=B A>C A<C A=C B>C B<C B<C"
    back = " ".join(reversed(text.split()))
    assert not np.allclose(in_order(text), in_order(back), atol=1e-6)


@given(st.lists(st.sampled_from(["A>B", "A<B", "B=C", "C>A", "B>C"]), min_size=1, max_size=30))
@settings(max_examples=40)
def test_all_orders_at_once_equal_one_battle_at_a_time(rows):
    fought = battles(" ".join(rows))
    orders = np.array([np.random.default_rng(i).permutation(len(rows)) for i in range(4)])
    expected = [plain_elo(fought[0], fought[1], order) for order in orders]
    found = sequential_elo(fought[0], fought[1], orders.astype(np.int32))
    np.testing.assert_allclose(found, expected, atol=1e-9)


@given(st.lists(st.sampled_from(["A>B", "A<B", "B=C", "C>A", "B>C"]), min_size=1, max_size=30))
@settings(max_examples=20)
def test_points_go_from_one_to_the_other(rows):
    assert in_order(" ".join(rows)).sum() == pytest.approx(3000.0)


def test_one_seed_gives_one_result_whatever_the_chunks(rng, monkeypatch):
    fought = peers(rng, 10, (0.5, 0.0, -0.5))
    one = np.array(bootstrap_elo(fought[0], fought[1], Resampling(50, np.random.default_rng(4))))
    monkeypatch.setattr("orchestrator.statistics.elo._CHUNK_CELLS", 500)
    two = np.array(bootstrap_elo(fought[0], fought[1], Resampling(50, np.random.default_rng(4))))
    np.testing.assert_array_equal(one, two)


def test_better_models_are_rated_higher(rng):
    pairs, scores = peers(rng, 40, (1.0, 0.0, -1.0))
    values, low, high = bootstrap_elo(pairs, scores, Resampling(200, rng))
    assert list(np.argsort(-values)) == [0, 1, 2]
    assert low[0] > high[2]
    assert np.all((low < values) & (values < high))


@pytest.mark.parametrize(
    ("second", "score"), [([0], [1.0]), ([1], [np.nan]), ([1], [1.5]), ([1, 1], [1.0, 0.0])]
)
def test_what_is_no_battle_is_refused(second, score):
    pairs = Pairs(np.zeros(1, int), np.zeros(1, int), np.array(second), 2)
    with pytest.raises(StatisticsError):
        sequential_elo(pairs, np.array(score), np.zeros((1, 1), np.int32))


@pytest.mark.slow
@pytest.mark.long
def test_a_thousand_orders_of_the_published_size_take_seconds(rng):
    fought = peers(rng, 79, np.linspace(1, -1, 9))
    assert fought[1].size == 36 * 7 * 79
    begin = time.process_time()
    bootstrap_elo(fought[0], fought[1], Resampling(1000, rng))
    assert time.process_time() - begin < 60
