from orchestrator.ask import Ask
from orchestrator.methods._drawing import Drawing, converse, questions, replies
from orchestrator.records import Generation, Item, Message
from tests.core.fakes import answered

ITEM = Item(key="k", messages=(Message("user", "q1"),), followups=("q2",))


def answer(ask):
    return Generation(f"{ask.model}{ask.turn}", "stop")


def test_each_turn_shows_a_model_its_own_earlier_answers():
    turns = answered(converse(ITEM, ("a", "b"), Ask(), Drawing()), answer)
    second = turns[1][1]
    assert [message.content for message in second.messages] == ["q1", "b1", "q2"]
    assert second.answer.text == "b2"


def test_a_judge_sees_one_turn_as_it_is_and_several_numbered():
    turns = [pair[0] for pair in answered(converse(ITEM, ("a",), Ask(), Drawing()), answer)]
    assert (questions(turns[:1]), replies(turns[:1])) == ("q1", "a1")
    assert questions(turns) == "[Turn 1]\nq1\n\n[Turn 2]\nq2"
    assert replies(turns) == "[Turn 1]\na1\n\n[Turn 2]\na2"


def test_an_item_without_followups_is_one_turn():
    item = Item(key="k", messages=(Message("user", "q"),))
    assert len(answered(converse(item, ("a",), Ask(), Drawing()), answer)) == 1
