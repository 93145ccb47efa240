import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics import bootstrap
from orchestrator.statistics.bootstrap import prompt_weights, resampled_strengths
from orchestrator.statistics.bradley_terry import ELO_SCALE, fit_bradley_terry
from orchestrator.statistics.prompt_sums import sum_by_prompt
from orchestrator.statistics.ratings import covariance_root, holm, rate


def compared(strengths, n_prompts, rng, spread=0.5):
    """Every pair on every prompt."""
    n_models = len(strengths)
    first, second = np.triu_indices(n_models, 1)
    quality = np.asarray(strengths) + spread * rng.normal(size=(n_prompts, n_models))
    preference = 1 / (1 + np.exp(quality[:, second] - quality[:, first]))
    return sum_by_prompt(
        np.repeat(np.arange(n_prompts), len(first)),
        np.tile(first, n_prompts),
        np.tile(second, n_prompts),
        preference.reshape(-1),
        shape=(n_prompts, n_models),
    )


def rated(sums, *, n_resamples=400, level=0.95):
    names = [f"m{i}" for i in range(sums.n_models)]
    rng = np.random.default_rng(0)
    return rate(sums, names, confidence_level=level, n_resamples=n_resamples, rng=rng)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_weights_redraw_as_many_prompts_as_there_are(rng):
    chunks = list(prompt_weights(50, 1000, rng, row_bytes=100_000))
    weights = np.concatenate(chunks)
    assert len(chunks) > 1
    assert weights.shape == (1000, 50)
    assert set(weights.sum(axis=1)) == {50.0}
    assert weights.var() == pytest.approx(0.98, abs=0.05)


def test_resamples_do_not_depend_on_the_chunks():
    one = np.concatenate(list(prompt_weights(30, 200, np.random.default_rng(1))))
    many = np.concatenate(list(prompt_weights(30, 200, np.random.default_rng(1), row_bytes=2**20)))
    np.testing.assert_array_equal(one, many)


def test_no_prompt_can_be_resampled_from_none(rng):
    with pytest.raises(StatisticsError):
        next(prompt_weights(0, 10, rng))


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 40), st.integers(1, 60))
def test_few_cells_are_summed_as_a_full_table_is(seed, n_models, n_prompts, n_judged):
    """Resamples by sparse blocks and by dense products, of the same draws."""
    rng = np.random.default_rng(seed)
    first = rng.integers(n_models, size=n_judged)
    second = (first + rng.integers(1, n_models, size=n_judged)) % n_models
    prompts = rng.integers(n_prompts, size=n_judged)
    sums = sum_by_prompt(prompts, first, second, rng.random(n_judged), shape=(n_prompts, n_models))
    ways = [
        [
            np.concatenate(parts)
            for parts in zip(*way(sums, 70, np.random.default_rng(1)), strict=True)
        ]
        for way in (bootstrap._sparse_sums, bootstrap._dense_sums)
    ]
    for few, full in zip(*ways, strict=True):
        assert few.shape == (70, sums.n_pairs)
        np.testing.assert_allclose(few, full, rtol=1e-12, atol=1e-12)


def test_blocks_of_prompts_and_of_resamples_leave_nothing_out(rng):
    """More prompts than a block holds, more resamples than a chunk: nothing is lost between."""
    n = 3 * bootstrap._SPARSE_PROMPTS + 5
    first = rng.integers(9, size=n)
    sums = sum_by_prompt(np.arange(n), first, first + 1, np.full(n, 0.25), shape=(n, 10))
    n_resamples = bootstrap._SPARSE_ROWS + 3
    parts = list(bootstrap._sparse_sums(sums, n_resamples, rng))
    counts = np.concatenate([counts for _, counts in parts])
    wins = np.concatenate([wins for wins, _ in parts])
    assert counts.sum(axis=1).tolist() == [n] * n_resamples
    np.testing.assert_allclose(wins, 0.25 * counts)


def test_a_sparse_design_is_rated_as_the_fit_of_each_resample_says(rng):
    n, n_models = 300, 8
    first = rng.integers(n_models, size=n)
    second = (first + rng.integers(1, n_models, size=n)) % n_models
    sums = sum_by_prompt(np.arange(n), first, second, rng.random(n), shape=(n, n_models))
    strengths = fit_bradley_terry(sums.win_matrix[None]).strengths[0]
    drawn = resampled_strengths(sums, strengths, 50, np.random.default_rng(2))
    wins, counts = sums.dense()
    (weights,) = prompt_weights(n, 50, np.random.default_rng(2))
    matrices = sums.matrices(weights @ wins, weights @ counts)
    expected = fit_bradley_terry(matrices, start=strengths).strengths
    np.testing.assert_allclose(drawn, expected, rtol=0, atol=1e-9)


def test_sandwich_agrees_with_the_resamples(rng):
    sums = compared([0.8, 0.0, -0.8], 400, rng)
    strengths = fit_bradley_terry(sums.win_matrix[None]).strengths[0]
    drawn = resampled_strengths(sums, strengths, 2000, rng)
    expected = np.cov(drawn.T)
    root = covariance_root(sums, strengths)
    np.testing.assert_allclose(root.T @ root, expected, atol=2e-4)


def test_more_prompts_give_shorter_intervals(rng):
    few, many = rated(compared([0.5, -0.5], 25, rng)), rated(compared([0.5, -0.5], 400, rng))
    assert np.all(many.high - many.low < 0.5 * (few.high - few.low))


def test_higher_level_gives_longer_intervals(rng):
    sums = compared([0.5, 0.0, -0.5], 60, rng)
    narrow, wide = rated(sums, level=0.8), rated(sums, level=0.99)
    assert np.all(wide.low < narrow.low)
    assert np.all(wide.rank_low <= narrow.rank_low)


def test_difference_of_two_models_is_twice_the_rating(rng):
    result = rated(compared([0.5, -0.5], 60, rng))
    difference = result.difference(0, 1, 60)
    assert difference.value == pytest.approx(2 * (result.values[0] - 1000))
    width = difference.interval.high - difference.interval.low
    assert width == pytest.approx(2 * (result.high[0] - result.low[0]))


def test_p_value_and_interval_say_the_same(rng):
    for shift in np.linspace(0, 0.4, 9):
        difference = rated(compared([shift, 0.0], 40, rng), n_resamples=50).difference(0, 1, 40)
        assert difference.interval.contains(0.0) == (difference.p_value >= 0.05)


def test_ranks_of_equal_models_stay_open(rng):
    result = rated(compared([0.0, 0.0, 0.0, -2.0], 60, rng, spread=1.0))
    assert result.rank_low.tolist() == [1, 1, 1, 4]
    assert result.rank_high.tolist() == [3, 3, 3, 4]


def test_identical_prompts_give_no_interval():
    n = 30
    zeros, ones = np.zeros(n, np.int64), np.ones(n, np.int64)
    sums = sum_by_prompt(np.arange(n), zeros, ones, np.full(n, 0.7), shape=(n, 2))
    result = rated(sums)
    assert np.isnan(result.low).all()
    assert result.difference(0, 1, n).interval is None
    assert result.rank_high.tolist() == [1, 2]


def test_names_must_fit(rng):
    with pytest.raises(StatisticsError):
        rate(compared([0.5, 0.0], 5, rng), ["a"], confidence_level=0.95, n_resamples=10, rng=rng)


def test_holm_multiplies_the_smallest_most():
    adjusted = holm(np.array([0.01, 0.04, math.nan, 0.03]))
    np.testing.assert_allclose(adjusted, [0.03, 0.06, math.nan, 0.06])


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_lowers_and_keeps_the_order(values):
    p = np.array(values)
    adjusted = holm(p)
    assert np.all(adjusted >= p - 1e-12)
    assert np.all(adjusted <= 1.0)
    assert np.all(np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0)


def test_thirty_models_and_a_thousand_prompts_stay_small(rng):
    sums = compared(np.linspace(1, -1, 30), 1000, rng)
    result = rated(sums, n_resamples=200)
    assert result.values[0] - result.values[-1] == pytest.approx(2 * ELO_SCALE, rel=0.1)


def copied(sums, n_copies=3):
    """Each prompt a cluster of copies of itself, which says nothing new."""
    return replace(sums, wins=n_copies * sums.wins, counts=n_copies * sums.counts)


# Some probabilities are likelier than others, so that prompts often say the same, or mirror it.
PROBABILITIES = st.sampled_from(
    [
        0.004315019412402921,
        0.013324375626960261,
        0.21731921940059912,
        0.5,
        0.7826807805994009,
        0.9867,
    ]
) | st.floats(0, 1)


@given(st.lists(st.lists(PROBABILITIES, min_size=3, max_size=3), min_size=2, max_size=5))
def test_copies_in_a_cluster_change_no_rating_and_no_difference(preferences):
    n = len(preferences)
    sums = sum_by_prompt(
        np.repeat(np.arange(n), 3),
        np.tile([0, 0, 1], n),
        np.tile([1, 2, 2], n),
        np.ravel(preferences),
        shape=(n, 3),
    )
    once, again = rated(sums, n_resamples=40), rated(copied(sums), n_resamples=40)
    for name in ("values", "low", "high", "rank", "rank_low", "rank_high", "dof"):
        np.testing.assert_allclose(getattr(again, name), getattr(once, name), rtol=1e-9)
    for pair in ((0, 1), (0, 2), (1, 2)):
        one, two = once.difference(*pair, n), again.difference(*pair, n)
        assert two.value == pytest.approx(one.value, rel=1e-9, abs=1e-9, nan_ok=True)
        assert two.p_value == pytest.approx(one.p_value, rel=1e-6, abs=1e-12, nan_ok=True)
        assert (two.interval is None) == (one.interval is None)


def test_a_rating_that_no_prompt_moves_has_no_interval():
    """Two prompts that mirror each other: between them only the two weaker models change."""
    sums = sum_by_prompt(
        np.repeat([0, 1], 3),
        np.tile([2, 2, 0], 2),
        np.tile([0, 1, 1], 2),
        np.array([
            0.7826807805994009, 0.013324375626960261, 0.004315019412402921,
            0.21731921940059912, 0.004315019412402921, 0.013324375626960261,
        ]),
        shape=(2, 3),
    )  # fmt: skip
    result = rated(sums)
    assert np.isnan(result.low).tolist() == [False, True, False]
    assert np.isnan(result.high).tolist() == [False, True, False]


def test_a_difference_that_no_prompt_moves_has_no_interval():
    """Only the third model's comparisons vary, which moves the ratings of all, together."""
    n = 4
    sums = sum_by_prompt(
        np.repeat(np.arange(n), 2),
        np.tile([0, 1], n),
        np.tile([1, 2], n),
        np.stack([np.full(n, 0.06), [0.08, 0.53, 0.17, 0.8]], axis=1).ravel(),
        shape=(n, 3),
    )
    result = rated(sums)
    assert np.isfinite(result.low).all()
    difference = result.difference(0, 1, n)
    assert difference.value == pytest.approx(ELO_SCALE * math.log(0.06 / 0.94))
    assert difference.interval is None
    assert difference.p_value == pytest.approx(2 * 0.5**n)
