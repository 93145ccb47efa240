"""The method of the design note 0019 works as it is printed there."""

import json
import re
from pathlib import Path

import polars as pl
import pytest
import scipy

from orchestrator.errors import EXIT_COMPLETE
from orchestrator.view.library import Run

NOTE = Path(__file__).parents[2] / "docs" / "design" / "0019-plugin-contract.md"


def test_a_method_of_one_score_is_checked_planned_run_and_reported(command, recipe, here):
    (code,) = re.findall(
        r"```python\n(from orchestrator\.plugin .*?)```", NOTE.read_text(), re.DOTALL
    )
    (here / "brevity.py").write_text(code)
    path = recipe(
        models={"a": {"server": "fake", "weights": "a:0.5"}},
        dataset={"kind": "demo", "n": 4},
        methods=[{"kind": "./brevity.py", "max_tokens": 64}],
        analyses=[{"kind": "meta_evaluation", "gold": {"method": "brevity", "column": "brevity"}}],
    )
    assert command("check", path, "--allow-code")[0] == EXIT_COMPLETE
    planned = command("plan", path, "--allow-code")[1]
    assert "Brevity" in planned
    code, _, err = command("run", path, "--allow-code", "--display", "none")
    assert code == EXIT_COMPLETE, err
    rows = pl.read_parquet(here / "runs" / "made" / "results" / "brevity.parquet")
    assert rows["method"].to_list() == ["brevity"] * 4
    assert set(rows["status"]) == {"ok"}
    assert rows["item"].n_unique() == 4
    assert rows["brevity"].is_between(0, 1).all()
    reported = command("report", "made", "--allow-code", "--format", "json")[1]
    (table,) = (one for one in json.loads(reported)["tables"] if one["table"] == "scores")
    (row,) = table["rows"]
    assert (row["model"], row["score"], row["better"]) == ("a", "brevity", "higher")
    assert row["mean"]["value"] == pytest.approx(rows["brevity"].mean())
    interval = scipy.stats.ttest_1samp(rows["brevity"].to_numpy(), 0).confidence_interval(0.95)
    assert (row["mean"]["low"], row["mean"]["high"]) == pytest.approx(tuple(interval))
    assert (row["values"], row["missing"]) == (4, 0)
    assert command("report", "made", "--allow-code", "--html", "page.html")[0] == EXIT_COMPLETE
    forms = [
        command("report", "made", "--allow-code", "--format", form)[1]
        for form in ("table", "markdown")
    ]
    for said in (*forms, (here / "page.html").read_text(encoding="utf-8")):
        assert "Mean scores" in said
        assert f"{row['mean']['value']:.3f}" in said
        assert "higher" in said
    overview = Run(here / "runs" / "made", here / "side", allow_code=True).snapshot().overview
    assert "Mean scores" in str(overview)
