import msgspec
import pytest
from rich.console import Console

from orchestrator.report.brief import brief
from orchestrator.report.brief_text import brief_text
from orchestrator.report.generic import generic_json, generic_markdown, generic_table
from orchestrator.tables import Column, Measured, cell_text, make_table

TABLE = make_table(
    "made.up",
    "Made up",
    [Column("model"), Column("right", "percent"), Column("n", "count")],
    [["a", Measured(0.5, 0.4, 0.6), 1200], ["b|<x>", Measured(None, why="one item"), None]],
    basis="12 prompts",
    notes=["a note"],
)
COUNTS = tuple(Column(name) for name in ("what", "right", "n"))


def shown(width=100):
    console = Console(width=width)
    with console.capture() as captured:
        console.print(generic_table(TABLE))
    return [" ".join(line.split()) for line in captured.get().splitlines()]


def test_a_table_says_what_it_rests_on_and_why_a_number_is_missing():
    lines = shown()
    assert "Made up 12 prompts" in lines
    assert "a 50.0 % [40.0, 60.0] 1,200" in lines
    assert "b|<x> \u2013 (one item) \u2013" in lines


def test_a_table_is_a_document_with_null_for_what_is_undefined():
    document = generic_json(TABLE)
    assert document["table"] == "made.up"
    assert document["rows"][0]["right"]["low"] == 0.4
    assert document["rows"][1]["right"]["value"] is None


def test_a_table_is_escaped_in_markdown():
    text = generic_markdown(TABLE)
    assert "b\\|&lt;x&gt;" in text
    assert "- a note" in text


def test_a_row_that_does_not_fit_its_columns_is_refused():
    with pytest.raises(ValueError, match="a row of 1 cells under 2 columns"):
        make_table("k", "t", [Column("a"), Column("b")], [["x"]])


@pytest.mark.parametrize(
    ("column", "cell", "text"),
    [
        (Column("r", "number", 2), Measured(-0.001, n=7), "0.00 n=7"),
        (Column("r", "signed"), 0.25, "+0.250"),
        (Column("r", "p"), 0.0001, "< 0.001"),
        (Column("r", "rating"), Measured(float("inf"), 10.0, float("inf")), "unbounded [10, open)"),
        (Column("r", "number"), float("nan"), "\u2013"),
    ],
)
def test_numbers_are_written_in_the_form_of_their_column(column, cell, text):
    assert cell_text(column, cell) == text


WIDE = make_table(
    "wide",
    "Wide",
    [Column("model"), *(Column(f"c{index}", "number", 2) for index in range(6))],
    [["a", *(Measured(index / 10, 0.0, 1.0) for index in range(6))]],
)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_table_wider_than_the_terminal_loses_no_number(width):
    console = Console(width=width)
    with console.capture() as captured:
        console.print(generic_table(WIDE))
    text = captured.get()
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert all(f"0.{index}0" in text for index in range(1, 6))
    assert text.count("[0.00, 1.00]") == 6


def test_without_a_question_the_first_screen_shows_the_first_table_of_each_source():
    tables = [
        msgspec.structs.replace(TABLE, source=source, key=f"{source}.{index}", columns=COUNTS)
        for source in ("one", "two")
        for index in range(3)
    ]
    console = Console(width=100)
    with console.capture() as captured:
        console.print(brief_text(brief(tables=tables), ["the rest: --full"]))
    text = captured.get()
    assert text.count("Made up") == 2
    assert "the rest: --full" in text
