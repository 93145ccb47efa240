import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.judgment.pairwise import judge_pair
from tests.oracles import pairwise
from tests.oracles.pairwise import judge_pairs

SIGNED = ("mean_pre", "mean_post", "mode_pre", "mode_post", "median_pre", "median_post")
FIELDS = ("prefer_a_ab", "prefer_a_ba", "prefer_a", *SIGNED)


@st.composite
def distributions(draw, halves=(1, 2, 4)):
    half = draw(st.sampled_from(halves))
    # Coarse weights make exact ties and half-way medians common.
    size = 2 * half + 1
    weights = st.lists(st.integers(0, 8), min_size=size, max_size=size).filter(any)
    pair = draw(weights), draw(weights)
    return tuple([value / sum(row) for value in row] for row in pair)


@given(distributions())
def test_swapping_the_answers_mirrors_everything(pair):
    one, two = judge_pair(*pair), judge_pair(pair[1], pair[0])
    for name in SIGNED:
        assert one[name] == pytest.approx(-two[name], abs=1e-12)
    assert one["prefer_a"] == pytest.approx(1 - two["prefer_a"], abs=1e-12)
    assert one["prefer_a_ab"] == pytest.approx(1 - two["prefer_a_ba"], abs=1e-12)


@given(distributions())
def test_results_stay_in_their_ranges(pair):
    result = judge_pair(*pair)
    assert all(-1 - 1e-12 <= result[name] <= 1 + 1e-12 for name in SIGNED)
    assert min(result["prefer_a_ab"], result["prefer_a_ba"], result["prefer_a"]) >= -1e-12
    assert max(result["prefer_a_ab"], result["prefer_a_ba"], result["prefer_a"]) <= 1 + 1e-12


@given(distributions())
def test_one_pair_equals_many_pairs(pair):
    one = judge_pair(*pair)
    many = judge_pairs([pair[0]] * 2, [pair[1]] * 2)
    for name in FIELDS:
        assert many[name] == pytest.approx([one[name]] * 2, abs=1e-12)


@given(distributions())
def test_a_judge_that_looks_at_places_only_is_a_tie(pair):
    result = judge_pair(pair[0], pair[0])
    assert result["prefer_a"] == pytest.approx(0.5, abs=1e-12)
    for name in SIGNED:
        assert result[name] == pytest.approx(0.0, abs=1e-12)


def test_certain_verdict_reaches_the_ends():
    sure_a, sure_b = [1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]
    result = judge_pair(sure_a, sure_b)
    assert [result[name] for name in FIELDS] == [1.0] * 9


def test_certain_tie_is_zero_by_the_guard():
    tie = [0.0, 0.0, 1.0, 0.0, 0.0]
    result = judge_pair(tie, tie)
    assert [result[name] for name in FIELDS] == [0.5] * 3 + [0.0] * 6


def test_nan_gives_nan_and_never_a_tie():
    result = judge_pair([math.nan, 0.5, 0.5], [0.2, 0.3, 0.5])
    assert all(math.isnan(result[name]) for name in FIELDS)
    many = judge_pairs([[math.nan, 0.5, 0.5]], [[0.2, 0.3, 0.5]])
    assert all(np.isnan(many[name]).all() for name in FIELDS)


@pytest.mark.parametrize(("one", "two"), [([0.5, 0.5], [0.5, 0.5]), ([1.0], [0.2, 0.2, 0.6])])
def test_even_or_unequal_lengths_are_refused(one, two):
    with pytest.raises(StatisticsError):
        judge_pair(one, two)
    with pytest.raises(StatisticsError):
        judge_pairs([one], [two])


@pytest.mark.parametrize("case", ["judge.pairwise_ranking.1", "judge.pairwise_ranking.3"])
def test_reference_pairwise_ranking(reference, case):
    inputs, outputs = reference(case)
    result = judge_pair(inputs["order1_AB"], inputs["order2_BA"])
    names = {"mode": "mode", "medi": "median", "mean": "mean"}
    for theirs, ours in names.items():
        for order, suffix in (("pre", "s1"), ("post", "s2")):
            value = result[f"{ours}_{order}"]
            assert value == pytest.approx(outputs[f"{theirs}_{suffix}"][0], abs=1e-9)
    assert result["prefer_a"] == pytest.approx(outputs["P_A_better_plus_half_tie_s1"][0], abs=1e-9)
    symmetric = pairwise.symmetrised([inputs["order1_AB"]], [inputs["order2_BA"]])
    assert symmetric[0] == pytest.approx(outputs["sym_probs"][0], abs=1e-9)


def test_preference_counts_a_tie_as_half():
    assert judge_pair([0.4, 0.2, 0.1, 0.2, 0.1], [0.2] * 5)["prefer_a_ab"] == pytest.approx(0.65)


def test_binary_verdicts_become_three_levels():
    expanded = pairwise.expand_binary([0.6, 0.5, math.nan, 0.0], [0.2, 0.5, 0.5, 0.0])
    np.testing.assert_allclose(expanded[:2], [[0.75, 0.0, 0.25], [0.0, 1.0, 0.0]])
    assert np.isnan(expanded[2:]).all()


def test_scoring_conditions_on_the_first_score():
    levels = pairwise.scoring_levels([[0.1, 0.2, 0.7]], [[0.5, 0.3, 0.2]])
    np.testing.assert_allclose(levels, [[0.5, 0.3, 0.2, 0.0, 0.0]])
    assert np.isnan(pairwise.scoring_levels([[math.nan, 1.0]], [[0.5, 0.5]])).all()
