"""Tables of rubrics: criteria, their correlations, and what is missing."""

import pytest

from orchestrator.clusters import Clusters
from orchestrator.contracts.method import is_judging
from orchestrator.methods import rubric
from orchestrator.methods.rubric import Config
from orchestrator.methods.rubric import Kind as Rubric
from orchestrator.ranking.preferences import preferences
from orchestrator.tables import Measured
from tests.summaries import judged
from tests.summaries.told import summarise
from tests.tables import lines

CONFIG = Config(
    judges=("judge",), criteria=[{"name": "right", "weight": 3}, {"name": "kind", "scale": [0, 1]}]
)
WEIGHTS = [0.75, 0.25]


def row(item, model, right, kind, judge="judge", **more):
    mean = None if kind is None else 0.75 * right + 0.25 * kind
    whole = 0 if mean is None else round(mean)
    base = {
        "method": "rubric", "item": item, "model": model, "judge": judge, "turn": 1,
        "mean": mean, "std": 1.0, "std_high": 2.0, "coverage": 0.9,
        "p": [float(n == whole) for n in range(101)],
        "criteria": ["right", "kind"], "weights": WEIGHTS,
        "criteria_mean": [right, kind], "criteria_std": [1.0, None if kind is None else 3.0],
        "criteria_coverage": [0.9, 0.4 if kind is not None else None], "status": "ok",
    }  # fmt: skip
    return {**base, **more}


def missing(item, model, right):
    return row(item, model, right, None, status="failed", cause="missing_criterion", p=None)


@pytest.fixture
def tables(context_of):
    def make(rows, config=CONFIG):
        frame = judged.frame(rubric, rows)
        found = summarise(context_of("rubric", rubric, frame, config=config))
        return {table.key: table for table in found}

    return make


# `a` is right and unkind, `b` wrong and kind; kindness goes against rightness.
ROWS = [
    one
    for k in range(12)
    for one in (row(f"i{k}", "a", 80.0 + k, 20.0 - k), row(f"i{k}", "b", 40.0 + k, 90.0 - k))
]


def test_each_criterion_has_its_mean_with_interval_and_weight(tables):
    by = {
        (line["model"], line["criterion"]): line for line in lines(tables(ROWS)["rubric.criteria"])
    }
    assert list(by) == [("a", "right"), ("b", "right"), ("a", "kind"), ("b", "kind")]
    cell = by["a", "right"]["mean score"]
    assert isinstance(cell, Measured)
    assert cell.value == pytest.approx(85.5)
    assert cell.low is not None
    assert cell.high is not None
    assert cell.low < 85.5 < cell.high
    assert by["a", "right"]["weight"] == pytest.approx(0.75)
    assert (by["a", "kind"]["coverage"], by["a", "kind"]["low"]) == ("0.400", 1.0)


def test_a_missing_criterion_is_counted_and_in_no_mean(tables):
    found = tables([*ROWS, missing("i12", "a", 100.0)])
    by = {(line["model"], line["criterion"]): line for line in lines(found["rubric.criteria"])}
    assert by["a", "kind"]["missing"] == 1
    assert by["a", "kind"]["mean score"].value == pytest.approx(14.5)
    assert by["a", "right"]["mean score"].value == pytest.approx((12 * 85.5 + 100) / 13)
    (first, _) = lines(found["rubric.scores"])
    assert (first["rated"], first["failed"]) == (12, 1)


def test_criteria_that_go_against_each_other_correlate_negatively(tables):
    (line,) = lines(tables(ROWS)["rubric.correlations"])
    assert line["Spearman"].value == pytest.approx(-1.0)
    assert line["answers"] == 24


def test_the_judge_ranks_models_by_every_estimator(tables):
    rates = lines(tables(ROWS)["rubric.win_rates"])
    assert {line["model"]: line["win rate"].value for line in rates[:2]} == {"a": 1.0, "b": 0.0}


def test_questions_of_a_checklist_are_one_line(tables):
    def asked(item, model, *p):
        n = len(p)
        return row(
            item, model, 50.0, 50.0,
            criteria=["right", *(f"{k}?" for k in range(n))],
            weights=[0.5, *[0.5 / n] * n],
            criteria_mean=[50.0, *p], criteria_std=[0.0] * (n + 1),
            criteria_coverage=[1.0, *[0.8] * n],
        )  # fmt: skip

    config = Config(judges=("judge",), criteria=[{"name": "right"}], checklist={})
    rows = [asked("i", "a", 100.0, 50.0), asked("k", "a", 0.0), asked("l", "a", 10.0, None, None)]
    found = tables(rows, config)
    by = {line["criterion"]: line for line in lines(found["rubric.criteria"])}
    # Items count alike, however many questions they have; one with a missing answer has no mean.
    assert by["checklist"]["mean score"].value == pytest.approx((75.0 + 0.0) / 2)
    assert (by["checklist"]["missing"], by["checklist"]["weight"]) == (2, pytest.approx(0.5))


def test_answers_that_failed_before_any_criterion_are_counted(tables):
    failed = {
        "method": "rubric", "item": "x", "model": "a", "judge": "judge", "status": "failed",
        "cause": "refused",
    }  # fmt: skip
    (first, _) = lines(tables([*ROWS, failed])["rubric.scores"])
    assert first["failed"] == 1


def test_one_criterion_has_no_correlations(tables):
    config = Config(judges=("judge",), criteria=[{"name": "right"}])
    rows = [
        {**one, "criteria": ["right"], "weights": [1.0], "criteria_mean": one["criteria_mean"][:1],
         "criteria_std": [1.0], "criteria_coverage": [1.0]}
        for one in ROWS
    ]  # fmt: skip
    assert "rubric.correlations" not in tables(rows, config)


def test_analyses_of_judges_take_its_score_and_count_what_is_missing():
    rows = judged.frame(rubric, [*ROWS, missing("i12", "a", 100.0), row("i12", "b", 1.0, 1.0)])
    assert is_judging(Rubric(CONFIG))
    found = preferences(Clusters().of(rows))
    assert (len(found.rows), found.n_missing) == (12, 1)
    assert found.rows["mean"].to_list() == [1.0] * 12
