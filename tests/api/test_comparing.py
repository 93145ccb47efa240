"""Runs compared: which items count, names matched, paired differences, ratings, agreement."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import orchestrator
from orchestrator import RunDirectoryError, StatisticsError, UsageError
from orchestrator.interface.ratings import rating_tables
from orchestrator.statistics.bounded_mean import intervals
from orchestrator.tables import Measured
from tests.api.made import METHODS, MODELS, ROWS, recipe
from tests.report.samples import an_analysis

BETTER = {**MODELS, "weak": {"server": "scripted", "weights": "a:0.95"}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    a = orchestrator.run(recipe(), run_dir=folder / "a")
    # Fewer items, one more, and one of the same text but in another place.
    rows = [ROWS[5], *ROWS[:5], {"question": "Another?", "answer": "8", "level": 8}]
    b = orchestrator.run(recipe(rows, models=BETTER), run_dir=folder / "b")
    return a, b


def points(result, model):
    """P(model wins) by item, from the rows of the one pair."""
    rows = result.frames["judgments"]
    is_a = rows["model_a"] == model
    wins = rows.with_columns(wins=pl.when(is_a).then("prefer_a").otherwise(1 - pl.col("prefer_a")))
    return dict(wins.select("item", "wins").iter_rows())


def interval_of(differences, level):
    """The interval of a mean of differences of preferences, which are from -1 to 1."""
    shares = (1 + np.array(differences)[None]) / 2
    ends = intervals(shares, np.ones_like(shares), 1 - level)
    return tuple(2 * float(end[0]) - 1 for end in ends)


def test_differences_are_paired_on_the_items_of_both(runs):
    a, b = runs
    found = orchestrator.compare(a, b)
    assert found.n_common == 6
    assert [(run["n_items"], run["n_alone"]) for run in found.runs] == [(8, 2), (7, 1)]
    row = found.to_frame().row(by_predicate=pl.col("model") == "weak", named=True)
    mine, others = points(a, "weak"), points(b, "weak")
    both = sorted(set(mine) & set(others))
    differences = np.array([others[item] - mine[item] for item in both])
    assert row["score"] == "pairwise_ranking.prefer_a"
    assert row["n"] == len(both) == 6
    assert row["difference"] == pytest.approx(differences.mean())
    assert (row["low"], row["high"]) == pytest.approx(interval_of(differences, row["level"]))
    assert row["a"] == pytest.approx(np.mean([mine[item] for item in both]))
    assert row["b"] == pytest.approx(np.mean([others[item] for item in both]))


def test_the_other_way_round_is_the_negative(runs):
    a, b = runs
    forth, back = orchestrator.compare(a, b).to_frame(), orchestrator.compare(b, a).to_frame()
    assert np.allclose(forth["difference"], -back["difference"])
    assert np.allclose(forth["low"], -back["high"])


def test_runs_are_told_apart_by_as_much_of_their_paths_as_that_needs(runs, tmp_path):
    for folder in ("old", "new"):
        shutil.copytree(runs[0].path, tmp_path / folder / "paper")
    found = orchestrator.compare(tmp_path / "old" / "paper", tmp_path / "new" / "paper")
    assert [run["label"] for run in found.runs] == ["old/paper", "new/paper"]
    assert "<bdi>old/paper and new/paper</bdi>" in found.to_html(tmp_path / "c.html").read_text()


def test_a_run_differs_from_itself_by_nothing(runs):
    found = orchestrator.compare(runs[0].path, str(runs[0].path))
    assert found.to_frame()["difference"].to_list() == [0.0, 0.0]
    assert "a run is compared with itself" in found.notes


def test_a_higher_confidence_level_is_wider(runs):
    narrow, wide = (
        orchestrator.compare(*runs, confidence_level=level).to_frame() for level in (0.5, 0.99)
    )
    assert (wide["high"] - wide["low"] > narrow["high"] - narrow["low"]).all()
    with pytest.raises(StatisticsError):
        orchestrator.compare(*runs, confidence_level=1.0)


@pytest.mark.parametrize("by", ["run", "model"])
def test_a_line_marks_zero_where_differences_are_drawn_and_nowhere_else(runs, tmp_path, by):
    found = orchestrator.compare(*runs, by=by)
    drawn = [
        next((column.name for column, cell in zip(table.columns, row, strict=True)
              if isinstance(cell, Measured)), "")
        for table in found.tables for row in table.rows[:1]
    ]  # fmt: skip
    assert {"difference", "rating"} <= {*drawn}
    page = found.to_html(tmp_path / "c.html").read_text(encoding="utf-8")
    assert page.count('[{"at":0.0}]') == drawn.count("difference")


def test_a_table_names_the_method_of_its_intervals(tmp_path):
    methods = [METHODS[0], {"kind": "probdiff", "rounds": 1}]
    run = orchestrator.run(recipe(methods=methods), run_dir=tmp_path / "both")
    found = orchestrator.compare(run, by="model")
    basis = {one.key: one.basis for one in found.tables}
    assert len({one.method for one in found.differences}) > 1
    assert all(one.method in basis[f"compare.{one.score}"] for one in found.differences)


def test_the_forms_say_the_same(runs, tmp_path):
    found = orchestrator.compare(*runs)
    row = found.to_frame().row(0, named=True)
    shown = f"{row['difference']:+.3f}".lstrip("+-")
    assert shown in found.to_markdown()
    said = json.loads(found.to_json())
    assert said["n_common"] == 6
    assert said["differences"][0]["difference"] == row["difference"]
    assert {run["label"]: run["name"] for run in said["runs"]} == {"a": "made", "b": "made"}
    assert said["tables"][0]["rows"]
    assert "<table>" in found._repr_html_()
    page = found.to_html(tmp_path / "c.html").read_text(encoding="utf-8")
    assert shown in page
    assert found.headline[0] in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "6 items in common; a has 8, b has 7." in found.notes


def test_items_that_are_not_common_are_named(runs):
    found = orchestrator.compare(*runs)
    (note,) = [note for note in found.notes if "only in b" in note and "item" in note]
    (alone,) = found.runs[1]["items_alone"]
    assert note == f"1 item is not compared, only in b: {alone}."


def test_models_that_the_other_run_lacks_are_said_and_not_compared(runs, tmp_path):
    models = {**MODELS, "third": {"server": "scripted", "weights": "c:0.5"}}
    three = orchestrator.run(recipe(models=models), run_dir=tmp_path / "three")
    found = orchestrator.compare(runs[0], three)
    assert any(note == "Not compared: model third only in three." for note in found.notes)
    # Judgments against the third model are in one run only, and so in neither mean.
    assert found.to_frame()["difference"].to_list() == [0.0, 0.0]


def test_scores_that_only_one_run_has_are_not_compared(runs, tmp_path):
    methods = [*METHODS, "answers"]
    more = orchestrator.run(recipe(methods=methods), run_dir=tmp_path / "more")
    found = orchestrator.compare(runs[0], more)
    assert "Not compared: method answers only in more." in found.notes
    assert set(found.to_frame()["score"]) == {"pairwise_ranking.prefer_a"}


def test_models_are_matched_by_name_where_one_asks(runs, tmp_path):
    models = {**MODELS, "weak:2": {"server": "scripted", "weights": "a:0.95"}}
    del models["weak"]
    other = orchestrator.run(recipe(models=models), run_dir=tmp_path / "other")
    alone = orchestrator.compare(runs[0], other)
    assert alone.differences == ()
    assert "Nothing to compare" in alone.headline[0]
    assert any("--match model=weak:weak:2" in note for note in alone.notes)
    found = orchestrator.compare(runs[0], other, match=["model=weak:weak:2"])
    row = found.to_frame().row(by_predicate=pl.col("model") == "weak", named=True)
    mine, others = points(runs[0], "weak"), points(other, "weak:2")
    expected = np.mean([others[item] - mine[item] for item in mine])
    assert row["difference"] == pytest.approx(expected)
    assert "model 'weak' of a is matched with 'weak:2' of other." in found.notes


@pytest.mark.parametrize(
    ("match", "said"),
    [
        ("model=weak:stron", "has no model 'stron'; did you mean 'strong'?"),
        ("modle=weak:strong", "did you mean 'model'?"),
        ("model=weak", "expected one name for each of the 2 runs"),
        ("weak:strong", "invalid match"),
        ("judge=strong:judge", "has no judge 'strong'"),
    ],
)
def test_a_match_that_cannot_be_is_refused(runs, match, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        orchestrator.compare(*runs, match=[match])


def test_another_judge_is_matched_and_its_agreement_measured(runs, tmp_path):
    models = {name: entry for name, entry in MODELS.items() if name != "judge"}
    models["other"] = {"server": "scripted", "weights": "k:0.2"}
    methods = [{**METHODS[0], "judges": ["other"]}]
    given = recipe(models=models, methods=methods)
    found = orchestrator.compare(runs[0], orchestrator.run(given, run_dir=tmp_path / "judged"))
    assert "judge 'judge' of a is matched with 'other' of judged." in found.notes
    (table,) = [one for one in found.tables if one.key == "compare.agreement"]
    one, two, n, same, kappa, alpha = table.rows[0]
    assert isinstance(same, Measured)
    assert (one, two) == ("judge · a", "other · judged")
    assert any("between runs" in note for note in table.notes)
    verdicts = [
        np.sign([points(run, "weak")[item] - 0.5 for item in sorted(points(runs[0], "weak"))])
        for run in (runs[0], orchestrator.load(tmp_path / "judged"))
    ]
    assert same.value == pytest.approx(np.mean(verdicts[0] == verdicts[1]))
    assert n == 8
    # Both judges prefer one model throughout, so that no chance agreement is there to beat.
    for cell in (kappa, alpha):
        assert isinstance(cell, Measured)
        assert (cell.value, cell.why) == (None, "all ratings are of one category")


def test_models_of_one_run_are_compared_with_holm_over_all_pairs(tmp_path):
    models = {**MODELS, "third": {"server": "scripted", "weights": "c:0.5"}}
    rows = [{"question": f"Question {n}?"} for n in range(30)]
    run = orchestrator.run(recipe(rows, models=models), run_dir=tmp_path / "three")
    found = orchestrator.compare(run)
    assert found.by == "model"
    assert len(found.differences) == 3
    p_values = [one.p_value or 0.0 for one in found.differences]
    order = np.argsort(p_values)
    steps = np.maximum.accumulate([min(1, p * (3 - k)) for k, p in enumerate(np.sort(p_values))])
    assert [found.differences[at].adjusted_p for at in order] == pytest.approx(list(steps))
    only = orchestrator.compare(run, baseline="third")
    assert [one.first for one in only.differences] == ["third", "third"]


def test_methods_of_one_run_are_compared_on_their_columns(tmp_path):
    methods = [{**METHODS[0], "name": "five"}, {**METHODS[0], "name": "two", "labels": "two"}]
    run = orchestrator.run(recipe(methods=methods), run_dir=tmp_path / "methods")
    found = orchestrator.compare(run, by="method")
    assert {(one.score, one.first, one.second) for one in found.differences} == {
        ("prefer_a", "five", "two")
    }
    assert {one.model for one in found.differences} == {"weak", "strong"}
    names = [one.name for one in found.tables[0].columns]
    assert names[:3] == ["model", "method", "minus"]


def test_judges_of_one_run_are_compared_on_the_same_pairs(tmp_path):
    models = {**MODELS, "other": {"server": "scripted", "weights": "k:0.2"}}
    methods = [{**METHODS[0], "judges": ["judge", "other"]}]
    run = orchestrator.run(recipe(models=models, methods=methods), run_dir=tmp_path / "judges")
    found = orchestrator.compare(run, by="judge")
    (weak,) = [one for one in found.differences if one.model == "weak"]
    rows = run.frames["judgments"].filter(pl.col("status") == "ok")
    means = {
        judge: np.mean(
            [
                p if a == "weak" else 1 - p
                for a, p, j in rows.select("model_a", "prefer_a", "judge").iter_rows()
                if j == judge
            ]
        )
        for judge in ("judge", "other")
    }
    assert weak.difference == pytest.approx(means["other"] - means["judge"])
    (table,) = [one for one in found.tables if one.key == "compare.agreement"]
    assert {name for row in table.rows for name in row[:2]} >= {"judge", "other"}
    # Judges of one run judged the same texts.
    assert not any("between runs" in note for note in table.notes)


def test_ratings_of_runs_that_share_models_are_on_one_scale(runs):
    found = orchestrator.compare(*runs)
    # The weak model has other weights in b, and is another competitor there.
    (ranking,) = found.rankings
    assert {one.model for one in ranking.ratings} == {"weak · a", "weak · b", "strong"}
    rating = {one.model: one.rating or 0.0 for one in ranking.ratings}
    # Each weak model met only the strong one, so its rating is the logit of its win rate there.
    for label, run in zip("ab", runs, strict=True):
        both = set(points(runs[0], "weak")) & set(points(runs[1], "weak"))
        share = np.mean([points(run, "weak")[item] for item in both])
        gap = 400 * np.log10(share / (1 - share))
        assert rating[f"weak · {label}"] - rating["strong"] == pytest.approx(gap, abs=1e-3)


def test_a_model_and_its_copy_in_another_run_are_not_told_apart(tmp_path):
    strong = MODELS["strong"]
    others = {name: MODELS[name] for name in ("weak", "judge")}
    middle = {"server": "scripted", "weights": "c:0.7"}
    rows = [{"question": f"Question {n}?", "answer": str(n), "level": n} for n in range(100)]
    a = recipe(rows, models={"strong": strong, "middle": middle, **others})
    b = recipe(rows, models={"strong": strong, "copy": strong, **others})
    found = orchestrator.compare(
        orchestrator.run(a, run_dir=tmp_path / "a"), orchestrator.run(b, run_dir=tmp_path / "b")
    )
    (table,) = (one for one in found.tables if one.key == "compare.rating_differences")
    apart: dict[Any, Any] = {(row[0], row[1]): (row[2], row[3], row[5]) for row in table.rows}
    # Only one of the two met the middle model, so by Bradley-Terry's model alone they differ.
    n, gap, verdict = apart["copy", "strong"]
    assert (n, verdict) == (100, "no")
    assert gap.value > 0
    assert apart["copy", "middle"][0::2] == (0, "not compared directly")
    assert apart["strong", "weak"][0::2] == (100, "yes")


def test_items_that_differ_most_come_first(runs):
    found = orchestrator.compare(*runs)
    apart = [abs(one.difference) for one in found.changes]
    assert apart == sorted(apart, reverse=True)
    assert found.changes[0].prompt.startswith("Question")
    mine, others = (points(run, found.changes[0].model) for run in runs)
    expected = max(abs(others[item] - mine[item]) for item in set(mine) & set(others))
    assert apart[0] == pytest.approx(expected)


def test_clusters_of_items_are_what_intervals_are_over(tmp_path):
    rows = [{"question": f"Question {n}?", "passage": str(n // 4)} for n in range(24)]
    fields = {"prompt": "question", "cluster": "passage"}
    dataset = {"kind": "jsonl", "path": str(tmp_path / "rows.jsonl"), "fields": fields}
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "rows.jsonl").write_text(text, encoding="utf-8")
    found = [
        orchestrator.run(recipe(dataset, models=models), run_dir=tmp_path / name)
        for name, models in (("a", MODELS), ("b", BETTER))
    ]
    compared = orchestrator.compare(*found)
    (weak,) = [one for one in compared.differences if one.model == "weak"]
    assert (weak.n, weak.n_clusters) == (24, 6)
    mine, others = (points(run, "weak") for run in found)
    keys = found[0].frames["items"]["item"].to_list()
    means = [np.mean([others[k] - mine[k] for k in keys[at : at + 4]]) for at in range(0, 24, 4)]
    assert (weak.low, weak.high) == pytest.approx(interval_of(means, weak.level))


def test_items_of_one_key_and_another_text_are_left_out(tmp_path):
    rows = [{"id": str(n), "question": f"Question {n}?"} for n in range(4)]
    changed = [{**rows[0], "question": "Another?"}, *rows[1:]]
    paths = []
    for place, given in enumerate((rows, changed)):
        orchestrator.run(recipe(given), run_dir=tmp_path / str(place))
        paths.append(tmp_path / str(place))
    found = orchestrator.compare(*paths)
    assert found.n_common == 3
    assert "1 item with the same key but a different text were excluded." in found.notes


def test_what_can_not_be_compared_is_refused(runs, tmp_path):
    other = orchestrator.run(recipe([{"question": "Alone?"}]), run_dir=tmp_path / "other")
    with pytest.raises(UsageError, match="have no item in common"):
        orchestrator.compare(runs[0], other)
    with pytest.raises(RunDirectoryError):
        orchestrator.compare(runs[0], Path(tmp_path / "nowhere"))
    for wrong, said in (
        ({"by": "run"}, "specify a second run"),
        ({"by": "modle"}, "did you mean 'model'?"),
        ({"scores": ["prefer"]}, "unknown score 'prefer'"),
        ({"baseline": "weka"}, "did you mean 'weak'?"),
        ({"match": ["model=weak:strong"]}, "there is one"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            orchestrator.compare(runs[0], **wrong)
    with pytest.raises(UsageError, match="at least one run"):
        orchestrator.compare()


def test_a_ranking_without_pairs_has_no_table_of_their_differences():
    ranking = replace(an_analysis(), pairs=())
    assert [one.key for one in rating_tables([], [ranking])] == ["compare.ratings"]
