import math

import pytest
from pydantic import ValidationError

from orchestrator.ask import Ask, ChooseAsk
from orchestrator.methods.padded_answers import (
    Config,
    PaddedAnswers,
    with_lists_twice,
)
from orchestrator.records import Choice, Generation, Item, Message, Unit
from tests.core.fakes import answered

LIST = "Three steps:\n1. wake\n2. eat\n3. work"
TWICE = f"{LIST}\n4. wake\n5. eat\n6. work"


class World:
    """A model that answers with a text, and a judge that prefers what has more lines."""

    def __init__(self, text, sure=0.8):
        self.text = text
        self.sure = sure
        self.shown = []

    def __call__(self, ask):
        if not isinstance(ask, ChooseAsk):
            return Generation(self.text, "stop")
        self.shown.append(ask.messages[-1].content)
        first, second = (part.count("\n") for part in self.shown[-1].split("||"))
        longer = [self.sure, 0.1, 0.1 - self.sure / 10, 0.05, 0.05]
        p = [x / sum(longer) for x in longer][:: 1 if first > second else -1]
        logs = tuple(math.log(x) for x in p)
        return Choice(logs, logs, "fake")


def rows_of(world, followups=(), **settings):
    prompt = "{{ answer_a }}||{{ answer_b }}[[>>]] [[>]] [[=]] [[<]] [[<<]]"
    config = Config(judges=("j",), judge_prompt=prompt, **settings)
    item = Item(key="k", messages=(Message("user", "q"),), followups=followups)
    return answered(PaddedAnswers(config).evaluate(Unit(item, ("m",), "j"), Ask()), world)


def test_a_judge_sees_the_answer_and_its_list_twice_in_both_orders():
    world = World(LIST)
    (row,) = rows_of(world)
    assert row["padded"] == TWICE
    assert [text.split("[[")[0] for text in world.shown] == [f"{TWICE}||{LIST}", f"{LIST}||{TWICE}"]
    assert row["verdict"] == 1.0
    assert row["prefer_padded"] == pytest.approx(row["prefer_padded_ab"])
    assert row["prefer_padded"] > 0.8


def test_an_answer_without_a_list_is_not_judged():
    world = World("No list.")
    (row,) = rows_of(world)
    assert world.shown == []
    assert (row["same_text"], row["prefer_padded"]) == (True, None)


@pytest.mark.parametrize(
    ("padding", "padded"), [("repeat", "x\n\nx"), ("{{ prompt }}? {{ answer }}!", "q? x!")]
)
def test_other_paddings(padding, padded):
    (row,) = rows_of(World("x"), padding=padding)
    assert row["padded"] == padded


def test_a_judge_is_led_by_examples_and_a_begun_reply():
    shown = {"prompt": "p", "reference": "", "answer_a": "a", "answer_b": "b"}
    examples = [{"shown": shown, "reply": "Better: A"}, {"shown": shown, "reply": "Better: B"}]
    leading = {"labels": "two", "prefix": "Better:", "system": "Be fair.", "examples": examples}
    config = Config(judges=("j",), padding="repeat", **leading)
    judged = []

    def world(ask):
        if not isinstance(ask, ChooseAsk):
            return Generation("x", "stop")
        judged.append(ask)
        logs = (math.log(0.7), math.log(0.2))
        return Choice(logs, logs, "fake")

    unit = Unit(Item(key="k", messages=(Message("user", "q"),)), ("m",), "j")
    answered(PaddedAnswers(config).evaluate(unit, Ask()), world)
    for ask in judged:
        roles = [message.role for message in ask.messages]
        assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
        assert [message.content for message in ask.messages[2:5:2]] == ["Better: A", "Better: B"]
        assert ask.prefix.text == "Better:"
        # Behind a reply that does not end with white space, labels may begin with a space.
        assert [label.spellings for label in ask.labels] == [("A", " A"), ("B", " B")]
    assert len(judged) == 2


def test_an_example_of_the_dataset_leaves_no_room_for_reasons():
    with pytest.raises(ValidationError, match="example_of_dataset and chain_of_thought exclude"):
        Config(judges=("j",), labels="two", example_of_dataset=True, chain_of_thought=True)


def test_an_example_must_fit_the_prompt():
    shown = {"prompt": "p", "reference": "", "answer_a": "a"}
    with pytest.raises(ValidationError, match="an example does not show answer_b"):
        Config(judges=("j",), labels="two", examples=[{"shown": shown, "reply": "A"}])


def test_earlier_turns_are_not_padded():
    world = World(LIST)
    rows_of(world, followups=("and then?",))
    first, second = world.shown[2].split("||")
    assert first.count("wake") == 3
    assert second.count("wake") == 2


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("- a\n- b\n\nEnd", "- a\n- b\n- a\n- b\n\nEnd"),
        ("2) a\n3) b", "2) a\n3) b\n4) a\n5) b"),
        ("1. a\n   more\n\n2. b\n\nEnd", "1. a\n   more\n\n2. b\n\n3. a\n   more\n\n4. b\n\nEnd"),
        ("* a\n  - c\n* b", "* a\n  - c\n* b\n* a\n  - c\n* b"),
        ("- a\n- b\nand\n1. c\n2. d", "- a\n- b\n- a\n- b\nand\n1. c\n2. d\n3. c\n4. d"),
    ],
)
def test_items_of_each_list_are_said_twice_and_counted_on(text, twice):
    assert with_lists_twice(text) == twice


@pytest.mark.parametrize("text", ["", "a\nb", "- alone", "1. a\nText\n2. b", "1.5 kg\n2.5 kg", "-"])
def test_what_is_no_list_stays(text):
    assert with_lists_twice(text) == text


def test_the_padding_is_checked_with_the_recipe():
    for padding, why in (("twice", "unknown prompt 'twice'"), ("{{ prompt }}", "does not show")):
        with pytest.raises(ValidationError, match=why):
            Config(judges=("j",), padding=padding)
