"""kill -9 at many points: nothing recorded is asked again, and the frames are the same."""

import random
import subprocess
import time

import pytest
from polars.testing import assert_frame_equal

from tests.e2e.runs import (
    ROOT,
    command,
    fake_server,
    frames,
    recorded_requests,
    run,
    stats,
    write_recipe,
)

N_KILLS = 22
# Slow enough that some of a call is on the disk (each 100 ms) when it is killed.
RULES = {"rules": [{"latency_s": [0.02, 0.1]}]}


def run_and_kill(recipe, run_dir, url, n_more):
    """Start the command, kill it after the server saw `n_more` more requests; whether it ended."""
    before = stats(url)["total"]
    process = subprocess.Popen(
        command(recipe, run_dir), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while process.poll() is None and stats(url)["total"] < before + n_more:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    return process.wait() == 0


def kill_again_and_again(recipe, run_dir, url, rng, *, kills, between):
    """Kill a run so many times, unless it ends before; return the number of kills."""
    for n in range(kills):
        if run_and_kill(recipe, run_dir, url, rng.randint(*between)):
            return n
    return kills


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_run_killed_at_many_points_ends_as_one_never_stopped(tmp_path):
    rng = random.Random(11)
    with fake_server(RULES) as url:
        # Without a probe, whose requests would take most of those before a kill.
        recipe = write_recipe(
            tmp_path / "r.json", url, n=120, limits={"max_in_flight": 6}, probe=False
        )
        assert run(recipe, tmp_path / "whole").returncode == 0
        expected = frames(tmp_path / "whole")
        n_distinct = stats(url)["distinct"]
        kills = 0
        known: dict[str, int] = {}
        while kills < N_KILLS:
            ended = run_and_kill(recipe, tmp_path / "cut", url, rng.randint(1, 30))
            counts = stats(url)["requests"]
            for request in recorded_requests(recipe, tmp_path / "cut"):
                known.setdefault(request, counts[request])
            assert not ended, f"the run ended after {kills} kills; make it longer"
            kills += 1
        assert run(recipe, tmp_path / "cut").returncode == 0
        after = stats(url)
    asked_again = [
        request for request, count in known.items() if after["requests"][request] > count
    ]
    assert known
    assert not asked_again
    assert after["distinct"] == n_distinct
    for name, frame in expected.items():
        assert_frame_equal(frames(tmp_path / "cut")[name], frame, check_exact=True)
