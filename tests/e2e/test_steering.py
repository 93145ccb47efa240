"""A run steered from another terminal, with the real commands."""

import json
import subprocess
import sys
import time

import pytest

from tests.e2e.runs import command, fake_server, run, stats, write_recipe


def orchestrator(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def steer(run_dir, what, *more):
    """A command for a run that may not have begun yet."""
    deadline = time.monotonic() + 30
    while True:
        done = orchestrator(what, run_dir, *more)
        if done.returncode == 0 or time.monotonic() > deadline:
            return done
        time.sleep(0.1)


@pytest.mark.slow
def test_a_run_is_paused_limited_resumed_and_stopped_and_goes_on_to_the_same_end(tmp_path):
    with fake_server([{"latency_s": 0.05}]) as url:
        recipe = write_recipe(tmp_path / "made.yaml", url, n=150, limits={"max_in_flight": 2})
        run_dir = tmp_path / "run"
        running = subprocess.Popen(command(recipe, run_dir), stderr=subprocess.PIPE, text=True)
        assert steer(run_dir, "pause").returncode == 0
        time.sleep(0.5)
        before = sum(stats(url)["requests"].values())
        status = json.loads(orchestrator("status", run_dir, "--json").stdout)
        assert status["paused"]
        assert status["is_alive"]
        assert sum(stats(url)["requests"].values()) == before
        wrong = orchestrator("limit", run_dir, "nobody", 4)
        assert wrong.returncode == 2
        assert "available: weak, mid, strong, judge" in wrong.stderr
        assert "judge: 4 concurrent requests" in steer(run_dir, "limit", "judge", 4).stdout
        assert steer(run_dir, "resume").returncode == 0
        assert steer(run_dir, "stop").returncode == 0
        _, said = running.communicate(timeout=30)
        assert running.returncode == 130
        assert "stopped by a command" in said
        late = orchestrator("pause", run_dir)
        assert late.returncode == 2
        assert "not running" in late.stderr
        assert 0 < before < sum(stats(url)["requests"].values())
        ended = run(recipe, run_dir)
        assert ended.returncode == 0, ended.stderr
