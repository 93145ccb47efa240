"""Differences between two reports that count."""

import json
import math

import pytest

from tools.same_frames import differing, results


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"a": 1.0}, {"a": 1.0}),
        ({"a": math.nan}, {"a": math.nan}),
        ({"note": "as it was"}, {"note": "in other words"}),
        ([1, [2, None]], [1, [2, None]]),
    ],
)
def test_the_same_numbers_are_equal(old, new):
    assert differing("report", old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-15}, "report.a: 1.0, then 1.000000000000001"),
        ({"a": 0.0}, {"a": None}, "report.a: 0.0, then None"),
        ({"a": 1}, {}, "report.a is only in one of them"),
        ([1, 2], [1], "report has 2 entries, then 1"),
        ([{"a": "x"}], [{"a": 3}], "report[0].a: 'x', then 3"),
    ],
)
def test_another_number_or_shape_is_a_difference(old, new, said):
    assert differing("report", old, new) == [said]


def test_reports_of_two_formats_are_compared_by_their_rankings_and_tables():
    ranking, table = {"models": ["a"], "rating": 1000.0}, {"key": "t", "rows": [[1]]}
    old = json.dumps([{"brief": {"cost": 1}}, {"complete": True, **ranking}, table])
    new = json.dumps({"brief": {"cost": 2}, "rankings": [ranking], "tables": [table]})
    assert results(old) == results(new) == [ranking, table]
    other = json.dumps({"rankings": [{**ranking, "rating": 1001.0}], "tables": [table]})
    assert differing("report", results(new), results(other))
