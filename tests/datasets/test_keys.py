"""Keys that stand twice in a JSON object, halves of characters, and keys that are numbers."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.dataset.fields import key_text
from orchestrator.dataset.readers import not_json, repeated_key
from orchestrator.errors import DatasetError
from tests.datasets.test_open import opened

TEXTS = st.sampled_from(["a", 'x": 1', '\\"b":', "prompt", ""])
VALUES = st.recursive(
    st.none() | st.integers(-5, 5) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)


@given(VALUES, st.sampled_from([None, 1]))
def test_no_key_is_found_where_none_stands_twice(value, indent):
    text = json.dumps(value, indent=indent).encode()
    assert repeated_key(text, msgspec.json.decode(text)) is None


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (b'{"a": 1, "a": 2}', "a"),
        (b'{"a" : 1, "\\u0061":2}', "a"),
        (b'[{"x": {"b": 1, "c": "\\":", "b": 1}}]', "b"),
        (b'{"a": "no \\"key\\": here", "b": 1}', None),
    ],
)
def test_the_first_key_that_stands_twice_is_found(text, key):
    assert repeated_key(text, msgspec.json.decode(text)) == key


@given(st.text(st.characters(exclude_categories=[]), max_size=8), st.booleans())
def test_half_a_character_is_named_and_nothing_else(text, is_ascii):
    has_half = any("\ud800" <= one <= "\udfff" for one in text)
    line = json.dumps({"a": text}, ensure_ascii=is_ascii or has_half).encode()
    said = not_json(line, ValueError("malformed"))
    # Two halves that fit stand for one character when they are written one after the other.
    is_named = has_half and json.loads(line)["a"] == text
    assert said.startswith("has half a character") == is_named


@given(st.integers(-(2**53), 2**53))
def test_equal_numbers_are_one_key(number):
    forms = (number, float(number), str(number), f"{number}.0", f"{number}.00")
    assert {key_text(one) for one in forms} == {str(number)}


@given(st.text(max_size=6) | st.floats(allow_nan=False, allow_infinity=False))
def test_other_keys_stay_as_they_are(value):
    as_number = str(value).replace(".0", "")
    assert key_text(value) in {str(value), as_number}


def test_a_row_with_a_key_twice_is_a_fault_with_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = tmp_path / "x.jsonl"
    rows.write_text('{"prompt": "a"}\n{"prompt": "b", "prompt": "c"}\n')
    with pytest.raises(DatasetError, match=r"x\.jsonl:2: duplicate key 'prompt'"):
        opened(rows)
    whole = tmp_path / "x.json"
    whole.write_text('[{"prompt": "b", "prompt": "c"}]')
    with pytest.raises(DatasetError, match=r"x\.json: duplicate key 'prompt'"):
        opened(whole)
