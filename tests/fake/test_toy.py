"""The invented model by ids: what all dialects of the fake server rest on."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fake import language
from tests.fake.rules import Rules, Verdict
from tests.fake.toy import Sampling, Toy, encode_marked

TOY = Toy(Rules(), ["m"])
PLAIN = [{"role": "user", "content": "What is 2 + 2?"}]
JUDGED = [{"role": "user", "content": "A: bade kege lafe\nB: xoxo kofu zuku"}]


@given(st.text("bade <|end|> kofu\n", max_size=12))
def test_texts_come_back_from_their_ids(text):
    assert language.decode(encode_marked(text)) == text


@given(st.integers(0, 6), st.integers(1, 20))
def test_no_token_that_is_not_listed_is_likelier_than_those_listed(n_begun, k):
    ids = [*TOY.chat(PLAIN, opens=True), *language.encode("bade kofu lize gamu"[: 5 * n_begun])]
    place = TOY.place("m", ids)
    listed = dict(TOY.top(place, 65, k + 1, Verdict()))
    bound = min(value for token, value in listed.items() if token != 65)
    others = (i for i in range(0, language.VOCABULARY, 97) if i not in listed)
    assert all(TOY.logprob(place, i, Verdict()) <= bound for i in others)


def test_listed_alternatives_have_the_numbers_of_scores():
    place = TOY.place("m", TOY.chat(PLAIN, opens=True))
    for token, value in TOY.top(place, 65, 5, Verdict()):
        assert value == TOY.logprob(place, token, Verdict())


@given(st.integers(0, 12), st.booleans())
@settings(max_examples=3, deadline=None)
def test_the_tokens_after_a_begun_answer_have_probabilities_that_add_up_to_one(n_begun, on_its_way):
    ids = TOY.chat(PLAIN, opens=True)
    begun = TOY.draw("m", ids, Sampling(limit=n_begun or 1), Verdict()).ids[:n_begun]
    ids += begun if on_its_way else language.encode("bade kofu lize gamu"[:n_begun])
    place = TOY.place("m", ids)
    total = math.fsum(
        math.exp(TOY.logprob(place, i, Verdict())) for i in range(language.VOCABULARY)
    )
    assert total == pytest.approx(1, abs=1e-6)


def test_a_greedy_answer_goes_on_with_the_likeliest_token():
    ids = TOY.chat(PLAIN, opens=True)
    drawn = TOY.draw("m", ids, Sampling(limit=99), Verdict()).ids
    assert drawn[-1] == language.END
    for n, token in enumerate(drawn):
        place = TOY.place("m", [*ids, *drawn[:n]])
        (_, value), (_, next_best) = TOY.top(place, token, 2, Verdict())
        assert value > next_best


def test_a_judges_first_token_has_a_distribution_over_the_vocabulary():
    place = TOY.place("m", TOY.chat(JUDGED, opens=True))
    total = math.fsum(
        math.exp(TOY.logprob(place, i, Verdict())) for i in range(language.VOCABULARY)
    )
    assert 0.97 < total <= 1
