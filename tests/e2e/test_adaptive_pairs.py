"""Chosen comparisons by the real command: few requests, the same choices after any kill."""

import random

import pytest
from polars.testing import assert_frame_equal

from orchestrator.runner import api
from orchestrator.runner.results.stored import units_left
from orchestrator.store import Store
from tests.e2e.runs import fake_server, frames, run, stats, write_recipe
from tests.e2e.test_kill import kill_again_and_again

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SKILLS = ("0.1", "0.25", "0.4", "0.55", "0.7", "0.9")
N_PAIRS = 15
N = 100


def recipe_of(path, url, rule, n=N, **changes):
    """Six candidates that differ in skill, and a judge."""
    models = {f"m{skill}": f"fake:{skill}" for skill in SKILLS} | {"judge": "fake:1.0"}
    return write_recipe(
        path / "r.json",
        url,
        n=n,
        models={
            name: {"base_url": url, "backend": "fake", "model": model}
            for name, model in models.items()
        },
        **{
            "statistics": {"n_resamples": 200, "adaptive_pairs": {"block": 10, **rule}},
            "probe": False,
            **changes,
        },
    )


def server_of(rules=None):
    return fake_server(rules, models=tuple(f"fake:{skill}" for skill in (*SKILLS, "1.0")))


def places(run_dir):
    """Return the report's table of places, without its estimates."""
    (table,) = [table for table in api.load(run_dir).tables if table.key.endswith(".places")]
    return [(row[0], *row[2:]) for row in table.rows]


def test_a_share_of_the_comparisons_gives_the_order_and_is_not_exceeded(tmp_path):
    with server_of() as url:
        recipe = recipe_of(tmp_path, url, {"share": 0.4})
        before = api.plan(recipe, run_dir=tmp_path / "run")
        done = run(recipe, tmp_path / "run")
        assert done.returncode == 0, done.stderr
        sent = stats(url)["total"]
        assert before.at_least <= sent <= before.left < 0.6 * N * (6 + 2 * N_PAIRS)
        judgments = frames(tmp_path / "run")["judgments"]
        assert judgments.height <= 0.4 * N * N_PAIRS
        found = places(tmp_path / "run")
        assert [name for name, *_ in found] == [f"m{skill}" for skill in SKILLS[::-1]]
        assert (found[0][1], found[-1][1]) == ("1", "6")
        # Each pair that is not settled stands in the rows of both.
        assert sum(bool(others) for _, _, others, _ in found) <= 4
        with Store.open(tmp_path / "run" / "store.sqlite", read_only=True) as store:
            assert units_left(store) == 0
        again = run(recipe, tmp_path / "run", "--display", "plain")
        assert "complete: nothing to send" in again.stderr
        assert stats(url)["total"] == sent


@pytest.mark.long
def test_models_are_held_against_a_baseline_alone(tmp_path):
    with server_of() as url:
        recipe = recipe_of(tmp_path, url, {"share": 1.0, "baseline": "m0.4"})
        done = run(recipe, tmp_path / "run")
        assert done.returncode == 0, done.stderr
    judgments = frames(tmp_path / "run")["judgments"]
    assert judgments.height < N * 5
    assert ((judgments["model_a"] == "m0.4") | (judgments["model_b"] == "m0.4")).all()
    said = {name: verdict for name, verdict, *_ in places(tmp_path / "run")}
    assert said["m0.9"] == "yes"
    assert said["m0.1"] == "no"


def test_a_run_killed_again_and_again_asks_and_decides_as_one_never_stopped(tmp_path):
    rng = random.Random(5)
    with server_of({"rules": [{"latency_s": [0.005, 0.02]}]}) as url:
        recipe = recipe_of(tmp_path, url, {"share": 0.3, "top": 2}, limits={"max_in_flight": 6})
        assert run(recipe, tmp_path / "whole").returncode == 0
        n_distinct = stats(url)["distinct"]
        n_kills = kill_again_and_again(
            recipe, tmp_path / "cut", url, rng, kills=5, between=(20, 60)
        )
        assert n_kills > 2
        assert run(recipe, tmp_path / "cut").returncode == 0
        assert stats(url)["distinct"] == n_distinct
    assert places(tmp_path / "cut") == places(tmp_path / "whole")
    expected = frames(tmp_path / "whole")
    for name, frame in frames(tmp_path / "cut").items():
        assert_frame_equal(frame, expected[name], check_exact=True)


def test_a_finished_run_is_looked_at_without_a_request(tmp_path):
    with server_of() as url:
        recipe = recipe_of(tmp_path, url, {"share": 1.0}, n=30, statistics={"n_resamples": 200})
        assert run(recipe, tmp_path / "run").returncode == 0
        sent = stats(url)["total"]
        recipe = recipe_of(tmp_path, url, {"share": 0.5}, n=30)
        done = run(recipe, tmp_path / "run")
        assert done.returncode == 0, done.stderr
        assert stats(url)["total"] == sent
    assert len(places(tmp_path / "run")) == len(SKILLS)
