from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import scipy

from orchestrator.statistics.orders import Verdicts, count_cycles
from orchestrator.statistics.resampling import Resampling


def drawn(strengths, n_items=300, seed=0):
    """Every pair on every item, each verdict drawn by a Bradley-Terry model."""
    rng = np.random.default_rng(seed)
    m = len(strengths)
    pairs = np.array(list(combinations(range(m), 2)))
    first, second = np.tile(pairs.T, n_items)
    items = np.repeat(np.arange(n_items), len(pairs))
    gap = np.asarray(strengths)[first] - np.asarray(strengths)[second]
    won = rng.random(len(items)) < scipy.special.expit(gap)
    return Verdicts(items, first, second, m, items, np.where(won, 1.0, -1.0))


def counted(verdicts, n_resamples=200):
    return count_cycles(verdicts, Resampling(n_resamples, np.random.default_rng(1)))


def brute(verdicts):
    """Cycles and triples, item by item."""
    n_cycles = n_triples = 0
    for item in np.unique(verdicts.items):
        mine = verdicts.items == item
        beats = {}
        for a, b, d in zip(
            verdicts.first[mine], verdicts.second[mine], verdicts.decisions[mine], strict=True
        ):
            beats[a, b], beats[b, a] = d, -d
        for i, j, k in combinations(range(verdicts.n_models), 3):
            around = beats[i, j], beats[j, k], beats[k, i]
            n_triples += 0 not in around
            n_cycles += around in ((1, 1, 1), (-1, -1, -1))
    return n_cycles, n_triples


def test_counts_each_triple_of_each_item():
    verdicts = drawn([0.5, 0.2, 0.0, -0.4], n_items=30)
    ties = np.random.default_rng(2).random(len(verdicts.items)) < 0.1
    verdicts = replace(verdicts, decisions=np.where(ties, 0.0, verdicts.decisions))
    n_cycles, n_triples = brute(verdicts)
    found = counted(verdicts)
    assert found.n_triples == n_triples < 120
    assert found.share.value == pytest.approx(n_cycles / n_triples)


def test_verdicts_drawn_at_random_have_the_cycles_that_chance_gives():
    equal = counted(drawn([0.0, 0.0, 0.0], n_items=2000))
    assert equal.expected == pytest.approx(0.25, abs=0.002)
    covered = []
    for seed in range(40):
        found = counted(drawn([0.8, 0.0, -0.8], seed=seed), 100)
        assert found.excess.interval is not None
        covered.append(found.excess.interval.contains(0.0))
    assert np.mean(covered) >= 0.85


def test_rock_paper_scissors_is_all_cycles():
    verdicts = drawn([0.0, 0.0, 0.0])
    # 0 beats 1, 1 beats 2, 2 beats 0
    around = np.where((verdicts.first == 0) & (verdicts.second == 2), -1.0, 1.0)
    found = counted(replace(verdicts, decisions=around))
    assert found.share.value == 1.0
    assert found.expected == pytest.approx(0.25)
    assert found.excess.interval is not None
    assert found.excess.interval.low > 0.7


def test_one_order_has_none():
    verdicts = drawn([0.0, 0.0, 0.0])
    found = counted(replace(verdicts, decisions=np.ones(len(verdicts.items))))
    assert found.share.value == 0.0
    assert found.expected == pytest.approx(0.0, abs=0.005)
    assert found.excess.interval is not None
    assert found.excess.interval.contains(0.0)


def test_without_triples_it_is_undefined():
    verdicts = drawn([0.0, 0.0], n_items=5)
    found = counted(verdicts)
    assert found.n_triples == 0
    assert found.share.undefined
    assert np.isnan(found.expected)
