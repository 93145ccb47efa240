"""Betting: the capital is fair under the null, grows under the alternative, and bounds the mean."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.sequential import FRACTIONS, Capital, confidence_sequence

VALUES = st.lists(st.floats(-1, 1), min_size=1, max_size=30)
ANY = st.lists(st.floats(-1, 1) | st.just(float("nan")), min_size=1, max_size=30)


def column(values):
    return np.array(values, np.float64)[:, None]


def slow_capital(values, null, population):
    """The definition, one value and one fraction at a time; the running mean of the capitals."""
    capitals = [1.0] * len(FRACTIONS)
    seen, path = 0.0, []
    for number, value in enumerate(values):
        missing = np.isnan(value)
        x = 0.0 if missing else value
        mean = null if population is None else (population * null - seen) / (population - number)
        if not (missing and population is None) and mean > -1:
            capitals = [
                capital * (1 + fraction / (1 + mean) * (x - mean))
                for capital, fraction in zip(capitals, FRACTIONS, strict=True)
            ]
        seen += x
        path.append(sum(capitals) / len(capitals))
    return np.array(path)


@pytest.mark.parametrize(
    ("null", "population", "expected"),
    [
        (0.0, None, [1.5402316500000002, 2.1324218833125004, 1.2873243740741365]),
        (-0.3, None, [3.0138514390670563, 7.538358614177819, 7.890433352391748]),
        (0.1, 14, [1.3432576585516514, 1.8023886456460545, 1.2409115045698733]),
    ],
)
def test_capital_is_that_of_confseq(null, population, expected):
    # betting_mart of confseq 0.0.11 on (x + 1) / 2, with bets of f / mean and theta = 1; the mean
    # over the fractions f, after 3, 5 and 10 values.
    values = [0.5, -0.25, 1.0, 0.0, 0.75, -0.5, 0.25, 1.0, -1.0, 0.6]
    path = Capital(1, null=null, population=population).add(column(values))[:, 0]
    assert np.exp(path[[2, 4, 9]]) == pytest.approx(expected, abs=1e-9)


@given(ANY, st.floats(-0.9, 0.9))
def test_independent_draws_bet_as_defined(values, null):
    path = Capital(1, null=null).add(column(values))[:, 0]
    assert np.exp(path) == pytest.approx(slow_capital(values, null, None), rel=1e-9)


@given(ANY, st.integers(0, 30))
def test_draws_without_replacement_bet_as_defined(values, n_more):
    population = len(values) + n_more
    path = Capital(1, population=population).add(column(values))[:, 0]
    expected = slow_capital(values, 0.0, population)
    finite = np.isfinite(path)
    assert np.exp(path[finite]) == pytest.approx(expected[finite], rel=1e-6, abs=1e-12)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6), st.floats(-0.9, 0.9))
def test_one_bet_is_fair_in_expectation_under_the_null(values, null):
    # Two-point laws with mean `null`: every law is a mixture of such.
    before = Capital(1, null=null)
    log_before = before.add(column(values))[-1, 0]
    for low in (-1.0, null - 0.05):
        share = (null - low) / (1.0 - low)
        after = [Capital(1, null=null).add(column([*values, x]))[-1, 0] for x in (low, 1.0)]
        expected = (1 - share) * np.exp(after[0]) + share * np.exp(after[1])
        assert expected == pytest.approx(np.exp(log_before), rel=1e-9)


@given(st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=8), st.data())
def test_without_replacement_one_bet_is_fair_over_the_values_left(values, data):
    values = [*values, *(-value for value in values)]
    population = len(values)
    n_seen = data.draw(st.integers(0, population - 1))
    order = data.draw(st.permutations(values))
    seen, left = order[:n_seen], order[n_seen:]
    log_before = Capital(1, population=population).add(column([*seen]))[-1, 0] if seen else 0.0
    after = [Capital(1, population=population).add(column([*seen, x]))[-1, 0] for x in left]
    assert np.mean(np.exp(after)) <= np.exp(log_before) * (1 + 1e-9)


@pytest.mark.parametrize("population", [None, 60])
def test_the_mean_capital_under_the_null_is_at_most_one(population):
    rng = np.random.default_rng(3)
    half = rng.uniform(-0.4, 0.4, (30, 20_000))
    x = rng.permuted(np.vstack([half, -half]), axis=0)
    if population is None:
        x = rng.uniform(-0.4, 0.4, (60, 20_000))
    final = np.exp(Capital(x.shape[1], population=population).add(x)[20])
    assert final.mean() <= 1 + 4 * final.std() / np.sqrt(final.size)


@pytest.mark.parametrize("population", [None, 200])
def test_a_true_null_is_rejected_at_any_look_in_at_most_the_level(population):
    rng = np.random.default_rng(4)
    half = rng.choice([-1.0, -0.2, 0.2, 1.0], (100, 2000))
    x = rng.permuted(np.vstack([half, -half]), axis=0)
    if population is None:
        x = rng.choice([-1.0, -0.2, 0.2, 1.0], (200, 2000))
    largest = Capital(2000, population=population).add(x).max(axis=0)
    ever = np.exp(-largest) <= 0.05
    assert ever.mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)


@given(ANY, st.data())
def test_blocks_or_all_at_once_are_the_same(values, data):
    cut = data.draw(st.integers(0, len(values)))
    population = data.draw(st.none() | st.integers(len(values), 60))
    whole = Capital(1, population=population).add(column(values))
    capital = Capital(1, population=population)
    parts = [capital.add(column(values[:cut])), capital.add(column(values[cut:]))]
    assert np.vstack(parts) == pytest.approx(whole, rel=1e-9, abs=1e-12)


def test_a_series_that_is_left_out_stays_as_it_is():
    capital = Capital(2)
    capital.add(np.full((3, 2), 0.5))
    path = capital.add(np.full((2, 2), 0.5), np.array([False, True]))
    assert path.shape == (2, 1)
    assert capital.n.tolist() == [3, 5]
    assert capital.add(np.empty((0, 2))).shape == (0, 2)


def test_a_missing_draw_is_no_draw_where_draws_are_independent():
    nan = float("nan")
    with_gap = Capital(1).add(column([0.5, nan, 0.2]))[-1]
    assert with_gap == pytest.approx(Capital(1).add(column([0.5, 0.2]))[-1])


def test_a_sum_that_the_rest_cannot_turn_is_certain():
    path = Capital(1, population=5).add(column([1.0, 1.0, 0.9, 0.0, -1.0]))[:, 0]
    assert np.isinf(path).tolist() == [False, False, True, True, True]


def test_a_sum_of_exactly_zero_is_never_certain():
    for sign in (1, -1):
        path = Capital(1, population=4).add(sign * column([1.0, -0.25, -0.25, -0.5]))
        assert np.isfinite(path).all()


@settings(max_examples=30)
@given(VALUES, st.none() | st.integers(0, 10))
def test_bounds_hold_the_mean_of_what_was_seen_and_mirror(values, n_more):
    population = None if n_more is None else len(values) + n_more
    low, high = confidence_sequence(column(values), error=0.025, population=population)
    assert -1 <= low[0] <= high[0] <= 1
    turned = confidence_sequence(-column(values), error=0.025, population=population)
    assert turned[0][0] == pytest.approx(-high[0], abs=1e-9)
    if population is None:
        assert low[0] <= np.mean(values) + 1e-9
        assert np.mean(values) <= high[0] + 1e-9


def test_a_whole_population_leaves_its_mean():
    x = column([0.5, -0.2, 0.9, 0.1])
    low, high = confidence_sequence(x, error=0.025, population=4)
    assert low[0] == pytest.approx(x.mean(), abs=1e-6)
    assert high[0] == pytest.approx(x.mean(), abs=1e-6)


def test_without_values_nothing_is_bounded():
    low, high = confidence_sequence(np.empty((0, 2)), error=0.025)
    assert low.tolist() == [-1, -1]
    assert high.tolist() == [1, 1]


@pytest.mark.parametrize("value", [1.5, -1.01])
def test_values_beyond_the_bounds_are_refused(value):
    with pytest.raises(StatisticsError, match=r"\[-1, 1\]"):
        Capital(1).add(column([value]))


def test_more_values_than_the_population_are_refused():
    with pytest.raises(StatisticsError, match=r"more values than the population has \(2\)"):
        Capital(1, population=2).add(column([0.1, 0.1, 0.1]))
