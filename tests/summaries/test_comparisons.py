"""Paired differences between models: against scipy, and against `orchestrator compare`."""

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from scipy import stats

import orchestrator
from orchestrator.interface.exporting import material
from orchestrator.ranking.cells import comparisons
from orchestrator.report.brief import brief
from orchestrator.statistics.results import SKEWED
from orchestrator.tables import DOUBT, Column, Measured, cell_text, make_table
from tests.api.made import MODELS, recipe

VALUE = pl.col("value")


def frame(values, items=None, **columns):
    """Rows of models on items, each in a cluster of its own."""
    rows = []
    for model, of_model in values.items():
        names = [f"i{k}" for k in range(len(of_model))] if items is None else items
        rows.append(
            pl.DataFrame({"item": names, "value": of_model}).with_columns(model=pl.lit(model))
        )
    found = pl.concat(rows, how="vertical_relaxed")
    return found.with_columns(cluster=pl.col("item"), prompt_key=pl.col("item"), **columns)


def dependent(n=40, models=3, seed=0):
    """Models that differ little where items differ much."""
    rng = np.random.default_rng(seed)
    level = rng.normal(0, 5, n)
    return {f"m{k}": (level + k + rng.normal(0, 0.5, n)).tolist() for k in range(models)}


def test_a_point_an_item_is_the_paired_t_test():
    values = dependent()
    (found,) = comparisons(frame(values), VALUE, 0.9)
    assert [(one.higher, one.lower) for one in found.pairs] == [
        ("m1", "m0"),
        ("m2", "m0"),
        ("m2", "m1"),
    ]
    # The levels of Holm's steps, from the smallest p-value on.
    order = sorted(found.pairs, key=lambda one: one.p_value or 0.0)
    for one, left in zip(order, (3, 2, 1), strict=True):
        test = stats.ttest_rel(values[one.higher], values[one.lower])
        assert one.p_value == pytest.approx(test.pvalue)
        low, high = test.confidence_interval(1 - 0.1 / left)
        assert (one.difference.low, one.difference.high) == pytest.approx((low, high))
        assert one.difference.value == pytest.approx(
            np.mean(values[one.higher]) - np.mean(values[one.lower])
        )
    assert all(one.resolvable for one in found.pairs)


def test_p_values_are_adjusted_by_holm_over_the_pairs_of_a_judge():
    rng = np.random.default_rng(5)
    values = {f"m{k}": rng.normal(0.25 * k, 1, 30).tolist() for k in range(4)}
    (found,) = comparisons(frame(values), VALUE, 0.95)
    pairs = sorted(found.pairs, key=lambda one: one.p_value or 0.0)
    p_values = np.array([one.p_value for one in pairs], np.float64)
    expected = np.maximum.accumulate(p_values * np.arange(6, 0, -1))
    assert [one.adjusted_p for one in pairs] == pytest.approx(np.minimum(expected, 1.0))
    assert [one.resolvable for one in pairs] == (expected < 0.05).tolist()
    assert len({one.resolvable for one in pairs}) == 2


def test_only_points_of_both_count_and_each_once():
    values = {"a": [1.0, 2.0, 4.0, None, 100.0], "b": [0.0, 1.5, 3.0, 50.0, None]}
    again = frame({"a": [3.0]}, ["i0"])
    rows = pl.concat([frame(values), again])
    ((one,),) = (found.pairs for found in comparisons(rows, VALUE, 0.95))
    # The first item of a has two rows, of mean 2.
    assert one.difference.value == pytest.approx(np.mean([2.0 - 0.0, 2.0 - 1.5, 4.0 - 3.0]))
    assert one.difference.n == 3


def test_turns_are_points_of_their_own_and_clusters_the_units():
    rng = np.random.default_rng(2)
    values = {"a": rng.normal(size=24).tolist(), "b": rng.normal(size=24).tolist()}
    items = [f"i{k // 2}" for k in range(24)]
    rows = frame(values, items).with_columns(turn=pl.Series([1 + k % 2 for k in range(24)] * 2))
    ((one,),) = (found.pairs for found in comparisons(rows, VALUE, 0.95))
    gaps = (np.array(values[one.higher]) - values[one.lower]).reshape(12, 2).mean(axis=1)
    assert one.difference.n == 12
    assert one.p_value == pytest.approx(stats.ttest_1samp(gaps, 0.0).pvalue)


def test_judges_are_compared_apart_and_names_may_be_anything():
    values = {"item": [1.0, 2.0, 3.0, 5.0], "value": [0.0, 0.5, 1.5, 2.0], "": [9.0, 9.5, 9.0, 9.9]}
    rows = pl.concat([frame(values, judge=pl.lit(name)) for name in ("value", "turn")])
    found = comparisons(rows, VALUE, 0.95)
    assert [one.judge for one in found] == ["value", "turn"]
    assert found[0].pairs == found[1].pairs
    named = {frozenset((one.higher, one.lower)) for one in found[0].pairs}
    assert named == set(map(frozenset, combinations(values, 2)))


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_a_judge_without_values_leaves_out_no_other(silent):
    values = dependent()
    rows = [frame(values, judge=pl.lit(f"j{k}")) for k in range(3)]
    alone = [comparisons(one, VALUE, 0.95) for k, one in enumerate(rows) if k != silent]
    rows[silent] = rows[silent].with_columns(value=pl.lit(None, pl.Float64))
    assert comparisons(pl.concat(rows), VALUE, 0.95) == tuple(one for (one,) in alone)


@pytest.mark.parametrize(
    "rows", [frame({"a": [None, None]}), frame({"a": []}), frame({"a": [1.0]})]
)
def test_nothing_to_compare_gives_no_pairs(rows):
    assert [one.pairs for one in comparisons(rows, VALUE, 0.95)] in ([], [()])


def test_models_without_a_common_item_are_not_told_apart():
    rows = pl.concat([frame({"a": [1.0, 2.0]}, ["x", "y"]), frame({"b": [3.0, 4.0]}, ["v", "w"])])
    ((one,),) = (found.pairs for found in comparisons(rows, VALUE, 0.95))
    assert one.p_value is None
    assert one.adjusted_p is None
    assert not one.resolvable
    assert one.difference == Measured(None, n=0, why="no points in common")


def test_equal_models_are_not_told_apart():
    ((one,),) = (
        found.pairs for found in comparisons(frame({"a": [1.0] * 9, "b": [1.0] * 9}), VALUE, 0.95)
    )
    assert one.p_value == 1.0
    assert not one.resolvable


def test_a_table_says_why_a_value_has_no_interval():
    rows = [("a", Measured(1.0, why="no spread")), ("b", Measured(None, why="no values"))]
    table = make_table("t", "t", [Column("model"), Column("mean d", "signed")], rows)
    assert table.notes == ("no spread",)


def question(values):
    """The question of a table of these means."""
    columns = [Column("model"), Column("mean d", "signed")]
    lines = []
    for model, of_model in values.items():
        interval = stats.t.interval(0.95, len(of_model) - 1, np.mean(of_model), stats.sem(of_model))
        low, high = map(float, interval)
        lines.append((model, Measured(float(np.mean(of_model)), low, high)))
    compared = comparisons(frame(values), VALUE, 0.95)
    table = make_table("t", "t", columns, lines, basis="40 prompts", comparisons=compared)
    (found,) = brief(tables=[table]).questions
    return found


def test_models_are_told_apart_by_differences_where_their_intervals_overlap():
    found = question(dependent())
    best, second, _ = found.standings
    assert best.low < second.high
    assert found.state == "answered"
    assert found.answer.text().startswith("Highest mean d: m2 ")
    assert ", then m1 " in found.answer.text()
    assert found.n_apart == found.n_pairs == 3
    assert found.apart.text() == (
        "All 3 pairs of models can be told apart. Pairs are compared on the same prompts, "
        "Holm-adjusted."
    )


def test_models_that_are_alike_have_no_winner():
    rng = np.random.default_rng(11)
    found = question({f"m{k}": rng.normal(size=12).tolist() for k in range(3)})
    assert found.state == "open"
    assert "; not clearly above " in found.answer.text()
    assert found.apart.text().startswith("Not resolvable: no two models can be told apart")


def test_means_of_skewed_values_are_in_doubt_wherever_they_are_shown(tmp_path):
    rows = [{"question": f"Question {n}?", "answer": str(n)} for n in range(6)]
    methods = [{"kind": "probdiff", "answer": {"max_tokens": 8}}]
    models = {name: MODELS[name] for name in ("weak", "strong")}
    run = orchestrator.run(recipe(rows, models=models, methods=methods), run_dir=tmp_path / "run")
    (table,) = (one for one in run.tables if one.key == "probdiff")
    kept = run.frames["probdiff"]
    of_model = {name: kept.filter(pl.col("model") == name)["d"].to_numpy() for name in models}
    cells = {str(row[0]): cell for row in table.rows if isinstance(cell := row[1], Measured)}
    told = {name: cell.why == SKEWED for name, cell in cells.items()}
    assert told == {name: 25 * stats.skew(x) ** 2 > 6 for name, x in of_model.items()}
    assert any(told.values())
    assert f"{DOUBT} {SKEWED}" in table.notes
    for name, cell in cells.items():
        assert cell_text(table.columns[1], cell).endswith(f"]{DOUBT}") == told[name]
    (asked,) = material(run).brief.questions
    assert [one.says.text() for one in asked.checks if one.about == "values"] == [f"{SKEWED}."]
    pair = table.comparisons[0].pairs[0].difference
    assert pair.why == orchestrator.compare(run, by="model").differences[0].why
    gates = orchestrator.gate(run, [f"score({name}) > -9" for name in told]).requirements
    assert {one.requirement[6:].partition(")")[0]: one.why == SKEWED for one in gates} == told


def test_the_first_screen_says_what_compare_says(tmp_path):
    models = {
        "weak": {"server": "scripted", "weights": "a:0.2"},
        "middle": {"server": "scripted", "weights": "m:0.6"},
        "strong": {"server": "scripted", "weights": "b:0.9"},
        "judge": {"server": "scripted", "weights": "j:1.0"},
    }
    rows = [
        {"question": f"Question {n}?", "answer": str(n), "group": n // 3, "level": n}
        for n in range(30)
    ]
    methods = [{"kind": "pointwise", "judges": ["judge"], "answer": {"max_tokens": 4}}]
    result = orchestrator.run(
        recipe(rows, models=models, methods=methods), run_dir=tmp_path / "run"
    )
    found = next(one for one in result.tables if one.comparisons).comparisons[0].pairs
    said = orchestrator.compare(result, by="model", scores=["pointwise.mean"]).to_frame()
    assert len(said) == len(found) == 3
    for one in found:
        both = pl.col("first").is_in([one.higher, one.lower]) & pl.col("second").is_in(
            [one.higher, one.lower]
        )
        row = said.row(by_predicate=both, named=True)
        assert one.difference.value == pytest.approx(abs(row["difference"]))
        assert one.p_value == pytest.approx(row["p_value"])
        assert one.adjusted_p == pytest.approx(row["adjusted_p"])
        assert one.resolvable == row["resolved"]
    (asked,) = (one for one in material(result).brief.questions if one.source == "pointwise")
    assert asked.n_apart == int(said["resolved"].sum())
