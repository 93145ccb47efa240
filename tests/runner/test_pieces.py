"""Tokens as pieces of their text."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.runner.results.token_texts import pieces, spelled

UNKNOWN = "\N{REPLACEMENT CHARACTER}".encode()


def cut(text: str, places: list[int]) -> list[bytes]:
    """The bytes of a text, cut at these places."""
    whole = text.encode()
    bounds = [0, *sorted({place for place in places if 0 < place < len(whole)}), len(whole)]
    return [whole[a:b] for a, b in pairwise(bounds)]


texts = st.text(alphabet=st.sampled_from("ab \n<>é日👩‍م|"), min_size=1, max_size=12)


@given(texts, st.lists(st.integers(0, 40)))
def test_pieces_spell_the_text_wherever_it_is_cut(text, places):
    tokens = cut(text, places)
    found = pieces(tokens, text)
    assert "".join(found) == text
    assert len(found) == len(tokens)


@given(texts, st.lists(st.integers(0, 40)))
def test_bytes_that_a_server_can_t_tell_are_told_by_their_neighbours(text, places):
    tokens = [one if spelled(one).encode() == one else UNKNOWN for one in cut(text, places)]
    assert "".join(pieces(tokens, text)) == text


def test_a_character_belongs_to_the_token_that_completes_it():
    assert pieces([b"a\xe6", b"\x97", b"\xa5b"], "a日b") == ["a", "", "日b"]
    assert pieces([b"a", UNKNOWN, UNKNOWN, b"b"], "a日b") == ["a", "", "日", "b"]
    assert pieces([b"a", None, b"c"], "abc") == ["a", "b", "c"]
    assert pieces([UNKNOWN, UNKNOWN], "日") == ["", "日"]


def test_special_tokens_stand_for_themselves_beside_the_text():
    tokens = [b"<|im_start|>", b"a", b" b", b"</s>"]
    assert pieces(tokens, "a b") == ["<|im_start|>", "a", " b", "</s>"]
    assert pieces([b"<b>", b"a"], "<b>a") == ["<b>", "a"]


def test_white_space_that_the_server_stripped_is_left_out():
    assert pieces([b" a", b" b", b"\n"], "a b") == ["a", " b", ""]


def test_a_text_that_nobody_knows_is_what_the_tokens_spell():
    assert pieces([b"a\xe6", b"\x97\xa5"], "") == ["a", "日"]


def test_tokens_of_another_text_stand_alone():
    assert pieces([b"x", b"\xe6", None], "abc") == ["x", "<0xE6>", ""]


@pytest.mark.parametrize(
    ("token", "shown"),
    [(b" the", " the"), (b"\xe2\x80", "<0xE2><0x80>"), (b"a\xff", "a<0xFF>"), (b"", "")],
)
def test_bytes_that_are_no_character_are_written_out(token, shown):
    assert spelled(token) == shown
