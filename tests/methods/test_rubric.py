"""The method `rubric`: what is asked, what is read, and what is missing."""

import math

import msgspec
import pytest
from pydantic import ValidationError

from orchestrator.ask import Ask, AskFailed, ChooseAsk
from orchestrator.contracts.rows import RowContract
from orchestrator.methods.rubric import Config
from orchestrator.methods.rubric import Kind as Rubric
from orchestrator.records import Choice, Generation, Item, Message, Unit
from tests.core.fakes import answered
from tests.methods.judging import ITEM, choice, trace

UNIT = Unit(ITEM, ("m",), "j")
TWO = [{"name": "accuracy", "weight": 3, "scale": [0, 2]}, {"name": "tone", "scale": "A-C"}]
LISTED = msgspec.structs.replace(ITEM, fields={"checklist": ["Is it short?", "Is it right?"]})


def config(**given):
    return Config(judges=("j",), **{"criteria": TWO, **given})


def rows(settings, respond, unit=UNIT):
    method = Rubric(settings)
    found = answered(method.evaluate(unit, Ask()), respond)
    return RowContract("rubric", method).check(found, unit)


def judge(weights, seen=None):
    """Answers by the name of a criterion that the prompt or the begun reply ends with."""

    def respond(ask):
        if not isinstance(ask, ChooseAsk):
            return Generation("answer", "stop")
        if seen is not None:
            seen.append(ask)
        begun = ask.prefix.text or ask.messages[-1].content.split("[Criterion]")[1]
        name = min((n for n in weights if n in begun), key=lambda n: -begun.rfind(n))
        return choice(*weights[name]) if isinstance(weights[name], tuple) else choice(weights[name])

    return respond


def test_the_score_is_the_weighted_mean_of_expectations():
    seen: list[ChooseAsk] = []
    (row,) = rows(config(), judge({"accuracy": ([0, 1, 1], 0.8), "tone": [1, 0, 0]}, seen))
    assert row["criteria"] == ["accuracy", "tone"]
    assert row["weights"] == pytest.approx([0.75, 0.25])
    assert row["criteria_mean"] == pytest.approx([75.0, 0.0])
    assert row["criteria_std"] == pytest.approx([25.0, 0.0])
    assert row["criteria_p"] == pytest.approx([0, 0.5, 0.5, 1, 0, 0])
    assert row["mean"] == pytest.approx(0.75 * 75.0)
    assert row["std"] == row["std_high"] == pytest.approx(0.75 * 25.0)
    assert row["criteria_coverage"] == pytest.approx([0.8, 1.0])
    assert row["coverage"] == pytest.approx(0.8)
    assert sum(n * p for n, p in enumerate(row["p"])) == pytest.approx(row["mean"])
    assert [label.name for label in seen[1].labels] == ["A", "B", "C"]
    assert "from 0 (worst) to 2 (best)" in seen[0].messages[-1].content
    assert "one of A, B, C, from A (worst) to C (best)" in seen[1].messages[-1].content


def test_the_best_letter_may_be_the_first():
    (row,) = rows(config(criteria=[{"name": "tone"}], scale="C-A"), judge({"tone": [0, 0, 1]}))
    assert row["mean"] == pytest.approx(100.0)
    labels = config(criteria=[{"name": "tone"}], scale="T-A").asked()[0].labels
    assert (len(labels), labels[0].name, labels[-1].name) == (20, "T", "A")


def test_questions_of_the_item_share_the_weight_of_the_checklist():
    settings = config(criteria=[{"name": "tone", "scale": [0, 1]}], checklist={"weight": 3})
    weights = {"tone": [1, 0], "short": [1, 0], "right": [0, 1]}
    (row,) = rows(settings, judge(weights), Unit(LISTED, ("m",), "j"))
    assert row["criteria"] == ["tone", "Is it short?", "Is it right?"]
    assert row["weights"] == pytest.approx([0.25, 0.375, 0.375])
    assert row["mean"] == pytest.approx(37.5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "has no list of questions"),
        (3, "has no list of questions"),
        ([1], "has no list of questions"),
        ([], "is empty"),
        ([" "], "is empty"),
        ([f"{n}?" for n in range(21)], "21 questions"),
        (["a?", "a?"], "twice"),
    ],
)
def test_an_item_with_a_bad_checklist_fails(given, said):
    item = msgspec.structs.replace(ITEM, fields={"checklist": given})
    with pytest.raises(AskFailed, match=said) as failed:
        rows(config(criteria=(), checklist={}), judge({}), Unit(item, ("m",), "j"))
    assert failed.value.failure.permanent


def test_a_text_holds_a_question_on_each_line():
    item = msgspec.structs.replace(ITEM, fields={"asked": "Is it short?\n\nIs it right?\n"})
    settings = config(criteria=(), checklist={"column": "asked"})
    (row,) = rows(settings, judge({"short": [0, 1], "right": [1, 0]}), Unit(item, ("m",), "j"))
    assert row["criteria_mean"] == pytest.approx([100.0, 0.0])


def test_a_criterion_without_mass_is_missing_and_so_is_the_score():
    def respond(ask):
        if isinstance(ask, ChooseAsk) and "tone" in ask.messages[-1].content:
            return Choice((-math.inf,) * 3, (-math.inf,) * 3, "made")
        return judge({"accuracy": [0, 0, 1]})(ask)

    (row,) = rows(config(), respond)
    assert (row["status"], row["cause"]) == ("failed", "missing_criterion")
    assert "1 of 2 criteria: tone" in row["message"]
    assert row.get("mean") is None
    assert row["criteria_mean"] == [pytest.approx(100.0), None]
    assert row["criteria_p"][3:] == [None] * 3
    assert (row["mean_low"], row["mean_high"]) == pytest.approx((75.0, 100.0))


def test_together_each_is_read_behind_the_likeliest_label_of_those_before():
    seen: list[ChooseAsk] = []
    (row,) = rows(config(together=True), judge({"accuracy": [1, 3, 0], "tone": [0, 0, 1]}, seen))
    assert [ask.prefix.text for ask in seen] == ["accuracy:", "accuracy: 1\ntone:"]
    assert len({ask.messages for ask in seen}) == 1
    text = seen[0].messages[-1].content
    assert "accuracy (reply with an integer score from 0 (worst) to 2 (best))" in text
    assert row["mean"] == pytest.approx(0.75 * 37.5 + 25.0)


def test_together_nothing_is_read_behind_a_missing_verdict():
    seen: list[ChooseAsk] = []

    def respond(ask):
        if not isinstance(ask, ChooseAsk):
            return Generation("answer", "stop")
        seen.append(ask)
        return Choice((-math.inf,) * 3, (-math.inf,) * 3, "made")

    (row,) = rows(config(together=True), respond)
    assert (len(seen), row["n_missing"], row["status"]) == (1, 2, "failed")


def repeated(texts, weights, seen=None):
    def respond(ask):
        if isinstance(ask, ChooseAsk):
            if seen is not None:
                seen.append(ask)
            return weights(ask)
        return texts[ask.repeat] if ask.model == "j" else Generation("answer", "stop")

    return respond


REASONED = {
    "together": True,
    "chain_of_thought": True,
    "traces": 2,
    "reasoning": {"temperature": 1.0},
}


def test_replies_are_located_read_and_averaged_with_their_dependence():
    texts = [
        trace("good.", "\n", "accuracy:", " 2", "\n", "tone:", " C"),
        trace("bad.", "\n", "accuracy:", " 0", "\n", "tone:", " A"),
    ]

    def weights(ask):
        return choice([0, 0, 1] if ask.prefix.text.startswith("good") else [1, 0, 0])

    seen: list[ChooseAsk] = []
    (row,) = rows(config(**REASONED), repeated(texts, weights, seen))
    assert "good.\naccuracy: 2\ntone:" in [ask.prefix.text for ask in seen]
    assert (row["n_traces"], row["n_silent"]) == (2, 0)
    assert row["mean"] == pytest.approx(50.0)
    # Both criteria move together from reply to reply: no smaller than either's spread.
    assert row["std"] == row["std_high"] == pytest.approx(50.0)
    assert (row["p"][0], row["p"][100]) == pytest.approx((0.5, 0.5))


def test_a_reply_counts_if_it_has_every_criterion():
    texts = [trace("accuracy: 2\ntone: C"), trace("accuracy: 0")]

    def weights(ask):
        return choice([0, 0, 1] if "accuracy: 2" in ask.prefix.text + "accuracy: 2" else [1, 0, 0])

    (row,) = rows(config(**REASONED), repeated(texts, weights))
    assert (row["status"], row["mean"], row["n_silent"]) == ("ok", 100.0, 1)


def test_repeats_of_single_criteria_are_averaged_and_silent_ones_counted():
    texts = [trace("fine. ", "2"), trace("no idea")]
    settings = config(
        criteria=TWO[:1], chain_of_thought=True, traces=2, reasoning={"temperature": 1.0}
    )
    (row,) = rows(settings, repeated(texts, lambda _: choice([0, 1, 1])))
    assert (row["n_traces"], row["n_silent"], row["mean"]) == (2, 1, pytest.approx(75.0))


def test_each_turn_has_a_row():
    item = Item(key="k", messages=(Message("user", "q"),), followups=("more",))
    found = rows(
        config(), judge({"accuracy": [0, 0, 1], "tone": [0, 1, 0]}), Unit(item, ("m",), "j")
    )
    assert [row["turn"] for row in found] == [1, 2]
    assert found[1]["mean"] == pytest.approx(87.5)


def test_the_plan_bounds_the_requests():
    settings = config(checklist={"most": 4})
    (stage,) = Rubric(settings).stages(("m", "n"))
    assert (stage.name, stage.per_item, stage.exact) == ("judgments", 12, False)
    assert len(stage.examples) == 3
    reasoned = Rubric(config(**REASONED)).stages(("m",))
    assert [(one.name, one.per_item) for one in reasoned] == [("reasoning", 2), ("judgments", 4)]


def test_the_named_prompts_need_no_reference():
    assert Rubric(config()).needs() == frozenset()
    assert Rubric(config(together=True)).needs() == frozenset()
    shown = "{{ answer }} {{ criterion }} {{ scale }} {{ reference }}"
    assert Rubric(config(prompt=shown)).needs() == {"reference"}


def test_a_prompt_may_name_the_ends_of_the_scale():
    seen: list[ChooseAsk] = []
    shown = "{{ answer }} [Criterion] {{ criterion }}: {{ low }} to {{ high }}"
    rows(config(prompt=shown), judge({"accuracy": [0, 0, 1], "tone": [1, 0, 0]}, seen))
    ends = [ask.messages[-1].content.partition("[Criterion] ")[2] for ask in seen]
    assert ends == ["accuracy: 0 to 2", "tone: A to C"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"criteria": ()}, "give criteria, or a checklist"),
        ({"criteria": [{"name": "a"}, {"name": "A"}]}, "the same name"),
        ({"criteria": [{"name": "a:b"}]}, "name"),
        ({"criteria": [{"name": "Question 1"}], "checklist": {}}, "stand for questions"),
        ({"criteria": [{"name": "a", "weight": 0}]}, "weight"),
        ({"scale": "A-A"}, "two different"),
        ({"scale": [3, 3]}, "from a lower to a higher"),
        (
            {"scale": "A-C", "labels": [{"name": "x", "value": 1}, {"name": "y", "value": 2}]},
            "exclude",
        ),
        ({"together": True, "prefix": "x"}, "exclude each other"),
        ({"prompt": "{{ answer }}"}, "neither criterion nor description"),
        ({"prompt": "{{ answer }} {{ criterion }}", "together": True}, "does not show criteria"),
        ({"prompt": "{{ answer }} {{ criterion }}"}, "shows none of the labels"),
        ({"traces": 2}, "need chain_of_thought"),
    ],
)
def test_settings_that_can_not_work_are_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        config(**given)
