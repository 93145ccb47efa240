import json
import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import RecipeError
from orchestrator.recipe.source import MAX_VALUES, Source, dump_yaml, parse


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        ("-.5", -0.5),
        ("3.", 3.0),
        ("010", 10),
        ("+7", 7),
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2001-01-01", "2001-01-01"),
        ("1.2.3", "1.2.3"),
        ("gpt-4.1", "gpt-4.1"),
        ("", None),
        ("~", None),
        ("null", None),
        ("'5'", "5"),
        ("!!str 5", "5"),
        (".inf", math.inf),
        ("-.INF", -math.inf),
    ],
)
def test_scalars_are_those_of_yaml_1_2(written, value):
    data = parse(f"a: {written}", "f").data
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


def test_nan_is_a_number():
    assert math.isnan(parse("a: .NaN", "f").data["a"])


def test_keys_are_words_whatever_they_look_like():
    assert parse("1: a\ntrue: b\n3.5: c\nno: d", "f").data == {
        "1": "a",
        "true": "b",
        "3.5": "c",
        "no": "d",
    }


def test_every_value_has_its_line():
    source = parse("a: 1\nb:\n  - x\n  - c: 2\n    d:\n      3\n", "f")
    assert source.line(("a",)) == 1
    assert source.line(("b",)) == 2
    assert source.line(("b", 0)) == 3
    assert source.line(("b", 1, "d")) == 5
    assert source.line(("b", 1, "nothing", "there")) == 4


def test_a_key_given_twice_is_a_fault_that_names_both_lines():
    source = parse("a: 1\nb: {c: 1,\n  c: 2}\na: 3\n", "f")
    assert [str(fault) for fault in source.faults] == [
        "f:3: duplicate key 'c', first given on line 2",
        "f:4: duplicate key 'a', first given on line 1",
    ]


def test_an_anchor_may_be_used_again():
    assert parse("a: &x {b: [1]}\nc: *x", "f").data == {"a": {"b": [1]}, "c": {"b": [1]}}


def test_merged_keys_do_not_override_those_written_out():
    source = parse("a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  b: 3\n", "f")
    assert source.data["d"] == {"b": 3, "c": 2}
    assert source.line(("d", "b")) == 4
    assert source.line(("d", "c")) == 1
    assert source.faults == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n\t- b", "f:2: tab character"),
        ("a: 1\n---\nb: 2", "f:2: a second document"),
        ("a: [1", "f:1: a '{' or '\\[' that is not closed"),
        ("b: 1\na: {x: 1\n\n\n", "f:2: a '{' or '\\[' that is not closed"),
        ("a: [1}", "f:1: a '{' or '\\[' that is not closed"),
        ("b: 1\na: 'x\nc: 2\n", "f:2: a quote that is not closed"),
        ("a: 'it's'", "f:1: a wrong indent, or text behind a quote that closes"),
        ("a:\n  b: 1\n c: 2", "f:3: a wrong indent"),
        ('a: "\\q"', "f:1: a backslash in double quotes"),
        ("a: 1\nb\nc: 2", "f:3: a line without ': '"),
        ("a: - b", "f:1: a list that begins behind a key"),
        *((f"a: {sign}x", "f:1: a text that begins with .* must be in quotes") for sign in "%@`"),
        ("a: b: c", "f:1: a second ': '"),
        ("a: *b", "f:1: '\\*NAME' repeats what stands behind '&NAME'"),
        ("a: &x [*x]", "f:1: nested deeper"),
        ("a: &x {<<: *x}", "f:1: nested deeper"),
        ("[" * 10_000, "f:1: nested deeper"),
        ("a:\n  \x01", "f:2: the character U\\+0001"),
        ('"\\U12345678"', "f:1: cannot be read as YAML"),
        ("a: " + "x" * 1_000_001, "f:1: longer than"),
    ],
)
def test_what_is_no_yaml_is_reported_with_its_line(text, message):
    with pytest.raises(RecipeError, match=message):
        parse(text, "f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!python/name:os.system ", "the tag '!!python/name:os.system' is not supported"),
        ("a: !!int x", "the tag '!!int' is not supported"),
        ("a: !!binary aGk=", "the tag '!!binary' is not supported"),
        ("? [a]\n: b", "a key must be text"),
        ('a: "\\ud800"', "lone surrogate"),
        ('"\\ud800": a', "lone surrogate"),
        (f"a: {'9' * 30}", "more than 64 bits"),
        ("<<: 5", "'<<' needs a mapping"),
    ],
)
def test_what_yaml_has_and_a_recipe_has_not_is_a_fault(text, message):
    faults = parse(text, "f").faults
    assert [fault.line for fault in faults] == [1]
    assert message in faults[0].message


def test_an_alias_bomb_does_not_go_off():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    with pytest.raises(RecipeError, match=f"more than {MAX_VALUES:,} values"):
        parse("\n".join(lines), "f")


def test_a_byte_order_mark_is_skipped():
    assert parse(b"\xef\xbb\xbfa: 1", "f").data == {"a": 1}


def test_what_is_not_utf_8_is_reported_with_its_line():
    with pytest.raises(RecipeError, match="f:2: not UTF-8"):
        parse(b"a: 1\nb: \xff", "f")


def outcome(content: bytes | str) -> Source | RecipeError:
    """Parse a content; anything but data or a RecipeError fails the test."""
    try:
        return parse(content, "f")
    except RecipeError as error:
        return error


@settings(deadline=None)
@given(st.text() | st.binary(max_size=200))
def test_any_content_gives_data_or_faults_with_lines(content):
    found = outcome(content)
    assert all(fault.line >= 1 for fault in found.faults)
    assert isinstance(found, Source) or found.faults


_SIGNS = [*"a:-*&{}[]<!'\"#|>?,%\\1.~@` \n\t\ud800", "---", "...", "<<", "*x", "&x "]


@settings(deadline=None)
@given(st.lists(st.sampled_from(_SIGNS), max_size=40))
def test_anything_made_of_yaml_signs_gives_data_or_faults(signs):
    found = outcome("".join(signs))
    assert isinstance(found, Source) or found.faults


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["no", "1e-3", "010", "12:30", "~", "", "<<", "=", "0o7", "a: b", "a\n b\n"])
)
_DATA = st.recursive(
    _SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(), _DATA, max_size=4))
def test_what_is_dumped_is_read_back_the_same(data):
    text = dump_yaml(data)
    source = parse(text, "f")
    assert source.data == data
    assert source.faults == ()


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.sampled_from("abc"), _SCALARS))
def test_what_is_dumped_is_the_same_to_yaml_1_1(data):
    assert yaml.safe_load(dump_yaml(data)) == data


def test_texts_of_several_lines_are_dumped_as_blocks():
    assert dump_yaml({"a": "x\ny\n"}) == "a: |\n  x\n  y\n"


@given(data=st.dictionaries(st.text(), st.text(), max_size=3))
def test_json_is_read_as_json_reads_it(data):
    """With every character escaped: those beyond 16 bits by two escapes."""
    assert parse(json.dumps(data), "r.json").data == json.loads(json.dumps(data))
