"""Servers as jobs of their own in a real Slurm: the rows of `test_slurm` that differ there."""

import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.cluster import rows
from tests.cluster.runs import LONG_S, complete, keys_of
from tests.cluster.slurm_runs import Cluster, hold
from tests.cluster.users import users

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(rig, tmp_path):
    made = Cluster(rig, tmp_path, is_inside=False, partition="spare", time="10m")
    yield made
    made.end()
    rig.run("scancel", "--user=root")


def test_a_run_with_servers_as_jobs_gives_the_same_frames(cluster, expected):
    seen = []

    def servers():
        seen.append(cluster.rig.run("squeue", "--noheader", "--format=%j %P %l %T").splitlines())
        return cluster.rig.processes()

    rows.gives_the_same_frames(cluster, expected, servers)
    (jobs,) = seen
    assert sorted(job.split()[1:] for job in jobs) == 2 * [["spare", "10:00", "RUNNING"]]


@pytest.mark.long
def test_servers_that_are_preempted_come_back_and_it_is_no_fault_of_theirs(cluster, expected):
    cluster.judge_in(0.4)  # so that the run goes on for longer than Slurm takes to preempt
    process = cluster.begun()
    blocker = hold(cluster.rig, 3)
    cluster.until_said(process, "the server 'judge' was told to end by its machine")
    cluster.until_said(process, "starting server judge", 2)
    cluster.rig.run("scancel", blocker)
    complete(process)
    assert not cluster.times("restart 1 of")
    cluster.check(expected)


@pytest.mark.long
def test_asking_begins_while_a_server_waits_in_the_queue(cluster, expected):
    # So that the run goes on for longer than the second judge takes to start.
    cluster.judge_in(0.4, replicas=2)
    # One node for both servers, and none for the second judge.
    blocker = hold(cluster.rig, 1)
    process = cluster.start()
    cluster.until_judging(process)
    cluster.until(lambda: sum(" PD " in job for job in cluster.jobs()) == 1, process)
    cluster.look()
    cluster.rig.run("scancel", blocker)
    cluster.until_said(process, "server judge.2 is ready")
    complete(process)
    cluster.check(expected)


def test_after_kill_9_of_the_client_no_job_is_left_that_waits_or_runs(cluster, expected):
    blocker = hold(cluster.rig, 2)
    process = cluster.start()
    cluster.until_said(process, "server weak is ready")
    cluster.until(lambda: any(" PD " in job for job in cluster.jobs()), process)
    process.kill()
    process.communicate(timeout=LONG_S)
    cluster.rig.run("scancel", blocker)
    cluster.until_gone()
    cluster.look()
    complete(cluster.start())
    cluster.check(expected)


def test_after_the_end_of_the_clients_machine_no_job_keeps_its_place(cluster, expected):
    """With it ends each srun, which would have told Slurm of the end of its job."""
    process = cluster.start()
    cluster.until_judging(process)
    ended = [psutil.Process(process.pid), *cluster.steps()]
    # Not one after the other: none may tell anybody of the end of another.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for one in ended:
            one.send_signal(number)
    process.communicate(timeout=LONG_S)
    # Servers end when they have heard nothing for a while.
    cluster.until(lambda: not cluster.jobs(), None)
    cluster.until_gone()
    cluster.look()
    complete(cluster.start())
    cluster.check(expected)


@pytest.mark.long
def test_a_node_that_dies_is_replaced_by_another(cluster, expected):
    rows.is_replaced(cluster, cluster.rig, expected, cluster.rig.kill_node)


def test_runs_of_two_users_on_one_node_share_no_key_port_or_file(rig, expected):
    with users("a", "b") as both:
        runs = [Cluster(rig, user.home, is_inside=False, user=user) for user in both]
        try:
            processes = [run.start() for run in runs]
            for run, process in zip(runs, processes, strict=True):
                run.until_judging(process)
            assert len({run.node("strong") for run in runs}) == 1
            servers = [one for one in rig.processes() if keys_of([one])]
            assert len(keys_of(servers)) == 4
            logs = [file for run in runs for file in run.run_dir.glob("servers/*.log")]
            said = "".join(file.read_text() for file in logs)
            assert len(set(re.findall(r"ready (http://10\S+)", said))) == 4
            for run, user, other in zip(runs, both, reversed(both), strict=True):
                own = [one for one in servers if one.username() == user.name]
                files = [Path("/proc", str(one.pid), "environ") for one in own]
                files += [run.run_dir / "log.jsonl", run.run_dir / "servers" / "judge.log"]
                assert len(own) == 2
                assert all(map(user.may_read, files))
                assert not any(map(other.may_read, files))
            for process in processes:
                complete(process)
            for run in runs:
                run.look()
                assert set(run.recorded.values()) == {1}
                run.check(expected)
        finally:
            for run, user in zip(runs, both, strict=True):
                run.end()
                rig.run("scancel", f"--user={user.name}")
