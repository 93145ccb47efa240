"""Servers as jobs of their own in a real Slurm: the rows of `test_slurm` that differ there."""

import time

import pytest

from tests.cluster.rig import CPUS, Rig
from tests.cluster.runs import LONG_S, Cluster, complete, secrets_on_nodes, see_no_key

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(rig, tmp_path):
    yield Cluster(rig, tmp_path, partition="spare", time="10m")
    rig.run("scancel", "--user=root")


def hold(rig: Rig, n_nodes: int) -> str:
    """Take whole nodes for a job that nothing preempts; its number."""
    words = ("--parsable", f"--nodes={n_nodes}", f"--cpus-per-task={CPUS}", "--exclusive")
    job = rig.run("sbatch", *words, "--output=/dev/null", "--wrap=sleep 600").strip()
    end = time.monotonic() + LONG_S
    while rig.run("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip() != "RUNNING":
        assert time.monotonic() < end
        time.sleep(0.1)
    return job


def test_a_run_with_servers_as_jobs_gives_the_same_frames(cluster, expected):
    process = cluster.start_outside()
    cluster.until_judging(process)
    see_no_key(secrets_on_nodes(cluster.rig))
    jobs = cluster.rig.run("squeue", "--noheader", "--format=%j %P %l %T").splitlines()
    assert sorted(job.split()[1:] for job in jobs) == 2 * [["spare", "10:00", "RUNNING"]]
    complete(process)
    cluster.look()
    assert set(cluster.recorded.values()) == {1}
    cluster.check(expected)


def test_servers_that_are_preempted_come_back_and_it_is_no_fault_of_theirs(cluster, expected):
    process = cluster.start_outside()
    cluster.until_judging(process)
    cluster.look()
    blocker = hold(cluster.rig, 3)
    cluster.until_said(process, "the server 'judge' was told to end by its machine")
    cluster.until_said(process, "starting server judge", 2)
    cluster.rig.run("scancel", blocker)
    complete(process)
    assert not any("restart 1 of" in line for line in cluster.log())
    cluster.check(expected)


def test_asking_begins_while_a_server_waits_in_the_queue(cluster, expected):
    cluster.change(judge={"replicas": 2})
    # One node for both servers, and none for the second judge.
    blocker = hold(cluster.rig, 1)
    process = cluster.start_outside()
    cluster.until_judging(process)
    assert len([job for job in cluster.jobs() if " PD " in job]) == 1
    cluster.look()
    cluster.rig.run("scancel", blocker)
    cluster.until_said(process, "server judge.2 is ready")
    complete(process)
    cluster.check(expected)


def test_after_kill_9_of_the_client_no_job_is_left_that_waits_or_runs(cluster, expected):
    blocker = hold(cluster.rig, 2)
    process = cluster.start_outside()
    end = time.monotonic() + LONG_S
    while len(cluster.jobs()) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.1)
    cluster.until_said(process, "server weak is ready")
    while not any(" PD " in job for job in cluster.jobs()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, cluster.jobs()
        time.sleep(0.1)
    process.kill()
    process.communicate(timeout=LONG_S)
    cluster.rig.run("scancel", blocker)
    cluster.until_gone()
    cluster.look()
    complete(cluster.start_outside())
    cluster.check(expected)


def test_a_node_that_dies_is_replaced_by_another(cluster, expected):
    process = cluster.start_outside()
    cluster.until_judging(process)
    cluster.look()
    node = cluster.node("judge")
    assert cluster.rig.kill_node(node)
    try:
        complete(process)
        assert cluster.node("judge") != node
        cluster.check(expected)
    finally:
        cluster.rig.revive(node)
