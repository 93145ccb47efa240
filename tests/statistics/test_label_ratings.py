"""Ratings by labels and judge: held against `ppi-python`, the plain fit, and what is undefined.

The reference values come from ppi-python 0.2.3 with NumPy 2.4.6 in an environment of its own:
`ppi_logistic_pointestimate(X, y, f, X_other, f_other, lam=...)` and `ppi_logistic_ci(...,
alpha=0.05)` on `drawn()`, with X the first two columns of the difference of the models' unit
vectors, so that the third model has strength 0.
"""

import itertools

import numpy as np
import pytest

from benchmarks import label_ratings as benchmark
from orchestrator.errors import StatisticsError
from orchestrator.statistics.bradley_terry import ELO_SCALE, fit_bradley_terry, to_elo
from orchestrator.statistics.label_ratings import (
    LabelledPairs,
    corrected_ratings,
    rating_interval,
)
from orchestrator.statistics.prediction_powered import Labelled
from orchestrator.statistics.prompt_sums import sum_by_prompt
from orchestrator.statistics.ratings import rate
from orchestrator.statistics.results import Interval

PUBLISHED = {
    0.0: ((2.2223194148952743, 1.288676768449855), (1.4974, 2.9472), (0.5889, 1.9885)),
    0.5: ((2.123188712139187, 1.283624207115198), (1.5325, 2.7139), (0.7769, 1.7904)),
    1.0: ((2.020576652449039, 1.2823013820007647), (1.5174, 2.5238), (0.8524, 1.7122)),
}


def drawn():
    """120 labelled and 600 other comparisons of three models, by a judge that likes the first."""
    rng = np.random.default_rng(5)
    strengths = np.array([0.8, 0.1, -0.9])

    def some(n):
        a = rng.integers(0, 3, n)
        b = (a + 1 + rng.integers(0, 2, n)) % 3
        gap = strengths[a] - strengths[b]
        said = (rng.random(n) < 1 / (1 + np.exp(-gap))).astype(float)
        heard = 1.5 * gap + 0.6 + 1.2 * (2 * said - 1) + rng.normal(size=n)
        return a, b, said, np.round(1 / (1 + np.exp(-heard)), 6)

    a, b, labels, scores = some(120)
    others = some(600)
    told = np.concatenate([labels, np.full(600, np.nan)])
    rows = Labelled(np.concatenate([scores, others[3]]), told, np.arange(720))
    return LabelledPairs(rows, np.concatenate([a, others[0]]), np.concatenate([b, others[1]]), 3)


@pytest.mark.parametrize("tuning", PUBLISHED)
def test_agrees_with_ppi_python(tuning):
    found = corrected_ratings(drawn(), tuning=tuning)
    values, *intervals = PUBLISHED[tuning]
    for model, (value, (low, high)) in enumerate(zip(values, intervals, strict=True)):
        gap = found.models[model].value - found.models[2].value
        assert gap / ELO_SCALE == pytest.approx(value, abs=1e-6)
        interval = rating_interval(found, model, minus=2)
        assert isinstance(interval, Interval)
        # Student's t and the small-sample factor make ours a little wider, never narrower by much.
        ratio = (interval.high - interval.low) / ELO_SCALE / (high - low)
        assert 0.98 < ratio < 1.08


def test_lambda_is_that_of_ppi_python_where_it_is_cut():
    assert corrected_ratings(drawn()).tuning == pytest.approx(1.0)


def full(n_prompts=40, n_models=3):
    """Every pair of each prompt with a label."""
    rng = np.random.default_rng(0)
    pairs = np.array(list(itertools.combinations(range(n_models), 2)))
    labels = rng.integers(0, 2, (n_prompts, len(pairs))).astype(float)
    prompts = np.repeat(np.arange(n_prompts), len(pairs))
    first, second = np.tile(pairs, (n_prompts, 1)).T
    return labels.ravel(), prompts, first, second


def test_all_labels_alone_are_the_plain_ratings():
    labels, prompts, first, second = full()
    data = LabelledPairs(Labelled(labels, labels, prompts), first, second, 3)
    found = corrected_ratings(data, tuning=0.0)
    sums = sum_by_prompt(prompts, first, second, labels, shape=(40, 3))
    plain = rate(sums, ["a", "b", "c"], confidence_level=0.95)
    for model in range(3):
        assert found.models[model].value == pytest.approx(plain.values[model], abs=1e-5)
        interval = rating_interval(found, model)
        assert isinstance(interval, Interval)
        # One is by the normal approximation, the other by a test of a bounded mean.
        assert interval.low == pytest.approx(plain.low[model], abs=8)


def test_a_judge_that_says_what_people_say_gives_the_ratings_of_all_rows():
    labels, prompts, first, second = full(60)
    told = np.where(np.arange(labels.size) % 3 == 0, labels, np.nan)
    data = LabelledPairs(Labelled(labels, told, prompts), first, second, 3)
    found = corrected_ratings(data, tuning=1.0)
    wins = np.zeros((1, 3, 3))
    np.add.at(wins[0], (first, second), np.where(np.isnan(told), labels, 0.0))
    np.add.at(wins[0], (second, first), np.where(np.isnan(told), 1.0 - labels, 0.0))
    expected = to_elo(fit_bradley_terry(wins).strengths[0])
    assert [one.value for one in found.models] == pytest.approx(expected, abs=1e-5)


def test_labels_that_contradict_any_rating_give_none_and_say_so():
    labels, prompts, first, second = full(20)
    told = np.where(first == 0, 1.0, labels)
    data = LabelledPairs(Labelled(labels, told, prompts), first, second, 3)
    found = corrected_ratings(data, tuning=0.0)
    assert np.isnan(found.models[0].value)
    assert rating_interval(found, 0) == "no finite rating fits these labels"


def test_few_labels_of_a_model_give_no_interval():
    labels, prompts, first, second = full(40)
    told = np.where((first == 0) & (prompts >= 6), np.nan, labels)
    data = LabelledPairs(Labelled(labels, told, prompts), first, second, 3)
    found = corrected_ratings(data)
    assert rating_interval(found, 0) == "6 labelled prompts, fewer than 10"
    assert isinstance(rating_interval(found, 1), Interval)


def test_no_labels_give_no_rating():
    labels, prompts, first, second = full(40)
    told = np.full(labels.size, np.nan)
    found = corrected_ratings(LabelledPairs(Labelled(labels, told, prompts), first, second, 3))
    assert all(np.isnan(one.value) for one in found.models)


def test_pairs_that_are_none_are_refused():
    labels, prompts, first, second = full(4)
    rows = Labelled(labels, labels, prompts)
    with pytest.raises(StatisticsError, match="compared with itself"):
        LabelledPairs(rows, first, first, 3)
    with pytest.raises(StatisticsError, match="numbers from 0 to 1"):
        LabelledPairs(rows, first, second, 2)
    with pytest.raises(StatisticsError, match="one shape"):
        LabelledPairs(rows, first[:2], second[:2], 3)


@pytest.mark.slow
def test_intervals_of_a_hundred_labels_cover_and_are_narrower_with_the_judge():
    world = benchmark.World("4 equal", "good")
    cell = benchmark.simulate(world, 100, 100, 150)
    coverage = float(cell.split(" / ")[0])
    ratio = float(cell.split(") ")[1].split(",")[0])
    assert coverage > 92
    assert ratio < 0.9
