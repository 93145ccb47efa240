"""Two runs compared: which items count, and intervals of paired differences."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

import orchestrator
from orchestrator import RunDirectoryError, StatisticsError, UsageError
from tests.api.made import METHODS, MODELS, ROWS, recipe

BETTER = {**MODELS, "weak": {"server": "fake", "weights": "a:0.95"}}


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


def test_differences_are_paired_on_the_items_of_both(runs):
    a, b = runs
    found = orchestrator.compare(a, b)
    assert (found.n_shared, found.n_items) == (6, (8, 7))
    row = found.to_frame().row(by_predicate=pl.col("model") == "weak", named=True)
    mine, others = points(a, "weak"), points(b, "weak")
    both = sorted(set(mine) & set(others))
    differences = np.array([others[item] - mine[item] for item in both])
    assert row["score"] == "pairwise_ranking.prefer_a"
    assert row["n"] == len(both) == 6
    assert row["difference"] == pytest.approx(differences.mean())
    # One point a prompt: Student's interval.
    interval = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx(tuple(interval))
    assert row["a"] == pytest.approx(np.mean([mine[item] for item in both]))
    assert row["b"] == pytest.approx(np.mean([others[item] for item in both]))


def test_the_other_way_round_is_the_negative(runs):
    a, b = runs
    forth, back = orchestrator.compare(a, b).to_frame(), orchestrator.compare(b, a).to_frame()
    assert np.allclose(forth["difference"], -back["difference"])
    assert np.allclose(forth["low"], -back["high"])


def test_a_run_differs_from_itself_by_nothing(runs):
    frame = orchestrator.compare(runs[0].path, str(runs[0].path)).to_frame()
    assert frame["difference"].to_list() == [0.0, 0.0]


def test_a_higher_confidence_level_is_wider(runs):
    narrow, wide = (
        orchestrator.compare(*runs, confidence_level=level).to_frame() for level in (0.5, 0.99)
    )
    assert (wide["high"] - wide["low"] > narrow["high"] - narrow["low"]).all()
    with pytest.raises(StatisticsError):
        orchestrator.compare(*runs, confidence_level=1.0)


def test_the_forms_say_the_same(runs):
    found = orchestrator.compare(*runs)
    row = found.to_frame().row(0, named=True)
    assert f"{row['difference']:+.3f}".lstrip("+-") in found.to_markdown()
    said = json.loads(found.to_json())
    assert said["n_shared"] == 6
    assert said["tables"][0]["rows"]
    assert "<table>" in found._repr_html_()
    assert "6 items of both runs; A has 8, B 7." in found.notes


def test_other_opponents_and_other_scores_are_said_and_not_compared(runs, tmp_path):
    models = {**MODELS, "third": {"server": "fake", "weights": "c:0.5"}}
    three = orchestrator.run(recipe(models=models), run_dir=tmp_path / "three")
    found = orchestrator.compare(runs[0], three)
    assert found.tables == ()
    assert any("the pairs of models differ" in note for note in found.notes)
    methods = [*METHODS, "answers"]
    more = orchestrator.run(recipe(methods=methods), run_dir=tmp_path / "more")
    found = orchestrator.compare(runs[0], more)
    assert "answers.mean_logprob: only in B." in found.notes


def test_items_of_one_key_and_another_text_are_left_out(tmp_path):
    rows = [{"id": str(n), "question": f"Question {n}?"} for n in range(4)]
    changed = [{**rows[0], "question": "Another?"}, *rows[1:]]
    paths = []
    for place, given in enumerate((rows, changed)):
        orchestrator.run(recipe(given), run_dir=tmp_path / str(place))
        paths.append(tmp_path / str(place))
    found = orchestrator.compare(*paths)
    assert found.n_shared == 3
    assert "1 items with the same key but a different text were excluded." in found.notes


def test_what_can_not_be_compared_is_refused(runs, tmp_path):
    other = orchestrator.run(recipe([{"question": "Alone?"}]), run_dir=tmp_path / "other")
    with pytest.raises(UsageError, match="have no item in common"):
        orchestrator.compare(runs[0], other)
    with pytest.raises(RunDirectoryError):
        orchestrator.compare(runs[0], Path(tmp_path / "nowhere"))
