import numpy as np
import pytest

from orchestrator.ask import Ask, SimilarityAsk
from orchestrator.methods import answers
from orchestrator.methods._drawing import AnswersConfig
from orchestrator.methods.consistency import Config
from orchestrator.methods.consistency import Kind as Consistency
from orchestrator.records import Generation, Item, Message, PairScores, Unit
from tests.core.fakes import answered

ITEM = Item(key="k", messages=(Message("user", "q1"),), followups=("q2",))


class Model:
    def __init__(self, *texts):
        self.texts = list(texts)
        self.asked = []

    def __call__(self, ask):
        self.asked.append(ask)
        if isinstance(ask, SimilarityAsk):
            one = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.1], [0.2, 0.1, 1.0]], np.float32)
            return PairScores(one, one, "fake", 0)
        return Generation(self.texts.pop(0), "stop")


def rows_of(model, config, judge=""):
    return answered(Consistency(config).evaluate(Unit(ITEM, ("m",), judge), Ask()), model)


def test_it_asks_again_in_the_same_conversation_and_compares_with_the_first_answer():
    model = Model("a b", "a b ", "a c")
    rows = rows_of(model, Config())
    assert [m.content for m in model.asked[-1].messages] == [
        "q1", "a b", "Answer this question again.", "a b ", "Answer this question again.",
    ]  # fmt: skip
    assert [(row["again"], row["exact_match"], row["token_f1"]) for row in rows] == [
        (1, True, 1.0),
        (2, False, 0.5),
    ]


def test_similarity_is_that_of_the_first_answer_and_each_other():
    config = Config(similarity={"kind": "rouge_l"})
    rows = rows_of(Model("a", "b", "c"), config, "rouge_l:words")
    assert [row["similarity"] for row in rows] == pytest.approx([0.5, 0.2])


def test_without_an_encoder_nothing_is_compared_but_words():
    config = Config()
    (row, _) = rows_of(Model("a", "b", "c"), config)
    assert row["similarity"] is None
    assert Consistency(config).comparers() == {}
    assert Consistency(config).combinations(("m",))[0].judge == ""


def test_the_first_answer_is_that_of_other_methods():
    ours, theirs = Model("a", "b", "c"), Model("a", "b")
    config = Config(answer={"temperature": 1.0})
    rows_of(ours, config)
    answered(
        answers.Kind(AnswersConfig(answer=config.answer)).evaluate(Unit(ITEM, ("m",)), Ask()),
        theirs,
    )
    assert ours.asked[0] == theirs.asked[0]


def test_the_plan_has_as_many_requests_as_are_sent():
    config = Config(times=3)
    model = Model(*"abcd")
    rows_of(model, config)
    (stage,) = Consistency(config).stages(("m",))
    assert stage.per_item == len(model.asked) - 1
