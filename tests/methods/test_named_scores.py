import pytest

from orchestrator.methods._verdicts import slots_by_name
from orchestrator.records import Label, Prefix
from tests.methods.judging import trace

NINE = tuple(Label(str(n), (str(n), f" {n}")) for n in range(1, 10))
TEN = (*NINE, Label("10", ("10", " 10")))
LETTERS = tuple(Label(c, (c, f" {c}")) for c in "ABC")


def found(text, names=("accuracy",), labels=NINE, reason="stop"):
    """The label that stands at the place of each name."""
    written = trace(*text, reason=reason)
    slots = slots_by_name(written, names, [labels] * len(names))
    rest = [slot and written.text[len(slot[0].text) + len(slot[1]) :] for slot in slots]
    by_length = sorted((label.name for label in labels), key=len, reverse=True)
    return [text and next(name for name in by_length if text.startswith(name)) for text in rest]


@pytest.mark.parametrize(
    "text",
    [
        "accuracy: 7",
        "It is right.\nAccuracy: 7\n",
        "1. **Accuracy**: 7",
        '  "accuracy": 7,',
        "accuracy: 2\nOn reflection:\naccuracy: 7",
    ],
)
def test_a_line_with_the_name_has_the_verdict(text):
    assert found(text) == ["7"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the accuracy: 7",
        "accuracy 7",
        "accuracy: 7.5",
        "accuracy: 12",
        "accuracy: 7/9",
        "accuracy:\n7",
    ],
)
def test_other_text_has_none(text):
    assert found(text) == [None]


def test_each_criterion_has_its_place_and_the_tokens_before_it():
    text = trace("accuracy", ":", " 7", "\n", "tone", ":", " C")
    one, two = slots_by_name(text, ("accuracy", "tone"), [NINE, LETTERS])
    assert one == (Prefix("accuracy:", (0, 1)), " ")
    assert two is not None
    assert (two[0].text, two[1]) == ("accuracy: 7\ntone:", " ")


def test_a_criterion_that_is_left_out_is_none_and_the_others_are_found():
    assert found("tone: 3", ("accuracy", "tone")) == [None, "3"]


def test_a_label_at_the_end_of_a_text_that_was_cut_off_may_have_gone_on():
    assert found("accuracy: 1", labels=TEN, reason="length") == [None]
    assert found("accuracy: 1\n", labels=TEN, reason="length") == ["1"]


def test_thinking_is_passed_over():
    assert found("<think>accuracy: 2</think>\naccuracy: 7") == ["7"]
    assert found("<think>accuracy: 2") == [None]
