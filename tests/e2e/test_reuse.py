"""The real command with `reuse`: what other runs hold is not asked again."""

import json
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE
from tests.e2e.runs import ROOT, command, fake_server, frames, run, stats, write_recipe
from tests.e2e.test_failures import claim_another_version

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_run_copies_what_another_holds_and_asks_the_rest(tmp_path):
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=8)
        assert run(recipe, tmp_path / "other", "--limit", "4").returncode == EXIT_COMPLETE
        n_other = stats(url)["total"]
        reusing = write_recipe(tmp_path / "reusing.json", url, n=8, reuse=["other"])
        plan = subprocess.run(
            [sys.executable, "-m", "orchestrator", "plan", str(reusing), "--json",
             "--run-dir", str(tmp_path / "run")],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        planned = json.loads(plan.stdout)
        assert planned["reused"] == [["other", n_other]]
        result = run(reusing, tmp_path / "run", "--display", "plain")
        assert result.returncode == EXIT_COMPLETE, result.stderr
        words = " ".join(result.stderr.split())
        assert f"{n_other} copied from other" in words
        assert f"{n_other} outcomes were copied from {tmp_path / 'other'}" in words.replace(
            "\n", ""
        )
        served = stats(url)
        assert served["asked_again"] == 0
        assert served["total"] - n_other <= sum(stage["left"] for stage in planned["stages"])
        # Nothing of the copies is left to the other run.
        (tmp_path / "other").rename(tmp_path / "gone")
        assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
        assert stats(url)["total"] == served["total"]
        assert run(recipe, tmp_path / "alone").returncode == EXIT_COMPLETE
    alone, reused = frames(tmp_path / "alone"), frames(tmp_path / "run")
    assert all(reused[name].equals(alone[name]) for name in alone)


def test_a_run_that_is_killed_while_it_copies_loses_nothing(tmp_path):
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=150)
        assert run(recipe, tmp_path / "other").returncode == EXIT_COMPLETE
        total = stats(url)["total"]
        reusing = write_recipe(tmp_path / "reusing.json", url, n=150, reuse=["other"])
        process = subprocess.Popen(
            command(reusing, tmp_path / "run"), cwd=ROOT,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while process.poll() is None and n_held(tmp_path / "run") == 0:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        assert n_held(tmp_path / "run") > 0
        assert run(reusing, tmp_path / "run").returncode == EXIT_COMPLETE
        assert stats(url)["total"] == total
    other, reused = frames(tmp_path / "other"), frames(tmp_path / "run")
    assert all(reused[name].equals(other[name]) for name in other)


def n_held(run_dir):
    """Outcomes that are committed."""
    try:
        connection = sqlite3.connect(f"file:{run_dir}/store.sqlite?mode=ro", uri=True)
        with connection:
            return connection.execute("SELECT count(*) FROM outcome").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


def test_answers_of_another_version_are_refused_unless_accepted(tmp_path):
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=6)
        assert run(recipe, tmp_path / "other", "--limit", "3").returncode == EXIT_COMPLETE
        claim_another_version(tmp_path / "other")
        total = stats(url)["total"]
        reusing = write_recipe(tmp_path / "reusing.json", url, n=6, reuse=["other"])
        refused = run(reusing, tmp_path / "run")
        assert refused.returncode == EXIT_USAGE
        assert "--accept-server-change" in refused.stderr
        assert stats(url)["total"] == total
        accepted = run(reusing, tmp_path / "run", "--accept-server-change")
        assert accepted.returncode == EXIT_COMPLETE, accepted.stderr
        assert stats(url)["asked_again"] == 0


def test_a_run_that_still_runs_lends_what_it_has(tmp_path):
    with fake_server({"rules": [{"latency_s": 0.05}]}) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=200, limits={"max_in_flight": 2})
        running = subprocess.Popen(
            command(recipe, tmp_path / "other"), cwd=ROOT,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while running.poll() is None and n_held(tmp_path / "other") < 40:
            time.sleep(0.02)
        reusing = write_recipe(tmp_path / "reusing.json", url, n=200, reuse=["other"])
        result = run(reusing, tmp_path / "run", "--limit", "8")
        assert running.poll() is None
        running.send_signal(signal.SIGKILL)
        running.wait(30)
        assert result.returncode == EXIT_COMPLETE, result.stderr
        assert "copied from other" in " ".join(result.stderr.split())
