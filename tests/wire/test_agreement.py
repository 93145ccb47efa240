"""A reply that contradicts itself is a failure: text, tokens, numbers and lists must agree."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.sglang import wire as sglang
from orchestrator.records import Choice, Failure, Generation, labels
from orchestrator.wire import replies
from orchestrator.wire.drawn import Reading
from orchestrator.wire.labels import choice_from_top
from orchestrator.wire.spelling import byte_letters, spells
from tests.wire.bodies import chat, entry

LETTERS = labels("A", "B")


def read(body, **reading):
    return replies.generation(body, Reading(**reading))


def refused(outcome, words):
    assert isinstance(outcome, Failure), outcome
    assert (outcome.cause, outcome.permanent) == ("unparseable", True)
    assert words in outcome.message


def choose(top, number=None, token=None, content=None):
    token = token or top[0][0]
    number = top[0][1] if number is None else number
    body = chat(content if content is not None else token, [entry(token, number, top)], "length")
    return choice_from_top(body, LETTERS)


# -- choices -----------------------------------------------------------------------------------


def test_a_drawn_token_that_is_listed_twice_is_not_counted_twice():
    refused(choose([("A", math.log(0.3)), ("B", math.log(0.4)), ("A", math.log(0.3))]), "'A' twice")


def test_another_token_that_is_listed_twice_costs_nothing():
    for other in ("x", "", " ", "\ufffd"):
        outcome = choose([("A", -0.5), (other, -3.0), (other, -3.0), ("B", -2.0)])
        assert isinstance(outcome, Choice)
        assert outcome.logprobs == (-0.5, -2.0)


def test_two_tokens_of_one_text_are_summed():
    outcome = choose([("A", math.log(0.3)), ("B", math.log(0.4)), ("A", math.log(0.1))])
    assert isinstance(outcome, Choice)
    assert outcome.logprobs == pytest.approx((math.log(0.4), math.log(0.4)))


def test_a_list_that_sums_above_one_is_refused():
    refused(choose([("A", math.log(0.7)), ("B", math.log(0.6))]), "sum to 1.3")


def test_a_drawn_token_outside_its_list_counts_in_the_sum():
    refused(choose([("A", -0.5), ("B", -1.9)], -0.4, "C"), "sum to 1.4")


def test_a_drawn_token_that_is_less_likely_need_not_be_listed():
    assert isinstance(choose([("A", -0.5), ("B", -1.9)], -4.0, "C"), Choice)


def test_the_text_of_a_choice_is_what_was_drawn():
    refused(choose([("A", -0.5), ("B", -1.9)], content="B"), "do not spell its text")


# -- draws -------------------------------------------------------------------------------------


def test_a_text_of_another_reply_is_not_taken():
    for finish in ("stop", "length"):
        tokens = [entry("The", -0.5), entry(" cat", -0.5), entry(" sat", -0.5)]
        refused(read(chat("The dog sat", tokens, finish)), "from character 5 on")


def test_a_text_that_lost_its_end_is_not_taken():
    tokens = [entry("The", -0.5), entry(" cat", -0.5)]
    refused(read(chat("The", tokens, "length")), "do not spell")


def test_ids_and_placeholders_name_the_same_tokens():
    body = chat("x", [entry("token_id:7", -0.5)], "length", token_ids=[8])
    refused(read(body), "token ids are others")


@pytest.mark.parametrize(
    ("top", "number", "words"),
    [
        ([("x", -0.1), ("y", -0.1)], -0.1, "sum to 1.81"),
        ([("x", -0.9), ("y", -1.5)], -0.3, "ln p -0.3"),
        ([("y", -1.0), ("z", -1.5)], -0.6, "ln p -0.6"),
        ([("token_id:7", -1.0), ("token_id:9", -1.2), ("token_id:9", -1.2)], -1.0, "lists a token"),
        ([("token_id:7", -1.0), ("token_id:9", -1.5), ("token_id:9", -1.2)], -1.0, "lists a token"),
        ([("token_id:9", -0.6), ("token_id:7", -1.2)], -0.6, "ln p -0.6"),
    ],
)
def test_a_list_must_be_one_of_probabilities(top, number, words):
    token = "token_id:7" if top[0][0].startswith("token") else "x"
    body = chat("x", [entry(token, number, top)], "length")
    refused(read(body, top=2), words)


def test_a_drawn_token_outside_its_list_is_fine_where_it_is_less_likely():
    made = read(chat("x", [entry("x", -5.0, [("y", -0.5), ("z", -1.5)])], "length"), top=2)
    assert isinstance(made, Generation), made


# -- vocabularies ------------------------------------------------------------------------------

LETTER_OF = byte_letters()


def by_letters(text):
    return "".join(LETTER_OF[byte] for byte in text.encode())


def by_pieces(text):
    return text.replace(" ", "\u2581")


def raw(tokens, text, finish="length"):
    plain = [{"token": one, "logprob": -0.5, "bytes": None} for one in tokens]
    choice = {"message": {"content": text}, "finish_reason": finish}
    return json.dumps({"choices": [{**choice, "logprobs": {"content": plain}}]}).encode()


@pytest.mark.parametrize("write", [by_letters, by_pieces])
@given(words=st.lists(st.text("ab é漢.,", min_size=1, max_size=4), min_size=1, max_size=6))
def test_tokens_as_vocabularies_write_them_are_read(write, words):
    text = "".join(words)
    made = read(raw([write(one) for one in words], text), offsets=True)
    if not text.strip():
        return
    assert isinstance(made, Generation), made
    assert made.offsets is not None
    places = np.cumsum([0, *map(len, words)])[:-1]
    assert made.offsets.tolist() == places.tolist()


@pytest.mark.parametrize("mark", ["\u0120", "\u2581"])
def test_labels_as_vocabularies_write_them_are_read(mark):
    top = [{"token": mark + one, "logprob": p} for one, p in (("A", -0.2), ("B", -2.0))]
    entries = [{"token": f"{mark}A", "logprob": -0.2, "top_logprobs": top}]
    choice = {"message": {"content": "A"}, "finish_reason": "length"}
    body = json.dumps({"choices": [{**choice, "logprobs": {"content": entries}}]}).encode()
    outcome = choice_from_top(body, labels(" A", " B"))
    assert isinstance(outcome, Choice)
    assert outcome.logprobs == (-0.2, -2.0)


def test_labels_that_are_ids_are_refused_with_what_was_seen():
    outcome = choose([("token_id:362", -0.2), ("token_id:426", -2.0)], content="A")
    assert isinstance(outcome, Failure)
    assert outcome.cause == "unsupported"
    assert "token_id" in outcome.message


def test_lists_of_legacy_completions_in_a_chat_are_read():
    lists = {
        "tokens": ["A", "!"],
        "token_logprobs": [-0.3, -0.4],
        "top_logprobs": [{"A": -0.3, "B": -1.5}, {"!": -0.4}],
    }
    choice = {"message": {"content": "A!"}, "finish_reason": "stop", "logprobs": lists}
    body = json.dumps({"choices": [choice]}).encode()
    made, chosen = read(body, top=2), choice_from_top(body, LETTERS)
    assert isinstance(made, Generation), made
    np.testing.assert_array_equal(made.logprobs, np.array([-0.3, -0.4], np.float32))
    assert isinstance(chosen, Choice)
    assert chosen.logprobs == (-0.3, -1.5)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=8)


@given(st.lists(TEXT.filter(bool), max_size=6), st.integers(0, 5), TEXT.filter(bool))
def test_a_changed_token_is_seen_and_white_space_is_not(tokens, at, other):
    text = "".join(tokens)
    raw_tokens = [one.encode() for one in tokens]
    assert spells(raw_tokens, text, whole=True)
    assert spells(raw_tokens, "".join(text.split()), whole=True)
    if at < len(tokens):
        changed = [*tokens[:at], other, *tokens[at + 1 :]]
        is_same = "".join("".join(changed).split()) == "".join(text.split())
        found = spells([one.encode() for one in changed], text, whole=True)
        # What looks like a token of the template may be left out of a text.
        assert found == is_same or other[:1] in "<["


# -- ids -----------------------------------------------------------------------------------------


def of_sglang(*found):
    meta = {"prompt_tokens": 2, "output_token_ids_logprobs": [[[p, one, None] for one, p in found]]}
    body = json.dumps([{"text": "", "output_ids": [1], "meta_info": meta}]).encode()
    return sglang.looked(body, [(5, 6)], [(7, 9)], "")


def test_next_tokens_are_those_that_were_asked_for():
    found = of_sglang((7, -0.5), (9, -1.5))
    assert not isinstance(found, Failure)
    assert found[0][0].logprobs == {7: -0.5, 9: -1.5}
    # Its last id is written as 0.
    assert not isinstance(of_sglang((7, -0.5), (0, -1.5)), Failure)
    refused(of_sglang((9, -1.5), (7, -0.5)), "other ids than requested")


def test_a_batch_with_an_error_in_the_place_of_an_answer_is_a_failure():
    # Sent again: the next reply may be whole.
    found = sglang.looked(b'[{"error": {"message": "out of memory"}}]', [(5, 6)], [(7, 9)], "")
    assert isinstance(found, Failure)
    assert (found.cause, found.permanent) == ("unparseable", False)
