from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.bradley_terry import ELO_SCALE
from orchestrator.statistics.prompt_sums import Pairs
from orchestrator.statistics.ratings import rate
from orchestrator.statistics.resampling import prompt_weights


def compared(strengths, n_prompts, rng, spread=0.5):
    """Every pair on every prompt."""
    n_models = len(strengths)
    first, second = np.triu_indices(n_models, 1)
    quality = np.asarray(strengths) + spread * rng.normal(size=(n_prompts, n_models))
    preference = 1 / (1 + np.exp(quality[:, second] - quality[:, first]))
    return Pairs(
        np.repeat(np.arange(n_prompts), len(first)),
        np.tile(first, n_prompts),
        np.tile(second, n_prompts),
        n_models,
    ).summing()(preference.reshape(-1))


def rated(sums, *, level=0.95):
    return rate(sums, [f"m{i}" for i in range(sums.n_models)], confidence_level=level)


def difference(found, first, second):
    """Of two models, at the level that says what is decided on all pairs."""
    return found.differences(np.array([first]), np.array([second]))[0]


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
    gap = difference(result, 0, 1)
    assert gap.value == pytest.approx(2 * (result.values[0] - 1000))
    width = gap.interval.high - gap.interval.low
    assert width == pytest.approx(2 * (result.high[0] - result.low[0]))


def test_ranks_of_equal_models_stay_open(rng):
    result = rated(compared([0.0, 0.0, 0.0, -2.0], 60, rng, spread=1.0))
    assert result.rank_low.tolist() == [1, 1, 1, 4]
    assert result.rank_high.tolist() == [3, 3, 3, 4]


def test_identical_prompts_are_not_certain():
    """30 x 0.7 exclude 1/2 by (0.5 / 0.7)^30; 5 x 0.7 do not."""
    for n, ranks in ((30, [1, 2]), (5, [2, 2])):
        zeros, ones = np.zeros(n, np.int64), np.ones(n, np.int64)
        sums = Pairs(np.arange(n), zeros, ones, 2).summing()(np.full(n, 0.7))
        result = rated(sums)
        expected = min(1.0, 2 * (0.5 / 0.7) ** n)
        assert result.p_values[0, 1] == pytest.approx(expected, rel=0.05)
        assert result.rank_high.tolist() == ranks
        assert (difference(result, 0, 1).interval is None) == (n < 6)


def test_names_must_fit(rng):
    with pytest.raises(StatisticsError):
        rate(compared([0.5, 0.0], 5, rng), ["a"], confidence_level=0.95)


def test_thirty_models_and_a_thousand_prompts_stay_small(rng):
    sums = compared(np.linspace(1, -1, 30), 1000, rng)
    result = rated(sums)
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
    sums = Pairs(
        np.repeat(np.arange(n), 3), np.tile([0, 0, 1], n), np.tile([1, 2, 2], n), 3
    ).summing()(np.ravel(preferences))
    once, again = rated(sums), rated(copied(sums))
    for name in ("values", "low", "high", "rank", "rank_low", "rank_high"):
        np.testing.assert_allclose(getattr(again, name), getattr(once, name), rtol=1e-9)
    np.testing.assert_allclose(again.p_values, once.p_values, rtol=1e-6, atol=1e-12)
    for pair in ((0, 1), (0, 2), (1, 2)):
        one, two = difference(once, *pair), difference(again, *pair)
        assert two.value == pytest.approx(one.value, rel=1e-9, abs=1e-9, nan_ok=True)
        assert (two.interval is None) == (one.interval is None)


@pytest.mark.parametrize("n_models", [3, 5, 8])
def test_a_strict_order_on_every_prompt_is_a_ranking_without_finite_ratings(n_models):
    n_prompts = 60
    first, second = np.triu_indices(n_models, 1)
    sums = Pairs(
        np.repeat(np.arange(n_prompts), len(first)),
        np.tile(first, n_prompts),
        np.tile(second, n_prompts),
        n_models,
    ).summing()(np.ones(n_prompts * len(first)))
    found = rated(sums)
    assert not np.isfinite(found.values[[0, -1]]).any()
    assert found.rank.tolist() == list(range(1, n_models + 1))
    assert found.better[first, second].all()
    assert found.rank_low.tolist() == found.rank_high.tolist() == found.rank.tolist()
    # What is decided has an interval that leaves out 0.
    for a, b in zip(first, second, strict=True):
        up, down = (difference(found, *pair).interval for pair in ((a, b), (b, a)))
        assert up is not None
        assert down is not None
        assert up.low > 0 > down.high
