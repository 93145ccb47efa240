import math

import pytest

from orchestrator.probing import abilities, checks
from orchestrator.probing.abilities import (
    BOUNDED,
    EXACT,
    IMPOSSIBLE,
    NOT_KNOWN,
    ONE_TOKEN,
    Need,
    verdict,
)
from orchestrator.probing.record import BAD, Finding, ProbeRecord, differences, unknown
from orchestrator.records import Choice, Failure
from tests.probing.bodies import chat, refusal

FIVE_LISTED = ("a", {"a": -0.5, "b": -1.5, "c": -2.5, "d": -3.5, "e": -4.5})


def record(**found):
    findings = tuple(
        Finding(name, value, "good", f"{name} {value}") for name, value in found.items()
    )
    return ProbeRecord(backend="k", model="m", findings=findings)


def of(asked, **found):
    return verdict("x", [Need(asked)], record(**found), frozenset({"entropy"})).verdict


def choice(*probabilities, upper=None):
    logprobs = tuple(math.log(p) if p else math.nan for p in probabilities)
    return Choice(logprobs, upper or logprobs, "top_logprobs")


@pytest.mark.parametrize(
    ("asked", "found", "expected"),
    [
        ("generate", {"generate": "yes"}, EXACT),
        ("generate", {"generate": "no"}, IMPOSSIBLE),
        ("score", {"score": "consistent"}, EXACT),
        ("score", {"score": "noisy"}, BOUNDED),
        ("score", {"score": "inconsistent"}, IMPOSSIBLE),
        ("score", {"score": "no"}, IMPOSSIBLE),
        ("score", {"score": "unknown"}, NOT_KNOWN),
        ("score", {}, NOT_KNOWN),
        ("choose", {"choose_verdicts": "exact"}, EXACT),
        ("choose", {"choose_verdicts": "bounded"}, BOUNDED),
        ("choose", {"choose_verdicts": "exact", "choose_letters": "bounded"}, BOUNDED),
        ("choose", {"choose_verdicts": "no", "choose_letters": "exact"}, BOUNDED),
        ("choose", {"choose_verdicts": "no", "choose_letters": "no"}, IMPOSSIBLE),
        ("similarity", {}, EXACT),
    ],
)
def test_what_a_server_does_decides_what_can_be_asked(asked, found, expected):
    assert of(asked, **found) == expected


@pytest.mark.parametrize("name", ["choose_agrees", "choose_letters"])
def test_labels_that_come_out_wrong_make_choosing_impossible(name):
    good = record(choose_verdicts="exact", choose_letters="exact")
    wrong = Finding(name, "wrong", BAD, "they add up to 1.8")
    others = tuple(one for one in good.findings if one.name != name)
    bad = ProbeRecord(backend="k", model="m", findings=(*others, wrong))
    assert verdict("x", [Need("choose")], good, frozenset()).verdict == EXACT
    assert verdict("x", [Need("choose")], bad, frozenset()).verdict == IMPOSSIBLE


@pytest.mark.parametrize(
    ("top_logprobs", "refused", "expected"),
    [(0, True, EXACT), (5, True, EXACT), (6, True, IMPOSSIBLE), (6, False, EXACT)],
)
def test_more_alternatives_than_a_server_allows_are_impossible(top_logprobs, refused, expected):
    said = "maximum allowed: 5" if refused else None
    cap = checks.cap(refusal(said) if said else chat(FIVE_LISTED))
    assert cap.value == "5"
    found = ProbeRecord(
        backend="k", model="m", findings=(Finding("generate", "yes", "good", ""), cap)
    )
    judged = verdict("x", [Need("generate", (), top_logprobs)], found, frozenset())
    assert judged.verdict == expected
    assert ("top_logprobs: 5" in judged.remedy) == (expected == IMPOSSIBLE)


def test_a_method_is_as_good_as_the_worst_of_what_it_asks():
    needs = [Need("generate"), Need("score")]
    found = verdict("x", needs, record(generate="yes", score="no"), frozenset())
    assert (found.verdict, found.why) == (IMPOSSIBLE, "score no")


def test_features_that_a_back_end_does_not_give_make_it_impossible():
    needs = [Need("score", ("attention_entropy",))]
    found = verdict("x", needs, record(score="consistent"), frozenset({"entropy"}))
    assert found.verdict == IMPOSSIBLE
    assert "attention_entropy" in found.why
    assert found.remedy


def answered(n_prompt=20, date="no"):
    findings = (Finding("date", date, "good"),)
    return ProbeRecord(backend="x", model="m", findings=findings, n_prompt=n_prompt)


def test_another_tokenizer_or_template_shows_in_the_length_of_a_prompt():
    assert differences(answered(), answered(21)) == ["the same question had 20 tokens, has 21"]
    assert differences(answered(), answered(None)) == []
    # Tomorrow's date may be longer.
    assert differences(answered(date="yes"), answered(21, date="yes")) == []


def test_only_answers_that_changed_are_differences():
    before, now = record(a="1", b="2", c="3"), record(a="1", b="5")
    unsure = ProbeRecord(backend="k", model="m", findings=(unknown("c", ""), unknown("a", "")))
    assert differences(before, now) == ["b was 2, is 5"]
    assert differences(before, unsure) == []


def test_choices_are_exact_bounded_wrong_or_refused():
    refused = Failure("unsupported", "labels of several tokens", permanent=True)
    assert abilities.choice("choose_letters", choice(0.5, 0.3, 0.1)).value == "exact"
    bounded = abilities.choice("choose_letters", choice(0.5, 0.3, 0))
    assert bounded.value == "bounded"
    assert "1 of 3 labels are only bounded" in bounded.said
    assert abilities.choice("choose_letters", choice(0.9, 0.9, 0.9)).value == "wrong"
    assert abilities.choice("choose_letters", refused).value == "no"
    assert abilities.choice("choose_letters", Failure("timeout", "")).value == "unknown"


def test_label_probabilities_have_to_be_those_of_generation():
    listed = chat(("A", {"A": math.log(0.5), "B": math.log(0.3)}))
    right, wrong = choice(0.5, 0.3, 0.1), choice(0.3, 0.5, 0.1)
    assert abilities.agreement(right, ONE_TOKEN, listed).value == "consistent"
    assert abilities.agreement(wrong, ONE_TOKEN, listed).value == "inconsistent"
    assert abilities.agreement(right, ONE_TOKEN, chat(("x", {"x": -0.1}))).value == "unknown"
