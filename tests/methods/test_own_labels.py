"""Labels of one's own for judges, and prompts that show none of the labels."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.ask import Ask, ChooseAsk
from orchestrator.errors import RecipeError
from orchestrator.judgment.pairwise import judge_pair
from orchestrator.methods import judged_rewrites, pairwise_ranking, pairwise_scoring, pointwise
from orchestrator.methods._own_labels import OwnLabel, levels_of
from orchestrator.methods._verdicts import last_verdict, slot_of_two
from orchestrator.recipe.load import load
from orchestrator.records import Generation, Prefix, Unit
from tests.core.fakes import answered, method_in
from tests.launched import recipe_data
from tests.methods.judging import ITEM, choice
from tests.methods.test_pairwise import first_shown

PAIR = "{{ prompt }} {{ answer_a }} {{ answer_b }} First, Equal, Neither or Second?"
OWN = (
    {"name": "First", "value": 1, "spellings": ("First", " First", "first")},
    {"name": "Equal", "value": 0},
    {"name": "Neither", "value": 0},
    {"name": "Second", "value": -1},
)
GRADE = "{{ prompt }} {{ answer }} Say bad, fair or great."
GRADES = (
    {"name": "bad", "value": 1},
    {"name": "fair", "value": 2},
    {"name": "great", "value": 5},
)


BOTH = "{{ prompt }} {{ answer_a }} {{ answer_b }} Say bad, fair or great of each."
JUDGED = "{{ answer_a }} {{ answer_b }} First, Equal, Neither or Second?"


def compared(weights, labels=OWN, template=PAIR):
    asked = []

    def respond(ask):
        if isinstance(ask, ChooseAsk):
            asked.append(ask)
            return choice(weights if first_shown(ask) == "a" else weights[::-1])
        return Generation(f"says {ask.model}", "stop")

    config = pairwise_ranking.Config(judges=("j",), prompt=template, labels=labels)
    evaluated = method_in(pairwise_ranking)(config).evaluate(Unit(ITEM, ("a", "b"), "j"), Ask())
    (row,) = answered(evaluated, respond)
    return row, asked


def test_labels_with_equal_values_are_one_level():
    row, asked = compared((4, 3, 2, 1))
    assert row["p_ab"] == pytest.approx([0.4, 0.5, 0.1])
    assert row["prefer_a_ab"] == pytest.approx(0.65)
    assert [label.spellings for label in asked[0].labels] == [
        ("First", " First", "first"),
        ("Equal", " Equal"),
        ("Neither", " Neither"),
        ("Second", " Second"),
    ]


def test_a_value_without_a_label_has_probability_zero():
    labels = ({"name": "First", "value": 2}, {"name": "Equal", "value": 1}, OWN[3] | {"value": -2})
    row, _ = compared((5, 3, 2), labels)
    assert row["p_ab"] == pytest.approx([0.5, 0.3, 0.0, 0.0, 0.2])


def test_names_alone_are_the_labels_that_there_were():
    """Own labels spelled as the built-in ones are the same question, and give the same row."""
    for name, n in (("three", 3), ("five", 5)):
        labels = pairwise_ranking.LABELS[name]  # type: ignore[index]
        own = [
            {"name": one.name, "spellings": one.spellings, "value": n // 2 - at}
            for at, one in enumerate(labels)
        ]
        template = "{{ prompt }} {{ answer_a }} {{ answer_b }} [[>]]?"
        weights = (5, 3, 2, 1, 1)[:n]
        assert compared(weights, own, template) == compared(weights, name, template)


def test_two_names_are_read_as_the_released_code_reads_a_and_b():
    template = "{{ prompt }} {{ answer_a }} {{ answer_b }} A or B?"
    assert compared((3, 1), ["A", "B"], template) == compared((3, 1), "two", template)
    row, _ = compared((1, 1), ["A", "B"], template)
    assert row["p_ab"] == pytest.approx([0, 1, 0])


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (["x", "y"], [1, -1]),
        (["x", "y", "z"], [1, 0, -1]),
        (["x", "y", "z", "w"], [2, 1, -1, -2]),
    ],
)
def test_names_alone_get_values(names, values):
    template = "{{ prompt }} {{ answer_a }} {{ answer_b }} x"
    config = pairwise_ranking.Config(judges=("j",), prompt=template, labels=names)
    assert [one.value for one in config.labels] == values  # type: ignore[union-attr]


@given(
    st.lists(st.integers(-3, 3), min_size=0, max_size=6),
    st.lists(st.floats(0.01, 1), min_size=8, max_size=8),
)
def test_levels_keep_the_mass_and_mirror(inner, weights):
    values = sorted([3, *inner, -3], reverse=True)
    labels = [OwnLabel(name=f"n{at}", value=value) for at, value in enumerate(values)]
    p = [one / sum(weights[: len(values)]) for one in weights[: len(values)]]
    levels = levels_of(p, tuple(labels))
    assert sum(levels) == pytest.approx(1)
    mirrored = [OwnLabel(name=f"n{at}", value=-value) for at, value in enumerate(values)][::-1]
    assert levels_of(p[::-1], tuple(mirrored)) == pytest.approx(levels[::-1])
    # Whatever the labels: a judge that mirrors its verdict with the order prefers the same.
    found = judge_pair(levels, levels[::-1])
    assert found["prefer_a_ab"] == pytest.approx(found["prefer_a_ba"])
    mean = sum(one * label.value for one, label in zip(p, labels, strict=True))
    assert (found["mean_pre"] > 0) == (mean > 1e-9) or abs(mean) <= 1e-3


def test_a_grade_is_the_value_of_its_label():
    config = pointwise.Config(judges=("j",), prompt=GRADE, labels=GRADES)

    def respond(ask):
        return choice((1, 1, 2)) if isinstance(ask, ChooseAsk) else Generation("answer", "stop")

    (row,) = answered(pointwise.Kind(config).evaluate(Unit(ITEM, ("m",), "j"), Ask()), respond)
    assert config.scale == (1, 5)
    assert row["p"] == pytest.approx([0.25, 0.25, 0, 0, 0.5])
    assert row["mean"] == pytest.approx(0.25 + 0.5 + 2.5)
    assert (row["mean_low"], row["mean_high"]) == pytest.approx((3.25, 3.25))
    assert (row["mode"], row["median"]) == (5, 5)


def rated(first, second, labels=GRADES, template=BOTH, reply="", **settings):
    """A row of `pairwise_scoring`, by the weights of both scores, and what the judge was asked."""
    asked = []

    def respond(ask):
        if not isinstance(ask, ChooseAsk):
            text = f"Fine. {reply}" if ask.model == "j" else f"says {ask.model}"
            return Generation(text, "stop")
        asked.append(ask)
        return choice(second if ask.labels[0].name.startswith(" ") else first)

    config = pairwise_scoring.Config(judges=("j",), prompt=template, labels=labels, **settings)
    evaluated = method_in(pairwise_scoring)(config).evaluate(Unit(ITEM, ("a", "b"), "j"), Ask())
    (row,) = answered(evaluated, respond)
    return row, asked


def test_two_grades_are_the_values_of_their_labels():
    row, asked = rated((1, 1, 2), (2, 1, 1))
    assert row["p_first_ab"] == pytest.approx([0.25, 0.25, 0, 0, 0.5])
    assert row["p_second_ab"] == pytest.approx([0.5, 0.25, 0, 0, 0.25])
    # From 5 of the first: four better where the second is bad, three where it is fair.
    assert row["p_ab"] == pytest.approx([0.5, 0.25, 0, 0, 0.25, 0, 0, 0, 0])
    assert row["score_a"] == pytest.approx(0.5 * ((0.25 + 0.5 + 2.5) + (0.5 + 0.5 + 1.25)))
    assert [ask.prefix.text for ask in asked] == ["", "", "great", "great"]
    assert [label.spellings for label in asked[2].labels] == [(" bad",), (" fair",), (" great",)]


def test_the_second_grade_is_read_behind_the_likeliest_label_of_the_likeliest_score():
    labels = [{"name": "bad", "value": 1}, *({"name": n, "value": 2} for n in ("fair", "good"))]
    row, asked = rated((4, 3, 2), (1, 1, 1), labels)
    assert row["p_first_ab"] == pytest.approx([4 / 9, 5 / 9])
    assert asked[-1].prefix.text == "fair"
    assert row["p_ab"] == pytest.approx([1 / 3, 2 / 3, 0])


def test_grades_spelled_as_numbers_are_the_scores():
    own = [{"name": str(n), "value": n} for n in range(1, 10)]
    template = "{{ prompt }} {{ answer_a }} {{ answer_b }} Two scores from 1 to 9."
    first, second = (0, 1, 0, 0, 2, 0, 0, 3, 1), (1, 0, 0, 5, 0, 2, 0, 0, 0)
    for settings in ({}, {"chain_of_thought": True}):
        found = [
            rated(first, second, labels, template, reply="8 4", **settings)
            for labels in (own, None)
        ]
        assert found[0] == found[1]


def test_two_grades_end_a_trace():
    config = pairwise_scoring.Config(judges=("j",), prompt=BOTH, labels=GRADES)
    slot = slot_of_two(Generation("A is fine, B not: great, bad.", "stop"), config.verdicts())
    assert slot == (Prefix("A is fine, B not:"), " ")
    bracketed = [{"name": f"[[{name}]]", "value": value} for value, name in enumerate("xyz")]
    shown = "{{ answer_a }} {{ answer_b }} [[x]]"
    config = pairwise_scoring.Config(judges=("j",), prompt=shown, labels=bracketed)
    long = "[[x]] is what I thought. " * 20
    slot = slot_of_two(Generation(f"{long}**[[y]] [[z]]**\n", "stop"), config.verdicts())
    assert slot == (Prefix(f"{long}**"), "")


def rewritten(weights, **settings):
    """A row of `judged_rewrites` whose judge prefers the rewriting by these weights."""

    def respond(ask):
        if isinstance(ask, ChooseAsk):
            text = ask.messages[-1].content
            return choice(weights if text.index("new") < text.index("old") else weights[::-1])
        return Generation("old" if ask.turn else "new", "stop")

    config = judged_rewrites.Config(judges=("j",), prompt="compact", **settings)
    evaluated = method_in(judged_rewrites)(config).evaluate(Unit(ITEM, ("m",), "j"), Ask())
    (row,) = answered(evaluated, respond)
    return row


def test_rewritings_are_judged_by_labels_of_ones_own():
    row = rewritten((4, 3, 2, 1), judge_prompt=JUDGED, labels=OWN)
    assert row["p_ab"] == pytest.approx([0.4, 0.5, 0.1])
    assert row["prefer_rewriting"] == pytest.approx(0.65)
    assert row["verdict"] == 0
    two = rewritten((3, 1), judge_prompt="{{ answer_a }} {{ answer_b }} A or B?", labels="two")
    assert (two["p_ab"], two["verdict"]) == (pytest.approx([0.75, 0, 0.25]), 1)
    named = "{{ answer_a }} {{ answer_b }} [[>]]?"
    own = [
        {"name": one.name, "value": 1 - at}
        for at, one in enumerate(pairwise_ranking.LABELS["three"])
    ]
    weights = (5, 3, 2)
    by_name, by_label = (
        rewritten(weights, judge_prompt=named, labels=labels) for labels in ("three", own)
    )
    assert by_name == by_label


def test_any_spelling_is_a_verdict_in_reasons():
    labels = pairwise_ranking.Config(judges=("j",), prompt=PAIR, labels=OWN).verdicts()
    found = last_verdict("Both are fine, but the verdict: first", labels)
    assert found is not None
    assert found == (0, 32)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["only"], "at least 2"),
        (["a", "ab"], "can't be told apart"),
        (["x", "x"], "can't be told apart"),
        ([{"name": "x", "value": 1}, {"name": "y", "value": 1}], "must be opposites"),
        ([{"name": "x", "value": -1}, {"name": "y", "value": 1}], "values descend"),
        ([{"name": "x", "value": 2}, {"name": "y", "value": -1}], "must be opposites"),
        ([{"name": "x", "value": 99}, {"name": "y", "value": -99}], "at most 10"),
        ([{"name": "x", "value": 1, "spellings": [" "]}, "y"], "valid"),
        ([{"name": "x"}, {"name": "y", "value": -1}], "required"),
        (
            [{"name": "x", "value": 1, "spellings": [" "]}, {"name": "y", "value": -1}],
            "more than white space",
        ),
        ("seven", "five"),
    ],
)
def test_labels_that_can_not_work_are_refused(labels, said):
    template = "{{ prompt }} {{ answer_a }} {{ answer_b }} x y a only"
    with pytest.raises(ValidationError, match=said):
        pairwise_ranking.Config(judges=("j",), prompt=template, labels=labels)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"labels": GRADES[::-1]}, "values ascend"),
        ({"labels": GRADES, "scale": (1, 9)}, "scale must go from"),
        ({"labels": GRADES, "verdict": "[SCORE]"}, "exclude `verdict`"),
        ({"labels": GRADES, "prompt": "compact"}, "need a template"),
        ({"labels": [*GRADES[:2], {"name": "fairly", "value": 9}]}, "can't be told apart"),
    ],
)
def test_grades_that_can_not_work_are_refused(wrong, said):
    with pytest.raises(ValidationError, match=said):
        pointwise.Config(**{"judges": ("j",), "prompt": GRADE, **wrong})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"labels": GRADES[::-1]}, "values ascend"),
        ({"labels": GRADES, "scale": (1, 9)}, "scale must go from"),
        ({"labels": GRADES, "prompt": "compact"}, "need a template"),
        ({"labels": [*GRADES[:2], {"name": "fairly", "value": 9}]}, "can't be told apart"),
    ],
)
def test_pairs_of_grades_that_can_not_work_are_refused(wrong, said):
    with pytest.raises(ValidationError, match=said):
        pairwise_scoring.Config(**{"judges": ("j",), "prompt": BOTH, **wrong})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"labels": ["First", "Firstly"]}, "can't be told apart"),
        ({"labels": ["Better", "Worse"]}, "shows none of the labels"),
        ({"judge_prompt": "compact", "labels": ["First", "Second"]}, "template as `judge_prompt`"),
    ],
)
def test_labels_that_can_not_judge_rewritings_are_refused(wrong, said):
    with pytest.raises(ValidationError, match=said):
        judged_rewrites.Config(**{"judges": ("j",), "judge_prompt": JUDGED, **wrong})


@pytest.fixture
def loaded(tmp_path):
    def load_with(**method):
        file = tmp_path / "made.yaml"
        data = recipe_data(methods=[])
        del data["methods"]
        head = json.dumps(data)[1:-1]
        entry = json.dumps({"judges": ["judge"], **method})
        file.write_text(f'{{{head},\n"methods": [\n{entry}\n]}}', encoding="utf-8")
        return load(file)

    return load_with


@pytest.mark.parametrize(
    "method",
    [
        {"kind": "pairwise_ranking", "prompt": "{{ answer_a }} {{ answer_b }} Which?"},
        {
            "kind": "pairwise_ranking",
            "prompt": "Firstly {{ answer_a }} {{ answer_b }}",
            "labels": ["First", "Second"],
        },
        {"kind": "pointwise", "prompt": "{{ answer }} How good?"},
        {"kind": "pairwise_scoring", "prompt": "{{ answer_a }} {{ answer_b }} How good?"},
        {"kind": "pairwise_scoring", "prompt": "{{ answer_a }} {{ answer_b }}", "labels": GRADES},
        {"kind": "judged_rewrites", "judge_prompt": "{{ answer_a }} {{ answer_b }} Which?"},
        {"kind": "pointwise", "prompt": "{{ answer }} Badly?", "labels": list(GRADES)},
    ],
)
def test_a_prompt_that_shows_no_label_is_a_fault_with_its_line(loaded, method):
    with pytest.raises(RecipeError, match="the template shows none of the labels") as caught:
        loaded(**method)
    assert [fault.line for fault in caught.value.faults] == [3]


@pytest.mark.parametrize(
    "aid",
    [
        {"prompt": "{{ answer }} From {{ low }} to {{ high }}?"},
        {"system": "Grade from 1 to 9."},
        {"examples": [{"shown": {"answer": "x"}, "reply": "7"}]},
    ],
)
def test_labels_may_be_shown_elsewhere(loaded, aid):
    assert loaded(**{"kind": "pointwise", "prompt": "{{ answer }} How good?", **aid})


def test_labels_of_ones_own_need_a_prompt_of_ones_own(loaded):
    with pytest.raises(RecipeError, match="labels of your own need a template"):
        loaded(kind="pairwise_ranking", labels=["First", "Second"])
