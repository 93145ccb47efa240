"""Two runs side by side."""

from itertools import product

import numpy as np
import polars as pl
import pytest

import orchestrator
from tests.view.runs import answers_frame, items_frame, make_run
from tests.view.test_answers import JUDGES, MODELS, PAIRS, made


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


def test_the_items_that_changed_by_a_number_are_those_behind_its_difference(viewer, tmp_path):
    rng = np.random.default_rng(0)
    texts = {(f"i{k}", model): model for k, model in product(range(9), MODELS)}
    for name in ("a", "b"):
        keys = [(f"i{k}", *pair, judge) for k, pair, judge in product(range(9), PAIRS, JUDGES)]
        made(tmp_path / name, texts, {key: float(rng.choice([0.1, 0.5, 0.8])) for key in keys})
    found = orchestrator.compare(tmp_path / "a", tmp_path / "b")
    of_models = {one.model: one.difference for one in found.differences}
    api = viewer(tmp_path / "a", tmp_path / "b").enter()
    for model, difference in of_models.items():
        asked = {"show": "changed", "than": "a", "of": f"worth of {model}", "sort": "-change"}
        rows = api.client.get("/api/runs/b/items", params=asked).json()["rows"]
        changes = [row["change"] for row in rows]
        assert sum(changes) / 9 == pytest.approx(difference, abs=0.005)
        sizes = [abs(one) for one in changes]
        assert sizes == sorted(sizes, reverse=True)
        assert 0.0 not in sizes
    for refused in ("prompt", "nothing", "worth of nobody"):
        asked = {"show": "changed", "than": "a", "of": refused}
        assert api.client.get("/api/runs/b/items", params=asked).status_code == 400


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
