"""Keys of asks, and how `Ask` builds them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ask import Ask, DigestAround, ScoreAsk, digest
from orchestrator.records import Generation, Message

PROMPT = (Message("user", "What is 2 + 2?"),)
DRAWN = Generation("four", "stop", token_ids=np.array([5, 6], np.int32))


def key(ask: ScoreAsk) -> bytes:
    return ask.key(b"identity", 0)


def test_an_answer_is_scored_by_the_tokens_it_was_drawn_with() -> None:
    asked = Ask().score("m", PROMPT, DRAWN, top_logprobs=3)
    assert (asked.token_ids, asked.text, asked.top_logprobs) == ((5, 6), "four", 3)


def test_a_text_is_scored_as_the_server_tokenises_it() -> None:
    asked = Ask().score("m", PROMPT, "four", end_of_turn=True)
    assert (asked.token_ids, asked.text, asked.end_of_turn) == ((), "four", True)


def test_the_order_of_features_makes_no_other_request() -> None:
    one = Ask().score("m", PROMPT, DRAWN, features=("entropy", "attention_entropy"))
    other = Ask().score("m", PROMPT, DRAWN, features=["attention_entropy", "entropy", "entropy"])
    assert key(one) == key(other)
    assert one == other


def test_a_feature_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match="mood"):
        _ = Ask().score("m", PROMPT, DRAWN, features=("mood",))


def test_what_is_observed_in_a_scoring_pass_is_part_of_its_key() -> None:
    asks = [
        ScoreAsk("m", PROMPT, (5, 6)),
        ScoreAsk("m", PROMPT, (5, 6), top_logprobs=3),
        ScoreAsk("m", PROMPT, (5, 6), features=("entropy",)),
        ScoreAsk("m", PROMPT, (5, 6), features=("vocab_logprob_var",)),
        ScoreAsk("m", PROMPT, (5, 6), top_logprobs=3, features=("entropy",)),
        ScoreAsk("m", PROMPT, (5, 6), features=("entropy",), end_of_turn=True),
        ScoreAsk("m", PROMPT, (5, 6), end_of_turn=True),
    ]
    assert len({key(ask) for ask in asks}) == len(asks)


def test_scores_stored_before_there_were_features_keep_their_keys() -> None:
    assert key(ScoreAsk("m", PROMPT, (5, 6))).hex() == "d4112991ef60242f5e58dd2fbae9a776"
    assert (
        key(ScoreAsk("m", PROMPT, (5, 6), top_logprobs=3)).hex()
        == "4cd3ebba047933e4702bc9357b906f80"
    )


@given(
    before=st.tuples(st.binary(min_size=16, max_size=16)),
    after=st.lists(st.text() | st.integers(0, 2**32) | st.tuples(st.text(), st.none())),
    address=st.binary(min_size=16, max_size=16),
)
def test_a_digest_around_an_address_is_that_of_all_parts(before, after, address) -> None:
    assert DigestAround(before, after).of(address) == digest(*before, address, *after)
