"""A part of `benchmarks/adaptive_pairs.py`: orders are hardly ever wrong, and asking is saved."""

import dataclasses

import numpy as np
import pytest

from benchmarks.adaptive_pairs import ERROR, Study, direct_orders, results, run_test

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

N = 300
# Three standard errors above the level.
MOST_WRONG = N * ERROR + 3 * np.sqrt(N * ERROR * (1 - ERROR))


@pytest.mark.parametrize("world", ["soft", "hard", "missing", "clusters", "cycle", "unordered"])
def test_orders_are_hardly_ever_wrong_whatever_the_judge(world):
    study = Study(world, 5, 0.0, "ranking", 0.5, 200)
    rng = np.random.default_rng(0)
    n_wrong = 0
    for seed in range(N):
        x, truth = results(rng, study)
        n_wrong += bool((run_test(x, study, seed).better & (truth <= 0)).any())
    assert n_wrong <= MOST_WRONG


def test_a_twentieth_of_the_comparisons_settles_most_of_what_all_of_them_do():
    study = Study("soft", 30, 1.0)
    rng = np.random.default_rng(0)
    found = np.zeros(3)
    for seed in range(3):
        x, _ = results(rng, study)
        few = run_test(x, study, seed)
        every = run_test(x, dataclasses.replace(study, share=1.0), seed)
        direct = direct_orders(x, 30, few.n_asked, rng)
        assert few.n_asked <= 0.05 * x.size
        found += [few.better.sum(), direct.sum(), every.better.sum()]
    assert found[0] > 0.85 * found[2]
    assert found[0] > 2 * found[1]
