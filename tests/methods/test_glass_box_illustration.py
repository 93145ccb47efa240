"""In-context illustration: what stands before the conversation when an answer is read."""

import pytest
from pydantic import ValidationError

from orchestrator.methods import glass_box
from orchestrator.methods.glass_box import Config
from orchestrator.records import Item, Message, Unit
from tests.methods.glass_box_model import ITEM, Model, close, rows_of, values_of


@pytest.mark.parametrize("illustration", [True, "own"])
def test_an_illustration_is_the_items_own_question_and_reference(illustration):
    # Section 3.1: "we extend the prompt with the instruction and its reference".
    model = Model("ab")
    (row,) = rows_of(model, Config(illustration=illustration), Unit(ITEM, ("m",)))
    _, asked = model.scored()
    assert asked.messages == (
        Message("user", "q1"), Message("assistant", "right"), Message("user", "q1"),
    )  # fmt: skip
    assert (asked.token_ids, row["demonstration"]) == ((97, 98), "k")
    expected = values_of("entropy", asked.messages, 2).mean()
    assert row["illustrated_softmax_entropy"] == close(expected)


def test_an_illustrated_turn_comes_after_the_conversation_with_every_reference():
    item = Item(
        key="k",
        messages=(Message("system", "s"), Message("user", "q1")),
        followups=("q2",),
        reference="right 1",
        references=("right 1", "right 2"),
    )
    model = Model("a", "b")
    rows_of(model, Config(illustration="own"), Unit(item, ("m",)))
    shown = [ask.messages for ask in model.scored() if "right 1" in str(ask.messages)]
    first = (Message("user", "q1"), Message("assistant", "right 1"))
    second = (Message("user", "q2"), Message("assistant", "right 2"))
    said = (Message("user", "q1"), Message("assistant", "a"), Message("user", "q2"))
    system = (Message("system", "s"),)
    assert shown == [(*system, *first, Message("user", "q1")), (*system, *first, *second, *said)]


def test_a_turn_without_a_reference_is_not_illustrated():
    item = Item(key="k", messages=(Message("user", "q1"),), followups=("q2",), reference="r1")
    first, second = rows_of(Model("a", "b"), Config(illustration="own"), Unit(item, ("m",)))
    assert first["illustrated_mean_logprob"] is not None
    assert (second["illustrated_mean_logprob"], second["demonstration"]) == (None, None)
    assert second["mean_logprob"] is not None


def test_another_items_example_is_refused():
    with pytest.raises(ValidationError, match="was removed; own"):
        Config.model_validate({"illustration": "other"})


def test_an_illustration_needs_a_reference():
    assert glass_box.Kind(Config(illustration=True)).needs() == {"reference"}
