"""The judges' wordings are those that the glass-box paper prints, up to white space."""

import re

import pytest

from orchestrator.prompts.glass_box import FIRST_LINE, GPT, selfeval
from tests.conftest import SHARED

FIGURES = {
    3: GPT[1], 4: GPT[2], 5: FIRST_LINE[1], 6: FIRST_LINE[2], 7: selfeval(1), 8: selfeval(2),
}  # fmt: skip


def words(text: str) -> str:
    """The text without what its extraction changed: white space, escapes, underscores."""
    return re.sub(r"\s+", "", text.replace("\\", "").replace("_", " "))


@pytest.mark.parametrize("number", FIGURES)
def test_a_wording_is_that_of_its_figure(number):
    path = SHARED / "papers" / "glass_box_self_evaluation.txt"
    if not path.exists():
        pytest.skip("../shared is absent")
    paper = path.read_text(encoding="utf-8")
    printed = re.findall(rf"```\n([^`]*)```\s*Figure {number}:", paper)
    assert len(printed) == 1
    wording = FIGURES[number]
    found = wording.system + wording.user
    if number == 3:  # the text that we have lost this line
        assert found.count("{answer}\n") == 1
        found = found.replace("{answer}\n", "")
    assert words(found) == words(printed[0])


def test_every_field_of_a_wording_is_filled():
    one = {"question": "q", "answer": "a"}
    two = {"question_1": "q", "answer_1": "a", "question_2": "r", "answer_2": "b"}
    for number, wording in FIGURES.items():
        filled = "".join(wording.fill(two if number in {4, 6, 8} else one))
        assert not re.search(r"\{\w+\}", filled)


def test_more_turns_are_numbered_on():
    assert "# [Query 3]: {question_3}\n# ***\n# [Response 3]: {answer_3}\n" in selfeval(3).user
