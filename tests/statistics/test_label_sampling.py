import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.label_planning import inclusion_probabilities, systematic_sample
from orchestrator.statistics.prediction_powered import Labelled, corrected_mean
from orchestrator.statistics.results import Interval


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.data())
def test_probabilities_add_up_to_the_number_of_labels(uncertainty, data):
    n = data.draw(st.integers(1, len(uncertainty)))
    found = inclusion_probabilities(np.array(uncertainty), n)
    assert found.sum() == pytest.approx(n)
    assert (found > 0.0).all()
    assert (found <= 1.0).all()
    # More doubt is never less likely to be labelled.
    assert (np.diff(found[np.argsort(uncertainty)]) >= -1e-9).all()


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=60), st.integers(0, 1000), st.data())
def test_a_sample_has_the_number_of_rows_and_none_twice(uncertainty, seed, data):
    n = data.draw(st.integers(1, len(uncertainty)))
    chances = inclusion_probabilities(np.array(uncertainty), n)
    chosen = systematic_sample(chances, np.random.default_rng(seed))
    assert len(chosen) == len(set(chosen.tolist())) == n


def test_each_row_is_chosen_as_often_as_its_probability_says():
    rng = np.random.default_rng(0)
    chances = inclusion_probabilities(np.array([0.0, 1.0, 2.0, 4.0, 9.0, 0.5, 0.1, 3.0]), 3)
    counts = np.zeros(8)
    for _ in range(20_000):
        counts[systematic_sample(chances, rng)] += 1
    assert counts / 20_000 == pytest.approx(chances, abs=0.015)


def labelled_by(doubt, labels, scores, rng) -> Interval:
    """The interval from 100 labels that were chosen by doubt."""
    chances = inclusion_probabilities(doubt, 100)
    chosen = systematic_sample(chances, rng)
    told = np.full(labels.size, np.nan)
    told[chosen] = labels[chosen]
    data = Labelled(scores, told, np.arange(labels.size), chances)
    found = corrected_mean(data, tuning=1.0).interval()
    assert isinstance(found, Interval)
    return found


@pytest.mark.slow
def test_labels_by_uncertainty_cover_and_narrow_the_interval():
    rng = np.random.default_rng(1)
    held, ratio = 0, []
    for _ in range(400):
        doubt = rng.gamma(0.5, size=1000)
        labels = rng.normal(size=1000)
        scores = labels + doubt * rng.normal(size=1000)
        intervals = [labelled_by(by, labels, scores, rng) for by in (np.ones(1000), doubt)]
        held += intervals[1].contains(0.0)
        even, doubtful = (one.high - one.low for one in intervals)
        ratio.append(doubtful / even)
    assert held / 400 > 0.92
    assert np.mean(ratio) < 0.95


@pytest.mark.parametrize("n", [0, 4])
def test_more_rows_than_there_are_cannot_be_chosen(n):
    with pytest.raises(StatisticsError, match=f"cannot choose {n} of 3 rows"):
        inclusion_probabilities(np.ones(3), n)


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_an_uncertainty_that_is_none_is_refused(wrong):
    with pytest.raises(StatisticsError, match="must be finite and not negative"):
        inclusion_probabilities(np.array([wrong, 1.0]), 1)
