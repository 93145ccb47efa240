"""Selective judging: certificates that are wrong at most as often as they may be."""

import itertools
import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.errors import StatisticsError
from orchestrator.statistics.selective import (
    certified,
    first_tested,
    kept,
    labels_needed,
    least_labels,
    most_kept,
)


@st.composite
def studies(draw):
    """Verdicts with their sureness, labels of some, and prompts."""
    n = draw(st.integers(20, 150))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    sureness = np.round(rng.random(n), draw(st.integers(1, 3)))
    wrong = rng.choice([0.0, 0.5, 1.0], n, p=[0.9, 0.04, 0.06])
    wrong[rng.permutation(n)[: n // draw(st.integers(2, 4))]] = np.nan
    return sureness, wrong, rng.integers(0, draw(st.integers(5, n)), n)


def verdicts(n_right, n_wrong, *, first_sure=True):
    """Labelled verdicts, each of a prompt of its own; wrong ones are less sure."""
    wrong = np.array([0.0] * n_right + [1.0] * n_wrong)
    sureness = np.linspace(1.0, 0.0, wrong.size) if first_sure else np.full(wrong.size, 0.5)
    return kept(sureness, wrong, np.arange(wrong.size))


@settings(deadline=None)
@given(studies(), st.floats(0.02, 0.4), st.floats(1.0, 2.0))
def test_more_risk_keeps_no_less_of_what_is_tested(study, risk, factor):
    found, risks = kept(*study), (risk, min(risk * factor, 0.9))
    one, two = (found.p_values(each) for each in risks)
    assert (two <= one + 1e-9).all()
    small, large = (certified(found, each, 0.05) for each in risks)
    begins = [first_tested(found, each, 0.05) for each in risks]
    # A larger risk may begin at another share, whose labels may be worse.
    if begins[0] == begins[1]:
        assert large[1] >= small[1]
        assert large[0] >= small[0] or not small[1]


@settings(deadline=None)
@given(studies(), st.integers(0, 1000), st.floats(0.02, 0.4))
def test_the_order_of_the_verdicts_and_names_of_prompts_do_not_matter(study, seed, risk):
    order = np.random.default_rng(seed).permutation(study[0].size)
    one, two = kept(*study), kept(*(column[order] for column in (*study[:2], 7 * study[2] + 3)))
    assert np.array_equal(one.least, two.least)
    assert one.p_values(risk) == pytest.approx(two.p_values(risk), rel=1e-6)


@settings(deadline=None)
@given(studies(), st.floats(0.02, 0.4))
def test_bounds_invert_the_tests(study, risk):
    found = kept(*study)
    p_values, (lows, bounds) = found.p_values(risk), found.bounds(0.05)
    apart = np.abs(bounds - risk) > 1e-6
    assert np.array_equal((p_values <= 0.05)[apart], (bounds <= risk)[apart])
    known = ~np.isnan(found.rates)
    assert (lows[known] <= found.rates[known] + 1e-9).all()
    assert (found.rates[known] <= bounds[known] + 1e-9).all()


@settings(deadline=None)
@given(studies())
def test_shares_grow_to_all_verdicts_and_count_what_is_kept(study):
    found = kept(*study)
    sureness, wrong, _ = study
    assert found.shares[-1] == 1.0
    assert (np.diff(found.shares) > 0.0).all()
    for place, least in enumerate(found.least):
        is_kept = sureness >= least
        assert found.shares[place] == pytest.approx(is_kept.mean())
        assert found.n_labels[place] == (is_kept & ~np.isnan(wrong)).sum()


@settings(deadline=None)
@given(st.integers(30, 300), st.floats(0.02, 0.3), st.data())
def test_with_a_label_a_prompt_the_p_value_is_the_binomial_tail(n, risk, data):
    n_wrong = data.draw(st.integers(0, int(n * risk)))
    p_value = verdicts(n - n_wrong, n_wrong, first_sure=False).p_values(risk)[-1]
    exact = stats.binom.cdf(n_wrong, n, risk)
    if 1e-6 < exact < 0.2:
        assert exact * (1 - 1e-9) <= p_value <= 1.06 * exact


@pytest.mark.parametrize("risk", [0.05, 0.1, 0.2, 0.35])
@pytest.mark.parametrize("error", [0.01, 0.05, 0.2, 0.6])
@pytest.mark.parametrize("n", [5, 11, 17, 45, 80])
def test_a_wrong_certificate_of_one_threshold_is_as_rare_as_it_may_be(n, risk, error):
    """Every outcome of n labels whose error rate is the risk itself, with its probability."""
    chances = stats.binom.pmf(np.arange(n + 1), n, risk)
    is_certified = [
        certified(verdicts(n - wrong, wrong, first_sure=False), risk, error)[1]
        for wrong in range(n + 1)
    ]
    assert chances[is_certified].sum() <= error


@pytest.mark.parametrize("risk", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("n", [40, 90, 199])
def test_a_wrong_certificate_of_a_run_is_as_rare_as_it_may_be(n, risk):
    """Every outcome of n labels of 200 verdicts, of which just more are wrong than may be."""
    n_wrong = int(200 * risk + 1e-9) + 1
    chances = stats.hypergeom.pmf(np.arange(n + 1), 200, n_wrong, n)
    is_certified = [
        certified(verdicts(n - wrong, wrong, first_sure=False), risk, 0.05)[1]
        for wrong in range(n + 1)
    ]
    assert chances[is_certified].sum() <= 0.05


def test_a_wrong_certificate_of_two_thresholds_is_as_rare_as_it_may_be():
    """All outcomes of a sure and an unsure half; the surest are right often enough or not."""
    n, risk, error = 40, 0.2, 0.1
    sureness = np.repeat([1.0, 0.0], n)
    outcomes = range(n + 1)
    places = {}
    for sure, unsure in itertools.product(outcomes, outcomes):
        wrong = np.zeros(2 * n)
        wrong[:sure] = wrong[n : n + unsure] = 1.0
        place, is_certified = certified(kept(sureness, wrong, np.arange(2 * n)), risk, error)
        places[sure, unsure] = place if is_certified else -1
    for of_sure, of_unsure in ((0.05, 0.36), (0.201, 0.201), (0.3, 0.05), (0.1, 0.301)):
        rates = np.array([of_sure, (of_sure + of_unsure) / 2])
        chance = sum(
            stats.binom.pmf(sure, n, of_sure) * stats.binom.pmf(unsure, n, of_unsure)
            for (sure, unsure), place in places.items()
            if place >= 0 and rates[place] > risk
        )
        assert chance <= error


def test_nothing_is_kept_with_too_few_labels_however_right_they_are():
    needed = least_labels(0.1, 0.05, 0)
    assert needed == 29
    assert certified(verdicts(needed - 1, 0), 0.1, 0.05)[1] is False
    assert certified(verdicts(needed, 0, first_sure=False), 0.1, 0.05) == (0, True)


def test_wrong_verdicts_that_are_unsure_go_to_people():
    found = verdicts(160, 40)
    place, is_certified = certified(found, 0.1, 0.05)
    assert is_certified
    assert found.shares[place] == pytest.approx(0.85)
    assert found.rates[place] < 0.1


def test_a_prompt_with_many_labels_counts_once():
    """A hundred labels of two prompts are two observations."""
    many = kept(np.ones(100), np.zeros(100), np.arange(100) // 50)
    two = kept(np.ones(2), np.zeros(2), np.arange(2))
    assert many.p_values(0.1) == pytest.approx(two.p_values(0.1))
    assert certified(many, 0.1, 0.05)[1] is False


def test_the_first_share_does_not_depend_on_the_labels():
    found = [certified(verdicts(200 - wrong, wrong), 0.1, 0.05) for wrong in (130, 150, 200)]
    assert len(set(found)) == 1
    assert not found[0][1]


def test_labels_needed_certify_what_they_promise():
    needed = labels_needed(1.0, 0.04, 0.1, 0.05)
    assert needed is not None
    n_wrong = int(np.ceil(0.04 * needed))
    assert certified(verdicts(needed - n_wrong, n_wrong, first_sure=False), 0.1, 0.05) == (0, True)
    assert labels_needed(0.5, 0.04, 0.1, 0.05) == pytest.approx(2 * needed, abs=1)
    assert labels_needed(0.5, 0.1, 0.1, 0.05) is None
    assert labels_needed(0.5, np.nan, 0.1, 0.05) is None
    # A rate of 0.1, but for rounding: no number of labels tells them apart.
    assert labels_needed(0.5, np.nextafter(0.1, 0.0), 0.1, 0.05) is None


@pytest.mark.parametrize(
    ("sureness", "wrong", "said"),
    [
        ([1.0, 0.5], [0.0], "one shape"),
        ([1.0, 0.5], [np.nan, np.nan], "no verdict has a label"),
        ([1.0, np.nan], [0.0, 1.0], "finite"),
        ([1.0, 0.5], [0.0, 1.5], r"\[0, 1\]"),
    ],
)
def test_what_is_no_study_is_refused(sureness, wrong, said):
    with pytest.raises(StatisticsError, match=said):
        kept(np.array(sureness), np.array(wrong), np.arange(len(sureness)))


BENCHMARK = runpy.run_path(
    str(Path(__file__).parents[2] / "benchmarks" / "selective.py"), run_name="selective"
)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("judge", BENCHMARK["JUDGES"])
def test_the_guarantee_is_broken_as_rarely_as_it_says(judge, rows):
    n = 200
    found = BENCHMARK["simulate"](BENCHMARK["World"](judge, rows), 200, n)
    most = 5.0 + 300.0 * np.sqrt(0.05 * 0.95 / n)
    assert max(found["new prompts"][0], found["this run"][0]) <= most
    # The plain rule promises the same, and breaks it more often where it can be broken.
    assert (found["plain rule"][0] > most) == (judge != "mostly right")
    if judge in ("calibrated", "too sure", "not sure enough"):
        assert found["new prompts"][1] > 50.0


def test_a_choice_of_the_best_of_several_doubts_breaks_no_guarantee():
    """Of eight orders that say nothing, and a judge that errs as often as the risk."""
    rng = np.random.default_rng(7)
    n, n_labels, n_studies, risk, error = 400, 150, 300, 0.1, 0.1
    chosen, alone = 0, 0
    for _ in range(n_studies):
        wrong = np.full(n, np.nan)
        wrong[:n_labels] = rng.random(n_labels) < risk
        doubts = [kept(rng.random(n), wrong, np.arange(n)) for _ in range(8)]
        which, at, is_certified = most_kept(doubts, risk, error)
        if is_certified:
            assert certified(doubts[which], risk, error / 8) == (at, True)
        chosen += is_certified
        alone += any(certified(one, risk, error)[1] for one in doubts)
    # Whatever is kept is wrong as often as `risk` here, so each certificate is a wrong one.
    assert chosen / n_studies <= error
    assert alone / n_studies > 1.5 * error


def test_one_doubt_has_the_whole_error_and_of_equals_the_first_is_taken():
    wrong = np.concatenate([np.zeros(80), np.ones(20)])
    one = kept(np.linspace(1.0, 0.0, 100), wrong, np.arange(100))
    assert most_kept([one], 0.1, 0.05) == (0, *certified(one, 0.1, 0.05))
    assert most_kept([one, one], 0.1, 0.1) == (0, *certified(one, 0.1, 0.05))
