"""Sentences in which judges state a verdict, with the reading a person gives them.

None is a label that is denied, or a sentence that can be read both ways.
"""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.methods.mt_bench_judge import RATING, WINNER

WINNERS = [
    # Verdicts after a complete clause that has a negation.
    ("B does not answer it [[A]]", "A"),
    ("Assistant B does not answer the question [[A]]", "A"),
    ("Assistant A didn't follow the instructions [[B]]", "B"),
    ("Response 2 does not really address it [[A]]", "A"),
    ("The second response is not helpful [[A]]", "A"),
    ("Assistant B isn't accurate **[[A]]**", "A"),
    ("Assistant A could not solve it [[B]]", "B"),
    ("Assistant A has not followed the instructions [[B]]", "B"),
    ("the latter does not explain the steps [[A]]", "A"),
    ("Both answers are not relevant [[C]]", "tie"),
    ("B does not answer it. [[A]]", "A"),
    ("B does not answer it, [[A]]", "A"),
    ("B does not answer it: [[A]]", "A"),
    ("B does not answer it\n[[A]]", "A"),
    ("B is not as good as A [[A]]", "A"),
    ("Assistant B is no better than A. [[A]]", "A"),
    ("Neither answer is perfect, but A is closer: [[A]]", "A"),
    ("Although A does not cite sources, it is right: [[A]]", "A"),
    ("I do not see a difference, so [[C]]", "tie"),
    ("I can't decide between them. [[C]]", "tie"),
    ("I did not find mistakes in B and therefore choose [[B]]", "B"),
    ("My final verdict is: [[B]]", "B"),
    ("Final verdict: **[[C]]**", "tie"),
    ("Not only is A right, it is brief. [[A]]", "A"),
    # Denials of the label.
    ("I would not say [[A]]", None),
    ("I wouldn't choose [[A]]", None),
    ("I cannot pick [[B]]", None),
    ("We do not favour [[A]]", None),
    ("I would not go with [[A]]", None),
    ("I would not give the first assistant's answer the verdict [[A]]", None),
    ("I can't honestly declare [[A]]", None),
    ("The winner is not [[A]]", None),
    ("The better answer isn't [[A]]", None),
    ("It is not the case [[A]]", None),
    ("never [[A]]", None),
    ("not [[A]] but [[B]]", None),
    ("[[B]] rather than [[A]]", None),
    ("a tie instead of [[A]]", None),
    ("Assistant A does not deserve [[A]]", None),
    ("Assistant A does not merit it [[A]]", None),
    ("neither [[A]]", None),
    ('The verdict is not "[[A]]"', None),
    ("Assistant A is not the better [[A]]", None),
    # Both readings are possible.
    ("B does not answer [[A]]", None),
    ("I don't like it [[A]]", None),
    ("Its argument doesn't make it [[A]]", None),
]
RATINGS = [
    ("It is wrong and does not deserve a [[9]]", None),
    ("I would not give this rather short and vague response a [[9]]", None),
    ("I would never rate it [[10]]", None),
    ("I am not going to give it a [[8]]", None),
    ("The response does not answer the question [[2]]", 2.0),
    ("The answer is not detailed [[4]]", 4.0),
    ("I would not change anything. Rating: [[10]]", 10.0),
    ("I did not find errors and rate it [[9]]", 9.0),
]


@pytest.mark.parametrize(("text", "winner"), WINNERS)
def test_a_winner_is_read_as_a_person_reads_the_sentence(text, winner):
    assert WINNER.read(text).value == winner


@pytest.mark.parametrize(("text", "rating"), RATINGS)
def test_a_rating_is_read_as_a_person_reads_the_sentence(text, rating):
    assert RATING.read(text).value == rating


WORDS = st.lists(st.text(string.ascii_letters, min_size=1, max_size=12), max_size=8)
DENIALS = ("not", "never", "is not", "isn't", "cannot", "not the", "rather than", "instead of")


@given(WORDS, st.sampled_from(DENIALS), st.sampled_from("ABC"))
def test_a_label_right_after_a_denial_never_wins(before, denial, label):
    assert WINNER.read(" ".join([*before, denial, f"[[{label}]]"])).value is None


@given(
    WORDS,
    st.sampled_from(["would not", "wouldn't", "cannot", "will never", "do not"]),
    st.sampled_from(["choose", "pick", "give it", "say", "vote for", "go with"]),
    st.sampled_from("ABC"),
)
def test_a_label_that_the_judge_refuses_never_wins(before, denial, verb, label):
    assert WINNER.read(" ".join([*before, "I", denial, verb, f"[[{label}]]"])).value is None


@given(WORDS, st.sampled_from("ABC"))
def test_a_sentence_before_the_verdict_denies_nothing(words, label):
    text = " ".join(["It is not", *words]) + f". [[{label}]]"
    assert WINNER.read(text).value == {"A": "A", "B": "B", "C": "tie"}[label]
