from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.report.html import methods
from orchestrator.report.html.figures import Material
from orchestrator.tables import Column, Curves, Measured, make_table

COLUMNS = (Column("model"), Column("labels", "count"), Column("with, points"), Column("without"))


def drawn(rows, columns=COLUMNS, **curves):
    wanted = {"x": "labels", "y": ("with, points",), "title": "half width", "each": "model"}
    table = make_table("power", "Power", columns, rows, curves=Curves(**wanted | curves))
    return methods.curves(cast(Material, SimpleNamespace(tables=[table])))


def test_a_curve_for_each_name_with_the_intervals_of_its_cells():
    rows = [("a", 25, 3.0, 4.0), ("a", 50, Measured(2.0, 1.5, 2.5), 3.0), ("b", 25, None, 9.0)]
    (figure,) = drawn(rows)
    assert figure.picture.groups == ["a"]
    assert [(row["x"], row["value"], row["low"]) for row in figure.picture.rows] == [
        (25.0, 3.0, None),
        (50.0, 2.0, 1.5),
    ]
    assert figure.picture.rows[1]["tip"] == "a: 2.000 [1.500, 2.500] at 50 labels"


def test_several_columns_are_several_curves_named_without_their_unit():
    (figure,) = drawn([("a", 25, 3.0, 4.0)], y=("with, points", "without"))
    assert figure.picture.groups == ["a, with", "a, without"]


@pytest.mark.parametrize("rows", [[], [("a", 25, None, None)]])
def test_a_table_without_a_value_is_not_drawn(rows):
    assert drawn(rows) == []


def test_of_many_curves_the_first_are_drawn_and_the_sentence_says_so():
    (figure,) = drawn([(f"m{k}", 25, 1.0, 1.0) for k in range(20)])
    assert len(figure.picture.groups) == len(figure.picture.rows) == 8
    assert "the first 8 of 20 curves" in figure.says


def test_names_from_outside_are_harmless():
    (figure,) = drawn([("<b>\x1b[31mx", 25, 1.0, 1.0)])
    assert "\x1b" not in str(figure.picture)
