"""Two evaluators that pick the same winner, on the numbers of the ProbDiff papers' Table 5."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.analyses._orders import SameWinnerAnalysis
from orchestrator.analyses._orders import SameWinnerConfig as Config
from orchestrator.errors import UsageError
from tests.analyses.published import context_of, gap, gaps, ratings
from tests.tables import lines

N = {"Pro.": 124, "Math.": 111, "Fund.": 69, "Logic.": 95, "Writ.": 75, "Chi.": 58, "Role.": 116,
     "Open.": 38}  # fmt: skip
# By version of the paper: confidence in percent and GPT-4's mean score, Qwen then Qwen_ft.
CONFIDENCE = {
    "findings": ((20.2, 18.9, 15.9, 31.6, 62.7, 13.8, 53.4, 42.1),
                 (25.0, 48.6, 43.5, 62.1, 52.0, 27.6, 60.3, 34.2)),
    "submission": ((21.8, 24.3, 34.8, 26.3, 61.3, 12.1, 39.7, 39.5),
                   (19.4, 39.6, 30.4, 47.4, 38.7, 17.2, 33.6, 28.9)),
}  # fmt: skip
GPT_4 = {
    "findings": ((6.28, 4.89, 7.00, 4.66, 6.56, 6.17, 6.47, 6.74),
                 (6.27, 5.85, 7.15, 7.12, 7.00, 5.83, 7.16, 6.89)),
    "submission": ((6.20, 4.83, 6.85, 5.14, 6.56, 6.31, 6.49, 6.45),
                   (6.19, 5.62, 6.49, 6.93, 7.80, 5.86, 7.73, 7.71)),
}  # fmt: skip
MODELS = ("Qwen", "Qwen_ft")
SCORES = [
    {"method": "probdiff", "column": "confidence"},
    {"method": "gpt_4", "column": "rating"},
]


def table_5(version):
    rows = [
        row
        for place, model in enumerate(MODELS)
        for (category, n), share in zip(N.items(), CONFIDENCE[version][place], strict=True)
        for row in gaps(model, round(share * n / 100), n, category, place * n // 2)
    ]
    means = {
        (model, category): mean
        for model, line in zip(MODELS, GPT_4[version], strict=True)
        for category, mean in zip(N, line, strict=True)
    }
    context = context_of(rows, {"gpt_4": ratings("gpt_4", means)})
    return [lines(table) for table in SameWinnerAnalysis(Config(scores=SCORES)).summarise(context)]


@pytest.mark.parametrize(
    ("version", "same"),
    [
        ("findings", {"Math.", "Fund.", "Logic.", "Role."}),
        ("submission", {"Pro.", "Math.", "Fund.", "Logic."}),
    ],
)
def test_the_same_model_wins_in_the_categories_that_the_printed_means_say(version, same):
    (share,), each, _ = table_5(version)
    assert {row["category"] for row in each if row["same"] == "yes"} == {"all", *same}
    assert share["same winner overall"] == "yes"
    assert (share["in categories"], share["of"]) == (4, 8)


def test_differences_have_intervals_and_only_some_categories_are_resolved():
    (share,), each, _ = table_5("findings")
    rows = {row["category"]: row for row in each}
    # 23 of 111 and 54 of 111 pass in mathematics: far apart. 25 and 31 of 124: not.
    assert rows["Math."]["difference"].high < 0
    assert rows["Pro."]["difference"].low < 0 < rows["Pro."]["difference"].high
    assert rows["Math."]["winner"] == rows["Math."]["winner of the other"] == "Qwen_ft"
    assert 0 < share["resolved by both"] < 8
    assert share["same among these"] <= share["resolved by both"]


def test_scores_stand_in_the_layout_of_the_table():
    *_, scores = table_5("findings")
    assert [(row["evaluator"], row["model"]) for row in scores] == [
        ("probdiff.confidence", "Qwen"), ("probdiff.confidence", "Qwen_ft"),
        ("gpt_4.rating", "Qwen"), ("gpt_4.rating", "Qwen_ft"),
    ]  # fmt: skip
    printed = dict(zip(N, GPT_4["findings"][0], strict=True))
    assert {name: scores[2][name].value for name in N} == pytest.approx(printed)
    shown = {name: round(100 * scores[0][name].value, 1) for name in N}
    assert shown == dict(zip(N, CONFIDENCE["findings"][0], strict=True))


def test_comparisons_with_a_third_model_do_not_decide_between_two():
    # b wins its comparison with a, and a beats c far oftener than b does.
    pairs = [("a", "b", 0.4), ("a", "c", 1.0), ("b", "c", 0.0)]
    judged = pl.DataFrame(
        {"method": "judge", "item": str(item), "turn": 1, "model_a": one, "model_b": two,
         "rating": p, "status": "ok"}
        for item in range(4)
        for one, two, p in pairs
    )  # fmt: skip
    rows = [
        gap(model, str(item), d)
        for item in range(4)
        for model, d in zip("abc", (0, 1, 2), strict=True)
    ]
    config = Config(
        scores=[{"method": "probdiff", "column": "d"}, {"method": "judge", "column": "rating"}]
    )
    shares, each, _ = map(
        lines, SameWinnerAnalysis(config).summarise(context_of(rows, {"judge": judged}))
    )
    winners = {(row["model"], row["and model"]): row["winner of the other"] for row in each}
    assert winners == {("a", "b"): "b", ("a", "c"): "a", ("b", "c"): "c"}
    assert [row["same winner overall"] for row in shares] == ["yes", "no", "yes"]


def test_equal_means_are_a_tie_and_models_without_common_questions_have_no_winner():
    rows = [gap("a", "1", 0.5), gap("b", "1", 0.5), gap("c", "2", 0.5)]
    config = Config(scores=SCORES[:1] * 2)
    shares, each, _ = map(lines, SameWinnerAnalysis(config).summarise(context_of(rows)))
    assert [row["winner"] for row in each] == ["tie", "", ""]
    assert [row["same winner overall"] for row in shares] == ["yes", None, None]
    assert each[1]["difference"].why == "no questions in common"


def test_one_evaluator_or_one_model_is_refused():
    with pytest.raises(ValidationError, match="at least 2"):
        Config(scores=SCORES[:1])
    with pytest.raises(UsageError, match="fewer than two models"):
        SameWinnerAnalysis(Config(scores=SCORES[:1] * 2)).summarise(context_of([gap("a", "1", 0)]))


@given(
    values=st.lists(st.floats(0.0, 1.0), min_size=3, max_size=12),
    scale=st.sampled_from([1.0, 1e3, 1e9]),
    data=st.data(),
)
def test_rounding_wins_nothing_at_any_scale_and_a_part_in_a_million_does(values, scale, data):
    order = data.draw(st.permutations(range(len(values))))
    rows = [gap("a", str(item), 0.1) for item in range(len(values))]

    def winner(of_b: list[float]) -> str:
        rated = pl.DataFrame(
            {"method": "r", "item": str(item), "turn": 1, "model": model, "rating": scale * value,
             "status": "ok"}
            for model, given in (("a", values), ("b", of_b))
            for item, value in enumerate(given)
        )  # fmt: skip
        scores = [{"method": "r", "column": "rating"}] * 2
        context = context_of(rows, {"r": rated})
        return str(
            lines(SameWinnerAnalysis(Config(scores=scores)).summarise(context)[1])[0]["winner"]
        )

    same = [values[at] for at in order]
    assert winner(same) == "tie"
    assert winner([value + 1e-6 for value in same]) == "b"
    assert winner([value - 1e-6 for value in same]) == "a"
