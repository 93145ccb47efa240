"""Expected precision by number of labels, against what more labels then have."""

import numpy as np
import pytest

from benchmarks.human_labels import World, draw, simulate_power
from orchestrator.statistics.prediction_powered import Labelled, expected_reach


@pytest.mark.parametrize("rows", [1, 3])
def test_the_width_expected_of_many_labels_is_the_one_they_have(rows):
    """With three rows a prompt, 800 of 2,000 labels share prompts, 50 hardly do."""
    expected, got, alone = simulate_power(World("score", "good", rows), 800, 25)
    assert expected == pytest.approx(got, rel=0.08)
    assert got < alone


def test_a_useless_judge_narrows_nothing():
    expected, got, alone = simulate_power(World("score", "chance", 1), 200, 25)
    assert expected == pytest.approx(alone, rel=0.08)
    assert got == pytest.approx(alone, rel=0.05)


def test_no_expectation_without_labels():
    scores, prompts = draw(World("score", "good", 1), 100, np.random.default_rng(0))[1:]
    (found,) = expected_reach(Labelled(scores, np.full(100, np.nan), prompts), [50])
    assert np.isnan(found).all()
