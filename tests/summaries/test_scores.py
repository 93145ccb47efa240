"""Mean scores, the summary of methods from outside that have none of their own."""

import polars as pl
import pytest
import scipy

from orchestrator.clusters import Clusters
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import PluginError
from orchestrator.methods._drawing import AnswersConfig
from orchestrator.methods.answers import Kind as Answers
from orchestrator.ranking.scores import ScoresSummary
from orchestrator.runner.results.tables import summarise


def said_of(rows, scores, clusters=None):
    method = Answers(AnswersConfig())
    source = Source("mine", "./mine.py", method, "mine", scores)
    rows = pl.DataFrame(rows).with_columns(method=pl.lit("mine"))
    clusters = clusters or Clusters()
    context = Context("mine", {"mine": rows}, rows, [source], 0.9, 200, 0, clusters)
    return ScoresSummary(method.config).summarise(context)


def student(values):
    interval = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.9)
    return pytest.approx((sum(values) / len(values), *interval))


def numbers(cell):
    return (cell.value, cell.low, cell.high)


def test_each_score_has_a_mean_by_model_with_students_interval_over_prompts():
    (table,) = said_of(
        {
            "item": ["1", "2", "3", "4"] * 2,
            "model": ["a"] * 4 + ["b"] * 4,
            "length": [3, 5, 10, 7, 1, 2, 2, 9],
            "doubt": [0.5, -1.0, 4.0, 1.0, 0.1, float("nan"), 0.7, 2.0],
            "status": ["ok"] * 8,
        },
        {"doubt": -1, "length": 1},
    )
    assert (table.key, [one.name for one in table.columns][:3]) == (
        "scores",
        ["model", "score", "better"],
    )
    assert [row[:3] for row in table.rows] == [
        ("a", "doubt", "lower"),
        ("a", "length", "higher"),
        ("b", "doubt", "lower"),
        ("b", "length", "higher"),
    ]
    means = [numbers(row[3]) for row in table.rows]
    assert means == [
        student([0.5, -1.0, 4.0, 1.0]),
        student([3, 5, 10, 7]),
        student([0.1, 0.7, 2.0]),
        student([1, 2, 2, 9]),
    ]
    assert [row[4:] for row in table.rows] == [(4, 0), (4, 0), (3, 1), (4, 0)]


def test_a_failed_row_counts_as_missing_whatever_its_score():
    (table,) = said_of(
        {"item": list("1234"), "model": ["a"] * 4, "x": [1.0, 2.0, 9.0, 4.0],
         "status": ["ok", "ok", "failed", "ok"]},
        {"x": 1},
    )  # fmt: skip
    (row,) = table.rows
    assert numbers(row[3]) == student([1.0, 2.0, 4.0])
    assert row[4:] == (3, 1)
    assert table.basis == "4 prompts · 1 failed · x: higher is better"


def test_judges_are_not_pooled():
    (table,) = said_of(
        {"item": ["1", "2"] * 2, "model": ["a"] * 4, "judge": ["j", "j", "k", "k"],
         "x": [1.0, 3.0, 10.0, 14.0], "status": ["ok"] * 4},
        {"x": 1},
    )  # fmt: skip
    assert table.key == "scores.judges"
    assert [row[:3] for row in table.rows] == [("a", "j", "x"), ("a", "k", "x")]
    assert [row[4].value for row in table.rows] == [2.0, 12.0]


def test_intervals_are_over_clusters_of_prompts():
    items = pl.DataFrame({"item": ["1", "2", "3", "4"], "cluster": ["p", "p", "q", "r"]})
    rows = {"item": ["1", "2", "3", "4"], "model": ["a"] * 4, "status": ["ok"] * 4}
    (table,) = said_of({**rows, "x": [1.0, 1.0, 2.0, 4.0]}, {"x": 1}, Clusters(items))
    cell = table.rows[0][3]
    assert cell.value == 2.0
    assert (cell.n, cell.n_clusters) == (4, 3)
    (alone,) = said_of({**rows, "x": [1.0, 1.0, 2.0, 4.0]}, {"x": 1})
    assert numbers(alone.rows[0][3]) == student([1.0, 1.0, 2.0, 4.0])
    assert cell.high - cell.low > alone.rows[0][3].high - alone.rows[0][3].low


def test_a_pair_counts_for_both_models():
    (table,) = said_of(
        {"item": ["1", "2"], "model_a": ["a", "b"], "model_b": ["b", "a"],
         "p": [0.9, 0.3], "status": ["ok", "ok"]},
        {"p": 1},
    )  # fmt: skip
    means = {row[0]: row[3] for row in table.rows}
    assert means["a"].value == pytest.approx(0.8)
    assert means["b"].value == pytest.approx(0.2)
    assert 0 <= means["a"].low < means["a"].high <= 1
    assert any("beats its opponent" in note for note in table.notes)


def test_a_flag_is_a_share():
    flags = [True, True, False, None]
    (table,) = said_of(
        {"item": list("1234"), "model": ["a"] * 4, "right": flags, "status": ["ok"] * 4},
        {"right": 1},
    )
    cell = table.rows[0][3]
    assert cell.value == pytest.approx(2 / 3)
    assert 0 <= cell.low < cell.high <= 1
    assert table.rows[0][4:] == (3, 1)


def test_a_model_without_any_value_has_no_mean():
    (table,) = said_of(
        {"item": ["1"], "model": ["a"], "x": pl.Series([None], dtype=pl.Float64),
         "status": ["failed"]},
        {"x": 1},
    )  # fmt: skip
    cell = table.rows[0][3]
    assert (cell.value, cell.low) == (None, None)
    assert cell.why


def test_rows_without_an_item_have_a_mean_and_no_interval():
    (table,) = said_of({"model": ["a", "a"], "x": [1.0, 2.0], "status": ["ok"] * 2}, {"x": 1})
    assert numbers(table.rows[0][3]) == (1.5, None, None)
    assert table.basis == "2 rows"


@pytest.mark.parametrize("column", ["there_is_none", "text"])
def test_a_score_that_is_no_column_of_numbers_is_named(column):
    rows = {"item": ["1"], "model": ["a"], "text": ["x"], "status": ["ok"]}
    with pytest.raises(PluginError, match=f"mine: 'scores' names '{column}'"):
        said_of(rows, {column: 1})


def test_a_method_without_scores_or_rows_has_no_table():
    rows = {"item": ["1"], "model": ["a"], "x": [1.0], "status": ["ok"]}
    assert said_of(rows, {}) == []
    assert said_of(pl.DataFrame(rows).clear(), {"x": 1}) == []


@pytest.mark.parametrize("kind", ["pairwise_ranking", "judged_rewrites"])
def test_bundled_methods_without_a_summary_get_no_table(kind):
    frames = {
        frame: pl.DataFrame({"method": [kind], "item": ["1"], "status": ["ok"]})
        for frame in ("judgments", "judged_rewrites")
    }
    assert summarise(frames, {"methods": [{"kind": kind, "judges": ["j"]}]}) == []
