import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from orchestrator.clusters import Clusters
from orchestrator.judgment.pointwise import compare_scores, score_table
from orchestrator.ranking import preferences as _preferences
from orchestrator.ranking.preferences import PAIRWISE, POINTWISE, preferences
from orchestrator.statistics.judgments import decided
from tests.summaries import judged
from tests.summaries.judged import around

RNG = np.random.default_rng(3)
P = {model: RNG.dirichlet(np.ones(9), size=5) for model in ("x", "y", "z")}
ROWS = [judged.score_row(f"i{k}", model, P[model][k]) for k in range(5) for model in P]


def found_in(rows):
    return preferences(Clusters().of(rows))


def test_every_pair_of_models_is_compared_on_each_item():
    found = found_in(judged.scores(ROWS))
    assert len(found.rows) == 15
    assert found.n_missing == 0
    row = found.rows.row(by_predicate=(pl.col("item") == "i3") & (pl.col("model_a") == "x")
                         & (pl.col("model_b") == "z"), named=True)  # fmt: skip
    table = score_table([P["x"][3], P["z"][3]])
    expected = compare_scores(table, np.array([0]), np.array([1]))
    for name in POINTWISE:
        assert row[name] == pytest.approx(expected[name][0]), name
    assert row["prefer_a"] == pytest.approx(0.5 + 0.5 * expected["superiority"][0])


def test_other_names_of_the_models_mirror_the_preferences():
    one = found_in(judged.scores(ROWS))
    swapped = {"x": "z", "z": "x", "y": "y"}
    other = [judged.score_row(f"i{k}", swapped[m], P[m][k]) for k in range(5) for m in ("z", "x")]
    two = found_in(judged.scores(other))
    kept = one.rows.filter((pl.col("model_a") == "x") & (pl.col("model_b") == "z"))
    for name in POINTWISE:
        np.testing.assert_allclose(two.rows[name], -kept[name], atol=1e-12)


def test_a_failed_rating_leaves_its_pairs_out_and_counts_them():
    found = found_in(judged.scores([*ROWS[:-1], judged.failed_score("i4", "z")]))
    assert len(found.rows) == 13
    assert found.n_missing == 2


def test_chunks_do_not_change_what_is_compared(monkeypatch):
    whole = found_in(judged.scores(ROWS)).rows
    monkeypatch.setattr(_preferences, "_CELLS", 18)
    assert_frame_equal(found_in(judged.scores(ROWS)).rows, whole)


def test_judges_are_told_apart():
    second = [judged.score_row("i0", model, around(5), judge="other") for model in P]
    found = found_in(judged.scores([*ROWS, *second]))
    assert {judge: len(one.rows) for judge, one in found.by_judge()} == {"judge": 15, "other": 3}


def test_one_model_alone_has_no_pairs():
    found = found_in(judged.scores([judged.score_row("i0", "x", around(5))]))
    assert found.rows.is_empty()
    assert list(found.by_judge()) == []


def test_pairwise_rows_bring_their_estimators():
    rows = judged.all_pairs("i0", {"x": 0.3, "y": 0.0})
    found = found_in(judged.pairs(rows))
    assert set(PAIRWISE) - set(found.estimators) == {"margin", "davidson"}  # of traces
    assert found.decisions("mean_pre").tolist() == [1.0]
    assert found.rows["prefer_a"].to_list() == pytest.approx([0.8])


def test_rounding_is_a_tie_and_nothing_is_filled_in():
    assert decided(np.array([1e-12, -0.5, np.nan])).tolist()[:2] == [0.0, -1.0]
    assert np.isnan(decided(np.array([np.nan]))[0])


def test_a_preference_is_a_probability_where_rounding_makes_more_of_it():
    # Sums of many products exceed 1 by rounding; who is better is certain here.
    above = 1.0 + 4e-16
    rows = judged.scores(
        [judged.score_row("i", "a", [0.0, above]), judged.score_row("i", "b", [above, 0.0])]
    )
    (preference,) = preferences(Clusters().of(rows)).rows["prefer_a"].to_list()
    assert preference == 1.0
