import math

import numpy as np
import pytest
from pydantic import ValidationError

from orchestrator.ask import Ask, ChooseAsk, GenerateAsk
from orchestrator.methods import probdiff
from orchestrator.methods.judged_rewrites import Config
from orchestrator.methods.judged_rewrites import Kind as JudgedRewrites
from orchestrator.records import Choice, Generation, Item, Message, Scored, Unit
from tests.core.fakes import answered

ITEM = Item(key="k", messages=(Message("user", "q1"),))
TWO_TURNS = Item(key="k", messages=(Message("user", "q1"),), followups=("q2",))
CONFIG = Config(judges=("j",), prompt="compact")


class World:
    """Answers "a1", "a2", …; rewrites to `last`; judges by which answer shows "xyzzy"."""

    def __init__(self, last):
        self.last = last
        self.asked = []

    def __call__(self, ask):
        self.asked.append(ask)
        if isinstance(ask, GenerateAsk):
            text = f"a{ask.turn}" if ask.turn else self.last
            return Generation(text, "stop", token_ids=np.array([1], np.int32))
        if isinstance(ask, ChooseAsk):
            shown = ask.messages[-1].content
            first = shown.index("xyzzy") < shown.index("a1") if "xyzzy" in shown else None
            p = [0.2] * 5 if first is None else [0.6, 0.2, 0.1, 0.06, 0.04][:: 1 if first else -1]
            logs = tuple(math.log(x) for x in p)
            return Choice(logs, logs, "fake")
        return Scored(np.array(ask.token_ids), np.array([-1.0], np.float32))


def rows_of(world, item=ITEM, config=CONFIG):
    return answered(JudgedRewrites(config).evaluate(Unit(item, ("m",), "j"), Ask()), world)


def test_both_orders_are_read_and_put_into_the_view_of_the_rewriting():
    (row,) = rows_of(World("xyzzy"))
    assert row["p_ab"] == pytest.approx(row["p_ba"])
    assert row["prefer_rewriting"] == pytest.approx(0.85)
    assert row["verdict"] == 1.0


def test_equal_texts_are_not_judged_and_count_as_the_same():
    world = World("a1")
    (row,) = rows_of(world)
    assert (row["verdict"], row["same_text"]) == (0.0, True)
    assert row["prefer_rewriting"] is None
    assert not any(isinstance(ask, ChooseAsk) for ask in world.asked)


def test_a_later_turn_is_judged_with_the_earlier_one_as_it_was():
    world = World("xyzzy")
    rows_of(world, TWO_TURNS)
    shown = [a.messages[-1].content for a in world.asked if isinstance(a, ChooseAsk)][2:]
    assert len(shown) == 2
    assert all("[Turn 1]\na1" in text for text in shown)
    assert "[Turn 2]\nxyzzy" in shown[0]


def test_answers_and_rewritings_are_those_of_probdiff_with_the_same_settings():
    ours, theirs = World("xyzzy"), World("xyzzy")
    rows_of(ours, TWO_TURNS)
    config = probdiff.Config(prompt="compact")
    answered(probdiff.Kind(config).evaluate(Unit(TWO_TURNS, ("m",)), Ask()), theirs)

    def drawn(world):
        return {ask.key(b"m", 0) for ask in world.asked if isinstance(ask, GenerateAsk)}

    assert drawn(ours) == drawn(theirs)


def test_the_plan_counts_the_rewritings_once_for_both_methods():
    theirs = {
        (s.name, s.model, s.draw)
        for s in probdiff.Kind(probdiff.Config(prompt="compact")).stages(("m",))
    }
    ours = [(s.name, s.model, s.draw) for s in JudgedRewrites(CONFIG).stages(("m",))]
    assert ours[0] in theirs
    assert [name for name, _, _ in ours] == ["rewritings", "judgments"]


def test_a_judge_that_is_shown_the_reference_needs_one():
    assert JudgedRewrites(Config(judges=("j",), judge_prompt="compact")).needs() == {"reference"}
    assert JudgedRewrites(CONFIG).needs() == frozenset()


def test_a_judges_prompt_that_hides_an_answer_is_refused():
    with pytest.raises(ValidationError, match="does not show answer_b"):
        Config(judges=("j",), judge_prompt="{{ answer_a }}")
