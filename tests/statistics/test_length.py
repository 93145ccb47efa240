import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.length import (
    N_FOLDS,
    PENALTIES,
    Rows,
    fit_penalised,
    head_to_head,
    length_controlled_win_rate,
    standardised_length,
)
from orchestrator.statistics.resampling import Resampling


def controlled(preferences, gap, hard, *, gamed=None, prompts=None, resampling=None):
    return length_controlled_win_rate(
        preferences,
        gap,
        hard,
        gamed=gamed,
        prompts=np.arange(len(preferences)) if prompts is None else prompts,
        resampling=resampling or Resampling(2, np.random.default_rng(0)),
    )


@pytest.fixture
def rng():
    return np.random.default_rng(2)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def judged(rng, n, model, length, difficulty):
    """Preferences in [1, 2], standardised lengths, difficulties."""
    gap = standardised_length(rng.normal(1000, 300, n), rng.normal(1300, 300, n))
    hard = rng.normal(size=n)
    p = sigmoid(model + length * np.tanh(gap) + difficulty * hard)
    return 1 + p, gap, hard


def test_draws_missing_and_decided_preferences_are_counted():
    found = head_to_head(np.array([1.02, 1.75, 1.5, 1.5, 1.98, np.nan, 0.0]))
    assert found.n == 6
    assert found.discrete_win_rate == pytest.approx(100 * 3.5 / 6)


@given(st.lists(st.floats(1, 2), min_size=1, max_size=20))
def test_swapping_model_and_baseline_turns_the_rates(preferences):
    values = np.array(preferences)
    one, two = head_to_head(values), head_to_head(3 - values)
    assert one.win_rate + two.win_rate == pytest.approx(100)
    assert one.discrete_win_rate + two.discrete_win_rate == pytest.approx(100)


def test_nothing_judged_has_no_win_rate():
    found = head_to_head(np.array([np.nan]))
    assert np.isnan([found.win_rate, found.standard_error, found.discrete_win_rate]).all()


@pytest.mark.parametrize("preference", [0.5, 2.5, -1.0])
def test_what_is_no_preference_is_refused(preference):
    with pytest.raises(StatisticsError):
        head_to_head(np.array([preference]))


def test_planted_coefficients_are_found(rng):
    preferences, gap, hard = judged(rng, 800, 0.4, -1.2, 0.5)
    found = controlled(preferences, gap, hard)
    assert (found.model, found.length, found.difficulty) == pytest.approx(
        (0.4, -1.2, 0.5), abs=0.02
    )
    expected = 100 * sigmoid(0.4 + 0.5 * hard).mean()
    assert found.win_rate == pytest.approx(expected, abs=0.5)
    assert found.penalty in PENALTIES


def test_the_penalty_is_the_one_that_loses_least_on_what_it_was_not_fitted_to(rng):
    chosen = []
    for effect in (0.0, 1.0, 4.0):
        preferences, gap, hard = judged(rng, 61, effect, -effect, effect)
        preferences = 1.0 + (rng.random(61) < preferences - 1.0)
        features = np.stack((np.tanh(gap), hard, np.ones(61)), axis=1)
        target, fold = preferences - 1.0, np.arange(61) % N_FOLDS
        losses = np.zeros(len(PENALTIES))
        for at, k in itertools.product(range(len(PENALTIES)), range(N_FOLDS)):
            rows = Rows(*(part[fold != k] for part in (features, target, np.ones(61))))
            fitted = fit_penalised(rows, rows.weight[None], np.array(PENALTIES[at : at + 1]))[0]
            side = 1.0 - 2.0 * target[fold == k]
            losses[at] += np.logaddexp(0.0, side * (features[fold == k] @ fitted)).mean()
        chosen.append(PENALTIES[int(losses.argmin())])
        assert controlled(preferences, gap, hard).penalty == chosen[-1]
    assert len({*chosen}) > 1


def test_a_model_that_is_only_longer_is_brought_back(rng):
    preferences, gap, hard = judged(rng, 800, 0.0, -2.0, 0.3)
    assert head_to_head(preferences).win_rate > 60
    assert controlled(preferences, gap, hard).win_rate == pytest.approx(50, abs=1)


def test_gamed_rows_hold_the_length_effect(rng):
    preferences, gap, hard = judged(rng, 300, 0.2, 0.0, 0.3)
    lengths = rng.normal(size=600)
    gamed = np.stack((lengths, rng.normal(size=600), sigmoid(-2 * np.tanh(lengths))))
    held = controlled(preferences, gap, hard, gamed=gamed)
    assert held.length < controlled(preferences, gap, hard).length - 0.05


def test_interval_comes_from_resampled_prompts(rng):
    p, gap, hard = judged(rng, 150, 0.3, -0.5, 0.4)
    preferences = 1.0 + (rng.random(150) < p - 1)
    found = controlled(preferences, gap, hard, resampling=Resampling(60, rng))
    assert found.interval.contains(found.win_rate)
    assert 8 < found.interval.high - found.interval.low < 30


def test_missing_preferences_are_left_out(rng):
    preferences, gap, hard = judged(rng, 60, 0.3, -0.5, 0.4)
    preferences[:10] = np.nan
    assert controlled(preferences, gap, hard).n == 50


def test_too_few_judgments_are_refused():
    with pytest.raises(StatisticsError):
        controlled(np.array([1.0, 2.0]), np.array([0.1, 0.2]), np.zeros(2))


def test_lengths_that_do_not_vary_are_refused():
    with pytest.raises(StatisticsError):
        standardised_length(np.array([10.0, 20.0]), np.array([5.0, 15.0]))


def test_standardised_length_is_baseline_minus_model():
    found = standardised_length(np.array([10.0, 10.0]), np.array([8.0, 14.0]))
    assert found == pytest.approx(np.array([2.0, -4.0]) / np.std([2.0, -4.0], ddof=1))


def test_the_fit_with_its_interval_takes_a_second_not_half_a_minute(rng):
    preferences, gap, hard = judged(rng, 805, -1.0, -1.5, 1.0)
    lengths = rng.normal(size=1610)
    gamed = np.stack((lengths, np.tile(hard, 2), sigmoid(-2 * np.tanh(lengths))))
    begun = time.process_time()
    controlled(np.round(preferences), gap, hard, gamed=gamed, resampling=Resampling(300, rng))
    assert time.process_time() - begun < 5.0


def test_rows_of_one_prompt_are_resampled_together(rng):
    p, gap, hard = judged(rng, 100, 0.3, -0.5, 0.4)
    preferences = 1.0 + (rng.random(100) < p - 1)
    three = [np.repeat(column, 3) for column in (preferences, gap, hard)]
    alone, together = (
        controlled(*three, prompts=prompts, resampling=Resampling(200, np.random.default_rng(0)))
        for prompts in (None, np.repeat(np.arange(100), 3))
    )
    assert alone.win_rate == together.win_rate
    width = [one.interval.high - one.interval.low for one in (alone, together)]
    assert width[1] == pytest.approx(np.sqrt(3) * width[0], rel=0.3)
