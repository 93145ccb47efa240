"""Failures that were kept are asked again by a new run that reuses the rest."""

import polars as pl
import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_PARTIAL
from tests.e2e.runs import fake_server, frames, run, stats, write_recipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

N = 6


def test_kept_failures_alone_are_asked_again_by_a_run_that_reuses_the_one_before(tmp_path):
    # Each request to the judge is refused when it comes first.
    refusing = [{"model": "*1.0", "fault": "status", "status": 400, "first": 1}]
    made, again = tmp_path / "runs" / "made", tmp_path / "runs" / "made.2"
    with fake_server(rules=refusing) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=N)
        assert run(recipe, made).returncode == EXIT_PARTIAL
        first = stats(url)["total"]
        # The same command does not ask what would fail again.
        assert run(recipe, made).returncode == EXIT_PARTIAL
        assert stats(url)["total"] == first
        failed = frames(made)["judgments"].filter(pl.col("status") == "failed")

        done = run(recipe, made, "--fresh", "--set", "reuse=[runs/made]")
        assert done.returncode == EXIT_COMPLETE, done.stderr
        asked = stats(url)["total"] - first
    assert 0 < len(failed) <= asked < first
    assert frames(again)["answers"].equals(frames(made)["answers"])
    assert set(frames(again)["judgments"]["status"]) == {"ok"}
