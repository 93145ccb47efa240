import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.judgment.pointwise import compare_scores, describe_scores, score_table

REFERENCE = {
    "mode": "diff_mode",
    "rounded_mean": "diff_rounded_mean",
    "median": "diff_median",
    "first_percentile": "diff_1pct",
    "mean": "diff_mean",
    "ram": "diff_ram",
    "quantile": "diff_quantiles",
    "superiority": "diff_probsup",
}
FIELDS = tuple(REFERENCE)
FIRST, SECOND = np.array([0]), np.array([1])


@st.composite
def pairs(draw):
    size = draw(st.integers(2, 9))
    weights = st.lists(st.integers(0, 8), min_size=size, max_size=size).filter(any)
    return tuple(np.array(row) / sum(row) for row in (draw(weights), draw(weights)))


def values(one, two):
    result = compare_scores(score_table([one, two]), FIRST, SECOND)
    return {name: float(result[name][0]) for name in FIELDS}


@given(pairs())
def test_swapping_the_answers_changes_the_sign(pair):
    one, two = values(*pair), values(pair[1], pair[0])
    assert [one[name] for name in FIELDS] == pytest.approx([-two[n] for n in FIELDS], abs=1e-9)


@given(pairs())
def test_comparisons_stay_between_minus_one_and_one(pair):
    assert all(abs(value) <= 1 + 1e-9 for value in values(*pair).values())


@given(pairs())
def test_mean_has_the_sign_of_the_difference_of_means(pair):
    support = np.arange(len(pair[0]))
    gap = pair[0] @ support - pair[1] @ support
    if abs(gap) > 1e-9:
        assert values(*pair)["mean"] * gap > 0


@given(pairs())
def test_an_answer_against_itself_is_a_tie(pair):
    assert all(abs(value) < 1e-12 for value in values(pair[0], pair[0]).values())


def test_certain_best_against_certain_worst():
    assert set(values([0.0, 0.0, 1.0], [1.0, 0.0, 0.0]).values()) == {1.0}


def test_nan_stays_nan():
    assert all(math.isnan(v) for v in values([math.nan, 1.0], [0.5, 0.5]).values())
    assert np.isnan(score_table([[math.nan, 1.0]])["mean"]).all()


@pytest.mark.parametrize("p", [[[1.0]], [0.5, 0.5], []])
def test_shapes_that_do_not_fit_are_refused(p):
    with pytest.raises(StatisticsError):
        score_table(p)


@pytest.mark.parametrize("case", ["judge.pointwise.1", "judge.pointwise.3"])
def test_reference_comparisons(reference, case):
    inputs, outputs = reference(case)
    result = values(inputs["p1"], inputs["p2"])
    for ours, theirs in REFERENCE.items():
        assert result[ours] == pytest.approx(outputs[theirs], abs=1e-9), ours


def test_published_comparison_of_a_split_with_a_certain_middle():
    result = values([0.5, 0, 0, 0, 0.5], [0, 0, 1, 0, 0])
    assert result["mean"] == pytest.approx(0.0, abs=1e-9)
    assert result["ram"] == pytest.approx(-0.3535533905932738, abs=1e-9)
    assert (result["median"], result["first_percentile"]) == (1.0, -1.0)
    assert result["superiority"] == pytest.approx(0.0, abs=1e-9)


def test_reference_summary_of_scores(reference):
    inputs, outputs = reference("judge.blog.1")
    weights = np.exp(inputs["logits"])
    result = describe_scores((weights / weights.sum()).tolist(), inputs["scores"])
    names = {
        "mode": "mode",
        "mean": "mean",
        "median": "median",
        "entropy": "entropy_nats",
        "lower_semideviation": "lower_semidev",
    }
    for ours, theirs in names.items():
        assert result[ours] == pytest.approx(outputs[theirs], abs=1e-9), ours
    assert result["std"] ** 2 == pytest.approx(outputs["variance"], abs=1e-9)


@given(st.integers(2, 101), st.data())
def test_modes_whose_means_are_equal_are_ties_on_every_scale(n_scores, data):
    """Of any two sets of most likely scores, by whole numbers."""
    chosen = st.sets(st.integers(0, n_scores - 1), min_size=1, max_size=6)
    sets = [sorted(data.draw(chosen)) for _ in range(2)]
    p = np.zeros((2, n_scores))
    for row, scores in zip(p, sets, strict=True):
        row[scores] = 1.0 / len(scores)
    found = compare_scores(score_table(p), FIRST, SECOND)
    one, two = (Fraction(sum(scores), len(scores)) for scores in sets)
    assert found["mode"][0] == (one > two) - (one < two)
    mirrored = compare_scores(score_table([p[0], p[0, ::-1]]), FIRST, SECOND)
    middle = Fraction(n_scores - 1, 2)
    assert mirrored["mode"][0] == (one > middle) - (one < middle)
