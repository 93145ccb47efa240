"""Scores against official ones, on the numbers of the ProbDiff papers' Table 4."""

import pytest
from pydantic import ValidationError

from orchestrator.analyses._orders import LeaderboardAnalysis
from orchestrator.analyses._orders import LeaderboardConfig as Config
from orchestrator.errors import UsageError
from tests.analyses.published import context_of, gap, gaps
from tests.tables import lines

# Texts that pass of 160 turns (MT-Bench) and of 805 instructions (AlpacaEval), which give the
# printed percentages, and the official scores. Version 2 (Findings); version 1 (submission) has
# other confidences.
MT_BENCH = {"Llama2": 6.86, "Yi": 7.58, "WizardLM": 7.71, "Tulu": 7.89}
ALPACA_EVAL = {"Llama2": 13.87, "Yi": 29.66, "WizardLM": 14.38, "Tulu": 15.98}
FINDINGS = {"Llama2": 12, "Yi": 28, "WizardLM": 49, "Tulu": 32}
FINDINGS_ALPACA = {"Llama2": 21, "Yi": 51, "WizardLM": 37, "Tulu": 44}
SUBMISSION = {"Llama2": 26, "Yi": 33, "WizardLM": 34, "Tulu": 43}


def summarise(counts, n, official):
    rows = [row for model, passed in counts.items() for row in gaps(model, passed, n)]
    config = Config(official=official, scores=[{"method": "probdiff", "column": "confidence"}])
    scores, orders = LeaderboardAnalysis(config).summarise(context_of(rows))
    return lines(scores), lines(orders)[0]


@pytest.mark.parametrize(
    ("counts", "n", "printed"),
    [
        (FINDINGS, 160, {"Llama2": 7.5, "Yi": 17.5, "WizardLM": 30.63, "Tulu": 20.0}),
        (FINDINGS_ALPACA, 805, {"Llama2": 2.61, "Yi": 6.33, "WizardLM": 4.6, "Tulu": 5.47}),
        (SUBMISSION, 80, {"Llama2": 32.5, "Yi": 41.25, "WizardLM": 42.5, "Tulu": 53.75}),
    ],
)
def test_confidence_stands_beside_official_scores_as_printed(counts, n, printed):
    scores, _ = summarise(counts, n, {"MT-Bench": MT_BENCH})
    for row in scores:
        assert row["MT-Bench (official)"] == MT_BENCH[row["model"]]
        share = row["probdiff: confidence"]
        # Yi's 6.33 is 51 of 805 (6.335) cut off and not rounded.
        assert 100 * share.value == pytest.approx(printed[row["model"]], abs=0.0055)
        assert share.low < share.value < share.high


def test_the_order_that_the_submission_calls_perfect_is_equal():
    # "Tulu, WizardLM, Yi, and Llama2, a sequence that aligns perfectly"
    _, order = summarise(SUBMISSION, 80, {"MT-Bench": MT_BENCH})
    assert order["official order"] == order["order found"] == "Tulu > WizardLM > Yi > Llama2"
    assert order["Kendall tau-b"].value == 1.0
    # Two of the 24 orderings of four models agree or disagree as much.
    assert order["p"] == pytest.approx(2 / 24)
    assert order["models"] == 4


def test_the_slight_variation_of_the_findings_is_one_pair_of_six():
    # "Our analysis, however, positions the models as WizardLM, Tulu, Yi, and Llama2"
    _, order = summarise(FINDINGS, 160, {"MT-Bench": MT_BENCH})
    assert order["order found"] == "WizardLM > Tulu > Yi > Llama2"
    assert order["Kendall tau-b"].value == pytest.approx(4 / 6)


def test_alpaca_eval_has_one_order_in_both_columns_of_the_findings():
    _, order = summarise(FINDINGS_ALPACA, 805, {"AlpacaEval": ALPACA_EVAL})
    assert order["official order"] == order["order found"] == "Yi > Tulu > WizardLM > Llama2"


def test_every_score_is_compared_by_default_and_a_text_without_d_fails():
    rows = [gap("a", "1", None), gap("a", "2", 0.0), gap("b", "1", -1.0), gap("b", "2", 0.1)]
    config = Config(official={"x": {"a": 1, "b": 2, "elsewhere": 3}})
    scores, orders = map(lines, LeaderboardAnalysis(config).summarise(context_of(rows)))
    assert [row["probdiff: confidence"].value for row in scores] == [0.5, 0.5]
    assert {row["score"]: row["order found"] for row in orders} == {
        "probdiff.d": "a > b", "probdiff.confidence": "a = b",
    }  # fmt: skip
    assert orders[1]["Kendall tau-b"].why == "all models are tied"


def test_a_leaderboard_without_a_model_of_the_run_is_refused():
    config = Config(official={"MT-Bench": {"x": 1.0, "y": 2.0}})
    with pytest.raises(UsageError, match="no model of this run is on 'MT-Bench'; models: a"):
        LeaderboardAnalysis(config).summarise(context_of([gap("a", "1", 0.0)]))
    with pytest.raises(ValidationError, match="two models or more: MT-Bench"):
        Config(official={"MT-Bench": {"x": 1.0}})
