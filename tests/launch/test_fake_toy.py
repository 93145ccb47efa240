"""The invented model by ids: what all dialects of the fake server rest on."""

import math

from hypothesis import given
from hypothesis import strategies as st

from launch._fake import language
from launch._fake.rules import Rules, Verdict
from launch._fake.toy import Toy, encode_marked

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


def test_a_judges_first_token_has_a_distribution_over_the_vocabulary():
    place = TOY.place("m", TOY.chat(JUDGED, opens=True))
    total = math.fsum(
        math.exp(TOY.logprob(place, i, Verdict())) for i in range(language.VOCABULARY)
    )
    assert 0.97 < total <= 1
