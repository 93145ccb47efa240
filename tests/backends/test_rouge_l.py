import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.rouge_l import Config, RougeL, RougeLKind, common_subsequence
from orchestrator.ask import GenerateAsk, SimilarityAsk
from orchestrator.backend import LOCAL, ComparesTexts, Endpoint
from orchestrator.errors import UsageError
from orchestrator.records import Failure, Message, Sampling
from tests.conftest import ROOT

few = st.lists(st.sampled_from("abcd"), max_size=12)


def by_table(first, second):
    """The textbook recursion."""
    best = np.zeros((len(first) + 1, len(second) + 1), int)
    for i, one in enumerate(first, 1):
        for j, other in enumerate(second, 1):
            same = best[i - 1, j - 1] + 1 if one == other else 0
            best[i, j] = max(best[i - 1, j], best[i, j - 1], same)
    return int(best[-1, -1])


@given(few, few)
def test_the_longest_common_subsequence_is_that_of_the_textbook(first, second):
    assert common_subsequence(first, second) == by_table(first, second)


def test_linus_example():
    # Lin 2004, section 3.1: S1 "police killed the gunman" is the reference.
    texts = ("police killed the gunman", "police kill the gunman", "the gunman kill police")
    found = RougeL("words").compare(texts)
    assert found.recall[1, 0] == pytest.approx(3 / 4)
    assert found.recall[2, 0] == pytest.approx(2 / 4)
    assert np.array_equal(found.recall, found.precision.T)


def test_words_are_compared_without_case_and_punctuation():
    found = RougeL("words").compare(("The cat, sat.", "the CAT sat"))
    assert found.precision[0, 1] == 1.0


def test_characters_of_chinese_are_tokens_of_their_own():
    found = RougeL("words").compare(("我喜欢 cats", "我不喜欢cats"))
    assert found.precision[0, 1] == 1.0
    assert found.recall[0, 1] == pytest.approx(4 / 5)


def test_characters_can_be_the_tokens():
    assert RougeL("characters").compare(("a b", "ab c")).recall[0, 1] == pytest.approx(2 / 3)


def test_an_empty_text_is_like_none_not_even_itself():
    found = RougeL("words").compare(("", "x", "?!"))
    assert found.precision.tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_no_texts_make_no_scores():
    assert RougeL("words").compare(()).precision.shape == (0, 0)


async def test_it_compares_off_the_event_loop_and_does_nothing_else():
    backend = RougeLKind(Config()).connect(Endpoint(base_url=LOCAL, model="rouge_l:words"))
    assert isinstance(backend, ComparesTexts)
    found = await backend.similarity(SimilarityAsk("rouge_l:words", ("a b", "a c")))
    assert not isinstance(found, Failure)
    assert found.precision[0, 1] == pytest.approx(0.5)
    refused = await backend.generate(GenerateAsk("m", (Message("user", "q"),), Sampling()), 0)
    assert isinstance(refused, Failure)
    assert refused.cause == "unsupported"
    await backend.close()


def test_it_has_no_address():
    with pytest.raises(UsageError, match="in this process"):
        RougeLKind(Config()).connect(Endpoint(base_url="http://127.0.0.1:1", model="m"))


def test_what_a_token_is_is_part_of_its_identity():
    assert RougeLKind(Config()).identity(ROOT) != RougeLKind(Config(tokens="characters")).identity(
        ROOT
    )
