"""Intervals of means in [0, 1] hold the truth and see what is there, by simulation."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest

from orchestrator.statistics.judgments import decisions, position_effects
from orchestrator.statistics.means import clustered_share, clustered_shares

BENCHMARK = runpy.run_path(
    str(Path(__file__).parents[2] / "benchmarks" / "bounded_means.py"), run_name="bounded_means"
)
LEVEL = BENCHMARK["LEVEL"]
# Values that spread over much of their range. Of others a sample that has missed rare exceptions
# looks the same as one of which there are none: there the interval is too long, never too short.
SPREAD = (
    "uniform",
    "beta 0.2, 0.8 (mostly 0 or 1)",
    "beta 0.1, 0.1 (nearly 0/1)",
    "0/1, 50 %",
    "0/1, 25 %",
    "0/1, 10 %",
    "soft judge",
    "sharp judge",
    "position, sharp",
)


def error(n_simulations):
    return 3 * math.sqrt(LEVEL * (1 - LEVEL) / n_simulations)


def test_a_bias_of_two_points_takes_as_many_prompts_as_could_hide_it():
    """About 1.85 / 0.02 at least: fewer could have missed rare large exceptions."""
    at_forty, by_t = BENCHMARK["power"](0.02, 0.039, 40, 2000)
    assert (at_forty, by_t > 0.8) == (0.0, True)
    assert BENCHMARK["power"](0.02, 0.039, 150, 2000)[0] >= 0.9


def test_no_bias_is_seen_as_often_as_the_level_says():
    ours, _ = BENCHMARK["power"](0.0, 0.039, 40, 2000)
    assert ours <= 1 - LEVEL + error(2000)


def test_position_bias_of_a_soft_judge_is_seen():
    rng = np.random.default_rng(3)
    seen = 0
    for _ in range(100):
        better = rng.uniform(0.3, 0.7, size=150)
        first = better + rng.normal(0.02, 0.054, size=(2, 150)) * [[1.0], [-1.0]]
        none = np.zeros(150)
        ab, ba = (decisions(prefer, none, 1 - prefer) for prefer in first)
        both = first.T, np.stack((ab, ba), axis=1)
        found = position_effects(np.arange(150), *both, np.ones(150, bool), LEVEL)
        interval = found.bias.interval
        assert interval is not None
        seen += not interval.contains(0.0)
    assert seen >= 80


@pytest.mark.parametrize("name", sorted(BENCHMARK["WORLDS"]))
def test_intervals_hold_the_truth_at_twenty_prompts(name):
    share, _ = BENCHMARK["coverage"](name, 20, 1000)
    assert share >= 0.94 - error(1000)


@pytest.mark.parametrize("name", SPREAD)
def test_intervals_of_values_that_spread_are_no_longer_than_needed(name):
    share, _ = BENCHMARK["coverage"](name, 200, 1000)
    assert 0.94 - error(1000) <= share <= 0.98


@pytest.mark.parametrize("name", BENCHMARK["CLUSTERED"])
def test_prompts_with_several_values_are_covered(name):
    share, _ = BENCHMARK["coverage"](name, 40, 1000, largest=5)
    assert share >= 0.94 - error(1000)


@pytest.mark.parametrize("value", [0.0, 0.5, 0.5000001, 0.93, 1.0])
@pytest.mark.parametrize("n", [2, 5, 20])
def test_values_that_all_agree_leave_room_for_exceptions(value, n):
    values = np.full(n, value)
    values[0] -= 1e-9 * (value > 0)
    interval = clustered_share(values, np.ones(n), LEVEL).interval
    assert interval is not None
    # One exception in n + 1 prompts must not be out of the question.
    assert interval.high - interval.low > 1.0 / (2 * n)


def test_columns_with_missing_prompts_are_as_if_alone():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 3, size=(30, 4)).astype(float)
    counts[:, 3] = 0.0
    sums = counts * rng.beta(0.3, 0.3, size=(30, 4))
    together = clustered_shares(sums, counts, LEVEL)
    for i in range(3):
        used = counts[:, i] > 0
        alone = clustered_share(sums[used, i], counts[used, i], LEVEL)
        assert alone.interval is not None
        assert together.low[i] == pytest.approx(alone.interval.low)
        assert together.high[i] == pytest.approx(alone.interval.high)
    assert np.isnan(together.low[3])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("n", [20, 40, 200])
@pytest.mark.parametrize("name", sorted(BENCHMARK["WORLDS"]))
def test_intervals_hold_the_truth_at_any_number_of_prompts(name, n):
    share, _ = BENCHMARK["coverage"](name, n, 8000, seed=1)
    assert share >= 0.94 - error(8000)
