import math
import time

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.association import (
    association,
    leave_one_out,
    midranks,
    pair_sums,
)
from orchestrator.statistics.correlation import (
    correlate,
    correlate_within,
    partial_correlation,
)

SCIPY = {
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "kendall": "kendalltau",
}
small = st.integers(-4, 4).map(float)
columns = st.lists(st.tuples(small, small), min_size=4, max_size=25).map(np.array)


def correlated(*values, **options):
    return correlate(*values, **options)


def partial(*values, **options):
    return partial_correlation(*values, **options)


def within_categories(*values, **options):
    return correlate_within(*values, **options)


def associated(*values, **options):
    return association(*values, **options)


def varied(points):
    assume(all(np.ptp(column) > 0 for column in points.T))
    return points.T


def clusters_for(n, n_clusters):
    return np.arange(n) % min(n_clusters, n)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.mark.parametrize("kind", SCIPY)
@given(points=columns)
@settings(max_examples=40)
def test_values_are_those_of_scipy(kind, points):
    x, y = varied(points)
    assert associated(x, y, kind) == pytest.approx(
        getattr(scipy.stats, SCIPY[kind])(x, y)[0], abs=1e-12
    )


@given(columns)
@settings(max_examples=60)
def test_pair_sums_are_what_counting_gives(points):
    x, y = points.T
    dx, dy = np.sign(x[:, None] - x[None]), np.sign(y[:, None] - y[None])
    agree, differ_x, differ_y = pair_sums(x, y)
    np.testing.assert_array_equal(agree, (dx * dy).sum(1))
    np.testing.assert_array_equal(differ_x, np.abs(dx).sum(1))
    np.testing.assert_array_equal(differ_y, np.abs(dy).sum(1))


@given(st.lists(small, min_size=2, max_size=25).map(np.array))
def test_the_tau_of_the_same_order_is_exactly_one(values):
    # The first screen says of less than 1 that the orders differ.
    assume(np.ptp(values) > 0)
    assert association(values, 3.0 * values + 1.0, "kendall") == 1.0
    assert association(values, -values, "kendall") == -1.0


@given(st.lists(small, min_size=1, max_size=30))
def test_midranks_are_those_of_scipy(values):
    np.testing.assert_array_equal(midranks(np.array(values)), scipy.stats.rankdata(values))


@pytest.mark.parametrize("kind", SCIPY)
@given(points=columns, n_clusters=st.integers(2, 8))
@settings(max_examples=40)
def test_without_a_cluster_is_the_value_of_the_others(kind, points, n_clusters):
    x, y = varied(points)
    clusters = clusters_for(x.size, n_clusters)
    kept = [clusters != cluster for cluster in range(int(clusters.max()) + 1)]
    expected = [associated(x[keep], y[keep], kind) for keep in kept]
    np.testing.assert_allclose(leave_one_out(x, y, clusters, kind), expected, atol=1e-9)


def test_spearman_of_many_clusters_uses_its_influence(rng, monkeypatch):
    x = rng.normal(size=900)
    y = np.round(x + rng.normal(size=900))
    clusters = np.arange(900) // 3
    exact = leave_one_out(x, y, clusters, "spearman")
    monkeypatch.setattr("orchestrator.statistics.association.EXACT_CELLS", 0)
    near = leave_one_out(x, y, clusters, "spearman")
    assert near.std() == pytest.approx(exact.std(), rel=0.02)
    assert np.corrcoef(near, exact)[0, 1] > 0.999


@pytest.mark.parametrize("kind", SCIPY)
@given(points=columns)
@settings(max_examples=40)
def test_a_turned_score_turns_the_sign_and_the_interval(kind, points):
    x, y = varied(points)
    prompts = np.arange(x.size)
    plain, turned = (correlated(s, y, prompts, kind=kind) for s in (x, -x))
    assert turned.value == pytest.approx(-plain.value, abs=1e-12)
    assert (turned.interval is None) == (plain.interval is None)
    if plain.interval is not None:
        assert turned.interval.low == pytest.approx(-plain.interval.high, abs=1e-9)


@pytest.mark.parametrize("kind", SCIPY)
@given(points=columns, random=st.randoms())
@settings(max_examples=25)
def test_order_of_points_and_names_of_prompts_do_not_matter(kind, points, random):
    x, y = varied(points)
    prompts = clusters_for(x.size, 5)
    order = list(range(x.size))
    random.shuffle(order)
    plain = correlated(x, y, prompts, kind=kind)
    mixed = correlated(x[order], y[order], 7 - 3 * prompts[order], kind=kind)
    assert mixed.value == pytest.approx(plain.value, abs=1e-12)
    assert (mixed.interval is None) == (plain.interval is None)
    if plain.interval is not None:
        assert mixed.interval.low == pytest.approx(plain.interval.low, abs=1e-9)


@pytest.mark.parametrize("kind", ["spearman", "kendall"])
def test_rank_correlations_ignore_monotone_transformations(kind, rng):
    x = rng.normal(size=40)
    y = x + rng.normal(size=40)
    plain = correlated(x, y, np.arange(40), kind=kind)
    assert correlated(np.exp(x), y**3, np.arange(40), kind=kind) == plain


def test_interval_is_near_fishers_for_independent_normal_points(rng):
    x = rng.normal(size=2000)
    y = 0.6 * x + 0.8 * rng.normal(size=2000)
    found = correlated(x, y, np.arange(2000), kind="pearson")
    reach = 1.96 / math.sqrt(1997)
    assert found.interval.low == pytest.approx(math.tanh(math.atanh(found.value) - reach), abs=5e-3)
    assert found.interval.high == pytest.approx(
        math.tanh(math.atanh(found.value) + reach), abs=5e-3
    )


def test_repeated_points_of_a_prompt_add_no_certainty(rng):
    x = rng.normal(size=50)
    y = x + rng.normal(size=50)
    once = correlated(x, y, np.arange(50), kind="pearson")
    tripled = correlated(*(np.repeat(v, 3) for v in (x, y, np.arange(50))), kind="pearson")
    assert tripled.interval.low == pytest.approx(once.interval.low, abs=1e-9)
    assert (tripled.n, tripled.n_points) == (50, 150)


def test_missing_points_are_left_out(rng):
    x, y = rng.normal(size=(2, 30))
    gappy = x.copy()
    gappy[[3, 4]] = np.nan
    found = correlated(gappy, y, np.arange(30))
    expected = correlated(*(np.delete(v, [3, 4]) for v in (x, y, np.arange(30))))
    assert (found.value, found.interval) == (expected.value, expected.interval)


@pytest.mark.parametrize(
    ("score", "gold", "kind", "reason"),
    [
        ([1, 1, 1, 1], [1, 2, 3, 4], "spearman", "score is constant"),
        ([1, 2, 3, 4], [2, 2, 2, 2], "pearson", "gold is constant"),
        ([1, 2], [2, 1], "kendall", "2 points, fewer than 3"),
        ([1, 2, -math.inf, 3], [1, 2, 3, 4], "pearson", "score has infinite values"),
        ([], [], "pearson", "0 points"),
    ],
)
def test_what_is_undefined_has_a_reason(score, gold, kind, reason):
    score, gold = np.array(score, float), np.array(gold, float)
    found = correlated(score, gold, np.arange(score.size), kind=kind)
    assert math.isnan(found.value)
    assert found.interval is None
    assert reason in found.undefined


def test_infinite_scores_have_ranks():
    score = np.array([-math.inf, 0.0, 1.0, 3.0, 2.0])
    assert correlated(score, np.arange(5.0), np.arange(5)).value == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("prompts", "reason"),
    [([0] * 6, "1 independent prompts"), (list(range(6)), "perfect|no spread")],
)
def test_a_value_without_interval_says_why(prompts, reason):
    x = np.arange(6.0)
    found = correlated(x, x, np.array(prompts), kind="pearson")
    assert found.value == pytest.approx(1.0)
    assert found.interval is None
    assert any(word in found.undefined for word in reason.split("|"))


def test_shapes_must_fit():
    with pytest.raises(StatisticsError):
        correlated(np.zeros(3), np.zeros(4), np.arange(3))


def residuals(values, given):
    design = np.stack((np.ones_like(given), given), axis=1)
    return values - design @ np.linalg.lstsq(design, values, rcond=None)[0]


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
def test_partial_correlation_is_that_of_residuals(kind, rng):
    length = rng.normal(size=60)
    score, gold = length + rng.normal(size=60), length + rng.normal(size=60)
    found = partial(score, gold, length, np.arange(60), kind=kind)
    rank = midranks if kind == "spearman" else np.asarray
    expected = associated(*(residuals(rank(v), rank(length)) for v in (score, gold)), "pearson")
    assert found.value == pytest.approx(expected, abs=1e-12)
    assert found.interval.contains(found.value)


def test_what_only_length_explains_vanishes_given_length(rng):
    length = rng.normal(size=4000)
    score, gold = length + rng.normal(size=4000), length + rng.normal(size=4000)
    assert correlated(score, gold, np.arange(4000)).value > 0.4
    assert partial(score, gold, length, np.arange(4000)).interval.contains(0.0)


def test_a_covariate_that_is_the_score_leaves_nothing(rng):
    score, gold = rng.normal(size=(2, 30))
    found = partial(score, gold, 2 * score, np.arange(30), kind="pearson")
    assert math.isnan(found.value)
    assert "determines" in found.undefined


def test_within_categories_easy_and_hard_add_nothing(rng):
    shift = np.repeat([0.0, 10.0], 200)
    score, gold = shift + rng.normal(size=400), shift + rng.normal(size=400)
    names = ["easy"] * 200 + ["hard"] * 200
    assert correlated(score, gold, np.arange(400)).value > 0.7
    categories, mean = within_categories(score, gold, np.arange(400), names)
    assert mean.interval.contains(0.0)
    assert list(categories) == ["easy", "hard"]
    values = [found.value for found in categories.values()]
    assert mean.value == pytest.approx(np.mean(values))
    assert mean.n == 400


def test_a_category_without_value_is_said_and_not_averaged(rng):
    score, gold = rng.normal(size=(2, 40))
    gold[20:] = 1.0
    categories, mean = within_categories(score, gold, np.arange(40), ["a"] * 20 + ["b"] * 20)
    assert mean.value == categories["a"].value
    assert mean.interval.low == pytest.approx(categories["a"].interval.low)
    assert mean.undefined == "undefined in b"


def test_prompts_with_points_in_two_categories_are_one_prompt(rng):
    x = rng.normal(size=40)
    y = x + rng.normal(size=40)
    categories, mean = within_categories(
        np.tile(x, 2), np.tile(y, 2), np.tile(np.arange(40), 2), ["a"] * 40 + ["b"] * 40
    )
    alone = next(iter(categories.values()))
    assert mean.n == 40
    assert mean.interval.low == pytest.approx(alone.interval.low, abs=2e-3)


@pytest.mark.parametrize("kind", SCIPY)
def test_a_hundred_thousand_points_take_seconds(kind, rng):
    x = rng.normal(size=100_000)
    y = np.round(x + rng.normal(size=100_000), 1)
    begin = time.process_time()
    found = correlated(x, y, np.arange(100_000) // 5, kind=kind)
    assert time.process_time() - begin < 10.0
    assert found.interval.high - found.interval.low < 0.02


@given(columns, st.sampled_from(sorted(SCIPY)), st.integers(-1000, 1000), st.integers(-1000, 1000))
def test_no_correlation_changes_with_the_scale_of_scores(points, kind, one, two):
    """Whatever the squares of the scores would overflow, or vanish."""
    x, y = points.T
    assume(np.ptp(x) > 0 and np.ptp(y) > 0)
    clusters = np.arange(len(x)) // 2
    scaled = np.ldexp(x, one), np.ldexp(y, two)
    for whole, again in (
        (association(x, y, kind), association(*scaled, kind)),
        (leave_one_out(x, y, clusters, kind), leave_one_out(*scaled, clusters, kind)),
    ):
        np.testing.assert_array_equal(whole, again)
