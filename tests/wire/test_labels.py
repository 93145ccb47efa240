import math

import pytest

from orchestrator.records import Choice, Failure, Label, labels
from orchestrator.wire.labels import choice_from_top
from tests.wire.bodies import chat, entry

LETTERS = labels("A", "B", "C")


def read(top, asked=LETTERS):
    drawn = max(top, key=lambda one: one[1])
    return choice_from_top(chat(drawn[0], [entry(drawn[0], drawn[1], top)], "length"), asked)


def test_listed_labels_are_exact():
    choice = read([("A", -0.2), ("B", -2.0), ("C", -4.0), (".", -6.0)])
    assert isinstance(choice, Choice)
    assert choice.logprobs == choice.upper == (-0.2, -2.0, -4.0)
    assert choice.method == "top_logprobs"


def test_spellings_are_summed():
    choice = read([("A", -1.0), (" A", -1.0), ("B", -3.0), (" B", -3.0)],
                  (Label("A", ("A", " A")), Label("B", ("B", " B"))))  # fmt: skip
    assert isinstance(choice, Choice)
    assert choice.logprobs == pytest.approx((-1 + math.log(2), -3 + math.log(2)))


def test_a_label_that_is_not_listed_is_unknown_with_a_bound():
    choice = read([("A", -0.2), ("B", -2.0), (".", -6.0)])
    assert isinstance(choice, Choice)
    assert math.isnan(choice.logprobs[2])
    assert choice.upper[2] == -6.0
    assert not choice.exact


@pytest.mark.parametrize("value", [None, math.nan])
def test_an_unknown_number_before_a_known_one_leaves_no_bound(value):
    # Behind all numbers it is minus infinity, as JSON writes it.
    listed = [("A", value), ("B", -1.0), (".", -6.0)]
    drawn = entry("A", value, listed)
    assert isinstance(choice_from_top(chat("A", [drawn], "length"), LETTERS), Failure)
    drawn = entry("B", -0.1, [("B", -0.1), (".", -6.0), ("A", value)])
    choice = choice_from_top(chat("B", [drawn], "length"), LETTERS)
    assert isinstance(choice, Choice)
    assert choice.upper[0] == -6.0


def test_a_missing_spelling_widens_the_bound_only():
    choice = read([("A", -0.2), (".", -6.0)], (Label("A", ("A", " A")),))
    assert isinstance(choice, Choice)
    assert choice.logprobs == (-0.2,)
    assert choice.upper[0] == pytest.approx(math.log(math.exp(-0.2) + math.exp(-6.0)))


def test_the_bound_leaves_out_a_drawn_token_that_pushed_out_another():
    top = [("zz", -9.0), ("A", -0.2), ("B", -2.0)]
    choice = choice_from_top(chat("zz", [entry("zz", -9.0, top)], "length"), LETTERS)
    assert isinstance(choice, Choice)
    assert choice.upper[2] == -2.0


def test_a_drawn_token_outside_the_list_counts():
    body = chat("C", [entry("C", -8.0, [("A", -0.2), ("B", -2.0)])], "length")
    choice = choice_from_top(body, LETTERS)
    assert isinstance(choice, Choice)
    assert choice.logprobs[2] == -8.0


def test_bytes_are_preferred_to_text():
    top = [{"token": "\\xe2", "logprob": -0.5, "bytes": list("✓".encode()), "top_logprobs": []}]
    body = chat("✓", [{**top[0], "top_logprobs": top}], "length")
    choice = choice_from_top(body, labels("✓"))
    assert isinstance(choice, Choice)
    assert choice.logprobs == (-0.5,)


@pytest.mark.parametrize(
    ("top", "asked", "words"),
    [
        ([("[[", -0.1), (".", -5.0)], labels("[[>>]]", "[[=]]"), "same token '[['"),
        ([("1", -0.1), ("2", -3.0)], labels("1", "2", "10"), "same token '1'"),
        ([("Yes", -0.1), (".", -5.0)], labels("Yesterday"), "more than one token"),
    ],
)
def test_labels_that_one_token_can_not_tell_are_refused(top, asked, words):
    failure = read(top, asked)
    assert isinstance(failure, Failure)
    assert (failure.cause, failure.permanent) == ("unsupported", True)
    assert words in failure.message
    assert "embedded" in failure.message


@pytest.mark.parametrize("of", ["drawn", "listed", "both"])
@pytest.mark.parametrize("said", [None, [], "absent", "text", [300]])
def test_bytes_that_say_nothing_are_those_of_the_token(of, said):
    drawn = entry("A", -0.5, [("A", -0.5), ("B", -1.5)])
    changed = [] if of == "listed" else [drawn]
    changed += [] if of == "drawn" else drawn["top_logprobs"]
    for one in changed:
        one["bytes"] = said
        if said == "absent":
            del one["bytes"]
    choice = choice_from_top(chat("A", [drawn], "length"), labels("A", "B"))
    assert isinstance(choice, Choice), choice
    assert choice.logprobs == (-0.5, -1.5)


def test_a_token_equal_to_the_longer_label_tells_both():
    choice = read([("1", -3.0), ("10", -0.1)], labels("1", "10"))
    assert isinstance(choice, Choice)
    assert choice.logprobs == (-3.0, -0.1)


def test_an_improbable_beginning_leaves_both_labels_unknown():
    choice = read([("9", -0.001), ("1", -12.0)], labels("1", "9", "10"))
    assert isinstance(choice, Choice)
    assert math.isnan(choice.logprobs[0])
    assert choice.logprobs[1] == -0.001
    assert math.isnan(choice.logprobs[2])
    assert choice.upper[0] == -12.0


def test_a_blank_token_is_no_reason_to_refuse():
    choice = read([("A", -0.1), (" ", -3.0)], (Label("A", ("A", " A")), Label("B", ("B", " B"))))
    assert isinstance(choice, Choice)
    assert math.isnan(choice.logprobs[1])
    assert choice.upper[1] > -3.0


def test_a_token_that_only_begins_like_a_label_counts_for_nothing():
    choice = read([("Again", -0.1), ("B", -3.0)], labels("A", "B"))
    assert isinstance(choice, Choice)
    assert math.isnan(choice.logprobs[0])


def test_a_spelling_of_two_labels_is_refused():
    failure = read([("A", -0.1)], (Label("A", ("A",)), Label("B", ("A",))))
    assert isinstance(failure, Failure)
    assert failure.cause == "bad_request"


@pytest.mark.parametrize(
    "entries", [None, [], [entry("A", -0.1)], [entry("A", -9999.0, [("A", -9999.0)])]]
)
def test_a_reply_without_alternatives_is_a_failure(entries):
    failure = choice_from_top(chat("A", entries, "length"), LETTERS)
    assert isinstance(failure, Failure)
    assert failure.cause == "no_logprobs"


def test_a_recorded_body_is_read(recorded):
    choice = choice_from_top(recorded["judge"], labels(" while", " help", " absent"))
    assert isinstance(choice, Choice)
    assert choice.logprobs[:2] == pytest.approx((-6.663655757904053, -6.749593257904053))
    assert choice.upper[2] == pytest.approx(-6.898030757904053)


@pytest.mark.parametrize("id_", [0, 8, 362, 999_999_999])
def test_a_token_that_is_named_by_an_id_is_quoted_as_it_came(id_):
    failure = read([(f"token_id:{id_}", -0.2), ("token_id:426", -2.0)])
    assert isinstance(failure, Failure)
    assert f"by ids ('token_id:{id_}')" in failure.message
    assert "token_id:7'" not in failure.message
