import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.judgment.similarity import token_f1, words


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("a b c", "a b c", 1.0),
        ("A, b; c!", "a b c", 1.0),
        ("a b c d", "a b", 2 * 2 / 6),
        ("a a b", "a b b", 2 * 2 / 6),
        ("a", "b", 0.0),
        ("", "a", 0.0),
        ("", "", 1.0),
        ("!?", "...", None),
    ],
)
def test_words_are_counted_as_often_as_both_texts_have_them(first, second, expected):
    assert token_f1(first, second) == (None if expected is None else pytest.approx(expected))


def test_characters_of_scripts_without_blanks_are_words():
    assert words("你好, world") == ["你", "好", "world"]


@given(st.text(), st.text())
def test_it_is_symmetric_and_at_most_1(first, second):
    found = token_f1(first, second)
    assert found == token_f1(second, first)
    assert found is None or 0.0 <= found <= 1.0
