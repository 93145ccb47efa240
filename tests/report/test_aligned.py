"""Tables on a terminal: numbers in columns, and rows that can be told apart in every part."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from orchestrator.report.generic import generic_table
from orchestrator.tables import Column, Measured, make_table
from tests.report.samples import printed

ALIKE = "meta-llama_Llama-3.1-70B-Instruct-with-a-very-long-description-of-the-tuning"
HARD = (
    "نموذج-كبير",
    "通义千问-72B-指令",
    "🦙llama",
    "Ψηφιακό",
    *(f"{ALIKE}-v{i}" for i in range(4)),
)
WIDTHS = (80, 100, 120)
RATINGS = (
    ("expert", Measured(1114.0, 1083.0, 1145.0, 40)),
    ("novice", Measured(97.0, 47.0, 148.0, 40)),
    ("nobody", Measured(None, why="no judgments")),
)


def drawn(columns, rows, width=100):
    """Lines of the rows under their heading, without the title."""
    return printed(generic_table(make_table("k", "Title", columns, rows)), width).splitlines()[1:]


def test_values_end_in_one_column_and_intervals_begin_in_one_beside_them():
    heading, *lines = drawn([Column("model"), Column("rating", "rating")], RATINGS)
    assert heading == "model   rating n=40"
    assert lines == [
        "expert  1,114 [1,083, 1,145]",
        "novice     97 [47, 148]",
        "nobody      \u2013 (no judgments)",
    ]


def test_sample_sizes_that_differ_stand_in_a_column_of_their_own():
    rows = [("a", Measured(0.5, 0.4, 0.6, 1200)), ("b", Measured(0.25, 0.123, 1.0, 60))]
    heading, *lines = drawn([Column("model"), Column("right", "percent")], rows)
    assert heading == "model   right"
    assert lines == ["a      50.0 % [40.0, 60.0]  n=1,200", "b      25.0 % [12.3, 100.0]    n=60"]


def test_decimal_points_stand_in_one_column():
    rows = [("a", Measured(0.5)), ("b", Measured(-12.25)), ("c", Measured(None)), ("d", 100.0)]
    _, *lines = drawn([Column("model"), Column("d", "number", 2)], rows)
    assert {line.index(".") for line in lines if "." in line} == {len("model  ") + 3}


def test_a_long_heading_begins_where_its_values_begin():
    rows = [("a", Measured(0.5, 0.4, 0.6)), ("b", Measured(0.25, 0.1, 1.0))]
    heading, first, _ = drawn([Column("model"), Column("same verdict", "percent")], rows)
    assert heading.index("same verdict") == first.index("50.0 %")


def test_an_interval_stands_under_its_value_where_it_does_not_fit_beside():
    columns = [Column("model"), *(Column(f"measure {i}", "percent") for i in range(5))]
    rows = [(name, *(Measured(0.5, 0.25, 0.75) for _ in range(5))) for name in ("a", "b")]
    heading, first, under, *_ = drawn(columns, rows, 80)
    assert heading.split()[-1] == "4"
    assert first.count("50.0 %") == under.count("[25.0, 75.0]") == 5


def test_each_part_of_a_table_says_which_row_it_continues():
    columns = [Column("model"), Column("feature"), *(Column(f"m{i}", "percent") for i in range(9))]
    rows = [
        (model, feature, *(Measured(0.5, 0.25, 0.75) for _ in range(9)))
        for model in ("a", "b")
        for feature in ("one", "two")
    ]
    lines = drawn(columns, rows, 80)
    assert len([line for line in lines if line.startswith("model  feature")]) > 1
    begins = [tuple(line.split()[:2]) for line in lines if line[:1] in ("a", "b")]
    assert set(begins) == {("a", "one"), ("a", "two"), ("b", "one"), ("b", "two")}


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("keys", ["nmj", "mnj", "mj", "nm", "n"])
def test_each_part_keeps_the_columns_that_name_its_rows(keys, width):
    """Of n(umbers), m(odels) and j(udges) that only together tell the rows apart."""
    known: dict[str, list[Any]] = {
        "n": [-0.1, -0.2],
        "m": ["probdiff-long-name-one", "probdiff-long-name-two"],
        "j": ["judge", "jury"],
    }
    columns = [Column(key, "signed" if key == "n" else "text") for key in keys]
    columns += [Column(f"measure {i}", "percent") for i in range(12)]
    measured = [Measured(0.5, 0.25, 0.75)] * 12
    values = [known[key] for key in keys]
    rows: list[Any] = [(*named, *measured) for named in itertools.product(*values)]
    lines = drawn(columns, rows, width)
    headings = [at for at, line in enumerate(lines) if "measure" in line]
    assert len(headings) > 1
    for begin, end in zip(headings, [*headings[1:], len(lines)], strict=True):
        heads = {
            line.partition(" 50.0 %")[0].strip() for line in lines[begin:end] if "50.0 %" in line
        }
        assert len(heads) == len(rows)


def test_columns_of_words_share_the_width_before_the_table_is_cut():
    """A setting stands beside both of its values."""
    columns = [Column("setting"), Column("A"), Column("B")]
    rows = [("models.apprentice.limits.max_in_flight", "32", "a long description " * 4)]
    heading, line, *rest = drawn(columns, rows, 80)
    assert heading.split() == ["setting", "A", "B"]
    assert "32" in line
    said = " ".join([line[line.index("a long") :], *rest]).split()
    assert said == ["a", "long", "description"] * 4


CELLS = st.one_of(
    st.none(),
    st.builds(
        Measured,
        st.none() | st.floats(-1e6, 1e6),
        st.none() | st.floats(-1e6, 1e6),
        st.none() | st.floats(-1e6, 1e6),
        st.none() | st.integers(1, 10**6),
        st.sampled_from(["", "no judgments of both models of this pair by this judge alone"]),
    ),
)


@given(
    st.lists(st.tuples(st.sampled_from(HARD), CELLS, CELLS, CELLS), min_size=1, unique_by=id),
    st.sampled_from(WIDTHS),
)
def test_no_line_is_wider_than_the_terminal_and_no_number_is_lost(rows, width):
    columns = [Column("model"), *(Column(f"a measure of {i}", "signed") for i in range(3))]
    lines = drawn(columns, rows, width)
    assert max(map(cell_len, lines)) <= width
    for cell in (cell for row in rows for cell in row[1:] if cell is not None and cell.value):
        assert any(f"{round(cell.value, 3) + 0.0:+.3f}" in line for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_names_that_are_cut_keep_what_differs(width):
    columns = [Column("model"), *(Column(f"m{i}", "percent") for i in range(4))]
    rows = [(name, *(Measured(0.5, 0.25, 0.75) for _ in range(4))) for name in HARD]
    lines = drawn(columns, rows, width)
    names = [line.split()[0] for line in lines if "50.0 %" in line]
    assert len(set(names)) == len(names) == len(HARD)
    # Values stand in the same columns of the screen behind names of every width.
    ends = {cell_len(line[: line.index("50.0 %")]) for line in lines if "50.0 %" in line}
    assert len(ends) == 1
