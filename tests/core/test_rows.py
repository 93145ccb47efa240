"""Rows keep to the columns that their method declares, or are the method's fault."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import frames
from orchestrator.columns import COLUMN_TYPES, pack_row
from orchestrator.errors import MethodError
from orchestrator.frames import make_frame
from orchestrator.records import Failure, Item, Message, Unit
from orchestrator.store.values import decode, encode
from tests.core.fakes import contract

UNIT = Unit(Item(key="i7", messages=(Message("user", "?"),)), ("weak", "strong"), "judge")
OK = {"status": "ok"}


def of(type_):
    """The contract of rows with one value of a type."""
    return contract(unit_columns={}, columns={"x": type_}, identify=lambda self, unit: {})


def refused(made, *rows):
    with pytest.raises(MethodError) as caught:
        made.check(list(rows), UNIT)
    return str(caught.value)


def test_contract_and_frames_know_the_same_types():
    assert tuple(frames._DTYPES) == COLUMN_TYPES


def test_a_good_row_is_returned_as_it_is():
    row = {"x": 1.5, **OK}
    assert of("f64").check([row], UNIT) == [row]
    assert of("f64").check([], UNIT) == []


def test_an_unknown_column_is_named_with_method_unit_and_the_nearest_name():
    made = contract(columns={"score": "f64"})
    said = refused(made, {"scroe": 1.0, **OK})
    assert "method 'fake'" in said
    assert "'scroe'" in said
    assert "did you mean 'score'?" in said
    assert "item 'i7', models weak, strong, judge judge" in said


def test_an_unknown_column_beside_all_known_ones_is_refused():
    assert "'y'" in refused(of("f64"), {"x": 1.0, "y": 1.0, **OK})
    assert "'method'" in refused(of("f64"), {"x": 1.0, "method": "mine", **OK})


def test_a_missing_column_of_a_good_row_is_refused_and_none_is_not():
    assert "a row has no 'x'" in refused(of("f64"), OK)
    of("f64").check([{"x": None, **OK}], UNIT)


def test_every_row_of_a_unit_is_checked():
    assert "can't hold 'high' (str)" in refused(of("f64"), {"x": 1.0, **OK}, {"x": "high", **OK})


def test_a_failed_row_may_leave_out_columns_but_needs_a_cause():
    of("f64").check([{"status": "failed", "cause": "unparseable"}], UNIT)
    assert "no 'cause'" in refused(of("f64"), {"status": "failed"})
    assert "which is no column of the method" in refused(
        of("f64"), {"status": "failed", "cause": "a", "y": 1}
    )


@pytest.mark.parametrize("status", ["okay", None, 1])
def test_a_status_is_ok_or_failed(status):
    assert "status" in refused(of("f64"), {"x": 1.0, "cause": "c", "status": status})


def test_a_row_without_a_status_is_ok():
    assert of("f64").check([{"x": 1.0}], UNIT) == [{"x": 1.0, **OK}]


def test_one_row_may_be_returned_without_a_list():
    assert of("f64").check({"x": 1.0}, UNIT) == [{"x": 1.0, **OK}]
    with pytest.raises(MethodError, match="returned str, not a row or a list of rows"):
        of("f64").check("x", UNIT)


def test_what_identifies_a_unit_may_be_left_out():
    (row,) = contract(columns={"score": "f64"}).check([{"score": 0.5}], UNIT)
    assert row == {"item": "i7", "models": "weak/strong", "score": 0.5, **OK}


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("str", 1),
        ("str", b"bytes"),
        ("f64", "1.0"),
        ("f64", True),
        ("f64", 1 << 70),
        ("f64", 1j),
        pytest.param("f64", 10**5000, id="f64-5001 digits"),
        ("i64", 1.5),
        ("i64", float("nan")),
        ("i64", float("inf")),
        ("i64", 1 << 63),
        ("i64", -(1 << 63) - 1),
        ("i64", 1e19),
        ("i64", False),
        ("i64", "1"),
        ("bool", 1),
        ("bool", "yes"),
        ("list[f64]", 1.0),
        ("list[f64]", [1.0, "2"]),
        ("list[f64]", [[1.0]]),
        ("list[f64]", np.zeros(2)),
        ("list[f64]", "abc"),
        ("list[str]", ["a", 1]),
        ("list[str]", {"a": 1}),
    ],
)
def test_a_value_that_the_column_can_t_hold_is_refused(type_, value):
    said = refused(of(type_), {"x": value, **OK})
    assert "column 'x' can't hold" in said
    assert "item 'i7'" in said
    assert len(said) < 400


REALS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
FINITE32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
HELD = {
    "str": TEXTS,
    "f64": REALS | FINITE32.map(np.float32) | FINITE.map(np.float64),
    "i64": st.integers(-(1 << 63), (1 << 63) - 1)
    | st.integers(-(1 << 53), 1 << 53).map(float)
    | st.integers(-(1 << 63), (1 << 63) - 1).map(np.int64),
    "bool": st.booleans() | st.booleans().map(np.bool_),
    "list[f64]": st.lists(st.none() | REALS) | st.lists(FINITE).map(tuple),
    "list[str]": st.lists(st.none() | TEXTS),
}


@pytest.mark.parametrize("type_", COLUMN_TYPES)
@given(data=st.data())
def test_what_the_check_lets_through_is_stored_and_stands_in_a_frame(type_, data):
    values = data.draw(st.lists(st.none() | HELD[type_], min_size=1, max_size=4))
    made = of(type_)
    rows = made.check([{"x": value, **OK} for value in values], UNIT)
    stored = decode(encode([pack_row(made.columns, row) for row in rows]))
    frame = make_frame(made.columns, stored)
    assert frame["x"].is_null().to_list() == [value is None for value in values]
    plain = [list(value) if isinstance(value, tuple) else value for value in values]
    if type_ in {"str", "i64", "bool", "list[str]"}:
        assert frame["x"].to_list() == plain


def test_the_row_of_a_failed_unit_has_what_identifies_it():
    made = contract()
    row = made.failed(UNIT, Failure("timeout", "nothing came"))
    assert row == {
        "item": "i7", "models": "weak/strong",
        "status": "failed", "cause": "timeout", "message": "nothing came",
    }  # fmt: skip


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, np.float32("nan"), np.float32("inf")]
)
def test_what_is_no_number_is_refused_and_not_stored(value):
    assert "a finite number, or None" in refused(of("f64"), {"x": value, **OK})
    assert "each entry a finite number" in refused(of("list[f64]"), {"x": [1.0, value], **OK})


def test_numbers_whose_sum_is_none_are_numbers():
    of("list[f64]").check([{"x": [1e308, 1e308, None, -1e308], **OK}], UNIT)


class Hostile:
    """A value whose own code ends the program."""

    def __repr__(self):
        raise SystemExit(0)


@pytest.mark.parametrize("type_", COLUMN_TYPES)
def test_a_value_that_breaks_while_it_is_shown_is_refused(type_):
    assert "can't hold a value that can't be shown" in refused(of(type_), {"x": Hostile(), **OK})


@pytest.mark.parametrize(
    "known", [{"item": 1, "models": "m"}, {"item": "i", "models": "m", "other": "x"}]
)
def test_a_failed_unit_s_row_is_held_to_the_contract_too(known):
    made = contract(identify=lambda self, unit: known)
    with pytest.raises(MethodError):
        made.failed(UNIT, Failure("timeout", "too slow"))
    good = contract().failed(UNIT, Failure("timeout", "too slow"))
    assert (good["status"], good["cause"]) == ("failed", "timeout")
