"""Servers as steps of a real Slurm job: what fails there, and what a run makes of it.

Each row: the frames equal those of a run on this machine, no outcome that was on the disk is asked
for again, and nothing is left on any node.
"""

import signal
import time

import pytest

from orchestrator.errors import EXIT_INTERRUPTED
from tests.cluster.runs import (
    LONG_S,
    client_of,
    complete,
    end_server,
    secrets_on_nodes,
    see_no_key,
)

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]
# A node that falls silent may cost so much, seconds; and what a busy machine adds.
SILENT_S = 30.0 + 15.0


def test_a_run_with_servers_on_nodes_gives_the_same_frames(cluster, expected):
    process = cluster.start()
    cluster.until_judging(process)
    see_no_key(secrets_on_nodes(cluster.rig))
    assert cluster.node("judge") != cluster.node("strong"), "each node has two CPUs"
    complete(process)
    cluster.look()
    # Each was asked once: nothing failed.
    assert set(cluster.recorded.values()) == {1}
    cluster.check(expected)
    assert "ready http://10." in (cluster.run_dir / "servers" / "judge.log").read_text()


@pytest.mark.parametrize("also", ["", "slurmstepd"])
def test_a_step_that_is_killed_is_started_again(cluster, expected, also):
    """Slurm tells the client of the end of a step, but not of that of the step's own daemon."""
    process = cluster.start()
    cluster.until_judging(process)
    cluster.look()
    end_server(cluster.rig, cluster.node("judge"), also=also)
    complete(process)
    assert sum(line == "server judge is ready" for line in cluster.log()) == 2
    cluster.check(expected)


def test_a_step_that_is_cancelled_is_started_again_and_no_fault_of_the_server(cluster, expected):
    process = cluster.start()
    cluster.until_judging(process)
    cluster.look()
    node = cluster.node("judge")
    steps = cluster.rig.run("squeue", "--steps", "--noheader", "--format=%i %N").splitlines()
    (step,) = [name for name, where in map(str.split, steps) if where == node]
    cluster.rig.run("scancel", step)
    complete(process)
    assert any("told to end by its machine" in line for line in cluster.log())
    assert not any("restart 1 of" in line for line in cluster.log())
    cluster.check(expected)


def test_a_node_that_dies_is_replaced_by_another(cluster, expected):
    process = cluster.start()
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


def test_a_node_that_falls_silent_is_replaced_and_ends_its_server_by_itself(cluster, expected):
    process = cluster.start()
    cluster.until_judging(process)
    cluster.look()
    node = cluster.node("judge")
    cluster.rig.silence(node)
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


def test_where_slurmd_is_dead_and_its_node_lives_another_node_is_taken(cluster, expected):
    process = cluster.start()
    cluster.until_judging(process)
    cluster.look()
    node = cluster.node("judge")
    cluster.rig.kill_slurmd(node)
    end_server(cluster.rig, node)
    try:
        complete(process)
        assert cluster.node("judge") != node
    finally:
        cluster.rig.revive(node)
    cluster.check(expected)


def test_a_controller_that_is_down_says_nothing_of_the_servers(cluster, expected):
    process = cluster.start()
    cluster.until_judging(process)
    cluster.look()
    cluster.rig.kill_controller()
    try:
        end_server(cluster.rig, cluster.node("judge"))
        cluster.until_said(process, "the cluster does not answer")
    finally:
        cluster.rig.start_controller()
    complete(process)
    assert not any("restart 2 of" in line for line in cluster.log())
    cluster.check(expected)


def test_after_kill_9_of_the_client_the_same_command_continues(cluster, expected):
    process = cluster.start()
    cluster.until_judging(process)
    client_of(process).kill()
    process.communicate(timeout=LONG_S)
    cluster.until_gone()
    cluster.look()
    assert cluster.recorded
    complete(cluster.start())
    cluster.check(expected)


def test_a_warning_before_the_time_limit_stops_the_run_in_order(cluster, expected):
    process = cluster.start()
    cluster.until_judging(process)
    client_of(process).send_signal(signal.SIGUSR1)
    _, errors = process.communicate(timeout=LONG_S)
    assert process.returncode == EXIT_INTERRUPTED, errors
    cluster.until_gone()
    cluster.look()
    complete(cluster.start())
    cluster.check(expected)


def test_after_scancel_of_the_job_the_same_command_continues(cluster, expected):
    process = cluster.start()
    cluster.until_judging(process)
    (job,) = cluster.jobs()
    cluster.rig.run("scancel", job.split()[0])
    process.communicate(timeout=LONG_S)
    cluster.until_gone()
    cluster.look()
    complete(cluster.start())
    cluster.check(expected)
