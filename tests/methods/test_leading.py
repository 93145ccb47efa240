"""Aids that lead a judge to its labels: a begun reply, worked examples and a system prompt."""

import math

import pytest
from pydantic import ValidationError

from orchestrator.ask import Ask, AskFailed, ChooseAsk, GenerateAsk
from orchestrator.backend import Capabilities
from orchestrator.methods import pairwise_ranking, pairwise_scoring, pointwise
from orchestrator.methods._leading import continued
from orchestrator.records import Choice, Generation, Item, Label, Message, Row, Unit, labels
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


def test_a_difference_of_scores_has_no_prefix_behind_reasons():
    with pytest.raises(ValidationError, match="prefix and chain_of_thought exclude each other"):
        pairwise_scoring.Config(judges=("j",), prefix="Scores:", chain_of_thought=True)


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


def test_an_example_begins_as_the_reply_does():
    with pytest.raises(ValidationError, match="does not begin with 'Verdict: '"):
        ranking(prefix="Verdict: ", examples=[{"shown": PAIR, "reply": "[[>]]"}])


@pytest.mark.parametrize("module", [pairwise_ranking, pairwise_scoring])
def test_labelled_examples_are_in_a_fingerprint_only_where_set(module):
    assert "labelled_examples" not in settings_of(module.Config(judges=("j",)))
    assert "labelled_examples" in settings_of(
        module.Config(judges=("j",), labelled_examples=LABELLED)
    )


@pytest.mark.parametrize("module", [pairwise_ranking, pairwise_scoring, pointwise])
def test_unset_they_are_in_no_fingerprint(module):
    config = module.Config(judges=("j",))
    for name in ("prefix", "system", "examples", "example_of_dataset"):
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


def test_a_second_score_is_read_behind_the_prefix_and_the_first():
    asks = asked(pairwise_scoring, lambda ask: choice((0,) * (len(ask.labels) - 1) + (1,)),
                 prefix="Scores: ")  # fmt: skip
    assert [ask.prefix.text for ask in asks] == ["Scores: "] * 2 + ["Scores: 9"] * 2
    assert asks[0].labels[0].spellings == ("1",)


@pytest.mark.parametrize(("spelling", "begun"), [(" 9", "Scores: 9"), ("9", "Scores:9")])
def test_a_second_score_is_read_behind_the_first_as_the_judge_would_write_it(spelling, begun):
    def judge(ask):
        spelled = [form for label in ask.labels for form in label.spellings]
        assert len(spelled) == len(ask.labels), "each spelling is read by itself"
        return choice([8 if form == spelling else 0.1 for form in spelled])

    asks = asked(pairwise_scoring, judge, prefix="Scores:")
    assert [ask.prefix.text for ask in asks] == ["Scores:"] * 2 + [begun] * 2


def test_the_spellings_of_a_first_score_are_summed():
    def judge(ask):
        if len(ask.labels) == 9:
            return choice((1,) * 9)
        # 9 is the likeliest single spelling, and 5 the likeliest score.
        weights = {"9": 4, " 5": 3, "5": 3}
        return choice([weights.get(label.name, 0) for label in ask.labels], coverage=0.8)

    rows: list[Row] = []
    asks = asked(pairwise_scoring, judge, rows, prefix="Scores:")
    assert [ask.prefix.text for ask in asks[2:]] == ["Scores:5"] * 2
    assert rows[0]["p_first_ab"] == pytest.approx([0, 0, 0, 0, 0.6, 0, 0, 0, 0.4])
    assert rows[0]["coverage_ab"] == pytest.approx(0.8)


def test_a_spelling_that_is_not_listed_counts_for_the_bound_alone():
    def judge(ask):
        if len(ask.labels) == 9:
            return choice((1,) * 9)
        listed = {" 7": math.log(0.6), " 3": math.log(0.3)}
        known = [listed.get(label.name, math.nan) for label in ask.labels]
        return Choice(tuple(known), tuple(-5.0 if x != x else x for x in known), "made")

    rows: list[Row] = []
    asks = asked(pairwise_scoring, judge, rows, prefix="Scores:")
    assert [ask.prefix.text for ask in asks[2:]] == ["Scores: 7"] * 2
    assert rows[0]["p_first_ab"][6] == pytest.approx(2 / 3)
    assert rows[0]["exact"] is False


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
        pairwise_ranking.PairwiseRanking(ranking(prefix="Verdict: [[", chain_of_thought=flag))
        for flag in (False, True)
    )
    assert plain.differs_in_reasoning(reasoned)


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
    (example,) = pairwise_ranking.examples_of("j", config)
    assert example.prefix.text.endswith(".\n\nMy verdict: [[")
    assert example.labels[0].spellings == (">>]]",)


def test_a_server_is_tried_with_the_begun_reply():
    config = ranking(prefix="My verdict: [[")
    (stage,) = pairwise_ranking.PairwiseRanking(config).stages(["a", "b"])
    (example,) = stage.examples
    assert isinstance(example, ChooseAsk)
    assert example.prefix.text == "My verdict: [["
    refused = missing(stage, Capabilities(choose="exact", choose_begun=False))
    assert refused
    assert missing(stage, Capabilities(choose="exact", choose_begun=True)) == ""


OTHER = Item(key="o", messages=(Message("user", "Capital of France?"),), reference="Paris")


def demonstrated(module, n_labels, **given):
    """The first ask of a judge that is shown another item."""
    seen = []

    def respond(ask):
        if ask.model != "j":
            return Generation(f"says {ask.model}", "stop")
        seen.append(ask)
        return choice((1,) * n_labels)

    config = module.Config(judges=("j",), example_of_dataset=True, **given)
    models = ("a",) if module is pointwise else ("a", "b")
    method = method_in(module)(config)
    assert method.demonstrates
    answered(method.evaluate(Unit(ITEM, models, "j", OTHER), Ask()), respond)
    return seen[0]


@pytest.mark.parametrize(
    ("module", "n_labels", "given", "replies"),
    [
        (
            pairwise_ranking,
            5,
            {"prefix": "My verdict: [["},
            ["My verdict: [[>>]]", "My verdict: [[<<]]"],
        ),
        (pairwise_ranking, 2, {"labels": "two", "prefix": "It is"}, ["It is A", "It is B"]),
        (pairwise_scoring, 9, {}, ["9 1", "1 9"]),
        (pointwise, 9, {"verdict": "[[SCORE]]"}, ["[[9]]", "[[1]]"]),
    ],
)
def test_another_item_is_shown_with_its_reference_as_the_best(module, n_labels, given, replies):
    messages = demonstrated(module, n_labels, **given).messages
    assert [one.role for one in messages] == ["user", "assistant"] * 2 + ["user"]
    assert [one.content for one in messages if one.role == "assistant"] == replies
    assert all(
        "Paris" in one.content for one in (messages[0], messages[2]) if module is not pointwise
    )
    assert "Paris" in messages[0].content
    assert "I don't know." in messages[2].content
    assert "Paris" not in messages[-1].content


LABELLED = {"answer_a": "one", "answer_b": "two", "winner": "better"}


def labelled(key, winner, **more):
    fields = {"one": f"first of {key}", "two": f"second of {key}", "better": winner}
    return Item(key=key, messages=(Message("user", f"Question {key}?"),), fields=fields, **more)


def judged_with(others, module=pairwise_ranking, n_labels=5, **given):
    """Return the first ask of a judge that is shown labelled items."""
    seen = []

    def respond(ask):
        if ask.model != "j":
            return Generation(f"says {ask.model}", "stop")
        seen.append(ask)
        return choice((1,) * n_labels)

    config = module.Config(judges=("j",), labelled_examples={"n": len(others), **LABELLED}, **given)
    unit = Unit(ITEM, ("a", "b"), "j", labelled=tuple(others))
    answered(method_in(module)(config).evaluate(unit, Ask()), respond)
    return seen[0]


@pytest.mark.parametrize(
    ("module", "n_labels", "given", "replies"),
    [
        (pairwise_ranking, 5, {}, ("[[>]]", "[[<]]")),
        (pairwise_ranking, 3, {"labels": "three"}, ("[[>]]", "[[<]]")),
        (pairwise_ranking, 2, {"labels": "two", "prefix": "It is"}, ("It is A", "It is B")),
        (pairwise_scoring, 9, {}, ("9 1", "1 9")),
    ],
)
def test_labelled_items_are_shown_with_their_better_answer(module, n_labels, given, replies):
    others = [labelled(f"k{n}", "model_a" if n % 3 else "2") for n in range(6)]
    messages = judged_with(others, module, n_labels, **given).messages
    assert [one.role for one in messages] == ["user", "assistant"] * 6 + ["user"]
    said = [one.content for one in messages if one.role == "assistant"]
    assert sorted(said) == sorted(replies * 3)
    for n, (other, reply) in enumerate(zip(others, said, strict=True)):
        better = other.fields["one" if n % 3 else "two"]
        worse = other.fields["two" if n % 3 else "one"]
        shown = messages[2 * n].content
        assert (shown.index(better) < shown.index(worse)) == (reply == replies[0])


def test_the_values_of_a_column_may_mean_a_and_b():
    values = {"left": "a", "right": "B", "both": "tie"}
    config = ranking(labelled_examples={"n": 2, **LABELLED, "values": values})
    known = [config.is_labelled(labelled("k", value)) for value in ("left", "right", "both", "a")]
    assert known == [True, True, False, True]
    assert not config.is_labelled(labelled("k", None))
    assert not config.is_labelled(labelled("k", "a", followups=("And then?",)))
    assert not config.is_labelled(Item(key="k", messages=ITEM.messages, fields={"better": "a"}))


def test_too_few_labelled_items_are_a_failure_of_the_unit():
    config = ranking(labelled_examples={"n": 4, **LABELLED})
    unit = Unit(ITEM, ("a", "b"), "j", labelled=(labelled("k", "a"),))
    with pytest.raises(AskFailed, match="only 1 other items have a label and both answers"):
        answered(
            pairwise_ranking.PairwiseRanking(config).evaluate(unit, Ask()),
            lambda ask: Generation("says", "stop"),
        )


def test_labelled_examples_are_even_in_number_and_give_no_reasons():
    with pytest.raises(ValidationError, match="give an even one"):
        ranking(labelled_examples={"n": 3, **LABELLED})
    with pytest.raises(ValidationError, match="labelled_examples and chain_of_thought exclude"):
        ranking(labelled_examples=LABELLED, chain_of_thought=True)


def test_without_another_reference_there_is_no_judgment():
    config = ranking(example_of_dataset=True)
    unit = Unit(ITEM, ("a", "b"), "j")
    method = pairwise_ranking.PairwiseRanking(config)
    with pytest.raises(AskFailed, match="no other item has a reference"):
        answered(method.evaluate(unit, Ask()), lambda ask: Generation("says", "stop"))


def test_an_example_of_the_dataset_has_no_reasons():
    with pytest.raises(ValidationError, match="example_of_dataset and chain_of_thought exclude"):
        ranking(example_of_dataset=True, chain_of_thought=True)
