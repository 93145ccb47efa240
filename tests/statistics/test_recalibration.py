"""Calibration applied: known distortions undone, laws of the maps, and no leak between folds."""

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import recalibration as benchmark
from orchestrator.errors import StatisticsError
from orchestrator.statistics.calibration import changes, cross_fitted, fit_map
from tests.crossed import LONG

KINDS = ("isotonic", "temperature", "platt")


def study(n=600, heat=3.0, seed=0):
    """Cases whose true log-odds were multiplied by `heat`: a judge that is too sure."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(0.0, 1.5, n)
    truth = (rng.random(n) < scipy.special.expit(odds)).astype(float)
    return scipy.special.expit(heat * odds), truth, np.arange(n) // 3


def test_temperature_finds_the_heat_of_a_judge():
    p, truth, _ = study(20_000)
    mapped = fit_map("temperature", p, truth)(np.array([0.9]))
    assert scipy.special.logit(mapped)[0] == pytest.approx(scipy.special.logit(0.9) / 3, rel=0.05)


def test_platt_finds_slope_and_offset():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 0.99, 20_000)
    share = scipy.special.expit(0.4 * scipy.special.logit(p) + 0.3)
    truth = (rng.random(p.size) < share).astype(np.float64)
    mapped = fit_map("platt", p, truth)(np.array([0.6, 0.95]))
    wanted = 0.4 * scipy.special.logit([0.6, 0.95]) + 0.3
    assert scipy.special.logit(mapped) == pytest.approx(wanted, abs=0.08)


@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        ("isotonic", [0.5, 0.5, 0.68181818, 0.68181818, 0.69230769]),
        ("platt", [0.479936, 0.523919, 0.583539, 0.660763, 0.753264]),
    ],
)
def test_agrees_with_scikit_learn(kind, reference):
    p, truth, _ = study(60, seed=3)
    mapped = fit_map(kind, p, truth)(np.array([0.55, 0.7, 0.85, 0.95, 0.99]))
    assert mapped == pytest.approx(reference, abs=2e-5)


def test_isotonic_pools_violators():
    p = np.array([0.6, 0.7, 0.8, 0.9])
    truth = np.array([1.0, 0.0, 1.0, 1.0])
    mapped = fit_map("isotonic", p, truth)(np.array([0.5, 0.6, 0.65, 0.7, 0.8, 0.9, 1.0]))
    # By hand: 1 and 0 pool to 1/2; 1, 1 and the added 1, 0 pool to 3/4.
    assert mapped == pytest.approx([0.5, 0.5, 0.5, 0.5, 0.75, 0.75, 0.75])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), kind=st.sampled_from(KINDS))
def test_maps_keep_the_sides_and_stay_inside(seed, kind):
    p, truth, _ = study(60, seed=seed)
    mapped = fit_map(kind, p, truth)
    q = np.linspace(0.0, 1.0, 41)
    assert mapped(1.0 - q) == pytest.approx(1.0 - mapped(q), abs=1e-9)
    assert np.all((mapped(q) > 0.0) & (mapped(q) < 1.0))
    if kind != "platt":
        assert np.all(np.diff(mapped(q)) >= -1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_no_case_is_mapped_by_a_fit_that_saw_its_prompt(kind):
    p, truth, prompts = study(90)
    mine = prompts == 7
    changed = np.where(mine, 1.0 - truth, truth)
    one, two = (
        cross_fitted(kind, p, t, prompts, np.random.default_rng(1)) for t in (truth, changed)
    )
    assert one[mine] == pytest.approx(two[mine], abs=1e-12)
    assert not np.allclose(one[~mine], two[~mine], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_judge_that_is_too_sure_is_mended(kind):
    p, truth, prompts = study(1200)
    after = cross_fitted(kind, p, truth, prompts, np.random.default_rng(1))
    found = changes(p, after, truth, prompts, 0.95)
    for one in (found["Brier score"], found["log loss"]):
        assert one.difference.interval is not None
        assert one.difference.interval.high < 0.0
    assert found["ECE"].difference.value < -0.05
    assert found["ECE"].difference.interval is None
    for one in found.values():
        assert one.difference.value == pytest.approx(one.after - one.before)


def test_calibration_of_a_calibrated_judge_gains_nothing():
    p, truth, prompts = study(600, heat=1.0)
    after = cross_fitted("isotonic", p, truth, prompts, np.random.default_rng(1))
    found = changes(p, after, truth, prompts, 0.95)
    assert found["Brier score"].difference.interval is not None
    assert found["Brier score"].difference.interval.high > 0.0


def test_pairs_without_a_known_winner_are_mapped_too():
    p, truth, prompts = study(300)
    truth[::2] = np.nan
    truth[prompts > 80] = np.nan
    after = cross_fitted("temperature", p, truth, prompts, np.random.default_rng(1))
    assert np.all(np.abs(after - 0.5) <= np.abs(p - 0.5) + 1e-6)


def test_few_known_winners_are_refused():
    p, truth, prompts = study(24)
    with pytest.raises(StatisticsError, match="needs 10 prompts"):
        cross_fitted("platt", p, truth, prompts, np.random.default_rng(0))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), kind=st.sampled_from(KINDS))
def test_which_answer_is_named_first_changes_nothing(seed, kind):
    p, truth, _ = study(60, seed=seed)
    p[::7] = 0.5
    turned = np.random.default_rng(seed).random(p.size) < 0.5
    maps = (
        fit_map(kind, p, truth),
        fit_map(kind, np.where(turned, 1.0 - p, p), np.where(turned, 1.0 - truth, truth)),
    )
    q = np.linspace(0.01, 0.99, 21)
    assert maps[0](q) == pytest.approx(maps[1](q), abs=1e-4)


@pytest.mark.parametrize("kind", ["temperature", "platt"])
def test_no_parameter_is_fitted_where_no_side_is_preferred(kind):
    p, truth, prompts = np.full(60, 0.5), np.tile([0.0, 1.0], 30), np.arange(60)
    with pytest.raises(StatisticsError, match="no side is preferred; take isotonic"):
        cross_fitted(kind, p, truth, prompts, np.random.default_rng(0))
    after = cross_fitted("isotonic", p, truth, prompts, np.random.default_rng(0))
    assert after == pytest.approx(0.5)


def test_a_temperature_is_refused_where_one_fold_holds_every_error():
    p, truth, prompts = np.full(60, 0.9), np.ones(60), np.arange(60) // 2
    truth[prompts == 4] = 0.0
    with pytest.raises(StatisticsError, match="no answer preferred is the worse one"):
        cross_fitted("temperature", p, truth, prompts, np.random.default_rng(0))


@pytest.mark.parametrize("n_studies", [6, pytest.param(20, marks=LONG)])
def test_calibration_mends_ratings_of_a_sure_judge_but_pulls_those_of_one_that_errs_together(
    n_studies,
):
    _, sure, errs = benchmark.JUDGES
    for judge, mended in ((sure, True), (errs, False)):
        found = benchmark.simulate(judge, "temperature", 100, n_studies)
        of = np.sqrt(np.mean([one.errors**2 for one in found], axis=(0, 3)))
        assert np.all((of[:, 1] < 0.5 * of[:, 0]) if mended else (of[:, 1] > 1.5 * of[:, 0]))
