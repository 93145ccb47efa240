"""Win rates, position effects, coverage: means of judgments that come in prompts."""

import math
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics import prompt_sums
from orchestrator.statistics.judgments import (
    decisions,
    position_effects,
    summarise_coverage,
)
from orchestrator.statistics.means import clustered_share
from orchestrator.statistics.prompt_sums import Pairs, mean_preferences, win_rates
from orchestrator.statistics.results import Interval


def share(values, level=0.95):
    values = np.asarray(values, float)
    return clustered_share(values, np.ones(len(values)), level)


def sums(prompts, first, second, preference, shape):
    one, two, three = (np.asarray(column, np.int64) for column in (prompts, first, second))
    return Pairs(one, two, three, shape[1]).summing()(np.asarray(preference, float))


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_interval_stays_in_range_and_holds_the_mean(values):
    estimate = share(values)
    assert estimate.interval is not None
    assert 0 <= estimate.interval.low <= estimate.value + 1e-9
    assert estimate.value - 1e-9 <= estimate.interval.high <= 1


@pytest.mark.parametrize("value", [0.0, 0.7, 1.0])
def test_all_alike_still_has_width(value):
    interval = share([value] * 20).interval
    assert interval.contains(value)
    assert interval.high - interval.low > 0.05


def test_yes_or_no_is_the_interval_of_clopper_and_pearson():
    interval = share([1.0] * 6 + [0.0] * 14).interval
    assert (interval.low, interval.high) == pytest.approx((0.1189, 0.5428), abs=1e-3)


def test_more_judgments_of_a_prompt_are_not_more_prompts():
    once = share([0.2, 0.9, 0.4, 0.7])
    counts = np.full(4, 5.0)
    repeated = clustered_share(5 * np.array([0.2, 0.9, 0.4, 0.7]), counts, 0.95)
    assert repeated.interval is not None
    assert repeated.interval.low == pytest.approx(once.interval.low)


@pytest.mark.parametrize(
    ("values", "words"),
    [([], "no judgments"), ([0.4], "one prompt")],
)
def test_what_has_no_interval_says_why(values, words):
    estimate = share(values)
    assert estimate.interval is None
    assert words in estimate.undefined


def test_level_must_be_a_share():
    with pytest.raises(StatisticsError):
        share([0.1, 0.2], level=95)


def test_interval_knows_its_open_ends():
    interval = Interval(-np.inf, 3.0, 0.95)
    assert [math.isinf(end) for end in (interval.low, interval.high)] == [True, False]


def test_win_rates_do_not_depend_on_the_blocks_of_pairs(monkeypatch):
    rng = np.random.default_rng(0)
    first = rng.integers(6, size=400)
    second = (first + rng.integers(1, 6, size=400)) % 6
    found = sums(rng.integers(50, size=400), first, second, rng.random(400), (50, 6))
    whole = win_rates(found, 0.95)
    monkeypatch.setattr(prompt_sums, "_DENSE_CELLS", 120)
    assert len(list(found.dense_blocks())) == 8
    for one, other in zip(astuple(whole), astuple(win_rates(found, 0.95)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_cell_is_kept_where_every_win_was_zero():
    found = sums([0, 0], [0, 0], [1, 1], [0.0, 0.0], (1, 2))
    assert (found.wins.tolist(), found.counts.tolist()) == ([0.0], [2.0])
    assert found.model_counts.tolist() == [[2.0, 2.0]]


def test_sums_do_not_depend_on_who_is_named_first():
    one = sums([0, 0, 1], [0, 2, 1], [1, 1, 0], [0.8, 0.3, 0.6], (2, 3))
    two = sums([1, 0, 0], [0, 1, 1], [1, 2, 0], [0.4, 0.7, 0.2], (2, 3))
    np.testing.assert_allclose(one.wins, two.wins)
    np.testing.assert_allclose(one.win_matrix, two.win_matrix)
    assert one.win_matrix[0, 1] == pytest.approx(1.2)


@pytest.mark.parametrize(("second", "preference"), [(0, 0.5), (1, np.nan), (1, 1.2)])
def test_what_is_no_comparison_is_refused(second, preference):
    with pytest.raises(StatisticsError):
        sums([0], [0], [second], [preference], (1, 2))


def test_win_rates_count_every_cell():
    rates = win_rates(sums([0, 1, 1], [0, 0, 0], [1, 1, 2], [0.8, 0.6, 0.1], (2, 3)), 0.95)
    assert rates.values[0, 1] == pytest.approx(0.7)
    assert rates.values[1, 0] == pytest.approx(0.3)
    assert np.isnan(rates.values[1, 2])
    assert rates.n_judgments.tolist() == [[0, 2, 1], [2, 0, 0], [1, 0, 0]]
    assert rates.low[0, 1] == pytest.approx(1 - rates.high[1, 0])
    assert np.isnan(rates.low[0, 2])


def test_mean_preference_is_over_all_opponents():
    shares = mean_preferences(sums([0, 1], [0, 0], [1, 2], [0.8, 0.6], (2, 3)), 0.95)
    np.testing.assert_allclose(shares.values, [0.7, 0.2, 0.4])
    assert shares.n_judgments.tolist() == [2, 1, 1]


def effects(prefer_ab, prefer_ba, differ=None):
    """Effects of a judge that never says tie, except that one half each is one."""
    n = len(prefer_ab)
    ab, ba = np.asarray(prefer_ab, float), np.asarray(prefer_ba, float)
    none = np.zeros(n)
    decided = decisions(ab, none, 1 - ab), decisions(ba, none, 1 - ba)
    differ = np.ones(n, bool) if differ is None else np.asarray(differ)
    both = np.stack((ab, ba), axis=1), np.stack(decided, axis=1)
    return position_effects(np.arange(n), *both, differ, 0.95)


def test_judge_that_always_takes_the_first_is_fully_biased():
    result = effects([1.0, 1.0], [0.0, 0.0])
    assert (result.bias.value, result.flip_rate.value) == (0.5, 1.0)
    assert result.consistency.value == 0.0


def test_equal_answers_have_no_winner_that_could_flip():
    result = effects([0.9, 0.6], [0.9, 0.4], differ=[True, False])
    assert result.flip_rate.value == 0.0
    assert result.flip_rate.n == 1
    assert result.bias.value == pytest.approx(0.05)


def test_a_judge_that_is_sure_of_a_tie_decides_for_neither():
    better, tie, worse = np.array([[0.001, 0.4], [0.998, 0.2], [0.001, 0.4]])
    assert decisions(better, tie, worse).tolist() == [0.0, 0.0]
    assert decisions(np.array([0.5]), np.array([0.1]), np.array([0.4])).tolist() == [1.0]


def test_shares_of_decisions_add_up_to_one():
    result = effects([0.9, 0.9, 0.5, 0.5], [0.8, 0.2, 0.7, 0.5])
    shares = [result.flip_rate, result.half_flip_rate, result.consistency]
    assert [estimate.value for estimate in shares] == [0.25, 0.25, 0.5]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=20))
def test_swapping_the_answers_leaves_position_effects(pairs):
    ab, ba = np.array(pairs).T
    one, two = effects(ab, ba), effects(1 - ba, 1 - ab)
    assert one.bias.value == pytest.approx(two.bias.value)
    assert one.flip_rate.value == two.flip_rate.value


def test_coverage_counts_what_is_unknown():
    summary = summarise_coverage(np.array([[0.9, 0.4], [0.8, np.nan]]))
    assert (summary.n, summary.n_unknown) == (3, 1)
    assert summary.mean == pytest.approx(0.7)
    assert summary.share_low == pytest.approx(1 / 3)
    assert np.isnan(summarise_coverage(np.array([])).mean)
