import json

import pytest
from pydantic import ValidationError

from orchestrator.ask import AskFailed
from orchestrator.methods import align_bench as method
from orchestrator.records import Item, Message, Unit
from tests.methods.harness_judge import Judge, rows_of

ITEM = Item(
    key="k",
    messages=(Message("user", "问题"),),
    reference="参考",
    category="数学计算",
    fields={"subcategory": "应用题"},
)
UNIT = Unit(ITEM, ("a",), "judge")
# The form of judge.py: the template is assigned inside a function.
FILE = """
def prompt_construct(sample):
    base_prompt = "{category} 维度\\n{dimensions}" \\
        "例如 {{'甲': 9, '综合得分': 7}}。{question} {reference} {answer}"
"""


@pytest.fixture
def settings(tmp_path):
    """Prompt and dimensions, as they stand in AlignBench's repository."""
    (tmp_path / "judge.py").write_text(FILE)
    folder = tmp_path / "config"
    folder.mkdir()
    for name, content in {
        "subcategory_question_mapping.json": {"应用题": "逻辑推理型回答"},
        "dimension_set.json": {"逻辑推理型回答": ["甲", "乙"]},
        "dimension_definition.json": {"甲": "定义", "乙": "也"},
    }.items():
        (folder / name).write_text(json.dumps(content))
    return {
        "judges": ["judge"],
        "prompts": str(tmp_path / "judge.py"),
        "dimensions": str(folder),
    }


def rows(settings, said, unit=UNIT):
    judge = Judge(lambda text: said)
    found = rows_of(method, method.Config.model_validate(settings), unit, judge)
    return found[0], judge


def test_the_prompt_shows_the_dimensions_of_the_questions_type(settings):
    _, judge = rows(settings, "{'综合得分': 7}")
    assert judge.judged[0].messages[-1].content == (
        "数学计算 维度\n1. 甲: 定义\n2. 乙: 也\n例如 {'甲': 9, '综合得分': 7}。问题 参考 a says 1"
    )


def test_scores_by_dimension_stand_beside_the_rating(settings):
    row, _ = rows(settings, "{'甲': 6, '乙': 7.5, '综合得分': 6.5}")
    assert row["rating"] == 6.5
    assert json.loads(row["dimensions"]) == {"甲": 6.0, "乙": 7.5}


def test_its_own_convention_counts_minus_one_and_cuts(settings):
    settings["convention"] = "align_bench"
    row, _ = rows(settings, "nothing")
    assert (row["rating"], row["parsed"], row["status"]) == (-1.0, False, "ok")
    assert rows(settings, "{'综合得分': 6.5}")[0]["rating"] == 6.0


def test_a_subcategory_without_dimensions_is_a_failure(settings):
    other = Unit(Item(key="k", messages=ITEM.messages, reference="r", category="?"), ("a",), "j")
    with pytest.raises(AskFailed, match=r"no dimensions for subcategory '\?'"):
        rows(settings, "", other)


def test_a_template_that_shows_dimensions_needs_them(settings):
    del settings["dimensions"]
    with pytest.raises(ValidationError, match="set `dimensions: AlignBench/config`"):
        method.Config.model_validate(settings)


def test_settings_load_again_without_the_files(settings):
    made = method.Config.model_validate(settings)
    assert method.Config.model_validate(made.model_dump(mode="json")) == made


def test_the_bundled_judge_gives_a_rating_without_dimensions():
    row, _ = rows({"judges": ["judge"], "prompts": "compact"}, "8")
    assert (row["rating"], row["dimensions"]) == (8.0, None)
