import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import numbers
from orchestrator.numbers import EN_DASH, UNDEFINED

NAN, INF = math.nan, math.inf

TABLE = [
    (numbers.count, (12345,), "12,345"),
    (numbers.count, (0,), "0"),
    (numbers.compact, (999,), "999"),
    (numbers.compact, (999.96,), "1.0k"),
    (numbers.compact, (12_345,), "12.3k"),
    (numbers.compact, (123_456,), "123k"),
    (numbers.compact, (999_960,), "1.0M"),
    (numbers.compact, (-1500,), "-1.5k"),
    (numbers.compact, (NAN,), UNDEFINED),
    (numbers.speed, (0.0,), "0"),
    (numbers.speed, (0.44,), "0.4"),
    (numbers.speed, (99.94,), "99.9"),
    (numbers.speed, (99.96,), "100"),
    (numbers.speed, (None,), UNDEFINED),
    (numbers.size, (512,), "512 B"),
    (numbers.size, (1_234_567,), "1.2 MB"),
    (numbers.rating, (1234.4,), "1,234"),
    (numbers.rating, (-0.2,), "0"),
    (numbers.rating, (NAN,), UNDEFINED),
    (numbers.rating, (INF,), UNDEFINED),
    (numbers.interval, (1180.2, 1290.4), "[1,180, 1,290]"),
    (numbers.interval, (1180.0, INF), "[1,180, open)"),
    (numbers.interval, (-INF, 1290.0), "(open, 1,290]"),
    (numbers.interval, (-INF, INF), "unbounded"),
    (numbers.interval, (NAN, 1.0), UNDEFINED),
    (numbers.difference, (212.3, 180.0, 245.0), "+212 [180, 245]"),
    (numbers.difference, (-3.0, -30.0, 24.0), "-3 [-30, 24]"),
    (numbers.difference, (-0.3, -9.0, 9.0), "+0 [-9, 9]"),
    (numbers.difference, (NAN, NAN, NAN), UNDEFINED),
    (numbers.difference, (INF, 40.0, INF), "≥ 40"),
    (numbers.probability, (0.617,), "0.62"),
    (numbers.probability, (0.0,), "0.00"),
    (numbers.probability, (0.0001,), "<0.01"),
    (numbers.probability, (0.9999,), ">0.99"),
    (numbers.probability, (1.0,), "1.00"),
    (numbers.probability, (NAN,), UNDEFINED),
    (numbers.percent, (0.1234,), "12.3 %"),
    (numbers.percent, (0.0,), "0.0 %"),
    (numbers.percent, (0.0001,), "<0.1 %"),
    (numbers.percent, (0.9999,), ">99.9 %"),
    (numbers.percent, (1.0,), "100.0 %"),
    (numbers.percent, (NAN,), UNDEFINED),
    (numbers.percent, (-1e-17, -0.044, 0.044), "0.0 % [-4.4, 4.4]"),
    (numbers.percent, (0.1234, 0.101, 0.149), "12.3 % [10.1, 14.9]"),
    (partial(numbers.percent, decimals=0), (0.84, 0.81, 0.86), "84 % [81, 86]"),
    (partial(numbers.percent, decimals=0), (0.9999,), ">99 %"),
    (partial(numbers.percent, sign="+"), (0.0321,), "+3.2 %"),
    (partial(numbers.percent, sign="+"), (-0.5,), "-50.0 %"),
    (partial(numbers.percent, sign="+"), (-0.0003,), "+0.0 %"),
    (partial(numbers.percent, sign="+"), (NAN,), UNDEFINED),
    (partial(numbers.percent, sign="+"), (0.0321, 0.021, 0.043), "+3.2 % [2.1, 4.3]"),
    (numbers.level, (0.95,), "95 %"),
    (numbers.level, (0.999,), "99.9 %"),
    (numbers.duration, (0.04,), "0.0 s"),
    (numbers.duration, (9.94,), "9.9 s"),
    (numbers.duration, (9.96,), "10 s"),
    (numbers.duration, (59.6,), "1 min 00 s"),
    (numbers.duration, (192.0,), "3 min 12 s"),
    (numbers.duration, (7_530.0,), "2 h 05 min"),
    (numbers.duration, (273_600.0,), "3 d 4 h"),
    (numbers.duration, (None,), UNDEFINED),
    (numbers.duration, (INF,), UNDEFINED),
    (numbers.clock, (3670.9,), "1:01:10"),
    (numbers.money, (12.4,), "12.40"),
    (numbers.money, (0.0,), "0.00"),
    (numbers.money, (0.00123,), "0.0012"),
    (numbers.money, (None,), UNDEFINED),
    (numbers.money, (1e308,), "1e+308"),
    (numbers.money_of, (5.0, 1e308), "5 of 1e+308"),
]


@pytest.mark.parametrize(("function", "arguments", "expected"), TABLE)
def test_numbers_read_as_people_write_them(function, arguments, expected):
    assert function(*arguments) == expected


def test_an_exact_count_has_no_bound_sign():
    assert numbers.at_most(1200, exact=True) == "1,200"


def test_a_bound_says_at_most():
    assert numbers.at_most(1200, exact=False) == "≤ 1,200"


def test_nothing_left_is_exact():
    assert numbers.at_most(0, exact=False) == "0"


def test_a_rank_that_is_open_is_a_range():
    assert numbers.rank(2, 3) == f"2{EN_DASH}3"


def test_a_known_rank_is_one_number():
    assert numbers.rank(2, 2) == "2"


@given(st.floats(1e-9, 1 - 1e-9))
def test_no_inner_probability_is_shown_as_certain(value):
    assert numbers.probability(value) not in {"0.00", "1.00"}
    assert numbers.percent(value) not in {"0.0 %", "100.0 %"}


@given(st.floats(0, 1e15))
def test_compact_numbers_stay_narrow(value):
    assert len(numbers.compact(value)) <= 5
