"""Tables of runs side by side: the papers' tables, row by row and column by column."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.published import glass_box
from orchestrator.analyses import meta_evaluation
from orchestrator.errors import UsageError
from orchestrator.judgment.glass_box import PRINTED
from orchestrator.methods.glass_box import Kind as GlassBox
from orchestrator.report.export import beside, frame_of
from orchestrator.report.latex import latex
from orchestrator.tables import Cell, Column, Measured, make_table, table_columns
from tests.report.test_export import rows_of

SCORES = {name: score for score, name in PRINTED.items()}
COEFFICIENTS = ("Pearson", "Kendall tau-b", "Spearman")
# The paper spells three of its rows in two ways.
SPELT = {"PrmtEnsem-Var": "PrmEnsem-Var", "GPT3.5-Turbo": "GPT-3.5-Turbo"}


def headings(text):
    """The lines between \\toprule and \\midrule as cells, an empty one for no group."""
    head = text.split("\\toprule\n")[1].split("    \\midrule")[0]
    lines = [line.strip().removesuffix(r"\\") for line in head.splitlines()]
    group = re.compile(r"\\multicolumn\{\d+\}\{c\}\{(.*)\}")
    return [
        [group.sub(r"\1", cell.strip()) for cell in one.split("&")]
        for one in lines
        if not one.startswith(r"\cmidrule")
    ]


def within(place):
    """`meta_evaluation.within` with the printed numbers of one benchmark."""
    rows: list[list[Cell]] = []
    for (model, method), numbers in glass_box.printed().items():
        name = SPELT.get(method, method)
        cells = [Measured(value, -1.0, 1.0) for value in numbers[place : place + 3]]
        rows.append([model, SCORES.get(name, name), *cells, 80, 0])
    return make_table("meta_evaluation.within", "Within", meta_evaluation._WITHIN, rows)


def test_table_1_of_the_glass_box_paper_has_its_columns_rows_and_average():
    tables = {"MT-Bench": within(0), "Vicuna-Bench": within(3)}
    made = beside(tables, ["model", "score", *COEFFICIENTS], across="run", average=True)
    above, below = headings(latex(made, name="t"))
    assert above == ["", "MT-Bench", "Vicuna-Bench", ""]
    assert below == ["model", "score", *COEFFICIENTS, *COEFFICIENTS, "Average"]
    assert [row[:2] for row in made.rows] == [
        (model, SPELT.get(method, method)) for model, method in glass_box.printed()
    ]
    for row, numbers in zip(made.rows, glass_box.printed().values(), strict=True):
        assert row[2:8] == numbers[:6]
        # Print rounds halves up.
        assert row[8] == pytest.approx(numbers[6], abs=5.1e-5)
    assert {len(row) for row in rows_of(latex(made, name="t").replace("    \\m", "\\m"))} == {9}


def test_a_printed_name_is_that_of_a_column_of_the_method():
    known = {f"glass_box.{column}" for column in GlassBox.columns}
    plain = {score for score, name in PRINTED.items() if "+" not in name}
    assert {score for score in plain if score.startswith("glass_box.")} - known <= {
        "glass_box.combo_of_model"
    }
    in_print = {SPELT.get(method, method) for _, method in glass_box.printed()}
    assert in_print - set(SCORES) == {"GPT-3.5-Turbo"}


def tasks(**shares):
    columns = table_columns("model | answers: count | confidence: percent")
    rows: list[list[Cell]] = [
        [model, 20, Measured(share, 0.0, 1.0)] for model, share in shares.items()
    ]
    return make_table("probdiff", "ProbDiff", columns, rows, basis=f"{sum(shares.values())}")


def test_table_2_of_probdiff_has_a_column_for_each_run():
    tables = {"Cs-En": tasks(qwen=0.046, tuned=0.913), "De-En": tasks(qwen=0.011, tuned=0.94)}
    made = beside(tables, ["model", "confidence"], across="run")
    assert [column.name for column in made.columns] == ["model", "Cs-En", "De-En"]
    assert made.rows == (("qwen", 0.046, 0.011), ("tuned", 0.913, 0.94))
    assert made.basis == ""
    assert headings(latex(made, name="t")) == [["model", "Cs-En", "De-En"]]


def test_what_one_run_lacks_is_missing_and_has_no_average():
    made = beside(
        {"a": tasks(x=0.5, y=0.25), "b": tasks(x=0.75)},
        ["model", "confidence"],
        across="run",
        average=True,
    )
    assert made.rows == (("x", 0.5, 0.75, 0.625), ("y", 0.25, None, None))


def test_without_groups_rows_follow_each_other_with_their_intervals():
    made = beside({"a": tasks(x=0.5), "b": tasks(x=0.75)})
    assert [column.name for column in made.columns] == ["run", "model", "answers", "confidence"]
    assert frame_of(made)["confidence.low"].to_list() == [0.0, 0.0]
    (row,) = beside({"a": tasks(x=0.5, y=0.25)}, where={"model": "y"}).rows
    assert row[:2] == ("y", 20)


def test_columns_of_other_runs_keep_their_headings():
    other = make_table(
        "probdiff", "ProbDiff", [Column("model"), Column("new", "count")], [["x", 3]]
    )
    made = beside({"a": tasks(x=0.5), "b": other})
    assert [[getattr(cell, "value", cell) for cell in row] for row in made.rows] == [
        ["a", "x", 20, 0.5, None],
        ["b", "x", None, None, 3],
    ]


def test_rows_that_would_hide_each_other_are_refused():
    table = make_table(
        "t",
        "T",
        table_columns("model | delta: signed 2 | share: percent"),
        [["x", 0.0, 0.1], ["x", -0.05, 0.2]],
    )
    with pytest.raises(UsageError, match="several rows for run 'a': choose some with --where"):
        beside({"a": table, "b": table}, across="run")
    made = beside({"a": table}, ["model", "share"], across="delta")
    assert [column.name for column in made.columns] == ["model", "+0.00", "-0.05"]
    assert made.rows == (("x", 0.1, 0.2),)


@pytest.mark.parametrize(
    "where", [{"wanted": ["modl"]}, {"where": {"modl": "x"}}, {"across": "modl"}]
)
def test_an_unknown_column_names_the_nearest(where):
    with pytest.raises(UsageError, match="no column 'modl' in this table; did you mean 'model'"):
        beside({"a": tasks(x=0.5)}, **where)


@given(
    st.lists(
        st.dictionaries(st.sampled_from("xyz"), st.floats(0, 1), min_size=1), min_size=1, max_size=4
    )
)
def test_every_number_stands_once_under_its_run(runs):
    tables = {f"run {at}": tasks(**shares) for at, shares in enumerate(runs)}
    made = beside(tables, ["model", "confidence"], across="run")
    names = [column.name for column in made.columns]
    found = {
        (row[0], name): value
        for row in made.rows
        for name, value in zip(names[1:], row[1:], strict=True)
    }
    assert {key: value for key, value in found.items() if value is not None} == {
        (model, f"run {at}"): share
        for at, shares in enumerate(runs)
        for model, share in shares.items()
    }
