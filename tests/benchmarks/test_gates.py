"""Simulated gates and comparisons of equal models: few false alarms; power where they differ."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.gates import MODELS, alarm_cells, gated, preferences, quality_of, share, side

SIMULATIONS = 120
# With a true rate of 5 %, more than this many false alarms come once in a thousand times.
MOST = int(stats.binom.ppf(0.999, SIMULATIONS, 0.05))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("column", list(alarm_cells(40, 1, "sure")))
def test_equal_models_rarely_raise_an_alarm(column):
    cell = alarm_cells(40, 1, "sure")[column]
    assert share(cell, SIMULATIONS, 3) * SIMULATIONS <= MOST


@pytest.mark.slow
@pytest.mark.long
def test_items_of_one_cluster_do_not_count_as_many():
    cell = alarm_cells(80, 4, "soft")["win_rate(a, b) > 0.5"]
    assert share(cell, SIMULATIONS, 4) * SIMULATIONS <= MOST


def test_a_clear_difference_is_seen():
    rng = np.random.default_rng(5)
    quality = quality_of(0.75, "sure")
    run = side("A", preferences(rng, [quality, 0.0], 150, 1, "sure"), 1, MODELS[:2])
    texts = ["a > b", "win_rate(a, b) > 0.5", "win_rate(b, a) > 0.5"]
    assert gated([run], texts) == ["holds", "holds", "fails"]


@pytest.mark.parametrize("judge", ["sure", "soft"])
def test_a_quality_wins_its_share(judge):
    rng = np.random.default_rng(6)
    quality = quality_of(0.6, judge)
    found = preferences(rng, [quality, 0.0], 20_000, 1, judge).mean()
    assert found == pytest.approx(0.6, abs=0.01)
