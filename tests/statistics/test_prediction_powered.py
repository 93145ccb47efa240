"""PPI++: held against `ppi-python`, hypothesis for its laws, and what is undefined.

The reference values come from ppi-python 0.2.3 with NumPy 2.4.6 in an environment of its own:
`ppi_mean_pointestimate(y, f_labelled, f_others, lam=...)` and `ppi_mean_ci(..., alpha=0.05)` on
the rows that `wave` makes. It uses normal quantiles and divisors n and N, which are undone here.
"""

import dataclasses
import math

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.statistics.means import clustered_mean, clustered_share
from orchestrator.statistics.prediction_powered import (
    Labelled,
    corrected_mean,
    hardly_correlates,
    power_tuning,
)
from orchestrator.statistics.results import Interval

# seed, labelled, others, closeness, binary; then lambda, value, low, high.
REFERENCE = [
    (0, 20, 300, 0.7, False, None, 0.4914446913031019, 0.4418990964882003, 0.5409902861180035),
    (0, 20, 300, 0.7, False, 1.0, 0.4867658784306222, 0.4121254409992482, 0.5614063158619962),
    (0, 20, 300, 0.7, False, 0.0, 0.49958809136332405, 0.385503798273487, 0.6136723844531611),
    (1, 100, 2000, 0.9, False, None, 0.4999356381458524, 0.48480520502652774, 0.5150660712651771),
    (1, 100, 2000, 0.9, False, 1.0, 0.4998910533450312, 0.48100120288299786, 0.5187809038070645),
    (2, 37, 411, 0.5, True, None, 0.5408098712843425, 0.4085104319162004, 0.6731093106524847),
    (2, 37, 411, 0.5, True, 1.0, 0.5408937572854386, 0.4056611515804899, 0.6761263629903874),
    (3, 50, 60, 0.99, False, None, 0.4966793992826544, 0.4315596293892998, 0.561799169176009),
    (3, 50, 60, 0.99, False, 1.0, 0.5001827039658527, 0.41145468025066323, 0.5889107276810422),
    (4, 30, 500, 0.0, False, None, 0.4697707154593457, 0.3334082903181789, 0.6061331406005124),
]


def ends(interval):
    """Both ends of an interval that there is."""
    assert isinstance(interval, Interval)
    return interval.low, interval.high


def wave(seed, n, n_others, closeness, binary):
    i = np.arange(n + n_others, dtype=float)
    scores = (np.sin(1.7 * i + seed) + 1) / 2
    labels = closeness * scores + (1 - closeness) * (np.cos(2.3 * i * i + seed) + 1) / 2
    if binary:
        labels = (labels > 0.5).astype(float)
    return Labelled(scores, np.where(i < n, labels, np.nan), np.arange(i.size))


def drawn(rng, n_prompts=200, n_labels=40, rows=1, quality=0.8):
    prompts = np.repeat(np.arange(n_prompts), rows)
    skill = rng.normal(size=n_prompts)[prompts]
    labels = skill + 0.5 * rng.normal(size=prompts.size)
    scores = quality * labels + 0.6 * rng.normal(size=prompts.size) + 0.3
    chosen = rng.permutation(n_prompts)[:n_labels]
    return Labelled(scores, np.where(np.isin(prompts, chosen), labels, np.nan), prompts)


@pytest.mark.parametrize("case", REFERENCE)
def test_agrees_with_ppi_python(case):
    *of_wave, tuning, value, low, high = case
    data, n, n_others = wave(*of_wave), of_wave[1], of_wave[2]
    found = corrected_mean(data, tuning=tuning)
    assert found.value == pytest.approx(value, abs=1e-9)
    was_tuned = tuning is None and found.tuning > 0
    lost = (n - 2) / n if was_tuned else (n - 1) / n
    variance = found.labelled.variance * lost + found.other.variance * (n_others - 1) / n_others
    half = scipy.special.ndtri(0.975) * math.sqrt(variance)
    assert found.value - half == pytest.approx(low, abs=1e-9)
    assert found.value + half == pytest.approx(high, abs=1e-9)


def test_without_the_judge_it_is_the_mean_of_the_labels():
    data = drawn(np.random.default_rng(0), rows=3)
    found = corrected_mean(data, tuning=0.0)
    alone = clustered_mean(data.labels, data.prompts)
    assert found.value == pytest.approx(alone.value, abs=1e-12)
    assert ends(found.estimate().interval) == pytest.approx(ends(alone.interval), abs=1e-9)


def test_shares_without_the_judge_have_the_interval_of_shares():
    rng = np.random.default_rng(1)
    labels = np.where(np.arange(300) < 60, rng.beta(2, 2, 300), np.nan)
    data = Labelled(rng.random(300), labels, np.arange(300))
    found = corrected_mean(data, tuning=0.0).estimate(is_share=True).interval
    alone = clustered_share(labels[:60], np.ones(60), 0.95).interval
    # One is by the normal approximation, the other by a test of a bounded mean.
    assert ends(found) == pytest.approx(ends(alone), abs=0.01)


def test_a_judge_that_agrees_narrows_the_interval_and_noise_does_not_move_it_far():
    rng = np.random.default_rng(2)
    good = drawn(rng, n_prompts=2000, n_labels=100, quality=1.5)
    alone, helped = corrected_mean(good, tuning=0.0), corrected_mean(good)
    assert helped.variance < 0.5 * alone.variance
    noise = dataclasses.replace(good, scores=rng.normal(size=good.scores.size))
    assert corrected_mean(noise).variance < 1.1 * alone.variance


def test_a_judge_that_contradicts_people_is_left_out():
    data = drawn(np.random.default_rng(3))
    against = dataclasses.replace(data, scores=-data.scores)
    assert power_tuning(against) == 0.0
    assert corrected_mean(against).value == corrected_mean(data, tuning=0.0).value


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(8, 60))
def test_constant_bias_of_the_judge_changes_nothing(seed, rows, n_labels):
    data = drawn(np.random.default_rng(seed), rows=rows, n_labels=n_labels)
    biased = dataclasses.replace(data, scores=data.scores + 7.0)
    one, two = corrected_mean(data), corrected_mean(biased)
    assert two.value == pytest.approx(one.value, abs=1e-9)
    assert two.variance == pytest.approx(one.variance, rel=1e-6)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.permutations(range(60)))
def test_order_of_rows_and_names_of_prompts_do_not_matter(seed, order):
    data = drawn(np.random.default_rng(seed), n_prompts=30, n_labels=12, rows=2)
    order = np.array(order)
    other = Labelled(data.scores[order], data.labels[order], 29 - data.prompts[order])
    one, two = corrected_mean(data), corrected_mean(other)
    assert (two.value, two.variance) == pytest.approx((one.value, one.variance), rel=1e-9)


def test_rows_of_one_prompt_that_are_copies_are_one_row():
    data = drawn(np.random.default_rng(5), rows=1)
    copied = Labelled(*(np.repeat(x, 3) for x in (data.scores, data.labels, data.prompts)))
    one, three = corrected_mean(data, tuning=0.7), corrected_mean(copied, tuning=0.7)
    assert three.value == pytest.approx(one.value)
    assert three.variance == pytest.approx(one.variance)
    assert three.dof == pytest.approx(one.dof)


def test_the_difference_of_a_mean_with_itself_has_no_spread():
    found = corrected_mean(drawn(np.random.default_rng(6)))
    same = found.minus(found)
    assert same.value == 0.0
    assert same.estimate().undefined == "no spread over labelled prompts: no interval"


def test_paired_differences_are_of_what_the_same_prompts_say():
    rng = np.random.default_rng(7)
    data = drawn(rng, n_labels=60)
    better = Labelled(data.scores + 0.1, data.labels + 0.2, data.prompts)
    gap = corrected_mean(better).minus(corrected_mean(data))
    assert gap.value == pytest.approx(0.2)
    assert gap.variance < 1e-12


@pytest.mark.parametrize(
    ("n_labels", "why"),
    [(0, "no labels"), (2, "2 labelled prompts, too few for an interval")],
)
def test_too_few_labels_give_a_reason_and_no_interval(n_labels, why):
    found = corrected_mean(drawn(np.random.default_rng(8), n_labels=n_labels))
    assert found.estimate().undefined == why
    assert found.estimate(is_share=True).undefined == why
    assert math.isnan(found.value) == (n_labels == 0)


def test_labels_that_all_say_the_same_leave_an_interval_of_a_share():
    labels = np.where(np.arange(200) < 20, 1.0, np.nan)
    data = Labelled(np.full(200, 0.9), labels, np.arange(200))
    found = corrected_mean(data)
    assert found.estimate().undefined == "no spread over labelled prompts: no interval"
    low, high = ends(found.estimate(is_share=True).interval)
    assert (high, found.value) == (1.0, 1.0)
    assert 0.7 < low < 0.95


def test_labels_of_rows_that_the_judge_did_not_score_are_counted_apart():
    data = drawn(np.random.default_rng(9), n_labels=10)
    at = int(np.flatnonzero(data.is_labelled)[0])
    scores = data.scores.copy()
    scores[at] = np.nan
    found = dataclasses.replace(data, scores=scores)
    assert corrected_mean(found).n_labels == 9


def test_all_rows_labelled_is_the_plain_mean():
    data = drawn(np.random.default_rng(10), n_prompts=50, n_labels=50)
    assert corrected_mean(data).value == pytest.approx(data.labels.mean())


@pytest.mark.parametrize("n", [4, 6, 11, 102])
@pytest.mark.parametrize("share", [0.97, 1.03])
def test_labels_hardly_correlate_below_the_bound_of_the_paper(n, share):
    """Scores are built to correlate with the labels at just below or above 1 / sqrt(n - 2)."""
    labels = np.arange(n) - (n - 1) / 2
    beside = np.where(np.arange(n) % 2, -1.0, 1.0) + 0.1 * labels**2
    beside -= beside.mean() + (beside @ labels) / (labels @ labels) * labels
    r = share / math.sqrt(n - 2)
    scores = r * labels / np.linalg.norm(labels)
    scores = scores + math.sqrt(1 - r * r) * beside / np.linalg.norm(beside)
    assert np.corrcoef(labels, scores)[0, 1] == pytest.approx(r)
    assert hardly_correlates(Labelled(scores, labels, np.arange(n))) == (share < 1)
