"""A small part of `benchmarks/sequential.py`: orders are hardly ever wrong, and asking is saved."""

import numpy as np
import pytest

from benchmarks.sequential import ERROR, Study, coverage, simulate

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

N = 300
# Three standard errors above the level.
MOST_WRONG = N * ERROR + 3 * np.sqrt(N * ERROR * (1 - ERROR))


@pytest.mark.parametrize("population", ["source", "dataset"])
@pytest.mark.parametrize("judge", ["soft", "hard", "skewed", "missing"])
def test_equal_models_are_hardly_ever_ordered_with_a_look_after_each_block(judge, population):
    found = simulate(Study(judge, 3, 0.0, population), N, n_prompts=200)
    assert found.wrong <= MOST_WRONG


@pytest.mark.parametrize("population", ["source", "dataset"])
def test_models_that_hardly_differ_are_hardly_ever_ordered_wrongly(population):
    found = simulate(Study("soft", 3, 0.05, population), N, n_prompts=200)
    assert found.wrong <= MOST_WRONG


def test_tests_for_a_fixed_size_would_be_wrong_far_more_often():
    found = simulate(Study("soft", 2, 0.0, "source"), N)
    assert found.wrong_t > 2 * MOST_WRONG > 2 * found.wrong


def test_clear_orders_take_a_fraction_of_the_comparisons():
    found = simulate(Study("soft", 5, 0.8, "source"), 20)
    assert found.share(found.settled) > 99
    assert found.share(found.asked) < 25


def test_the_best_alone_is_found_sooner_than_every_order():
    every = simulate(Study("soft", 5, 0.3, "source"), 20)
    best = simulate(Study("soft", 5, 0.3, "source", top=1), 20)
    assert best.asked < every.asked


def test_confidence_sequences_hold_the_mean_at_every_look():
    for held in coverage("soft", N):
        assert held >= 95 - 3 * np.sqrt(95 * 5 / N)
