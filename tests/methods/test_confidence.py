import math

import numpy as np
import pytest
from pydantic import ValidationError

from orchestrator.ask import Ask, ChooseAsk, GenerateAsk, SimilarityAsk
from orchestrator.methods.confidence import Config
from orchestrator.methods.confidence import Kind as Confidence
from orchestrator.records import (
    Choice,
    Generation,
    Item,
    Message,
    PairScores,
    Scored,
    TopLogprobs,
    Unit,
)
from tests.core.fakes import answered

ITEM = Item(key="k", messages=(Message("user", "Which city?"),), reference="Paris")
TOP = np.log(np.array([[0.5, 0.25], [0.8, 0.1]], dtype=np.float32))


def top_of(listed=2):
    logprobs = TOP.copy()
    logprobs[:, listed:] = np.nan
    return TopLogprobs(np.zeros((2, 2), np.int32), logprobs)


class Model:
    """Draws given samples, finds answers true with 0.75, and knows which texts entail which."""

    def __init__(self, samples=(), *, raw=True, listed=2, entails=(), known=True):
        self.samples, self.raw, self.listed = samples, raw, listed
        self.entails, self.known = set(entails), known
        self.asked = []

    def __call__(self, ask):
        self.asked.append(ask)
        if isinstance(ask, GenerateAsk):
            text = "Paris" if ask.turn else self.samples[ask.repeat]
            # Sample n has the mean log-probability -(n + 1).
            logs = TOP[:, 0] if ask.turn else np.full(2, -1.0 - ask.repeat, np.float32)
            top = top_of(self.listed) if ask.top_logprobs else None
            return Generation(text, "stop", 3, 2, np.arange(2, dtype=np.int32), logs, top, self.raw)
        if isinstance(ask, ChooseAsk):
            return self.choose(ask)
        if isinstance(ask, SimilarityAsk):
            same = np.array([[one[0] == other[0] for other in ask.texts] for one in ask.texts])
            f1 = np.where(same, 0.95, 0.5).astype(np.float32)
            return PairScores(f1, f1, "e", 1, 0)
        return Scored(np.arange(2, dtype=np.int32), TOP[:, 0], top=top_of(self.listed))

    def choose(self, ask):
        logs: tuple[float, ...]
        if len(ask.labels) == 2:
            logs = (math.log(0.6), math.log(0.2))
        elif not self.known:
            logs = (math.nan,) * 3
        else:
            lines = ask.messages[0].content.splitlines()
            pair = tuple(line.partition(": ")[2] for line in lines if line.startswith("Possible"))
            logs = (-0.1, -3.0, -4.0) if pair in self.entails else (-4.0, -3.0, -0.1)
        return Choice(logs, logs, "x")

    def of(self, kind):
        return [ask for ask in self.asked if isinstance(ask, kind)]


def row_of(model, judge="", **settings):
    unit = Unit(ITEM, ("m",), judge=judge)
    settings = {"alternatives": 2, **settings}
    (row,) = answered(Confidence(Config(**settings)).evaluate(unit, Ask()), model)
    return row


def test_confidence_is_read_off_the_tokens_that_come_with_the_draw():
    model = Model()
    row = row_of(model, window=1, tail=1, vocabulary_size=4, p_true=None)
    first, second = -np.log([0.5 * 0.25, 0.8 * 0.1]) / 2
    assert row["token_confidence"] == pytest.approx((first + second) / 2)
    assert row["lowest_group_confidence"] == pytest.approx(min(first, second))
    assert row["bottom_group_confidence"] == pytest.approx(min(first, second))
    assert row["tail_confidence"] == pytest.approx(second)
    # The rest alike: 0.125 twice, 0.05 twice.
    rest = [[0.5, 0.25, 0.125, 0.125], [0.8, 0.1, 0.05, 0.05]]
    expected = -np.log(4 * np.array(rest)).mean()
    assert row["self_certainty_low"] == pytest.approx(expected, rel=1e-4)
    assert (row["n_tokens"], row["n_short"], row["p_true"]) == (2, 0, None)
    assert [type(ask) for ask in model.asked] == [GenerateAsk]


def test_positions_that_list_fewer_tokens_are_counted():
    row = row_of(Model(listed=1), p_true=None)
    assert row["n_short"] == 2
    assert row["token_confidence"] == pytest.approx(-np.log([0.5, 0.8]).mean())


def test_probabilities_after_sampling_settings_are_not_used():
    row = row_of(Model(raw=False), p_true=None)
    assert row["token_confidence"] is None
    assert "temperature 1" in row["undefined"]


def test_p_true_is_the_share_of_true_among_both():
    model = Model()
    row = row_of(model)
    assert row["p_true"] == pytest.approx(0.75)
    assert row["p_true_coverage"] == pytest.approx(0.8)
    (asked,) = model.of(ChooseAsk)
    assert asked.messages[0].content.startswith(
        "Question: Which city?\nProposed Answer: Paris\nIs the proposed answer:\n (A) True\n (B)"
    )


def test_the_reply_may_be_begun_as_in_the_paper():
    model = Model()
    row_of(model, p_true_prefix="The proposed answer is: (")
    assert [ask.prefix.text for ask in model.of(ChooseAsk)] == ["The proposed answer is: ("]


def test_samples_mean_the_same_where_each_entails_the_other():
    same = {("It is Paris.", "Paris"), ("Paris", "It is Paris."), ("Paris", "Rome")}
    model = Model(("Paris", "Rome", "It is Paris.", "Paris"), entails=same)
    row = row_of(model, p_true=None, samples={"n": 4})
    assert (row["n_meanings"], row["n_samples"]) == (2, 4)
    assert row["discrete_semantic_entropy"] == pytest.approx(
        -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    )
    p = np.exp(-np.arange(1.0, 5))
    rome = p[1] / p.sum()
    assert row["semantic_entropy"] == pytest.approx(
        -(rome * math.log(rome) + (1 - rome) * math.log(1 - rome))
    )
    assert row["predictive_entropy"] == pytest.approx(2.5)
    # Rome against Paris, the third against both; equal texts need no request.
    assert len(model.of(ChooseAsk)) == 6


def test_a_sample_is_compared_with_the_first_of_each_meaning():
    # c is like b and not like a; d is like c alone, which is no first.
    same = {("b", "c"), ("c", "b"), ("c", "d"), ("d", "c")}
    row = row_of(Model(("a", "b", "c", "d"), entails=same), p_true=None, samples={"n": 4})
    assert row["n_meanings"] == 3


def test_another_model_may_judge_entailment():
    model = Model(("a", "b"))
    row_of(model, "judge", p_true=None, samples={"n": 2}, entailment_by="judge")
    assert {ask.model for ask in model.of(ChooseAsk)} == {"judge"}
    assert Confidence(Config(samples={"n": 2}, entailment_by="judge")).judges == ("judge",)


def test_entailment_that_is_not_known_leaves_meanings_undefined():
    row = row_of(Model(("a", "b"), known=False), p_true=None, samples={"n": 2})
    assert row["undefined"] == "the entailment of two samples is not known"
    assert row["semantic_entropy"] is None
    assert row["n_meanings"] is None
    assert row["predictive_entropy"] is not None


def test_meanings_may_be_told_by_the_text():
    model = Model(("New York", "new  york ", "York"))
    assert row_of(model, samples={"n": 3, "meaning": "text"})["n_meanings"] == 2


def test_samples_without_raw_probabilities_have_a_discrete_entropy_only():
    row = row_of(Model(("a", "b"), raw=False), samples={"n": 2, "meaning": "text"})
    assert row["semantic_entropy"] is None
    assert row["discrete_semantic_entropy"] == pytest.approx(math.log(2))


def test_an_empty_answer_has_no_confidence_and_asks_for_nothing_more():
    def model(_):
        return Generation(" ", "stop", 3, 0, np.zeros(0, np.int32), np.zeros(0, np.float32))

    row = row_of(model)
    assert (row["undefined"], row["p_true"]) == ("empty answer", None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"entailment_by": "j"}, "needs samples"),
        ({"alternatives": 0, "p_true": None}, "nothing to compute"),
    ],
)
def test_settings_that_contradict_are_refused(settings, words):
    with pytest.raises(ValidationError, match=words):
        Config(**settings)


def test_scores_are_those_that_the_settings_fill():
    found = Confidence(Config(vocabulary_size=9, samples={"n": 2})).scores
    assert found["self_certainty_low"] == found["token_confidence"] == found["p_true"] == 1
    assert found["semantic_entropy"] == -1
    assert "self_certainty_low" not in Confidence(Config()).scores
    assert set(Confidence(Config(alternatives=0)).scores) == {"p_true"}
