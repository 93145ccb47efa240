"""A run steered from another terminal, with the real commands."""

import json
import subprocess
import sys
import time

import pytest

from tests.e2e.runs import command, fake_server, run, stats, write_recipe
from tests.e2e.test_failures import until


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
    deadline = time.monotonic() + 60
    while True:
        done = orchestrator(what, run_dir, *more)
        if done.returncode == 0 or time.monotonic() > deadline:
            return done
        time.sleep(0.1)


def status_of(run_dir):
    return json.loads(orchestrator("status", run_dir, "--json").stdout)


@pytest.mark.slow
def test_a_run_is_paused_limited_resumed_and_stopped_and_goes_on_to_the_same_end(tmp_path):
    with fake_server([{"latency_s": 0.05}]) as url:
        recipe = write_recipe(tmp_path / "made.yaml", url, n=150, limits={"max_in_flight": 2})
        run_dir = tmp_path / "run"
        running = subprocess.Popen(command(recipe, run_dir), stderr=subprocess.PIPE, text=True)
        # Something was sent before.
        until(lambda: stats(url)["total"], 60, running)
        assert steer(run_dir, "pause").returncode == 0
        # Its status is written each second.
        until(lambda: status_of(run_dir)["paused"], 60, running)
        until(lambda: not stats(url)["in_flight"], 60, running)
        before = sum(stats(url)["requests"].values())
        assert status_of(run_dir)["is_alive"]
        assert sum(stats(url)["requests"].values()) == before
        wrong = orchestrator("limit", run_dir, "nobody", 4)
        assert wrong.returncode == 2
        assert "available: weak, mid, strong, judge" in wrong.stderr
        assert "judge: 4 concurrent requests" in steer(run_dir, "limit", "judge", 4).stdout
        assert steer(run_dir, "resume").returncode == 0
        assert steer(run_dir, "stop").returncode == 0
        _, said = running.communicate(timeout=60)
        assert running.returncode == 130
        assert "stopped by a command" in said
        late = orchestrator("pause", run_dir)
        assert late.returncode == 2
        assert "not running" in late.stderr
        assert 0 < before < sum(stats(url)["requests"].values())
        ended = run(recipe, run_dir)
        assert ended.returncode == 0, ended.stderr
