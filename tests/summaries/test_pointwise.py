import pytest

from orchestrator.methods import pairwise_scoring, pointwise
from orchestrator.ranking.trust import of_rows
from orchestrator.statistics.trust import DEFAULTS
from tests.summaries import judged
from tests.summaries.judged import around
from tests.summaries.told import summarise
from tests.tables import lines

GOOD = {"good": 7.0, "fair": 5.0, "poor": 3.0}
ROWS = [
    judged.score_row(f"i{k}", model, around(centre + (k % 3 - 1)))
    for k in range(12)
    for model, centre in GOOD.items()
]


@pytest.fixture
def tables(context_of):
    def make(rows):
        config = pointwise.Config(judges=("judge",))
        found = summarise(context_of("pointwise", pointwise, judged.scores(rows), config=config))
        return {table.key: table for table in found}

    return make


def test_mean_scores_come_with_their_interval(tables):
    by_model = {row["model"]: row for row in lines(tables(ROWS)["pointwise.scores"])}
    mean = by_model["good"]["mean score"]
    assert mean.value == pytest.approx(7.0)
    assert mean.low < 7.0 < mean.high


def test_models_are_rated_by_every_estimator(tables):
    rows = lines(tables(ROWS)["pointwise.win_rates"])
    assert len(rows) == 9 * 3
    for at in range(0, 27, 3):
        assert [row["model"] for row in rows[at : at + 3]] == ["good", "fair", "poor"]


def test_the_order_of_the_rows_does_not_matter(tables):
    one, two = tables(ROWS), tables(ROWS[::-1])
    rates = "pointwise.win_rates"
    key = [(row["estimator"], row["model"], row["win rate"]) for row in lines(one[rates])]
    assert key == [(row["estimator"], row["model"], row["win rate"]) for row in lines(two[rates])]


def test_failures_are_counted_and_do_not_lower_a_score(tables):
    rows = [row for row in ROWS if (row["item"], row["model"]) != ("i0", "good")]
    found = tables([*rows, judged.failed_score("i0", "good")])
    (good,) = [r for r in lines(found["pointwise.scores"]) if r["model"] == "good"]
    assert (good["rated"], good["failed"]) == (11, 1)
    assert good["mean score"].value > 6.9
    assert "missing" in found["pointwise.win_rates"].basis


def test_equal_distributions_tie_by_every_estimator(tables):
    rows = [judged.score_row(f"i{k}", m, around(5)) for k in range(4) for m in ("x", "y")]
    estimators = lines(tables(rows)["pointwise.estimators"])
    assert {row["ties"] for row in estimators} == {1.0}
    assert {row["order of the models"] for row in estimators} == {"x = y"}


def test_tiny_coverage_is_shown_as_it_is(tables):
    rows = [{**row, "coverage": 3e-5} for row in ROWS]
    found = lines(tables(rows)["pointwise.readings"])
    assert {(row["coverage"], row["low coverage"]) for row in found} == {("3e-05", 1.0)}


def test_no_rows_make_no_table(tables):
    assert tables([]) == {}


def test_scores_for_a_form_the_judge_does_not_know_are_called_so(context_of):
    rows = [
        {**row, "score_a": 6.0, "score_b": 4.0, "coverage_ab": 1e-5}
        for row in judged.all_pairs("i0", {"x": 0.2, "y": 0.0})
    ]
    frame = judged.frame(pairwise_scoring, rows)
    config = pairwise_scoring.Config(judges=("judge",))
    context = context_of("pairwise_scoring", pairwise_scoring, frame, config=config)
    _, estimators = summarise(context)
    ((trust,),) = of_rows([context.rows], DEFAULTS, 0.95).values()
    assert "50 % of its readings" in trust.reasons[0]
    assert estimators.judge == "judge"
    assert [row["order of the models"] for row in lines(estimators)] == ["x > y"] * 7
