"""A method of one score a model, in a file beside the recipe."""

import json

import polars as pl
import pytest
import scipy

from orchestrator.errors import EXIT_COMPLETE
from orchestrator.view.library import Run

CODE = '''\
from orchestrator.plugin import Ask, Method, MethodSettings, Row, Sampling, Unit


class Settings(MethodSettings):
    max_tokens: int = 200


class Brevity(Method[Settings]):
    """Share of the allowed tokens that the answer left unused."""

    columns = {"brevity": "f64"}
    scores = {"brevity": 1}

    async def evaluate(self, unit: Unit, ask: Ask) -> Row:
        answer = await ask.generate(
            unit.models[0], unit.item.messages, Sampling(max_tokens=self.config.max_tokens)
        )
        return {"brevity": 1 - answer.n_completion_tokens / self.config.max_tokens}
'''


def test_a_method_of_one_score_is_checked_planned_run_and_reported(command, recipe, here):
    (here / "brevity.py").write_text(CODE)
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
        assert "brevity" in said
        assert f"{row['mean']['value']:.3f}" in said
        assert "higher" in said
    overview = Run(here / "runs" / "made", here / "side", allow_code=True).snapshot().overview
    assert "brevity" in str(overview)
