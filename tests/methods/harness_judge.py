"""A judge that answers from rules, for tests of methods that read verdicts."""

import math

from orchestrator.ask import Ask, ChooseAsk, GenerateAsk
from orchestrator.records import Choice, Failure, Generation, Item, Message, Unit
from tests.core.fakes import answered, method_in

ITEM = Item(
    key="k",
    messages=(Message("user", "What is 2+2?"),),
    followups=("And 3+3?",),
    reference="4",
    references=("4", "6"),
    category="math",
)
ONE_TURN = Item(key="k", messages=(Message("user", "Hello?"),), category="writing")
SINGLE = Unit(ITEM, ("a",), "judge")
PAIR = Unit(ITEM, ("a", "b"), "judge")


class Judge:
    """Answers candidates by name and turn, and judgments by `say`; remembers what it was asked.

    Args:
        say: The judge's text for the user's turn of a prompt.
        mass: Probability of each label by its name; the rest shares what is left evenly.
    """

    def __init__(self, say, mass=None):
        self.say = say
        self.mass = mass or {}
        self.judged = []
        self.chosen = []

    def __call__(self, ask):
        if isinstance(ask, ChooseAsk):
            self.chosen.append(ask)
            logprobs = tuple(
                math.log(self.mass[label.name]) if label.name in self.mass else -math.inf
                for label in ask.labels
            )
            return Choice(logprobs, logprobs, "fake")
        assert isinstance(ask, GenerateAsk)
        if ask.turn:
            return Generation(f"{ask.model} says {ask.turn}", "stop")
        self.judged.append(ask)
        said = self.say(ask.messages[-1].content)
        return said if isinstance(said, (Generation, Failure)) else Generation(said, "stop")


def rows_of(method, config, unit, judge):
    of = method if isinstance(method, type) else method_in(method)
    return answered(of(config).evaluate(unit, Ask()), judge)
