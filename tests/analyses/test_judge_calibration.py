import polars as pl
import pytest

from orchestrator.analyses._judge_accuracy import JudgeAccuracyAnalysis
from orchestrator.contracts.context import Context
from orchestrator.contracts.settings import Winner
from orchestrator.errors import UsageError
from orchestrator.ranking.winners import JudgedWinner
from tests.analyses.test_judge_accuracy import ANSWERS, ITEMS, rated, source
from tests.summaries import judged
from tests.tables import lines


def tables(rows, sources=None, **config):
    analysis = JudgeAccuracyAnalysis(JudgedWinner(**config))
    context = Context(
        "study",
        {"answers": ANSWERS, "items": ITEMS, "scores": judged.scores(rows)},
        pl.DataFrame(),
        [source()] if sources is None else sources,
        0.95,
        300,
        0,
    )
    return {table.key: table for table in analysis.summarise(context)}


def test_accuracy_and_confidence_meet_in_the_line_of_the_judge():
    found = tables(rated(4))
    (row,) = lines(found["judge_calibration"])
    assert row["pairs"] == 16
    assert row["accuracy"].value == 0.75
    bins = lines(found["judge_calibration.bins"])
    assert sum(part["pairs"] for part in bins) == 16
    sure = sum(part["pairs"] * part["mean confidence"] for part in bins) / 16
    assert row["too sure by"].value == pytest.approx(sure - 0.75)


def test_a_judge_that_is_always_right_is_never_too_sure():
    (row,) = lines(tables(rated(0))["judge_calibration"])
    assert row["accuracy"].value == 1.0
    assert row["too sure by"].value <= 0.0


def test_labels_of_the_dataset_do_as_well_as_references():
    by_field = Winner(field="better", values={"1": "x", "2": "y"})
    one, two = tables(rated(3)), tables(rated(3), winner=by_field)
    assert lines(one["judge_calibration"]) == lines(two["judge_calibration"])


def test_a_recipe_that_judges_nothing_is_refused():
    with pytest.raises(UsageError, match="judges pairs or rates answers"):
        tables(rated(0), [])
