"""The client as a job of a real Slurm, which hands itself on."""

import math
import re
import subprocess
import time
from typing import Any

import pytest

from orchestrator.errors import EXIT_COMPLETE
from tests.cluster.runs import LONG_S
from tests.cluster.slurm_runs import Cluster, hold, said
from tests.e2e.runs import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]
# Between the end of a client and the start of the next one: 0.2 to 0.6 s on a machine at rest.
GAP_S = 30.0
CHANGED_EVERY_S = 10.0


@pytest.fixture
def cluster(rig, tmp_path):
    job: dict[str, Any] = {"nodes": 3, "time": "20m", "drain": "5m"}
    yield Cluster(rig, tmp_path, is_inside=False, **job)
    rig.run("scancel", "--user=root")


def submit(cluster: Cluster) -> None:
    words = cluster.words("--submit")
    ended = subprocess.run(
        words, cwd=ROOT, env=cluster.rig.env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == EXIT_COMPLETE, ended.stderr
    assert "submitted job" in ended.stderr


def judging(cluster: Cluster) -> tuple[str, str]:
    """Submit a run and wait until it judges; its job's number, and the node of its client."""
    submit(cluster)
    cluster.until_judging(None)
    (job,) = cluster.jobs()
    number = job.split()[0]
    shown = cluster.rig.run("scontrol", "show", "job", number)
    return number, shown.partition("BatchHost=")[2].split()[0]


def until_no_jobs(cluster: Cluster) -> str:
    """Wait for the end of the chain; return what its jobs wrote."""
    end = time.monotonic() + LONG_S
    while cluster.jobs():
        assert time.monotonic() < end, (cluster.jobs(), said(cluster))
        time.sleep(0.2)
    return said(cluster)


def test_before_its_limit_a_job_hands_on_to_another(cluster, expected):
    number, _ = judging(cluster)
    # As Slurm does five minutes before the limit.
    cluster.rig.run("scancel", "--batch", "--signal=USR1", number)
    words = until_no_jobs(cluster)
    times = re.findall(r"^(\S+) job \d+: (begins|ends with exit code \d+)", words, re.MULTILINE)
    whats = [what for _, what in times]
    assert whats == ["begins", "ends with exit code 130", "begins", "ends with exit code 0"], words
    assert float(times[2][0]) - float(times[1][0]) < GAP_S
    cluster.look()
    assert set(cluster.recorded.values()) == {1}
    cluster.check(expected)


def begin_again(cluster: Cluster, number: str, n_nodes: int) -> None:
    """Wait until Slurm has put a job back into its queue, and until it has begun again.

    Slurm keeps it back for two minutes.
    """
    end = time.monotonic() + LONG_S
    while (
        "JobState=PENDING" not in (shown := cluster.rig.run("scontrol", "show", "job", number))
        or "Restarts=0" in shown
    ):
        assert time.monotonic() < end, shown
        time.sleep(0.2)
    # In the second in which a job ended, slurmd refuses it. Slurm itself waits for two minutes.
    time.sleep(2.0)
    # A job that still leaves its former nodes is in no list of those that wait or run, and Slurm
    # may refuse to change it.
    changed_at = -math.inf
    end = time.monotonic() + LONG_S
    while said(cluster).count(f"job {number}: begins") < 2:
        assert time.monotonic() < end, said(cluster)
        is_due = time.monotonic() - changed_at >= CHANGED_EVERY_S
        if is_due and "JobState=PENDING" in cluster.rig.run("scontrol", "show", "job", number):
            size = f"NumNodes={n_nodes}"
            cluster.rig.run("scontrol", "update", f"JobId={number}", "StartTime=now", size)
            changed_at = time.monotonic()
        time.sleep(0.2)


def test_a_job_that_is_preempted_begins_again(rig, tmp_path, expected):
    settings: dict[str, Any] = {"nodes": 3, "time": "20m"}
    cluster = Cluster(rig, tmp_path, is_inside=False, partition="spare", **settings)
    # Slurm looks every half a minute whether the grace time is over.
    cluster.judge_in(2.0)
    number, _ = judging(cluster)
    blocker = hold(rig, 3)
    cluster.look()
    assert cluster.recorded
    rig.run("scancel", blocker)
    begin_again(cluster, number, 3)
    words = until_no_jobs(cluster)
    assert words.count(f"job {number}: begins") == 2, words
    assert words.count("ends with exit code 0") == 1, words
    cluster.check(expected)


@pytest.mark.long
def test_a_job_whose_node_dies_begins_again_on_another(cluster, expected):
    number, node = judging(cluster)
    cluster.rig.kill_node(node)
    cluster.look()
    try:
        begin_again(cluster, number, 2)
        until_no_jobs(cluster)
    finally:
        cluster.rig.replace(node)
    cluster.check(expected)


@pytest.mark.long
def test_a_job_that_begins_again_waits_for_a_client_that_slurm_has_lost(cluster, expected):
    """Slurm gives up a node whose slurmd is dead, but the client there lives."""
    cluster.judge_in(1.2)
    number, node = judging(cluster)
    cluster.rig.kill_slurmd(node)
    # As Slurm does when the node has not answered for a while.
    cluster.rig.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=silent")
    try:
        begin_again(cluster, number, 2)
        cluster.until(lambda: "this job waits for it" in said(cluster), None)
        until_no_jobs(cluster)
    finally:
        cluster.rig.replace(node)
    cluster.look()
    cluster.check(expected)
