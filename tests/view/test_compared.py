"""Two runs side by side."""

import polars as pl

import orchestrator
from tests.view.runs import answers_frame, items_frame, make_run


def test_items_that_differ_most_stand_first(viewer, tmp_path):
    settings = {"name": "made", "models": {}, "methods": [{"kind": "answers"}]}
    for name, shift in (("one", 0.0), ("two", 1.0)):
        frame = answers_frame(6)
        changed = pl.when(pl.col("item") == "i3").then(shift * 5).otherwise(shift * 0.1)
        frame = frame.with_columns(mean_logprob=pl.col("mean_logprob") - changed)
        make_run(tmp_path / "runs" / name, {"items": items_frame(6), "answers": frame}, settings)
    found = viewer(tmp_path / "runs").enter().json("/api/compare?a=one&b=two")
    # The same as `orchestrator compare` says, which pairs the items.
    expected = orchestrator.compare(tmp_path / "runs" / "one", tmp_path / "runs" / "two")
    assert found["headline"] == list(expected.headline)
    shown = str(found["tables"])
    assert shown.count("'details'") == len(expected.tables) == 2
    assert "two minus one" in shown
    differing = shown[shown.index("Items that differ most") :]
    assert differing.index("i3") < differing.index("i0")
    assert "Settings that differ" not in shown
    assert "6 items in common; one has 6, two has 6." in found["notes"]


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
    assert "have no item in common" in found["headline"][0]
    assert found["tables"][2] == []


def test_an_unknown_run_is_said_to_be_missing(viewer, tmp_path):
    assert viewer(tmp_path).enter().get("/api/compare?a=x&b=y").status_code == 404
