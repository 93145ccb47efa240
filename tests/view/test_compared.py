"""Two runs side by side."""

import polars as pl
import pytest

import orchestrator
from orchestrator import numbers
from orchestrator.report.html.shell import Grid, Shown
from orchestrator.tables import make_table
from orchestrator.view.compared import _difference, _merged
from tests.view.runs import answers_frame, items_frame, make_run


def cell(text, order=None):
    number = order is not None
    return Shown(text, "", number, order or "")


RUNS = ("first", "second")


def table(*rows, columns=(("rank", False), ("model", False), ("wins", True))):
    return Grid("k", make_table("k", "Table", [], []), columns, [False] * len(columns), rows)


def row(rank, model, wins):
    return [cell(rank), cell(model), cell(f"{wins:.2f}", repr(wins))]


def merged_of(a, b):
    merged = _merged(a, b, RUNS)
    assert merged is not None
    return merged


def test_rows_are_matched_by_what_they_are_about_not_by_their_rank():
    merged = merged_of(
        table(row("1", "x", 0.7), row("2", "y", 0.3)), table(row("1", "y", 0.6), row("2", "x", 0.4))
    )
    assert [[c.text for c in one] for one in merged.rows] == [
        ["x", "1", "2", "0.70", "0.40", "-0.30"],
        ["y", "2", "1", "0.30", "0.60", "+0.30"],
    ]
    titles = [title for title, _ in merged.columns]
    assert titles[-3:] == ["wins, first", "wins, second", "difference"]
    assert merged.of.notes == ()


def test_rows_of_one_run_alone_are_counted():
    merged = merged_of(table(row("1", "x", 0.7)), table(row("1", "x", 0.7), row("2", "y", 0.3)))
    assert len(merged.rows) == 1
    assert "1 row" in merged.of.notes[0]


def test_rows_that_are_about_the_same_are_not_guessed_apart():
    twice = table(row("1", "x", 0.7), row("2", "x", 0.3))
    assert _merged(twice, twice, RUNS) is None


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (cell("55.0 %", "0.55"), cell("40.0 %", "0.4"), "-15.0 pp"),
        (cell("1,165", "1165.2"), cell("1,144", "1144.1"), "-21"),
        (cell("0.50", "0.5"), cell("0.50", "0.5"), "0"),
        (cell("0.50", "0.5"), cell(numbers.UNDEFINED), numbers.UNDEFINED),
    ],
)
def test_a_difference_is_written_as_its_values_are(a, b, expected):
    assert _difference(a, b).text == expected


def test_items_that_differ_most_stand_first(viewer, tmp_path):
    settings = {"name": "made", "models": {}, "methods": [{"kind": "answers"}]}
    for name, shift in (("one", 0.0), ("two", 1.0)):
        frame = answers_frame(6)
        changed = pl.when(pl.col("item") == "i3").then(shift * 5).otherwise(shift * 0.1)
        frame = frame.with_columns(mean_logprob=pl.col("mean_logprob") - changed)
        make_run(tmp_path / "runs" / name, {"items": items_frame(6), "answers": frame}, settings)
    found = viewer(tmp_path / "runs").enter().json("/api/compare?a=one&b=two")
    assert found["n_shared"] == 6
    assert found["items"][0]["name"] == "i3"
    assert found["items"][0]["values"][2] == pytest.approx(-5.0)
    assert found["settings"] == []
    # The same as `orchestrator compare` says, which pairs the items.
    paired = found["paired"]
    expected = orchestrator.compare(tmp_path / "runs" / "one", tmp_path / "runs" / "two")
    assert paired["headline"] == list(expected.headline)
    assert str(paired["tables"]).count("'details'") == 1
    assert "two minus one" in str(paired["tables"])
    assert "6 items in common; one has 6, two has 6." in paired["notes"]


def test_runs_without_common_items_are_said_to_have_none(viewer, tmp_path):
    settings = {"name": "made", "models": {}, "methods": [{"kind": "answers"}]}
    for name in ("one", "two"):
        items = items_frame(4).with_columns(item=pl.col("item") + name)
        if name == "one":
            # As a newer version writes it.
            items = items.with_columns(messages=pl.lit(None, pl.String))
        answers = answers_frame(4).with_columns(item=pl.col("item") + name)
        make_run(tmp_path / "runs" / name, {"items": items, "answers": answers}, settings)
    found = viewer(tmp_path / "runs").enter().json("/api/compare?a=one&b=two")
    assert "have no item in common" in found["paired"]["headline"][0]
    assert found["paired"]["tables"][2] == []


def test_an_unknown_run_is_said_to_be_missing(viewer, tmp_path):
    assert viewer(tmp_path).enter().get("/api/compare?a=x&b=y").status_code == 404
