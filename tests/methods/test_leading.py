"""Aids that lead a judge to its labels: a begun reply, worked examples and a system prompt."""

import pytest
from pydantic import ValidationError

from orchestrator.ask import Ask, AskFailed, ChooseAsk, GenerateAsk
from orchestrator.backend import Capabilities
from orchestrator.methods import (
    judged_rewrites,
    pairwise_ranking,
    pairwise_scoring,
    pointwise,
    rubric,
)
from orchestrator.methods._judging import by_reasoning, examples_of
from orchestrator.methods._leading import continued
from orchestrator.records import Generation, Label, Unit, labels
from orchestrator.runner.models.identity import missing
from orchestrator.units import settings_of
from tests.core.fakes import answered, method_in
from tests.methods.judging import ITEM, choice, trace

FIVE = pairwise_ranking.LABELS["five"]
PAIR = {"prompt": "2 + 2?", "answer_a": "4", "answer_b": "5"}


def ranking(**given):
    return pairwise_ranking.Config(judges=("j",), **given)


@pytest.mark.parametrize(
    ("prefix", "first"),
    [
        ("", ("[[>>]]",)),
        ("My verdict: ", ("[[>>]]",)),
        ("My verdict: [", ("[>>]]",)),
        ("My verdict: [[", (">>]]",)),
    ],
)
def test_labels_go_on_from_what_the_reply_begins_with(prefix, first):
    found = continued(FIVE, prefix)
    assert found[0] == Label("[[>>]]", first)
    assert [label.name for label in found] == [label.name for label in FIVE]


def test_no_space_is_read_twice_behind_a_space():
    two = pairwise_ranking.LABELS["two"]
    assert [one.spellings for one in continued(two, "The better one is")] == [
        ("A", " A"),
        ("B", " B"),
    ]
    assert [one.spellings for one in continued(two, "The better one is ")] == [("A",), ("B",)]


def test_a_prefix_that_holds_the_label_is_refused():
    with pytest.raises(ValueError, match="leaves nothing of the label"):
        continued(labels("yes"), "I say yes")


@pytest.mark.parametrize("reasoned", [True, False])
def test_a_reply_of_two_scores_has_no_prefix(reasoned):
    with pytest.raises(ValidationError, match="prefix"):
        pairwise_scoring.Config(judges=("j",), prefix="Scores:", chain_of_thought=reasoned)


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ({"shown": PAIR, "reply": "A wins"}, "has no label"),
        ({"shown": {**PAIR, "colour": "red"}, "reply": "[[>]]"}, "unknown fields colour"),
        ({"shown": {"prompt": "2 + 2?"}, "reply": "[[>]]"}, "does not show answer_a and answer_b"),
    ],
)
def test_a_wrong_example_is_a_fault_of_the_recipe(example, said):
    with pytest.raises(ValidationError, match=said):
        ranking(examples=[example])


@pytest.mark.parametrize(
    "module", [pairwise_ranking, pairwise_scoring, pointwise, judged_rewrites, rubric]
)
def test_each_kind_of_judge_checks_its_examples(module):
    given = {"criteria": [{"name": "tone"}]} if module is rubric else {}
    example = {"shown": {"colour": "red"}, "reply": "[[>]]"}
    with pytest.raises(ValidationError, match="unknown fields colour"):
        module.Config(judges=("j",), examples=[example], **given)


def test_an_example_begins_as_the_reply_does():
    with pytest.raises(ValidationError, match="does not begin with 'Verdict: '"):
        ranking(prefix="Verdict: ", examples=[{"shown": PAIR, "reply": "[[>]]"}])


@pytest.mark.parametrize("module", [pairwise_ranking, pairwise_scoring, pointwise])
def test_unset_they_are_in_no_fingerprint(module):
    config = module.Config(judges=("j",))
    for name in ("prefix", "system", "examples"):
        assert name not in settings_of(config)
        assert name not in config.model_dump(mode="json")
    assert '"system":"Be fair."' in settings_of(module.Config(judges=("j",), system="Be fair."))


def test_what_is_written_is_read_again():
    config = ranking(
        prefix="My verdict: [[", examples=[{"shown": PAIR, "reply": "My verdict: [[>]]"}]
    )
    assert pairwise_ranking.Config.model_validate(config.model_dump(mode="json")) == config


def asked(module, answer, rows=None, **given):
    """The asks of a judge in one unit, each answered by a function of the ask; its rows too."""
    seen = []

    def respond(ask):
        if ask.model != "j":
            return Generation(f"says {ask.model}", "stop")
        seen.append(ask)
        return answer(ask)

    config = module.Config(judges=("j",), **given)
    models = ("a",) if module is pointwise else ("a", "b")
    found = answered(method_in(module)(config).evaluate(Unit(ITEM, models, "j"), Ask()), respond)
    if rows is not None:
        rows += found
    return seen


def test_a_judge_goes_on_from_its_begun_reply():
    first, second = asked(pairwise_ranking, lambda _: choice((1,) * 5), prefix="Verdict: [[")
    assert {one.prefix.text for one in (first, second)} == {"Verdict: [["}
    assert [one.spellings[0] for one in first.labels] == [">>]]", ">]]", "=]]", "<]]", "<<]]"]


def test_system_prompt_and_examples_stand_before_the_question():
    example = {"shown": {**PAIR, "reference": "4"}, "reply": "[[>>]]"}
    (first, _) = asked(
        pairwise_ranking, lambda _: choice((1,) * 5), system="Be fair.", examples=[example]
    )
    assert [one.role for one in first.messages] == ["system", "user", "assistant", "user"]
    assert first.messages[0].content == "Be fair."
    assert "2 + 2?" in first.messages[1].content
    assert first.messages[2].content == "[[>>]]"
    assert "says a" in first.messages[3].content


def test_they_stand_before_a_chain_of_thought_too():
    def judge(ask):
        return trace("Good. ", "[[", ">]]") if isinstance(ask, GenerateAsk) else choice((1,) * 5)

    asks = asked(pairwise_ranking, judge, system="Be fair.", chain_of_thought=True)
    assert {one.messages[0].content for one in asks} == {"Be fair."}


@pytest.mark.parametrize("finish_reason", ["stop", "length"])
def test_after_reasons_the_label_follows_the_prefix(finish_reason):
    def judge(ask):
        reasons = Generation("A is short. \n", finish_reason)
        return reasons if isinstance(ask, GenerateAsk) else choice((1,) * 5)

    asks = asked(pairwise_ranking, judge, prefix="Verdict: [[", chain_of_thought=True)
    read = [ask for ask in asks if isinstance(ask, ChooseAsk)]
    assert [ask.prefix.text for ask in read] == ["A is short.\n\nVerdict: [["] * 2
    assert read[0].labels[0].spellings == (">>]]",)


def test_a_verdict_among_the_reasons_is_said_again():
    def judge(ask):
        if isinstance(ask, GenerateAsk):
            return trace("Good. ", "Rating: ", "7")
        return choice((1,) * 9)

    asks = asked(pointwise, judge, prefix="Rating:", chain_of_thought=True)
    assert asks[-1].prefix.text == "Good. Rating: 7\n\nRating:"


def test_thinking_that_does_not_end_has_no_label():
    with pytest.raises(AskFailed, match="has no verdict; 1 of 1 were cut off"):
        asked(
            pointwise,
            lambda _: Generation("<think>It is", "length"),
            prefix="Rating:",
            chain_of_thought=True,
        )


def test_with_reasons_and_without_them_a_begun_reply_is_one_setting():
    plain, reasoned = (
        pairwise_ranking.Kind(ranking(prefix="Verdict: [[", chain_of_thought=flag))
        for flag in (False, True)
    )
    found = list(by_reasoning([reasoned, plain], lambda method: (method, "judge")))
    assert found == [(plain, reasoned)]


def test_an_example_with_reasons_holds_the_prefix():
    reply = "Five is wrong.\n\nVerdict: [[>>]]"
    example = {"shown": PAIR, "reply": reply}
    assert ranking(prefix="Verdict: ", examples=[example], chain_of_thought=True).examples
    with pytest.raises(ValidationError, match="does not hold 'It is: '"):
        ranking(prefix="It is: ", examples=[example], chain_of_thought=True)


def test_a_rating_goes_on_from_its_begun_reply():
    (ask,) = asked(pointwise, lambda _: choice((1,) * 9), prefix="Rating: [[", verdict="[[SCORE]]")
    assert ask.labels[0].spellings == ("1]]",)


def test_a_server_is_tried_with_the_begun_reply_after_reasons():
    config = ranking(prefix="My verdict: [[", chain_of_thought=True)
    (example,) = examples_of(config)
    assert example.prefix.text.endswith(".\n\nMy verdict: [[")
    assert example.labels[0].spellings == (">>]]",)


def test_a_server_is_tried_with_the_begun_reply():
    config = ranking(prefix="My verdict: [[")
    (stage,) = pairwise_ranking.Kind(config).stages(["a", "b"])
    (example,) = stage.examples
    assert isinstance(example, ChooseAsk)
    assert example.prefix.text == "My verdict: [["
    refused = missing(stage, Capabilities(choose="exact", choose_begun=False))
    assert refused
    assert missing(stage, Capabilities(choose="exact", choose_begun=True)) == ""
