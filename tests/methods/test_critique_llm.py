import json

import msgspec
import pytest
from pydantic import ValidationError

from orchestrator.methods import critique_llm as method
from orchestrator.records import Unit
from tests.methods.harness_judge import ONE_TURN, PAIR, SINGLE, Judge, rows_of

WORDINGS = {
    "pointwise_reference_based": "[{type}] {question} 参考 {reference} 答 {response}",
    "pointwise_reference_free": "[{type}] {question} 答 {response}",
    "pairwise_reference_based": "[{type}] {question} {reference} {response_1} {response_2}",
    "pairwise_reference_free": "[{type}] {question} {response_1} {response_2}",
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps(WORDINGS))
    return str(path)


def config(file, **changes):
    return method.Config.model_validate({"judges": ["judge"], "prompts": file, **changes})


def test_the_reference_is_shown_where_there_is_one(file):
    judge = Judge(lambda text: "{'综合得分': 8}")
    assert rows_of(method, config(file), SINGLE, judge)[0]["rating"] == 8.0
    rows_of(method, config(file), Unit(ONE_TURN, ("a",), "judge"), judge)
    shown = [ask.messages[-1].content for ask in judge.judged]
    assert shown[0] == "[math] What is 2+2? 参考 4 答 a says 1"
    assert shown[2] == "[writing] Hello? 答 a says 1"


@pytest.mark.parametrize(
    ("category", "fields", "shown"),
    [
        ("数学计算", {}, "逻辑推理型回答"),
        ("综合问答", {}, "建议型回答"),
        ("数学计算", {"type": "自定"}, "自定"),
        ("代码", {}, "甲"),
        ("planning", {}, "乙"),
        ("other", {}, "other"),
    ],
)
def test_the_prompt_names_the_type_of_the_category(file, category, fields, shown):
    judge = Judge(lambda text: "{'综合得分': 8}")
    item = msgspec.structs.replace(ONE_TURN, category=category, fields=fields)
    settings = config(file, types={"代码": "甲", "planning": "乙"})
    rows_of(method, settings, Unit(item, ("a",), "judge"), judge)
    assert judge.judged[0].messages[-1].content == f"[{shown}] Hello? 答 a says 1"


def test_no_score_is_missing_and_five_by_its_own_convention(file):
    judge = Judge(lambda text: "不好")
    assert rows_of(method, config(file), SINGLE, judge)[0]["rating"] is None
    row = rows_of(method, config(file, convention="critique_llm"), SINGLE, judge)[0]
    assert (row["rating"], row["parsed"], row["status"]) == (5.0, False, "ok")


def test_labels_in_both_orders(file):
    judge = Judge(lambda text: "{'综合比较结果': '助手1'}")
    row = rows_of(method, config(file, mode="pairwise"), PAIR, judge)[0]
    assert (row["winner_ab"], row["winner_ba"], row["winner"]) == ("A", "B", "tie")


def test_the_distribution_is_read_at_the_score(file):
    judge = Judge(lambda text: "评: {'甲': 1, '综合得分': 7}", {"7": 0.5, "10": 0.5})
    row = rows_of(method, config(file, distribution=True), SINGLE, judge)[0]
    assert judge.chosen[0].prefix.text == "评: {'甲': 1, '综合得分':"
    assert judge.chosen[0].labels[-1].spellings == (" 10}", "10}")
    assert row["expected"] == pytest.approx(8.5)


def test_the_distribution_is_read_at_the_label(file):
    judge = Judge(
        lambda text: "所以{'综合比较结果': '质量相当'}", {"助手1": 0.25, "质量相当": 0.75}
    )
    row = rows_of(method, config(file, mode="pairwise", distribution=True), PAIR, judge)[0]
    assert judge.chosen[0].prefix.text == "所以{'综合比较结果': '"
    assert row["prefer_a"] == pytest.approx(0.5)


@pytest.mark.parametrize("mode", ["pointwise", "pairwise"])
@pytest.mark.parametrize("reference", [None, True, False])
@pytest.mark.parametrize("given", [(), (True,), (False,), (True, False)])
def test_a_wording_that_may_be_needed_and_is_missing_is_named(tmp_path, mode, reference, given):
    names = {True: f"{mode}_reference_based", False: f"{mode}_reference_free"}
    other = "pairwise" if mode == "pointwise" else "pointwise"
    kept = {names[based]: WORDINGS[names[based]] for based in given}
    kept |= {name: text for name, text in WORDINGS.items() if name.startswith(other)}
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps(kept))
    wanted = {True, False} if reference is None else {reference}
    lacking = [names[based] for based in sorted(wanted - {*given})]
    if lacking:
        with pytest.raises(ValidationError, match=f"has no {', '.join(lacking)};"):
            config(str(path), mode=mode, reference=reference)
    else:
        assert config(str(path), mode=mode, reference=reference).mode == mode
