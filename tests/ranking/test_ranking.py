import math
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.ranking.analysis import analyse_ranking
from orchestrator.ranking.judged import tabulate
from tests.crossed import LONG

STRENGTHS = {"ash": 1.0, "beech": 0.3, "cedar": -0.3, "dogwood": -1.0}


def analyse(judgments, *, judge=None, level=0.95):
    table = tabulate([judgments] if len(judgments) else [], len(judgments))
    return analyse_ranking(table, judge=judge, confidence_level=level)


def table(analysis):
    return {model.model: model for model in analysis.ratings}


@pytest.fixture(scope="module")
def simulated(frames):
    return frames.simulated(STRENGTHS, 120, np.random.default_rng(1), categories=2)


@pytest.fixture(scope="module")
def analysis(simulated):
    return analyse(simulated)


def test_true_order_is_recovered(analysis):
    assert [model.model for model in analysis.ratings] == list(STRENGTHS)
    assert [model.rank for model in analysis.ratings] == [1, 2, 3, 4]
    assert [(m.rank_low, m.rank_high) for m in analysis.ratings] == [(i, i) for i in range(1, 5)]


def test_mode_shows_beside_the_mean(analysis):
    assert [model.model for model in analysis.mode_ratings] == list(STRENGTHS)
    assert analysis.agreement.decisions == 1.0
    assert analysis.agreement.kendall_tau == pytest.approx(1.0)


def test_all_pairs_are_tested_together(frames):
    strengths = {name: 0.1 * place for place, name in enumerate("edcba")}
    found = analyse(frames.simulated(strengths, 60, np.random.default_rng(0)))
    assert [(pair.better, pair.worse) for pair in found.pairs] == list(
        combinations([model.model for model in found.ratings], 2)
    )
    p_values = sorted(pair.p_value for pair in found.pairs)
    # Of five models 10 pairs can be equal, then 6, 4, 3, 2 and 1 (Shaffer).
    left = [10, 6, 6, 6, 6, 4, 4, 3, 2, 1]
    adjusted = np.maximum.accumulate([p * n for p, n in zip(p_values, left, strict=True)])
    assert sorted(pair.adjusted_p for pair in found.pairs) == pytest.approx(np.minimum(adjusted, 1))
    assert not any(pair.resolvable for pair in found.neighbours)
    assert found.order_resolvable
    assert next(p for p in found.pairs if (p.better, p.worse) == ("a", "e")).resolvable


@pytest.mark.parametrize(("n_studies", "most"), [(30, 5), pytest.param(100, 11, marks=LONG)])
def test_equal_models_are_seldom_told_apart(frames, n_studies, most):
    n_false = 0
    for seed in range(n_studies):
        rng = np.random.default_rng(seed)
        found = analyse(frames.simulated(dict.fromkeys("abcd", 0.0), 20, rng))
        n_false += found.order_resolvable
    # At most 5 %, and three standard errors of so many studies.
    assert n_false <= most


def test_ratings_have_mean_1000_and_lie_in_their_intervals(analysis):
    assert np.mean([model.rating for model in analysis.ratings]) == pytest.approx(1000)
    assert all(model.low < model.rating < model.high for model in analysis.ratings)


def test_neighbours_far_apart_are_resolvable(analysis):
    assert [(pair.better, pair.worse) for pair in analysis.neighbours] == [
        ("ash", "beech"),
        ("beech", "cedar"),
        ("cedar", "dogwood"),
    ]
    assert all(pair.resolvable and pair.low > 0 for pair in analysis.neighbours)
    assert all(pair.adjusted_p >= pair.p_value for pair in analysis.neighbours)


def test_win_matrix_is_complementary_and_counts(analysis):
    wins = analysis.wins
    assert wins.models == tuple(STRENGTHS)
    assert wins.preference[0][0] is None
    assert wins.preference[0][1] + wins.preference[1][0] == pytest.approx(1.0)
    assert wins.low[0][1] == pytest.approx(1 - wins.high[1][0])
    assert wins.n[0] == (0, 120, 120, 120)


def test_categories_have_their_own_ratings(analysis):
    assert [(part.category, part.n_items) for part in analysis.categories] == [
        ("c0", 60),
        ("c1", 60),
    ]
    assert all(part.ratings[0].model == "ash" for part in analysis.categories)


def test_counts_say_what_it_rests_on(analysis):
    assert (analysis.n_items, analysis.n_items_used, analysis.n_judged) == (120, 120, 720)
    assert not analysis.approximate
    assert analysis.notes == ()
    assert analysis.coverage.mean == pytest.approx(0.85)
    assert analysis.uncertainty.startswith("uncertainty over prompts, for this judge")


def test_order_of_rows_does_not_matter(simulated, analysis):
    assert analyse(simulated.sample(fraction=1.0, shuffle=True, seed=3)) == analysis


def test_swapping_a_and_b_does_not_matter(simulated, analysis):
    swapped = simulated.with_columns(
        model_a="model_b",
        model_b="model_a",
        prefer_a_ab=1 - pl.col("prefer_a_ba"),
        prefer_a_ba=1 - pl.col("prefer_a_ab"),
        prefer_a=1 - pl.col("prefer_a"),
        mean_pre=-pl.col("mean_pre"),
        mode_pre=-pl.col("mode_pre"),
    )
    again = analyse(swapped)
    for one, two in zip(analysis.ratings, again.ratings, strict=True):
        assert (one.model, one.rank) == (two.model, two.rank)
        assert [one.rating, one.low] == pytest.approx([two.rating, two.low], abs=1e-6)


def test_names_of_models_do_not_matter(simulated, analysis):
    names = {name: f"z{9 - i}" for i, name in enumerate(STRENGTHS)}
    columns = [pl.col(c).replace_strict(names) for c in ("model_a", "model_b")]
    again = analyse(simulated.with_columns(columns))
    for one, two in zip(analysis.ratings, again.ratings, strict=True):
        assert names[one.model] == two.model
        assert [one.rating, one.low] == pytest.approx([two.rating, two.low], abs=1e-6)


def test_same_seed_gives_the_same_analysis(simulated, analysis):
    assert analyse(simulated) == analysis


def test_judges_are_taken_apart_or_pooled(frames):
    strong, weak = {"a": 1.0, "b": -1.0}, {"a": -1.0, "b": 1.0}
    rng = np.random.default_rng(0)
    both = pl.concat(
        [
            frames.simulated(strong, 30, rng, judge="one"),
            frames.simulated(weak, 30, rng, judge="two"),
        ]
    )
    assert analyse(both, judge="one").ratings[0].model == "a"
    assert analyse(both, judge="two").ratings[0].model == "b"
    pooled = analyse(both)
    assert pooled.judges == ("one", "two")
    assert pooled.ratings[0].n_judgments == 60
    assert pooled.n_items_used == 30
    assert "these judges" in pooled.uncertainty


@pytest.mark.parametrize("width", [0, 1])
def test_empty_frame_says_so(frames, width):
    analysis = analyse(frames.frame([]) if width else pl.DataFrame())
    assert analysis.ratings == analysis.neighbours == analysis.failures == ()
    assert analysis.position is None
    assert "no judgments" in analysis.notes[0]


def test_all_failed_ranks_nobody_and_counts_the_causes(frames):
    rows = [frames.failed("i1", "a", "b"), frames.failed("i2", "a", "b", "refused", "no")]
    analysis = analyse(frames.frame([*rows, frames.failed("i3", "a", "b")]))
    assert [(m.rank, m.rating, m.low, m.n_missing) for m in analysis.ratings] == [
        (None, None, None, 3)
    ] * 2
    assert [(f.cause, f.n, f.message) for f in analysis.failures] == [
        ("timeout", 2, "too slow"),
        ("refused", 1, "no"),
    ]
    assert math.isnan(analysis.coverage.mean)
    assert "all 3 judgments failed" in analysis.notes[0]


def test_missing_units_are_counted_for_each_model(frames):
    rows = [frames.judged(f"i{k}", "a", "b", 0.4 + 0.01 * k) for k in range(25)]
    rows += [frames.judged(f"i{k}", "b", "c", 0.5 + 0.01 * k) for k in range(25)]
    analysis = analyse(frames.frame([*rows, frames.failed("i99", "b", "c")]))
    assert {m.model: m.n_missing for m in analysis.ratings} == {"a": 0, "b": 1, "c": 1}
    assert (analysis.n_items, analysis.n_items_used) == (26, 25)
    assert any("1 of 51 judgments are missing" in note for note in analysis.notes)


def test_row_without_a_number_is_missing_even_if_it_says_ok(frames):
    rows = [frames.judged("i1", "a", "b", 0.4), frames.judged("i2", "a", "b", math.nan)]
    analysis = analyse(frames.frame(rows))
    assert (analysis.n_judged, analysis.failures[0].cause) == (1, "undefined")


def test_all_ties_are_equal_and_not_resolvable(frames):
    analysis = analyse(frames.frame([frames.judged(f"i{k}", "a", "b", 0.5) for k in range(40)]))
    assert [(m.rank, m.rating, m.low) for m in analysis.ratings] == [
        (1, 1000.0, pytest.approx(984.58, abs=0.01))
    ] * 2
    assert [(m.rank_low, m.rank_high) for m in analysis.ratings] == [(1, 2)] * 2
    assert not analysis.neighbours[0].resolvable
    assert analysis.agreement.tied_by_mode == 1.0


def test_undefeated_model_is_first_and_open(frames):
    rng = np.random.default_rng(0)
    rows = []
    for k in range(40):
        rows += [frames.judged(f"i{k}", "top", name, 1.0) for name in ("b", "c")]
        rows.append(frames.judged(f"i{k}", "b", "c", rng.uniform(0.4, 0.9)))
    analysis = analyse(frames.frame(rows))
    top, second, third = analysis.ratings
    assert (top.model, top.rank, top.rating, top.high_open) == ("top", 1, None, True)
    assert (top.rank_low, top.rank_high) == (1, 1)
    assert second.rating - third.rating > 50
    assert second.low is not None
    assert analysis.neighbours[0].difference is None
    assert analysis.neighbours[0].resolvable
    assert any("top won every comparison" in note for note in analysis.notes)


def test_few_undefeated_prompts_are_not_enough(frames):
    analysis = analyse(frames.frame([frames.judged(f"i{k}", "a", "b", 1.0) for k in range(3)]))
    assert not analysis.neighbours[0].resolvable
    assert [(m.rank_low, m.rank_high) for m in analysis.ratings] == [(1, 2)] * 2
    assert analysis.approximate


def test_models_never_compared_are_not_ranked(frames):
    rng = np.random.default_rng(0)
    pairs = [("a", "b"), ("c", "d")]
    rows = [frames.judged(f"i{k}", *p, rng.uniform(0.2, 0.9)) for k in range(30) for p in pairs]
    analysis = analyse(frames.frame(rows))
    assert all(model.rank is None and model.rating is None for model in analysis.ratings)
    assert analysis.neighbours == ()
    assert "a, b | c, d" in analysis.notes[0]


def test_one_item_gives_ratings_without_intervals(frames):
    analysis = analyse(frames.frame([frames.judged("i", "a", "b", 0.7)]))
    best = analysis.ratings[0]
    assert best.rating == pytest.approx(1000 + 200 / math.log(10) * math.log(0.7 / 0.3))
    assert best.low is None
    assert not best.high_open
    assert analysis.neighbours[0].p_value is None
    assert any("one item" in note for note in analysis.notes)


def test_one_pair_of_models_matches_the_log_odds(frames):
    rng = np.random.default_rng(0)
    prefer = rng.uniform(0.3, 0.9, 50)
    analysis = analyse(
        frames.frame([frames.judged(f"i{k}", "a", "b", p) for k, p in enumerate(prefer)])
    )
    mean = prefer.mean()
    expected = 400 / math.log(10) * math.log(mean / (1 - mean))
    assert analysis.neighbours[0].difference == pytest.approx(expected)


def test_a_bound_is_open_where_a_model_never_loses(frames):
    rows = [frames.judged(f"i{k}", "a", "b", float(k > 0)) for k in range(25)]
    best, worst = analyse(frames.frame(rows)).ratings
    assert not best.high_open
    assert best.high > best.rating > best.low
    rows = [frames.judged(f"i{k}", "a", "b", 1.0) for k in range(25)]
    best, worst = analyse(frames.frame(rows)).ratings
    assert (best.rating, best.high, best.high_open) == (None, None, True)
    assert (worst.rating, worst.low, worst.low_open) == (None, None, True)


def test_position_bias_and_flips(frames):
    rows = [frames.judged(f"i{k}", "a", "b", 0.5 + 0.01 * (k % 5 + 1), bias=0.1) for k in range(30)]
    position = analyse(frames.frame(rows)).position
    assert position.bias.value == pytest.approx(0.1)
    assert position.flip_rate.value == 1.0
    assert position.consistency.value == 0.0
    assert position.flip_rate.interval.low < 1.0


def test_level_outside_0_and_1_is_refused(simulated):
    with pytest.raises(StatisticsError):
        analyse(simulated, level=95)


def test_preference_outside_0_and_1_is_refused(frames):
    with pytest.raises(StatisticsError):
        analyse(frames.frame([frames.judged("i", "a", "b", 1.5)]))


@given(st.data())
def test_decisions_intervals_ranks_and_ratings_never_contradict_each_other(frames, data):
    """Of any design: ties, separation, skew, clusters, missing pairs."""
    n_models = data.draw(st.integers(2, 5))
    n_items = data.draw(st.integers(1, 25))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    kind = data.draw(st.sampled_from(["soft", "hard", "ties", "rare", "equal"]))
    thin = data.draw(st.sampled_from([0.0, 0.05, 0.5]))
    names = "abcdefgh"[:n_models]
    lead = np.sort(rng.normal(size=n_models))[::-1] * data.draw(st.sampled_from([0.0, 0.5, 3.0]))
    rows = []
    for k in range(n_items):
        for i, j in combinations(range(n_models), 2):
            if rng.random() < thin:
                continue
            p = 1 / (1 + np.exp(-(lead[i] - lead[j] + rng.normal())))
            p = {
                "soft": p,
                "hard": float(rng.random() < p),
                "ties": 0.5 if rng.random() < 0.8 else float(rng.random() < p),
                "rare": 1.0 if rng.random() < 0.05 else 0.474,
                "equal": 0.6,
            }[kind]
            rows.append(frames.judged(f"i{k}", names[i], names[j], float(p)))
    if not rows:
        return
    found = analyse(frames.frame(rows))
    place = {model.model: number for number, model in enumerate(found.ratings)}
    n_ranked = sum(model.rank is not None for model in found.ratings)
    better = {(pair.better, pair.worse) for pair in found.pairs if pair.resolvable}
    for pair in found.pairs:
        assert place[pair.better] < place[pair.worse]
        assert pair.resolvable == (pair.adjusted_p is not None and pair.adjusted_p <= 0.05)
        if pair.difference is not None and (pair.low is not None or pair.high is not None):
            low = -math.inf if pair.low is None else pair.low
            high = math.inf if pair.high is None else pair.high
            assert low <= pair.difference + 1e-6
            assert pair.difference <= high + 1e-6
            assert pair.resolvable == (low > 0 or high < 0)
    for model in found.ratings:
        if model.rank is None:
            continue
        assert model.rank_low == 1 + sum(worse == model.model for _, worse in better)
        assert model.rank_high == n_ranked - sum(best == model.model for best, _ in better)
        assert model.rank_low <= model.rank <= model.rank_high
        if model.rating is not None:
            assert model.low is None or model.low <= model.rating + 1e-6
            assert model.high is None or model.high >= model.rating - 1e-6
    if n_models == 2 and found.pairs:
        (pair,) = found.pairs
        row, column = found.wins.place(pair.better, pair.worse)
        low = found.wins.low[row][column]
        if low is not None:
            assert pair.resolvable == (low > 0.5)
