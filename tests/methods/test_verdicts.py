import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.judgment.verdicts import denied
from orchestrator.methods._verdicts import (
    last_verdict,
    slot_of,
    slot_of_two,
    spelled,
)
from orchestrator.methods.pairwise_ranking import LABELS
from orchestrator.records import NO_PREFIX, Generation, Label, Prefix, labels

SCORES = labels(*map(str, range(1, 11)))
FIVE = LABELS["five"]
TWO = LABELS["two"]


def written(tokens, *, reason="stop", offsets=True):
    text = "".join(tokens)
    starts = np.cumsum([0, *map(len, tokens)])[:-1].astype(np.int32)
    ids = np.arange(100, 100 + len(tokens), dtype=np.int32)
    return Generation(text, reason, token_ids=ids, offsets=starts if offsets else None)


def found_in(trace, of):
    slot = slot_of(trace, of)
    assert slot is not None
    return slot


def label_in(text, of, **more):
    found = last_verdict(text, of, **more)
    return None if found is None else of[found[0]].name


def test_the_judge_goes_on_from_its_own_tokens_up_to_the_verdict():
    slot = found_in(written(["A is", " right", ". ", "[[", ">", "]]", "\n"]), FIVE)
    assert slot == (Prefix("A is right. ", (100, 101, 102)), "")


def test_a_token_that_begins_before_the_verdict_is_read_whole():
    slot = found_in(written(["so", " [[", ">>", "]]"]), FIVE)
    assert slot == (Prefix("so", (100,)), " ")
    assert spelled(FIVE, " ")[0] == Label("[[>>]]", (" [[>>]]", "[[>>]]"))


def test_without_places_of_tokens_the_text_is_cut_before_white_space():
    slot = found_in(written(["so", " [[", ">>", "]]"], offsets=False), FIVE)
    assert slot == (Prefix("so"), " ")


def test_a_verdict_at_the_beginning_has_nothing_before_it():
    assert found_in(written(["[[", "=", "]]"]), FIVE) == (NO_PREFIX, "")


def test_other_characters_of_the_first_token_stay_in_front_of_every_label():
    (label,) = spelled((Label("7", ("7", " 7")),), "**")
    assert label.spellings == ("**7",)


def test_the_last_verdict_counts_and_not_one_that_was_quoted():
    assert label_in("[[>>]] would be wrong; I say [[<]].", FIVE) == "[[<]]"
    assert label_in("So [[<]], yes, [[<]]. Fine", FIVE) == "[[<]]"


@pytest.mark.parametrize(
    "text",
    [
        "[[>>]] would be wrong; I say [[<]]. Fine",
        "Say [[>]] if A is better, [[<]] if B is. Now A",
        "I would not say [[>>]]",
        "It does not deserve a [[>]] at all",
    ],
)
def test_several_symbols_or_one_that_is_denied_are_no_verdict(text):
    assert label_in(text, FIVE) is None


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("A says why. B is not as good as A.", "A"),
        ("- B does not say why\nA", "A"),
        ("I choose option B", "B"),
        ("Answer A is never better than B", "B"),
        ("It must be Assistant A", "A"),
    ],
)
def test_a_letter_that_is_compared_is_not_denied(text, label):
    assert label_in(text, TWO) == label


@pytest.mark.parametrize("text", ["It is neither A nor B", "The better one is not A"])
def test_a_letter_that_is_denied_is_no_verdict(text):
    assert label_in(text, TWO) is None


def test_a_text_that_was_cut_off_among_several_symbols_has_no_verdict():
    assert label_in("[[>]] or perhaps [[<]]", FIVE, ended=False) is None
    assert label_in("[[>]] or perhaps [[<]]", FIVE) == "[[<]]"


def test_a_verdict_inside_a_thinking_block_is_none():
    assert slot_of(written(["<think>", "[[>]]", "</think>", "no idea"]), FIVE) is None
    assert slot_of(written(["<think>", "[[>]]"]), FIVE) is None
    slot = found_in(written(["<think>", "[[>]]", "</think>", "[[=]]"]), FIVE)
    assert slot[0].token_ids == (100, 101, 102)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("It is good.\n7", "7"),
        ("Rating: 10.", "10"),
        ("**8**", "8"),
        ("I give it 7/9", "7"),
        ("I give it 7 out of 9.", "7"),
        ("Rating: 6 since it is short", "6"),
        ("Rating: 6. Not 3 of them. Rating is 6, I think", "6"),
        ("It does one thing well. I would give this response a 7.", "7"),
        ("My score for it is 3", "3"),
        ("3 yes 5 no wrong 1", "1"),
        ("fine 7", "7"),
        ("Rating [8]", "8"),
        ("As [1] says, it is right.\n[8]", "8"),
        ("It is fine. 7", "7"),
        ("**Rating:** **8**", "8"),
        ("Overall = 5", "5"),
        ("\u7efc\u5408\u6765\u770b\uff0c\u6211\u7ed9\u51fa\u8bc4\u5206 7", "7"),
        ("Clear and right.\n\n> 9", "9"),
    ],
)
def test_a_score_ends_the_text_or_is_announced(text, score):
    assert label_in(text, SCORES) == score


@pytest.mark.parametrize(
    "text",
    [
        "I count 7 faults in it",
        "version 2.7",
        "11",
        "7.5",
        "between 6-7",
        "",
        "A7",
        "It is right, as shown in [1].",
        "The proof fails at step 2",
        "I give it full marks for what it says (3)",
        "It falls short in one point (see 2)",
        "I would not give it a 9",
        "Rating: 6 for style. Score is 4, I think",
    ],
)
def test_other_numbers_are_no_score(text):
    assert label_in(text, SCORES) is None


def test_a_text_that_was_cut_off_has_no_bare_verdict():
    assert label_in("I rate it 5", SCORES, ended=False) is None
    assert label_in("so [[>]] beca", FIVE, ended=False) == "[[>]]"


def test_an_article_is_no_verdict():
    assert label_in("A good answer", TWO) is None
    assert label_in("The better one is B.", TWO) == "B"


@given(st.text(), st.sampled_from(FIVE), st.text("xyz .\n"))
def test_a_verdict_is_found_behind_any_text(before, label, after):
    text = before + label.name + after
    assume(not denied(text, len(before)))
    found = last_verdict(text, FIVE)
    assert found is not None
    assert (FIVE[found[0]], found[1]) == (label, len(before))


def test_two_scores_end_the_text():
    slot = slot_of_two(written(["fine", ". ", "7", " 3", "."]), SCORES)
    assert slot == (Prefix("fine. ", (100, 101)), "")
    assert slot_of_two(written(["7", " 3", " are", " scores"]), SCORES) is None
    assert slot_of_two(written(["7", " 3"], reason="length"), SCORES) is None


def test_a_hostile_text_is_read_in_linear_time():
    text = "Rating: " * 20_000 + "[[" * 20_000 + " " * 20_000
    assert last_verdict(text, FIVE) is None
    assert last_verdict(text, SCORES) is None
