"""A jury of two reward models in one run: every table that judges feed, and no request twice."""

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

import orchestrator
from orchestrator.errors import EXIT_COMPLETE
from tests.e2e.runs import MODELS, fake_server, frames, run, stats, write_recipe
from tests.tables import lines

N = 20
JUDGES = {"strict": "fake:1.0", "lax": "fake:0.3"}
CANDIDATES = {"weak": "fake:0.3", "mid": "fake:0.6", "strong": "fake:0.9"}
METHOD = {
    "judges": list(JUDGES),
    "candidates": list(CANDIDATES),
    "answer": {"max_tokens": 8},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rewards")
    with fake_server(models=MODELS) as url:
        models = {
            name: {"base_url": url, "backend": "fake", "model": model}
            for name, model in (CANDIDATES | JUDGES).items()
        }
        recipe = write_recipe(
            folder / "recipe.yaml",
            url,
            models=models,
            dataset={"kind": "demo", "n": N},
            methods=[{"kind": kind, **METHOD} for kind in ("reward", "reward_pairs")],
            analyses=[
                {"kind": "jury", "method": "reward_pairs"},
                {"kind": "meta_evaluation", "gold": {"exact_match": True},
                 "scores": [{"method": "reward"}]},
            ],
        )  # fmt: skip
        assert run(recipe, folder / "run").returncode == EXIT_COMPLETE
        yield folder / "run", stats(url)


def test_each_model_rates_every_answer_once_for_both_methods(found):
    folder, asked = found
    assert asked["by_route"]["pooling"] == N * len(CANDIDATES) * len(JUDGES)
    rows = frames(folder)
    assert rows["rewards"].group_by("judge").len().sort("judge").rows() == [
        ("lax", N * 3),
        ("strict", N * 3),
    ]


def test_preferences_of_each_judge_come_from_its_own_rewards(found):
    rows = frames(found[0])
    rewards = {
        (item, judge, model): value
        for item, judge, model, value in rows["rewards"]
        .select("item", "judge", "model", "reward")
        .iter_rows()
    }
    pairs = rows["reward_pairs"]
    assert len(pairs) == N * 3 * len(JUDGES)
    gaps = [
        rewards[item, judge, a] - rewards[item, judge, b]
        for item, judge, a, b in pairs.select("item", "judge", "model_a", "model_b").iter_rows()
    ]
    assert pairs["prefer_a"].to_numpy() == pytest.approx(expit(gaps))
    by_judge = pairs.pivot("judge", index=["item", "model_a", "model_b"], values="prefer_a")
    assert not np.allclose(by_judge["strict"], by_judge["lax"])


def test_the_jury_weighs_both_and_its_members_have_no_coverage(found):
    folder, _ = found
    tables = {table.key: table for table in orchestrator.load(folder).tables}
    rows = lines(tables["jury.ratings"])
    assert [row["model"] for row in rows] == ["strong", "mid", "weak"]
    for row in rows:
        low, high = sorted((row["strict"], row["lax"]))
        assert low <= row["jury"].value <= high
    assert [row["coverage"] for row in lines(tables["jury.members"])] == [None, None]
    assert "judges.agreement" in tables
    failed = frames(folder)["reward_pairs"].filter(pl.col("status") != "ok")
    assert failed.is_empty()
