"""Rogan-Gladen: five published examples, and what is undefined.

The examples are those of Lang and Reiczigel 2014, as the manual of the R package `asht` (function
`prevSeSp`) repeats them with the published intervals.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.statistics.prediction_powered import (
    Labelled,
    Rates,
    Share,
    judge_rates,
    rogan_gladen,
)
from orchestrator.statistics.results import Estimate

PUBLISHED = [
    (4060 / 11284, 11284, 178 / 179, 179, 358 / 359, 359, "0.349", "0.372"),
    (51 / 2971, 2971, 32 / 33, 33, 20 / 20, 20, "0.000", "0.053"),
    (0.06, 11862, 0.80, 10, 1.0, 12, "0.000", "0.147"),
    (259 / 509, 509, 84 / 127, 127, 96 / 109, 109, "0.58", "0.87"),
    (51 / 509, 509, 23 / 41, 41, 187 / 195, 195, "0.037", "0.195"),
]


def rates(apparent, n, sensitivity, n_yes, specificity, n_no):
    shares = (Share(apparent, n), Share(sensitivity, n_yes), Share(specificity, n_no))
    return Rates(*shares)


def ends(found: Estimate) -> tuple[float, float]:
    """Both ends of an interval that there is."""
    assert found.interval is not None
    return found.interval.low, found.interval.high


@pytest.mark.parametrize("case", PUBLISHED)
def test_published_intervals(case):
    *given_rates, low, high = case
    found = ends(rogan_gladen(rates(*given_rates)))
    assert f"{found[0]:.{len(low) - 2}f}" == low
    assert f"{found[1]:.{len(high) - 2}f}" == high


@given(st.floats(0, 1), st.floats(0.6, 1), st.floats(0.6, 1))
def test_the_true_share_is_found_from_exact_rates(share, sensitivity, specificity):
    apparent = share * sensitivity + (1 - share) * (1 - specificity)
    found = rogan_gladen(rates(apparent, 10**6, sensitivity, 10**6, specificity, 10**6))
    assert found.value == pytest.approx(share, abs=1e-9)
    low, high = ends(found)
    assert low <= share + 1e-3
    assert high >= share - 1e-3


@pytest.mark.parametrize(
    ("given_rates", "why"),
    [
        ((math.nan, 0, 0.9, 10, 0.9, 10), "no verdicts"),
        ((0.5, 100, math.nan, 0, 0.9, 10), "no label says yes"),
        ((0.5, 100, 0.9, 10, math.nan, 0), "no label says no"),
        ((0.5, 100, 0.4, 10, 0.5, 10), "the judge agrees with people by chance or less"),
    ],
)
def test_undefined_values_have_a_reason(given_rates, why):
    found = rogan_gladen(rates(*given_rates))
    assert math.isnan(found.value)
    assert (found.interval, found.undefined) == (None, why)


def test_a_judge_that_may_be_a_coin_gives_no_interval():
    found = rogan_gladen(rates(0.5, 1000, 0.7, 10, 0.5, 10))
    assert found.value == 0.0
    assert found.interval is None
    assert "better than chance" in (found.undefined or "")


def test_few_labels_on_one_side_give_a_value_without_an_interval():
    found = rogan_gladen(rates(0.5, 1000, 0.9, 40, 0.9, 9.5))
    assert found.value == pytest.approx(0.5)
    assert found.undefined == "9 independent labels say no, too few for an interval"


def test_rates_of_labelled_rows():
    nan = np.nan
    verdicts = np.array([1.0, 1.0, 0.0, 0.0, 1.0, 0.0, nan])
    labels = np.array([1.0, 0.0, 0.0, 0.0, nan, nan, 1.0])
    found = judge_rates(Labelled(verdicts, labels, np.arange(7)))
    assert (found.apparent.value, found.apparent.n) == (0.5, 2)
    assert (found.sensitivity.value, found.sensitivity.n) == (1.0, 1)
    assert found.specificity.value == pytest.approx(2 / 3)
    assert found.specificity.n == pytest.approx(3)


def test_rows_that_repeat_a_prompt_count_once():
    verdicts = np.tile([1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0], 5)
    labels = np.tile([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, np.nan, np.nan], 5)
    prompts = np.tile(np.arange(8), 5)
    found = judge_rates(Labelled(verdicts, labels, prompts))
    assert (found.sensitivity.n, found.specificity.n, found.apparent.n) == pytest.approx((3, 3, 2))
