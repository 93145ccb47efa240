"""Strengths at equal style: held against Arena-Hard-Auto's code, the greatest likelihood, and laws.

The reference values come from `show_result.py` (005ac12) and `fit_pairwise_model` (a9e743c) of
`lmarena/arena-hard-auto` in float64, on the features below.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.bradley_terry import ELO_SCALE, LEAST_OWN, StyledPairs, fit_style
from orchestrator.statistics.ratings import rate

MODELS = ("a", "b", "c")


def drawn(seed=0, n_prompts=40, n_features=2, effect=0.8):
    rng = np.random.default_rng(seed)
    pairs = np.array(list(combinations(range(3), 2)))
    first, second = np.tile(pairs.T, n_prompts)
    prompts = np.repeat(np.arange(n_prompts), 3)
    features = rng.normal(size=(len(first), n_features)) * [1.0, 0.2, 3.0][:n_features]
    odds = 0.5 * (second - first) + features[:, :1].sum(axis=1) * effect
    soft = scipy.special.expit(odds + rng.normal(size=len(odds)))
    return StyledPairs(prompts, first, second, 3, soft, features)


def fitted(pairs):
    fit = fit_style(pairs)
    assert fit is not None
    return fit


def test_strengths_and_effects_have_the_greatest_likelihood():
    pairs = drawn()
    scaled = pairs.features / pairs.spreads()

    def loss(x):
        theta = np.array([0.0, x[0], x[1]])
        odds = theta[pairs.first] - theta[pairs.second] + scaled @ x[2:]
        return float((np.logaddexp(0.0, odds) - pairs.preference * odds).sum())

    best = scipy.optimize.minimize(loss, np.zeros(4), tol=1e-12, method="BFGS").x
    fit = fitted(pairs)
    assert fit.effects == pytest.approx(best[2:], abs=1e-5)
    assert np.diff(fit.strengths) == pytest.approx(np.diff([0.0, best[0], best[1]]), abs=1e-5)


def test_agrees_with_arena_hard_auto():
    # Two models against a baseline on twelve prompts: tokens and three kinds of Markdown.
    k = np.arange(24)
    outcomes = [1, 0, 0.5, 1, 0, 0, 1, 0.5, 1, 1, 0, 0, 0.5, 0, 1, 1, 0, 0.5, 0, 1, 1, 0, 0, 1]
    long_a, long_b = 120 + k * 37 % 101 * 3, 150 + k * 53 % 97 * 3
    a = np.stack([k * 5 % 4, k * 7 % 9, k * 11 % 6]) / long_a
    b = np.stack([k * 3 % 5, k * 2 % 7, k * 13 % 4]) / long_b
    features = np.vstack([(long_a - long_b) / (long_a + long_b), (a - b) / (a + b + 1)]).T
    pairs = StyledPairs(k // 2, k % 2, np.full(24, 2), 3, np.array(outcomes), features)
    fit = fitted(pairs)
    # Theirs by standard deviation and with features centred, here for a unit of each feature.
    effects = [-2.028185860474919, 51.66362224101765, 1.3771325831189383, 26.292948842220234]
    assert fit.effects / pairs.spreads() == pytest.approx(effects, abs=1e-6)
    gaps = [-0.087892185564934, -0.2170974724971148]
    assert fit.strengths[:2] - fit.strengths[2] == pytest.approx(gaps, abs=1e-6)


def test_without_features_it_is_the_plain_rating():
    pairs = replace(drawn(), features=np.empty((120, 0)))
    fit = fitted(pairs)
    sums = pairs.summing()(pairs.preference)
    plain = rate(sums, MODELS, confidence_level=0.95)
    assert 1000 + ELO_SCALE * fit.strengths == pytest.approx(plain.values, abs=1e-6)
    # Its interval is Student's, that of a plain rating a test of a bounded mean: near, and longer.
    interval = fit.interval(1, 0.95)
    assert plain.low[1] < 1000 + ELO_SCALE * interval.low < plain.low[1] + 15
    assert plain.high[1] - 15 < 1000 + ELO_SCALE * interval.high < plain.high[1]


@given(st.lists(st.booleans(), min_size=120, max_size=120))
def test_the_side_of_an_answer_does_not_matter(flips):
    pairs, flip = drawn(), np.array(flips)
    other = replace(
        pairs,
        first=np.where(flip, pairs.second, pairs.first),
        second=np.where(flip, pairs.first, pairs.second),
        preference=np.where(flip, 1.0 - pairs.preference, pairs.preference),
        features=np.where(flip[:, None], -pairs.features, pairs.features),
    )
    one, two = fitted(pairs), fitted(other)
    assert two.strengths == pytest.approx(one.strengths, abs=1e-9)
    assert two.effects == pytest.approx(one.effects, abs=1e-9)
    assert two.errors() == pytest.approx(one.errors(), abs=1e-9)


@given(st.floats(0.01, 1000.0))
def test_an_effect_is_in_spreads_so_that_units_do_not_matter(unit):
    one, two = fitted(drawn()), fitted(replace(drawn(), features=unit * drawn().features))
    assert two.effects == pytest.approx(one.effects, rel=1e-9)


def test_an_interval_is_wider_where_prompts_repeat_themselves():
    pairs = drawn()
    fields = ("first", "second", "preference", "features")
    twice = replace(
        pairs,
        prompts=np.tile(pairs.prompts, 2),
        **{name: np.concatenate([getattr(pairs, name)] * 2) for name in fields},
    )
    one, two = fitted(pairs), fitted(twice)
    assert two.errors() == pytest.approx(one.errors(), rel=1e-9)


def test_shares_of_their_own_tell_features_from_models_and_from_each_other():
    pairs = drawn(n_features=1)
    by_model = np.array([3.0, 1.0, 0.0])
    fixed = by_model[pairs.first] - by_model[pairs.second]
    free = pairs.features[:, 0]
    none = np.zeros(len(free))
    features = np.column_stack([free, fixed, none])
    own = replace(pairs, features=features).own_shares()
    assert own[0] > 0.9
    assert (own[1:] < LEAST_OWN).all()
    twins = replace(pairs, features=np.column_stack([free, free])).own_shares()
    assert (twins < LEAST_OWN).all()


def test_a_share_is_that_of_the_regression_on_pairs_of_models_and_other_features():
    pairs = drawn(n_features=2)
    mixed = pairs.features @ [[1.0, 0.0], [4.0, 1.0]] + 0.7
    dummies = np.eye(3)[np.array([pairs.first + pairs.second - 1])[0]]
    others = np.column_stack([dummies, mixed[:, 1]])
    left = mixed[:, 0] - others @ np.linalg.lstsq(others, mixed[:, 0], rcond=None)[0]
    own = replace(pairs, features=mixed).own_shares()[0]
    assert own == pytest.approx((left**2).sum() / (mixed[:, 0] ** 2).sum(), rel=1e-9)


def test_there_is_no_fit_where_style_decides_every_pair():
    pairs = drawn()
    decided = (pairs.features[:, 0] > 0).astype(float)
    assert fit_style(replace(pairs, preference=decided)) is None


def test_there_is_no_interval_where_a_feature_differs_on_one_prompt():
    pairs = drawn(n_features=1)
    rare = np.where(pairs.prompts[:, None] == 3, pairs.features, 0.0)
    once = replace(pairs, features=rare)
    assert once.n_prompts_differing().tolist() == [1]
    fit = fitted(once)
    assert fit.interval(3, 0.95) is None
    assert np.isnan(fit.p_value(0))
    assert np.isnan(fit.errors()).tolist() == [False, False, False, True]


def test_what_was_not_judged_is_refused():
    with pytest.raises(StatisticsError, match="drop failed"):
        replace(drawn(), preference=np.full(120, np.nan))
    with pytest.raises(StatisticsError, match="finite"):
        replace(drawn(), features=np.full((120, 1), np.inf))


def test_there_is_no_fit_without_models():
    none = np.zeros(0, np.int64)
    pairs = StyledPairs(none, none, none, 0, np.zeros(0), np.zeros((0, 1)))
    assert fit_style(pairs) is None
