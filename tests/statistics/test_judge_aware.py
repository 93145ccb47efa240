"""Judges of unequal sharpness: held against the code of Xu et al. 2026, and what is refused.

The reference values come from `mle_adam` of that paper's repository (11d8b1c, `main/main.py`) with
its tolerance at 1e-9, brought from a product of the discriminations of 1 to a mean of 1.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import scipy

from orchestrator.errors import StatisticsError
from orchestrator.statistics.judge_aware import JudgedPairs, fit_judge_aware
from orchestrator.statistics.student import interval_around

SHARP = np.array([1.5, 0.5])
STRENGTHS = np.array([0.6, 0.0, -0.6])


def drawn(favour=0.7, noise=0.3, n_prompts=60, seed=0, sharp=SHARP):
    """Judge 0 is model 0 and favours it; judge 1 is no candidate."""
    rng = np.random.default_rng(seed)
    pairs = np.array(list(combinations(range(3), 2)))
    first, second = np.tile(pairs.T, n_prompts * 2)
    judge = np.tile(np.repeat([0, 1], 3), n_prompts)
    prompts = np.repeat(np.arange(n_prompts), 6)
    odds = sharp[judge] * (STRENGTHS[first] - STRENGTHS[second])
    odds += favour * ((judge == 0) & (first == 0)) + noise * rng.normal(size=len(odds))
    traits = np.zeros((2, 3, 1))
    traits[0, 0, 0] = 1.0
    return JudgedPairs(prompts, first, second, 3, judge, scipy.special.expit(odds), traits)


def fitted(pairs):
    fit = fit_judge_aware(pairs)
    assert fit is not None
    return fit


def test_agrees_with_the_authors_code():
    # Of 20 comparisons of each pair, what each of three judges gives to the first; ties as half.
    won = [
        (14, 16.5, 19, 12, 17, 13.5),
        (12.5, 13, 15, 9, 13, 14),
        (9, 12, 13.5, 11.5, 10, 12),
    ]
    first, second = np.array(list(combinations(range(4), 2))).T
    fit = fitted(
        JudgedPairs(
            np.tile(np.repeat(np.arange(20), 6), 3),
            np.tile(first, 60),
            np.tile(second, 60),
            4,
            np.repeat(np.arange(3), 120),
            np.concatenate([np.tile(shares, 20) for shares in won]) / 20,
            np.zeros((3, 4, 0)),
        )
    )
    strengths = [0.68960204433752, 0.13872075175224707, -0.11206274168219034, -0.7162600544075768]
    sharp = [1.812605560674192, 0.8116872785488136, 0.3757071607769944]
    assert fit.strengths == pytest.approx(strengths, abs=1e-7)
    assert fit.discriminations == pytest.approx(sharp, abs=1e-7)


def test_without_noise_it_finds_what_made_the_preferences():
    fit = fitted(drawn(noise=0.0))
    # On the scale of mean discrimination 1, which these have.
    assert fit.strengths == pytest.approx(STRENGTHS, abs=1e-7)
    assert fit.discriminations == pytest.approx(SHARP, abs=1e-7)
    assert fit.favours[0, 0] == pytest.approx(0.7, abs=1e-7)
    assert np.isnan(fit.favours[1, 0])


def test_it_has_the_greatest_likelihood():
    pairs = drawn(noise=1.0)
    fit = fitted(pairs)

    def loss(x):
        theta, a, favour = np.array([0.0, x[0], x[1]]), np.array([x[2], 2.0 - x[2]]), x[3]
        own = (pairs.judge == 0) * ((pairs.first == 0) * 1.0 - (pairs.second == 0))
        odds = a[pairs.judge] * (theta[pairs.first] - theta[pairs.second]) + favour * own
        return float((np.logaddexp(0.0, odds) - pairs.preference * odds).sum())

    best = scipy.optimize.minimize(loss, [0.0, 0.0, 1.0, 0.0], method="BFGS", tol=1e-10).x
    assert np.diff(fit.strengths) == pytest.approx([best[0], best[1] - best[0]], abs=1e-4)
    assert fit.discriminations[0] == pytest.approx(best[2], abs=1e-4)
    assert fit.favours[0, 0] == pytest.approx(best[3], abs=1e-4)


def test_a_sharper_judge_is_not_taken_for_one_that_favours_itself():
    fit = fitted(drawn(favour=0.0, n_prompts=200))
    interval = interval_around(fit.favours[0, 0], fit.favour_errors[0, 0], fit.dof, 0.99)
    assert interval is not None
    assert interval.contains(0.0)
    favoured = fitted(drawn(favour=0.7, n_prompts=200))
    assert favoured.p_value(0, 0) < 1e-6


def test_a_judge_who_sees_the_opposite_has_a_discrimination_below_zero():
    fit = fitted(drawn(sharp=np.array([2.5, -0.5])))
    assert fit.discriminations[1] < 0 < fit.discriminations[0]


def test_the_side_of_an_answer_does_not_matter():
    pairs = drawn()
    flip = np.random.default_rng(1).random(len(pairs.first)) < 0.5
    other = replace(
        pairs,
        first=np.where(flip, pairs.second, pairs.first),
        second=np.where(flip, pairs.first, pairs.second),
        preference=np.where(flip, 1.0 - pairs.preference, pairs.preference),
    )
    one, two = fitted(pairs), fitted(other)
    assert two.strengths == pytest.approx(one.strengths, abs=1e-8)
    assert two.favour_errors[0, 0] == pytest.approx(one.favour_errors[0, 0], abs=1e-8)


def test_prompts_that_repeat_themselves_say_no_more():
    pairs = drawn()
    fields = ("prompts", "judge", "first", "second", "preference")
    twice = {name: np.tile(getattr(pairs, name), 2) for name in fields}
    one, two = fitted(pairs), fitted(replace(pairs, **twice))
    assert two.favour_errors[0, 0] == pytest.approx(one.favour_errors[0, 0], rel=1e-6)


def test_one_judge_alone_has_no_fit():
    pairs = drawn()
    alone = pairs.judge == 0
    fields = ("prompts", "judge", "first", "second", "preference")
    assert fit_judge_aware(replace(pairs, **{n: getattr(pairs, n)[alone] for n in fields})) is None


def test_what_was_not_judged_is_refused():
    with pytest.raises(StatisticsError, match="drop failed"):
        replace(drawn(), preference=np.full(360, np.nan))
