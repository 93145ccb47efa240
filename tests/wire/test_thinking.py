"""Reasoning models: what is thinking and what is answer, told apart by tokens."""

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.records import Failure, Generation
from orchestrator.store.codec import decode, encode
from orchestrator.wire import replies
from orchestrator.wire.drawn import Reading
from tests.wire.bodies import chat, entry

END = "</think>"
STOP = entry("<|im_end|>", -0.1, id=9)


def read(body, **reading):
    outcome = replies.generation(body, Reading(**{"thinking_end": END, **reading}))
    assert isinstance(outcome, Generation), outcome
    return outcome


def tokens(*texts):
    return [entry(text, -float(number), id=number) for number, text in enumerate(texts)]


def body(*texts, finish="stop", stop=True, **more):
    entries = tokens(*texts) + ([STOP] if stop else [])
    ids = [one["id"] for one in entries]
    return chat("".join(texts), entries, finish, ids, **more)


def test_the_answer_is_what_follows_the_thinking():
    made = read(body("Hm", ", ok", "</think>", "\n\n", "So", "."))
    assert (made.text, made.thinking) == ("So.", "Hm, ok")
    assert made.token_ids is not None
    assert made.logprobs is not None
    assert made.token_ids.tolist() == [4, 5]
    assert made.logprobs.tolist() == [-4.0, -5.0]
    assert made.n_thinking_tokens == 4


def test_the_marker_that_opens_the_thinking_is_no_part_of_it():
    assert read(body("<think>", "\nHm\n", "</think>", "So")).thinking == "Hm"


def test_thinking_that_is_empty_is_set_aside_too():
    made = read(body("<think>", "\n\n", "</think>", "\n\n", "So"))
    assert (made.text, made.thinking, made.n_thinking_tokens) == ("So", "", 4)
    assert made.token_ids is not None
    assert made.token_ids.tolist() == [4]


def test_the_answer_is_not_looked_for_in_the_thinking_or_in_the_stop_token():
    made = read(body("e e e", "</think>", "e"))
    assert made.token_ids is not None
    assert made.token_ids.tolist() == [2]


def test_a_marker_inside_the_answer_is_text():
    made = read(body("Hm", "</think>", "say ", "</think>", " again"))
    assert made.text == "say </think> again"
    assert made.token_ids is not None
    assert made.token_ids.tolist() == [2, 3, 4]


@pytest.mark.parametrize("answer", [(), ("\n\n",), (" ",)])
def test_thinking_without_an_answer_is_no_answer(answer):
    outcome = replies.generation(body("Hm", "</think>", *answer), Reading(thinking_end=END))
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("no_answer", True)


def test_an_answer_that_was_cut_keeps_its_last_token():
    made = read(body("Hm", "</think>", "So", " it", finish="length", stop=False))
    assert made.token_ids is not None
    assert made.token_ids.tolist() == [2, 3]
    assert made.finish_reason == "length"


@pytest.mark.parametrize(
    ("finish", "texts"),
    [("length", ("Hm", ", let")), ("stop", ("<think>", "Hm")), ("stop", ("\n<think>", "Hm"))],
)
def test_thinking_that_did_not_end_is_no_answer(finish, texts):
    outcome = replies.generation(body(*texts, finish=finish, stop=False), Reading(thinking_end=END))
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.permanent) == ("no_answer", True)


def test_an_answer_without_thinking_is_all_answer():
    made = read(body("So", "."))
    assert (made.text, made.thinking, made.n_thinking_tokens) == ("So.", "", None)
    assert made.token_ids is not None
    assert made.token_ids.tolist() == [0, 1]


def test_without_a_marker_in_the_recipe_all_is_answer():
    made = read(body("Hm", "</think>", "So"), thinking_end="")
    assert made.text == "Hm</think>So"


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_what_the_server_has_set_aside_is_thinking(field):
    entries = [*tokens("Hm", "</think>", "So"), STOP]
    made = read(chat("So", entries, "stop", [0, 1, 2, 9], **{field: "Hm"}))
    assert (made.text, made.thinking, made.n_thinking_tokens) == ("So", "Hm", 2)


def test_what_the_server_counted_is_taken_where_nobody_saw_tokens():
    message = {"content": "So", "reasoning": "Hm"}
    content = {"choices": [{"message": message, "finish_reason": "stop"}]}
    usage = {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 7}}
    made = read(json.dumps({**content, "usage": usage}).encode(), logprobs=False)
    assert (made.thinking, made.n_thinking_tokens) == ("Hm", 7)


def test_nobody_counted_is_not_zero():
    made = read(chat("Hm</think>So", None), logprobs=False)
    assert (made.text, made.n_thinking_tokens) == ("So", None)


def test_offsets_are_those_of_the_answer():
    made = read(body("Hm", "</think>", "\n", "So", "!"), offsets=True)
    assert made.offsets is not None
    assert made.offsets.tolist() == [0, 2]


def test_a_stored_generation_keeps_its_thinking():
    made = read(body("Hm", "é", "</think>", "So"))
    back = decode(*encode(made))
    assert isinstance(back, Generation)
    assert (back.thinking, back.n_thinking_tokens, back.text) == ("Hmé", 3, "So")


WORDS = st.text(alphabet="ab é\n.", min_size=1, max_size=6)


@given(st.lists(WORDS, max_size=5), st.lists(WORDS, min_size=1, max_size=5))
def test_whatever_was_thought_the_tokens_of_the_answer_spell_it(thought, answer):
    assume("".join(answer).strip())
    made = read(body(*thought, "</think>", *answer))
    expected = "".join(answer).lstrip("\r\n")
    assert made.text == expected
    assert made.token_ids is not None
    assert made.n_thinking_tokens is not None
    spelled = "".join(answer[number - len(thought) - 1] for number in made.token_ids.tolist())
    assert spelled.lstrip("\r\n") == expected
    np.testing.assert_array_equal(made.logprobs, -made.token_ids.astype(np.float32))
