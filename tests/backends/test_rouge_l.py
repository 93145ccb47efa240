import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.rouge_l import Kind, common_subsequence, compared
from orchestrator.ask import GenerateAsk, SimilarityAsk
from orchestrator.backend import LOCAL, Endpoint
from orchestrator.contracts.settings import RougeLSettings
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
    found = compared(texts, "words")
    assert found.recall[1, 0] == pytest.approx(3 / 4)
    assert found.recall[2, 0] == pytest.approx(2 / 4)
    assert np.array_equal(found.recall, found.precision.T)


def test_words_are_compared_without_case_and_punctuation():
    found = compared(("The cat, sat.", "the CAT sat"), "words")
    assert found.precision[0, 1] == 1.0


def test_characters_of_chinese_are_tokens_of_their_own():
    found = compared(("我喜欢 cats", "我不喜欢cats"), "words")
    assert found.precision[0, 1] == 1.0
    assert found.recall[0, 1] == pytest.approx(4 / 5)


def test_characters_can_be_the_tokens():
    assert compared(("a b", "ab c"), "characters").recall[0, 1] == pytest.approx(2 / 3)


BY_PACKAGE = {
    "The cat sat. The dog ran.": (1, 5 / 6, 0, 0, 1 / 6, 1 / 6),
    "The dog sat. A cat ran away!": (5 / 7, 1, 0, 0, 0, 0),
    "Yes. Yes. No": (0, 0, 1, 0, 0, 0),
    "a b c a b": (0, 0, 0, 1, 2 / 3, 0),
    "b a c b a.": (1 / 4, 0, 0, 2 / 4, 1, 1 / 4),
    " . ..": (1, 0, 0, 0, 1, 1),
}
"""Precision of each text against all by `rouge` 1.0.1, each read with the end of its line:
`Rouge(["rouge-l"]).get_scores(one + "\\n", other + "\\n")[0]["rouge-l"]["p"]`."""


def test_by_sentence_it_is_that_of_the_package_of_the_peer_source():
    found = compared(tuple(BY_PACKAGE), "sentences")
    assert found.precision == pytest.approx(np.array(list(BY_PACKAGE.values())), abs=1e-7)
    assert found.recall[0, 1] == pytest.approx(5 / 7)
    assert found.recall[4, 5] == 1


def words_by_table(reference, hypothesis):
    """Words of one subsequence, recovered from the full table as the package goes through it."""
    best = np.zeros((len(reference) + 1, len(hypothesis) + 1), int)
    for i, one in enumerate(reference, 1):
        for j, other in enumerate(hypothesis, 1):
            best[i, j] = (
                best[i - 1, j - 1] + 1 if one == other else max(best[i - 1, j], best[i, j - 1])
            )
    i, j, found = len(reference), len(hypothesis), set()
    while i and j:
        if reference[i - 1] == hypothesis[j - 1]:
            found.add(reference[i - 1])
            i, j = i - 1, j - 1
        elif best[i - 1, j] > best[i, j - 1]:
            i -= 1
        else:
            j -= 1
    return found


sentences = st.lists(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=8), min_size=1, max_size=3
)


@given(sentences, sentences)
def test_by_sentence_words_of_all_subsequences_count_once(one, other):
    texts = tuple(". ".join(map(" ".join, text)) for text in (one, other))
    found = compared(texts, "sentences")
    for k, (hypothesis, reference) in enumerate(((one, other), (other, one))):
        union = set()
        for part in reference:
            for words in hypothesis:
                union |= words_by_table(part, words)
        n, m = (len({word for part in text for word in part}) for text in (hypothesis, reference))
        assert found.precision[k, 1 - k] == pytest.approx(len(union) / n)
        assert found.recall[k, 1 - k] == pytest.approx(len(union) / m)


@pytest.mark.parametrize("tokens", ["words", "characters", "sentences"])
def test_of_texts_without_words_scores_are_shares_too(tokens):
    found = compared(("", "...", "\0. \ufeff.", ". " * 500, "x" * 5000), tokens)
    assert np.isfinite(found.precision).all()
    assert ((found.precision >= 0) & (found.precision <= 1)).all()
    assert not found.precision[0].any()


def test_an_empty_text_is_like_none_not_even_itself():
    found = compared(("", "x", "?!"), "words")
    assert found.precision.tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_no_texts_make_no_scores():
    assert compared((), "words").precision.shape == (0, 0)


async def test_it_compares_off_the_event_loop_and_does_nothing_else():
    backend = Kind(RougeLSettings()).connect(Endpoint(base_url=LOCAL, model="rouge_l:words"))
    found = await backend.similarity(SimilarityAsk("rouge_l:words", ("a b", "a c")))
    assert not isinstance(found, Failure)
    assert found.precision[0, 1] == pytest.approx(0.5)
    refused = await backend.generate(GenerateAsk("m", (Message("user", "q"),), Sampling()), 0)
    assert isinstance(refused, Failure)
    assert refused.cause == "unsupported"
    await backend.close()


def test_it_has_no_address():
    with pytest.raises(UsageError, match="in this process"):
        Kind(RougeLSettings()).connect(Endpoint(base_url="http://127.0.0.1:1", model="m"))


def test_what_a_token_is_is_part_of_its_identity():
    given = [RougeLSettings(tokens=tokens) for tokens in ("words", "characters", "sentences")]
    assert len({tuple(Kind(one).identity(ROOT).values()) for one in given}) == 3
