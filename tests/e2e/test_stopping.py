"""Sequential stopping by the real command: fewer requests, the same decisions after any kill."""

import random

import pytest
from polars.testing import assert_frame_equal

from orchestrator.interface import api
from orchestrator.runner.results.stored import completeness
from orchestrator.store import Store
from tests.e2e.runs import fake_server, frames, run, stats, write_recipe
from tests.e2e.test_kill import kill_again_and_again

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STOP = {"n_resamples": 1000, "stop_when": {"block": 10}}
JUDGE = {"kind": "pairwise_ranking", "judges": ["judge"], "prompt": "compact",
         "answer": {"max_tokens": 8}}  # fmt: skip


def orders(run_dir):
    """Return the report's table of orders, as (better, worse, order)."""
    (table,) = [table for table in api.load(run_dir).tables if table.key.endswith(".orders")]
    return [tuple(row[:3]) for row in table.rows]


def test_a_clear_order_takes_fewer_requests_and_is_right(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, n=200, statistics=STOP)
    before = api.plan(recipe, run_dir=tmp_path / "run")
    done = run(recipe, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    sent = stats(server)["total"]
    assert before.at_least <= sent < 0.4 * before.left
    assert "not needed" in done.stderr
    assert sorted(orders(tmp_path / "run")) == [
        ("mid", "weak", "settled"),
        ("strong", "mid", "settled"),
        ("strong", "weak", "settled"),
    ]
    assert api.plan(recipe, run_dir=tmp_path / "run").left == 0
    with Store.open(tmp_path / "run" / "store.sqlite", read_only=True) as store:
        assert completeness(store).left == 0
    assert api.load(tmp_path / "run").n_left == 0
    again = run(recipe, tmp_path / "run", "--display", "plain")
    assert "complete: nothing to send" in again.stderr
    assert stats(server)["total"] == sent


def test_two_equal_models_are_not_resolvable(tmp_path):
    with fake_server(models=("fake:0.5", "fake:0.50", "fake:1.0")) as url:
        models = {
            name: {"base_url": url, "backend": "fake", "model": model}
            for name, model in (("one", "fake:0.5"), ("other", "fake:0.50"), ("judge", "fake:1.0"))
        }
        recipe = write_recipe(
            tmp_path / "r.json", url, n=60, models=models, methods=[JUDGE], statistics=STOP
        )
        done = run(recipe, tmp_path / "run")
        assert done.returncode == 0, done.stderr
    assert [order for _, _, order in orders(tmp_path / "run")] == ["not resolvable"]
    assert frames(tmp_path / "run")["judgments"].height == 60


def test_scores_of_single_answers_stop_too(server, tmp_path):
    scores = {"kind": "pointwise", "judges": ["judge"], "prompt": "compact",
              "answer": {"max_tokens": 8}}  # fmt: skip
    recipe = write_recipe(tmp_path / "r.json", server, n=200, methods=[scores], statistics=STOP)
    done = run(recipe, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert frames(tmp_path / "run")["scores"].height < 0.8 * 600
    better = {(better, worse) for better, worse, order in orders(tmp_path / "run")
              if order == "settled"}  # fmt: skip
    assert ("strong", "weak") in better


def test_a_run_killed_again_and_again_asks_and_decides_as_one_never_stopped(tmp_path):
    rng = random.Random(5)
    with fake_server({"rules": [{"latency_s": [0.005, 0.02]}]}) as url:
        recipe = write_recipe(
            tmp_path / "r.json", url, n=200, statistics=STOP, limits={"max_in_flight": 6}
        )
        assert run(recipe, tmp_path / "whole").returncode == 0
        n_distinct = stats(url)["distinct"]
        n_kills = kill_again_and_again(recipe, tmp_path / "cut", url, rng, kills=6, between=(5, 30))
        assert n_kills > 2
        assert run(recipe, tmp_path / "cut").returncode == 0
        assert stats(url)["distinct"] == n_distinct
    assert orders(tmp_path / "cut") == orders(tmp_path / "whole")
    expected = frames(tmp_path / "whole")
    for name, frame in frames(tmp_path / "cut").items():
        assert_frame_equal(frame, expected[name], check_exact=True)


def test_a_finished_run_is_stopped_by_its_rows_without_a_request(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, n=60)
    assert run(recipe, tmp_path / "run").returncode == 0
    sent = stats(server)["total"]
    recipe = write_recipe(tmp_path / "r.json", server, n=60, statistics=STOP)
    done = run(recipe, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert stats(server)["total"] == sent
    assert {order for _, _, order in orders(tmp_path / "run")} == {"settled"}
