"""Servers as steps of a real Slurm job: what fails there, and what a run makes of it.

Each row: the frames equal those of a run on this machine, no outcome that was on the disk is asked
for again, and nothing is left on any node.
"""

import re
import signal
import time

import pytest

from orchestrator.errors import EXIT_INTERRUPTED, EXIT_USAGE
from tests.cluster import rows
from tests.cluster.rig import Rig
from tests.cluster.runs import complete
from tests.cluster.slurm_runs import Cluster, client_of, end_server

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]
# A node that falls silent may cost so much, seconds; and what a busy machine adds.
SILENT_S = 30.0 + 30.0


def test_a_run_with_servers_on_nodes_gives_the_same_frames(cluster, expected):
    rows.gives_the_same_frames(cluster, expected, cluster.rig.processes)


@pytest.mark.parametrize("also", ["", "slurmstepd"])
def test_a_step_that_is_killed_is_started_again(cluster, expected, also):
    """Slurm tells the client of the end of a step, but not of that of the step's own daemon."""
    rows.starts_again(cluster, expected, lambda node: end_server(cluster.rig, node, also=also))


@pytest.mark.long
def test_a_step_that_is_cancelled_is_started_again_and_no_fault_of_the_server(cluster, expected):
    process = cluster.begun()
    node = cluster.node("judge")
    steps = cluster.rig.run("squeue", "--steps", "--noheader", "--format=%i %N").splitlines()
    (step,) = [name for name, where in map(str.split, steps) if where == node]
    cluster.rig.run("scancel", step)
    complete(process)
    assert cluster.times("told to end by its machine")
    assert not cluster.times("restart 1 of")
    cluster.check(expected)


def test_a_node_that_dies_is_replaced_by_another(cluster, expected):
    rows.is_replaced(cluster, cluster.rig, expected, cluster.rig.kill_node)


@pytest.mark.parametrize("lose", [Rig.silence, Rig.deafen])
def test_a_node_out_of_reach_is_replaced_and_ends_its_server_by_itself(cluster, expected, lose):
    """No packet comes from it; or some still do, but none reaches it."""
    process = cluster.begun()
    node = cluster.node("judge")
    lose(cluster.rig, node)
    since = time.monotonic()
    try:
        cluster.until_said(process, "server judge is ready", 2)
        assert time.monotonic() - since < SILENT_S
        complete(process)
        assert cluster.node("judge") != node
        # Nobody can tell it so: the server there hears nothing.
        cluster.check(expected)
    finally:
        cluster.rig.hear(node)
        cluster.rig.until_idle()


@pytest.mark.long
def test_where_slurmd_is_dead_and_its_node_lives_another_node_is_taken(cluster, expected):
    def lose(node):
        cluster.rig.kill_slurmd(node)
        end_server(cluster.rig, node)

    rows.is_replaced(cluster, cluster.rig, expected, lose)


@pytest.mark.long
def test_a_controller_that_is_down_says_nothing_of_the_servers(cluster, expected):
    cluster.judge_in(0.8)  # so that the run goes on for longer than the controller takes to save
    process = cluster.begun()
    cluster.rig.kill_controller()
    try:
        end_server(cluster.rig, cluster.node("judge"))
        cluster.until_said(process, "the cluster does not answer")
    finally:
        cluster.rig.start_controller()
    complete(process)
    assert not cluster.times("restart 2 of")
    cluster.check(expected)


def test_after_kill_9_of_the_client_the_same_command_continues(cluster, expected):
    rows.continues(cluster, expected, lambda process: client_of(process).kill())


def test_a_warning_before_the_time_limit_stops_the_run_in_order(cluster, expected):
    def warn(process):
        client_of(process).send_signal(signal.SIGUSR1)

    assert rows.continues(cluster, expected, warn) == EXIT_INTERRUPTED


def test_after_scancel_of_the_job_the_same_command_continues(cluster, expected):
    def cancel(_):
        (job,) = cluster.jobs()
        cluster.rig.run("scancel", job.split()[0])

    rows.continues(cluster, expected, cancel)


def test_servers_that_do_not_fit_together_run_in_waves(rig, tmp_path, expected):
    """Three servers want two GPUs each, and the job has two nodes with two."""
    crowded = Cluster(rig, tmp_path, n_nodes=2, cpus=1, gpus=2, models={})
    # Settings that differ make a server of its own.
    crowded.write(strong={"server": {**crowded.server, "start_timeout_s": 39.0}})
    shown = " ".join(crowded.said(*crowded.plan()).split())
    assert re.search(r"nodes: n\d, n\d \(2 CPUs, 2 GPUs, 1.0 GiB each\)", shown)
    assert re.search(r"wave 1 of 2: weak \(n\d\); strong \(n\d\) wave 2 of 2: judge \(n\d\)", shown)
    assert "--gres=gpu:2" in shown
    assert not crowded.asked()
    process = crowded.start()
    complete(process)
    crowded.look()
    assert set(crowded.recorded.values()) == {1}
    placed = [line.split() for line in crowded.log() if " is placed on " in line]
    assert all(f"{words[2]} ({words[6]})" in shown for words in placed)
    assert crowded.log().index("stopping server weak") < crowded.log().index(
        "server judge is ready"
    )
    crowded.check(expected)


def crowd(rig, tmp_path):
    """Begin a run of three servers that want two GPUs each, on two nodes that have two each."""
    crowded = Cluster(rig, tmp_path, n_nodes=2, cpus=1, gpus=2, models={})
    slow = {**crowded.server, "rules": [{"latency_s": 0.5}]}
    crowded.write(strong={"server": slow})
    process = crowded.start()
    crowded.until(lambda: crowded.answered("strong") >= 4, process)
    return crowded, process


@pytest.mark.long
def test_what_stood_on_a_node_that_dies_in_a_wave_gets_another_wave(rig, tmp_path, expected):
    """Three servers want two GPUs each, and one of the job's two nodes with two is lost."""
    crowded, process = crowd(rig, tmp_path)
    node, other = crowded.node("strong"), crowded.node("weak")
    crowded.rig.kill_node(node)
    crowded.look()
    try:
        complete(process)
        crowded.check(expected)
    finally:
        rig.replace(node)
    assert {crowded.node(model) for model in ("weak", "strong", "judge")} == {other}
    log = crowded.log()
    assert f"node {node} is out of reach, so its servers are planned anew" in log
    assert log.index(f"wave 2 of 3: strong ({other})") < log.index("stopping server weak")
    assert not crowded.times("no machine took it")


@pytest.mark.long
def test_a_node_that_only_srun_calls_lost_is_planned_anew(rig, tmp_path, expected):
    """A server is killed on a node whose slurmd is dead, which Slurm still believes in."""
    crowded, process = crowd(rig, tmp_path)
    node, other = crowded.node("strong"), crowded.node("weak")
    crowded.rig.kill_slurmd(node)
    end_server(rig, node)
    try:
        complete(process)
        crowded.look()
        crowded.check(expected)
    finally:
        rig.replace(node)
    assert {crowded.node(model) for model in ("weak", "strong", "judge")} == {other}
    log = crowded.log()
    assert f"the cluster has lost node {node}, where strong had to start" in log
    assert log.index(f"wave 2 of 3: strong ({other})") < log.index("stopping server weak")


def test_a_server_that_fits_on_no_node_is_refused(rig, tmp_path):
    large = Cluster(rig, tmp_path, gpus=3, models={})
    for words in (large.plan(), large.words()):
        ended = large.ended(*words)
        assert ended.returncode == EXIT_USAGE
        assert "the server of 'weak': it needs 1 CPU, 3 GPUs on one node" in ended.stderr
        assert "has 2 CPUs, 2 GPUs, 1.0 GiB" in ended.stderr
    assert not large.run_dir.exists() or not large.log()
