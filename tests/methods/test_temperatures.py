"""Temperatures by category: the benchmarks' own, a mapping, and what is in neither."""

import pytest

from orchestrator.ask import GenerateAsk
from orchestrator.methods import mt_bench_judge, pointwise, samples
from orchestrator.methods._drawing import Drawing
from orchestrator.records import Generation, Unit
from tests.methods import judging
from tests.methods.harness_judge import SINGLE, Judge, rows_of


@pytest.mark.parametrize(
    ("benchmark", "category", "temperature"),
    [
        ("mt_bench", "writing", 0.7),
        ("mt_bench", "roleplay", 0.7),
        ("mt_bench", "math", 0.0),
        ("mt_bench", "stem", 0.1),
        ("align_bench", "文本写作", 0.7),
        ("align_bench", "综合问答", 0.7),
        ("align_bench", "数学计算", 0.1),
    ],
)
def test_a_benchmarks_categories_are_drawn_as_its_authors_set(benchmark, category, temperature):
    drawing = Drawing(temperature=1.5, temperature_by_category=benchmark)
    assert drawing.sampling(category).temperature == temperature


def test_a_mapping_of_ones_own_goes_over_the_temperature():
    drawing = Drawing(temperature=0.3, temperature_by_category={"a": 0.9})
    found = [drawing.sampling(category).temperature for category in ("a", "b", None)]
    assert found == [0.9, 0.3, 0.3]


def test_a_temperature_below_zero_is_refused():
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        Drawing(temperature_by_category={"a": -1.0})


BY_CATEGORY = {"temperature": 0.0, "temperature_by_category": {"math": 0.4, "c": 0.5}}


def test_a_judges_text_is_drawn_at_the_temperature_of_the_category():
    judge = Judge(lambda _: "[[8]]")
    config = {"judges": ["judge"], "prompts": "compact", "judgment": BY_CATEGORY}
    rows_of(mt_bench_judge, mt_bench_judge.Config.model_validate(config), SINGLE, judge)
    assert {ask.sampling.temperature for ask in judge.judged} == {0.4}


def test_a_judges_reasoning_is_drawn_at_the_temperature_of_the_category():
    asked = []

    def judge(ask):
        if isinstance(ask, GenerateAsk):
            asked.append(ask)
            says = judging.trace("Rating", ": ", "5")
            return says if ask.model == "judge" else Generation("a", "stop")
        return judging.choice([1.0] * len(ask.labels))

    config = {"judges": ["judge"], "chain_of_thought": True, "reasoning": BY_CATEGORY}
    unit = Unit(judging.ITEM, ("m",), "judge")
    rows_of(pointwise, pointwise.Config.model_validate(config), unit, judge)
    assert [ask.sampling.temperature for ask in asked if ask.model == "judge"] == [0.5]


def test_answers_that_are_greedy_in_every_category_do_not_differ():
    with pytest.raises(ValueError, match="identical"):
        samples.Config(answer={"temperature": 0, "temperature_by_category": {"math": 0}})
    samples.Config(answer={"temperature": 0, "temperature_by_category": {"math": 1}})
