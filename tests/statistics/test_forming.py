import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.statistics.bradley_terry import ELO_SCALE
from orchestrator.statistics.field import influences
from orchestrator.statistics.prompt_sums import Pairs
from orchestrator.statistics.ratings import Forming, rate
from orchestrator.statistics.student import degrees_of_freedom, quantile, variance_factor

NAMES = ("a", "b", "c", "d")


def judged(rng, n_prompts, n_models=4, share=0.8):
    """Judgments of a random study: (prompt, first, second, preference)."""
    found = []
    for prompt in range(n_prompts):
        shift = rng.normal()
        for first in range(n_models):
            for second in range(n_models):
                if first != second and rng.random() < share:
                    p = 1 / (1 + np.exp(-(second - first) * 0.5 - shift * 0.3 - rng.normal()))
                    found.append((prompt, first, second, float(p)))
    return found


def formed(judgments, names=NAMES):
    forming = Forming(names)
    for prompt in sorted({judgment[0] for judgment in judgments}):
        forming.add(judgment[1:] for judgment in judgments if judgment[0] == prompt)
    return forming


def half_widths(whole):
    """Student's, by the cluster-robust covariance of the whole analysis."""
    sums = whole.field.sums
    sizes = np.bincount(sums.prompt, sums.counts)[:, None].astype(float)
    moved = influences(sums, whole.field.strengths)
    errors = np.sqrt(np.square(moved).sum(axis=0) * variance_factor(sizes)[0])
    return ELO_SCALE * errors * quantile(degrees_of_freedom(sums.model_counts), 0.95)


@given(seed=st.integers(0, 10_000), n_prompts=st.integers(3, 40))
def test_the_ratings_are_those_of_the_whole_analysis_with_student_s_widths(seed, n_prompts):
    judgments = judged(np.random.default_rng(seed), n_prompts)
    prompts, first, second, preference = (
        np.array(column) for column in zip(*judgments, strict=True)
    )
    _, prompts = np.unique(prompts, return_inverse=True)
    sums = Pairs(prompts, first, second, len(NAMES)).summing()(preference)
    whole = rate(sums, NAMES, confidence_level=0.95)
    widths = half_widths(whole)
    now = {one.model: one for one in formed(judgments).standings(0.95)}
    for i, name in enumerate(NAMES):
        expected = whole.values[i] if np.isfinite(whole.values[i]) else None
        assert now[name].rating == pytest.approx(expected, abs=1e-6)
        assert now[name].n_prompts == whole.n_prompts[i]
        if now[name].half_width is not None:
            assert now[name].half_width == pytest.approx(widths[i], rel=1e-6, abs=1e-6)


def test_the_best_comes_first_and_who_was_never_compared_comes_last_without_a_rating():
    forming = Forming((*NAMES, "new"))
    for prompt in range(10):
        forming.add([(0, 1, 0.4), (1, 2, 0.3 + 0.02 * prompt), (2, 3, 0.4), (0, 3, 0.2)])
    found = forming.standings(0.95)
    assert [one.model for one in found] == ["d", "c", "b", "a", "new"]
    assert found[-1].rating is None


@pytest.mark.parametrize("n_prompts", [0, 1])
def test_one_prompt_has_no_interval(n_prompts):
    forming = Forming(NAMES)
    for _ in range(n_prompts):
        forming.add([(0, 1, 0.4), (1, 2, 0.3), (2, 3, 0.6), (0, 3, 0.2)])
    assert all(one.half_width is None for one in forming.standings(0.95))


def test_a_prompt_without_a_judgment_does_not_count():
    forming = Forming(NAMES)
    forming.add([])
    assert forming.n_prompts == 0


def test_a_rating_that_no_prompt_moves_has_no_interval_as_in_the_whole_analysis():
    forming = Forming(NAMES[:3])
    forming.add([(0, 1, 0.7827), (0, 2, 0.0133), (1, 2, 0.0043)])
    forming.add([(0, 1, 0.2173), (0, 2, 0.0043), (1, 2, 0.0133)])
    widths = {one.model: one.half_width for one in forming.standings(0.95)}
    assert widths["c"] is None
    assert (widths["a"] or 0) > 1
    assert (widths["b"] or 0) > 1
