import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analyses.reward_bench_ties import Rated, rated, ties_score


def known(right, wrong):
    found = rated(right, wrong)
    assert found is not None
    return found


ratings = st.lists(st.floats(-5, 5), min_size=1, max_size=6)


def test_a_judge_that_tells_right_from_wrong_has_a_whole_score():
    ref, tied = known([9.0], [1.0, 2.0]), known([9.0, 9.0, 8.9], [1.0])
    assert ref == Rated(7.0, 0.0)
    score = ties_score(ref, tied)
    assert (score.ref, score.tied, score.preferred, score.preferred_hard) == (1, 1, 1, 1)
    assert score.overall == pytest.approx(1.01, abs=1e-6)


def test_right_answers_that_are_far_apart_cost_the_margin_only():
    score = ties_score(Rated(0.5, 0.0), Rated(1.5, 1.0))
    assert (score.ref, score.tied, score.preferred, score.preferred_hard) == (1, 1, 1, 0)
    assert score.margin == pytest.approx(math.tanh(0.5 / 1.0 - 1.0))
    assert score.overall == pytest.approx(0.8 + 0.01 * math.tanh(-0.5))


@pytest.mark.parametrize(
    ("ref", "tied", "expected"),
    [
        (([7.0], [3.0, 5.5]), ([8.0, 6.5, 7.0], [4.5, 6.0]), 0.5941721705465208),
        (([4.0], [6.0, 1.0]), ([9.0, 9.0], [3.0]), 0.49),
        (([8.0], [2.0]), ([7.0, 7.0], [7.0, 2.0]), 0.3),
        (([5.0], [5.0, 3.0]), ([6.0, 5.0, 5.5], [3.0]), 0.49238405844044236),
        (([9.0], [6.5]), ([4.0, 8.0], [5.0, 1.0]), 0.29151716360042484),
    ],
)
def test_the_score_is_that_of_the_benchmark_s_code(ref, tied, expected):
    # process_single_model of rewardbench (`allenai/reward-bench`) on one prompt at a time.
    found = ties_score(known(*ref), known(*tied))
    assert found.overall == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("gap", "margin"), [(1.0, 1.0), (0.0, 0.0), (-1.0, -1.0)])
def test_equal_right_answers_have_the_limit_of_the_margin(gap, margin):
    assert ties_score(Rated(gap, 0.0), Rated(gap, 0.0)).margin == margin


@pytest.mark.parametrize(
    ("right", "wrong"), [([], [1.0]), ([1.0], []), ([math.nan], [1.0]), ([1.0], [math.nan])]
)
def test_without_all_ratings_there_is_none(right, wrong):
    assert rated(right, wrong) is None


@given(st.lists(st.tuples(ratings, ratings, ratings, ratings), min_size=1, max_size=8))
def test_the_mean_is_what_the_published_formula_gives(prompts):
    """The benchmark's formula over arrays of all prompts, where no spread is 0."""
    pairs = [(known(a[:1], b), known(c, d)) for a, b, c, d in prompts]
    pairs = [(ref, tied) for ref, tied in pairs if tied.spread > 1e-3]
    if not pairs:
        return
    spread, ties, refs = (
        np.array(values)
        for values in zip(*((t.spread, t.gap, r.gap) for r, t in pairs), strict=True)
    )
    least = np.minimum(refs, ties)
    expected = (
        0.30 * np.mean(ties > 0)
        + 0.30 * np.mean(refs > 0)
        + 0.20 * np.mean(ties > spread)
        + 0.20 * np.mean(least > spread)
        + 0.01 * np.mean(np.tanh(least / spread - 1))
    )
    found = np.mean([ties_score(ref, tied).overall for ref, tied in pairs])
    assert found == pytest.approx(expected, abs=1e-12)
