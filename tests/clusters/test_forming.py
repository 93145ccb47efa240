"""Live rankings where prompts belong together: the intervals of the whole analysis, at any time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.columns import PairColumns
from orchestrator.runner.session.progress import LiveRankings
from orchestrator.statistics.prompt_sums import Pairs
from orchestrator.statistics.ratings import Forming, rate
from orchestrator.units import Plan
from tests.core.fakes import Items, digest, make_part, method, nothing
from tests.runner.session.test_live_ranking import MODELS, PAIRS, end_item
from tests.statistics.test_forming import NAMES, half_widths, judged


@given(seed=st.integers(0, 10_000), n_prompts=st.integers(6, 40), ended=st.booleans())
def test_standings_are_those_of_the_whole_analysis_over_clusters(seed, n_prompts, ended):
    judgments = judged(np.random.default_rng(seed), n_prompts)
    cluster_of = np.random.default_rng(seed + 1).integers(0, 1 + n_prompts // 3, n_prompts)
    forming = Forming(NAMES)
    for prompt in range(n_prompts):
        own = (judgment[1:] for judgment in judgments if judgment[0] == prompt)
        forming.add(own, int(cluster_of[prompt]))
        if ended and not (cluster_of[prompt + 1 :] == cluster_of[prompt]).any():
            forming.end_cluster(int(cluster_of[prompt]))
    prompts, first, second, preference = (
        np.array(column) for column in zip(*judgments, strict=True)
    )
    clusters = cluster_of[prompts]
    sums = Pairs(clusters, first, second, len(NAMES)).summing()(preference)
    whole = rate(sums, NAMES, confidence_level=0.95)
    widths = half_widths(whole)
    assert forming.n_clusters == len(np.unique(clusters))
    for _ in range(2):
        now = {one.model: one for one in forming.standings(0.95)}
        for i, name in enumerate(NAMES):
            expected = whole.values[i] if np.isfinite(whole.values[i]) else None
            assert now[name].rating == pytest.approx(expected, abs=1e-6)
            if now[name].half_width is not None:
                assert now[name].half_width == pytest.approx(widths[i], rel=1e-6, abs=1e-6)


def board(clusters):
    columns = {"model_a": "str", "model_b": "str", "prefer_a": "f64"}
    compared = method(nothing, PAIRS, columns=columns, pairs=PairColumns())
    part = make_part("fake", compared, MODELS)
    identities = {name: digest(name) for name in MODELS}
    plan = Plan([part], Items(len(clusters)), identities, seed=0, clusters=clusters)
    return part, LiveRankings(plan)


def test_a_run_s_board_counts_prompts_and_clusters():
    part, made = board(np.array([0, 0, 1, 2, 2, 2], np.int32))
    for item in (0, 3, 1, 4):
        end_item(made, part, item, (0.9, 0.8, 0.6 + item / 20))
    (ranking,) = made.rankings(0.0)
    assert (ranking.n_prompts, ranking.n_clusters) == (4, 2)


def test_copies_of_a_prompt_in_one_cluster_do_not_shorten_what_is_shown():
    part, alone = board(np.arange(8, dtype=np.int32))
    _, copied = board(np.repeat(np.arange(8, dtype=np.int32), 2))
    for item in range(8):
        preferences = (0.9 - item / 20, 0.8, 0.4 + item / 20)
        end_item(alone, part, item, preferences)
        end_item(copied, part, 2 * item, preferences)
        end_item(copied, part, 2 * item + 1, preferences)
    (one,), (two,) = alone.rankings(0.0), copied.rankings(0.0)
    widths = [[model.half_width for model in found.standings] for found in (one, two)]
    assert widths[0] == pytest.approx(widths[1])
    assert None not in widths[0]
