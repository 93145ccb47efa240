"""Servers in actors of a real Ray: what fails there, and what a run makes of it.

Each row: the frames equal those of a run on this machine, no outcome that was on the disk is asked
for again, and nothing is left on any node.
"""

import contextlib
import re
import signal
import subprocess
import sys

import psutil
import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_INTERRUPTED
from orchestrator.runner.servers.ray_driver import LEASE_S
from tests.cluster import rows
from tests.cluster.ray_rig import RayRig
from tests.cluster.runs import LONG_S, Run, complete
from tests.e2e.runs import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(300)]
DRIVER = "orchestrator.runner.servers.ray_driver"
# For a server to end in order when its stdin is closed, and for a busy machine.
_SLACK_S = 30.0


class Cluster(Run):
    """A run on the rig's Ray."""

    N_ITEMS = 40
    START_TIMEOUT_S = 59.0

    def __init__(self, rig: RayRig, folder, **changes: object) -> None:
        self.rig = rig
        left = lambda: [*rig.servers(), *drivers(rig)]  # noqa: E731 (as the other rig)
        super().__init__(folder, "ray", env=rig.env, left=left, changes=changes)

    def node_of(self, model: str) -> str:
        """Name of the node that has the server of a model."""
        return self.rig.node_ids()[self.node(model)]


def drivers(rig: RayRig) -> list[psutil.Process]:
    """Drivers of servers on the rig."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if DRIVER in words and f"--address={rig.address}" in words:
                found.append(process)
    return found


@pytest.fixture
def cluster(ray_rig, tmp_path):
    made = Cluster(ray_rig, tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="module")
def local(ray_rig, tmp_path_factory):
    """The same run on this machine."""
    made = Cluster(ray_rig, tmp_path_factory.mktemp("local"))
    made.here()
    return made


@pytest.fixture(scope="module")
def expected(local):
    return local.here()


def files(run: Run) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (run.run_dir / "results").glob("*.parquet")}


def test_a_run_with_servers_on_nodes_gives_the_same_frames(cluster, local, expected):
    rows.gives_the_same_frames(cluster, expected, cluster.rig.servers)
    assert files(cluster) == files(local)


def test_a_server_that_is_killed_is_started_again(cluster, expected):
    def end(node):
        for one in cluster.rig.servers(node):
            with contextlib.suppress(psutil.Error):
                one.kill()

    rows.starts_again(cluster, expected, end)


def test_a_driver_that_is_killed_is_started_again_and_its_server_ends(cluster, expected):
    process = cluster.begun()
    old = cluster.rig.servers(cluster.node_of("judge"))
    for one in drivers(cluster.rig):
        if "--cpus=2" in one.cmdline():
            one.kill()
    gone, _ = psutil.wait_procs(old, _SLACK_S)
    assert len(gone) == len(old)
    complete(process)
    assert cluster.ready("judge") == 2
    cluster.check(expected)


def test_a_node_that_dies_is_replaced_by_another(cluster, expected):
    rows.is_replaced(cluster, cluster.rig, expected, cluster.rig.kill_node)


def test_no_server_outlives_its_raylet_beside_its_replacement(cluster, expected):
    process = cluster.begun()
    node = cluster.node_of("judge")
    old = cluster.rig.servers(node)
    assert old
    cluster.rig.kill_raylet(node)
    try:
        gone, _ = psutil.wait_procs(old, _SLACK_S)
        assert len(gone) == len(old)
        assert cluster.ready("judge") == 1, "its replacement comes after its end"
        complete(process)
        assert cluster.ready("judge") == 2
        cluster.check(expected)
    finally:
        cluster.rig.replace(node)


def test_on_a_silent_node_the_lease_ends_and_the_run_goes_on_elsewhere(cluster, expected):
    def lose(node):
        old = cluster.rig.servers(node)
        assert old
        cluster.rig.silence(node)
        gone, _ = psutil.wait_procs(old, LEASE_S + _SLACK_S)
        assert len(gone) == len(old)

    rows.is_replaced(cluster, cluster.rig, expected, lose)


@pytest.fixture
def crowded(ray_rig, tmp_path):
    """A run of three servers, each of which takes a whole node."""
    made = Cluster(ray_rig, tmp_path, cluster={"cpus": 2})
    # Settings that differ make a server of its own; a slow one, so that a node dies meanwhile.
    made.write(strong={"server": {**made.server, "rules": [{"latency_s": 0.4}]}})
    yield made
    made.end()


def test_servers_that_do_not_fit_together_run_in_waves(crowded, expected, ray_rig):
    ray_rig.kill_node("n3")
    try:
        ray_rig.until_lost("n3")
        shown = " ".join(crowded.said(*crowded.plan()).split())
        waves = r"wave 1 of 2: weak \((\w+)\); strong \((\w+)\) wave 2 of 2: judge \((\w+)\)"
        planned = re.search(waves, shown)
        assert planned is not None, shown
        complete(crowded.start())
        crowded.look()
        assert set(crowded.recorded.values()) == {1}
        log = crowded.log()
        assert log.index("stopping server weak") < log.index("server judge is ready")
        models = ("weak", "strong", "judge")
        assert tuple(map(crowded.node, models)) == planned.groups()
        crowded.check(expected)
    finally:
        ray_rig.replace("n3")


def test_what_ran_on_a_node_that_dies_gets_another_wave(crowded, expected, ray_rig):
    process = crowded.start()
    crowded.until(lambda: crowded.answered("strong") >= 4, process)
    node, place = crowded.node_of("strong"), crowded.node("strong")
    ray_rig.kill_node(node)
    crowded.look()
    try:
        complete(process)
        crowded.check(expected)
        assert crowded.node("strong") != place
        log = crowded.log()
        assert f"node {place} is out of reach, so its servers are planned anew" in log
        assert crowded.times(": strong") >= 1
        assert crowded.ready("strong") == 2
    finally:
        ray_rig.replace(node)


def test_after_kill_9_of_the_client_the_same_command_continues(cluster, expected):
    rows.continues(cluster, expected, lambda process: process.kill())


def test_a_signal_stops_the_run_in_order(cluster, expected):
    code = rows.continues(cluster, expected, lambda process: process.send_signal(signal.SIGTERM))
    assert code == EXIT_INTERRUPTED


def waits_for_room(run: Run) -> bool:
    """Return True once a judge has said that it waits."""
    logs = [file.read_text() for file in (run.run_dir / "servers").glob("judge*.log")]
    return any("no node has these resources free now; waiting: CPU 2" in log for log in logs)


def test_a_run_begins_while_a_server_waits_for_room_and_welcomes_it_later(
    cluster, expected, ray_rig
):
    words = [sys.executable, "-P", "-m", DRIVER, f"--address={ray_rig.address}", "--cpus=2"]
    other = subprocess.Popen(
        [*words, "--", "sh", "-c", "echo has room; exec cat"], cwd=ROOT, env=ray_rig.env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "has room\n"
        # So that the run goes on for longer than the second judge takes to start.
        cluster.judge_in(1.0, replicas=2, min_servers=1)
        judges = ("judge", "judge.2")
        process = cluster.start()
        cluster.until_judging(process)
        cluster.until(lambda: waits_for_room(cluster), process)
        assert sum(map(cluster.ready, judges)) == 1
    finally:
        other.kill()
        other.communicate(timeout=LONG_S)
    cluster.until(lambda: sum(map(cluster.ready, judges)) > 1, process)
    complete(process)
    cluster.check(expected)


@pytest.mark.models
def test_the_embedded_server_on_a_node_gives_the_numbers_of_this_machine(ray_rig, tmp_path):
    found = []
    for on in ("local", "ray"):
        folder = tmp_path / on
        folder.mkdir()
        made = Cluster(ray_rig, folder)
        server = {"server": {"kind": "embedded"}}
        names = ("novice", "expert", "judge")
        models = {name: {**server, "weights": f"bundled:{name}"} for name in names}
        # One at a time: what is computed together decides the last digits.
        limits = {"max_in_flight": 1}
        made.write(models=models, dataset={"kind": "demo", "n": 4}, cluster={}, limits=limits)
        words = () if on == "ray" else ("--on", "local")
        complete(made.start(*words))
        made.until_gone()
        found.append(files(made))
    assert found[0]
    assert found[0] == found[1]


def test_after_the_head_is_lost_the_run_continues_on_a_new_one(cluster, expected):
    """Ray ends the nodes of a cluster whose control service is gone. This is the last test."""
    cluster.write(limits={"max_in_flight": 1})
    process = cluster.begun()
    cluster.rig.kill_gcs()
    cluster.until(lambda: not cluster.rig.servers(), process)
    cluster.rig.restart()
    process.communicate(timeout=LONG_S * 2)
    if process.returncode != EXIT_COMPLETE:
        # It gave its servers up before the new head was there.
        cluster.look()
        complete(cluster.start())
    assert cluster.ready("judge") > 1
    cluster.check(expected)
