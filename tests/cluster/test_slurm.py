"""Servers as steps of a real Slurm: what fails there, and what a run makes of it.

Each row: the frames equal those of a run on this machine, no outcome that was on the disk is asked
for again, and nothing is left on any node.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from polars.testing import assert_frame_equal

from orchestrator.errors import EXIT_COMPLETE, EXIT_INTERRUPTED, EXIT_USAGE
from tests.cluster.rig import Rig
from tests.e2e.runs import ROOT, command, frames, recorded_requests

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]
KIND = "tests.cluster.logged"
N_ITEMS = 40
# Of the last process of a server whose client or node has gone.
GONE_S = 20.0
LONG_S = 120.0


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    with Rig(tmp_path_factory.mktemp("rig")) as made:
        yield made


class Cluster:
    """A recipe, its runs on the rig, and what its servers were asked."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig = rig
        self.run_dir = folder / "run"
        self.requests = folder / "requests.log"
        self.recipe = folder / "r.json"
        rules = [{"model": "judge", "latency_s": 0.2}, {"latency_s": 0.02}]
        server = {"kind": KIND, "rules": rules, "requests": str(self.requests)}
        # Settings that differ make a server of its own.
        judge = {**server, "start_timeout_s": 29.0}
        made = {
            "name": "made",
            "models": {
                "weak": {"server": server, "weights": "fake:0.3"},
                "strong": {"server": server, "weights": "fake:0.9"},
                "judge": {"server": judge, "weights": "judge:1.0"},
            },
            "cluster": {"models": {"judge": {"cpus": 2}}},
            "dataset": {"kind": "demo", "n": N_ITEMS},
            "methods": [{"kind": "pairwise_ranking", "judges": ["judge"]}],
            "statistics": {"n_resamples": 1000},
            "limits": {"max_in_flight": 2},
        }
        self.recipe.write_text(json.dumps(made))
        self.recorded: dict[str, int] = {}

    def start(self, *more: str) -> subprocess.Popen[str]:
        """The command, in an allocation of all nodes."""
        words = command(self.recipe, self.run_dir, "--on", "slurm", "--allow-code", *more)
        return subprocess.Popen(
            self.rig.salloc(*words), cwd=ROOT, env=self.rig.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def asked(self) -> Counter[str]:
        """Count each request, over all servers."""
        lines = self.requests.read_text().splitlines() if self.requests.exists() else []
        return Counter(line.partition("\t")[0] for line in lines)

    def judged(self) -> int:
        """Judgments so far."""
        with contextlib.suppress(OSError, ValueError):
            values = json.loads((self.run_dir / "status.json").read_text())["values"]
            return sum(one["done"] for one in values["models"] if one["name"] == "judge")
        return 0

    def until_judging(self, process: subprocess.Popen[str], n: int = 8) -> None:
        """Wait until some judgments are there, long before all are."""
        end = time.monotonic() + LONG_S
        while self.judged() < n:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, self.log()
            time.sleep(0.1)

    def log(self) -> list[str]:
        """Messages of the run's log."""
        lines = (self.run_dir / "log.jsonl").read_text().splitlines()
        return [json.loads(line)["message"] for line in lines]

    def node(self, model: str) -> str:
        """Node on which the server of a model was started last."""
        placed = [line for line in self.log() if f"{model} is placed on" in line]
        return placed[-1].partition(" is placed on ")[2].split()[0]

    def look(self) -> None:
        """Remember what is recorded, and how often it was asked, after a client has ended."""
        found = recorded_requests(self.recipe, self.run_dir, allow_code=True)
        asked = self.asked()
        self.recorded |= {request: asked[request] for request in found}

    def until_gone(self) -> None:
        """See that nothing is left on any node, and no srun here."""
        end = time.monotonic() + GONE_S
        while left := [*self.rig.processes(), *steps()]:
            assert time.monotonic() < end, left
            time.sleep(0.1)

    def check(self, expected) -> None:
        """The run is whole, and nothing was paid for twice."""
        found = frames(self.run_dir)
        assert found.keys() == expected.keys()
        for name, frame in expected.items():
            assert_frame_equal(found[name], frame, check_exact=True)
        asked = self.asked()
        assert self.recorded == {request: asked[request] for request in self.recorded}
        self.until_gone()


def steps() -> list[psutil.Process]:
    """Processes of srun that this user runs in the rig."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() == "srun" and "_watchdog.py" in " ".join(process.cmdline()):
                found.append(process)
    return found


@pytest.fixture
def cluster(rig, tmp_path):
    yield Cluster(rig, tmp_path)
    rig.run("scancel", "--user=root")


@pytest.fixture(scope="module")
def expected(rig, tmp_path_factory):
    """The frames of a run on this machine."""
    local = Cluster(rig, tmp_path_factory.mktemp("local"))
    ended = subprocess.run(
        command(local.recipe, local.run_dir, "--allow-code"), cwd=ROOT, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == EXIT_COMPLETE, ended.stderr
    return frames(local.run_dir)


def complete(process: subprocess.Popen[str]) -> None:
    output, errors = process.communicate(timeout=LONG_S)
    assert process.returncode == EXIT_COMPLETE, output + errors


def test_a_run_with_servers_on_nodes_gives_the_same_frames(cluster, expected):
    process = cluster.start()
    cluster.until_judging(process)
    keys = secrets_on_nodes(cluster.rig)
    assert keys
    for other in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            lines = " ".join(other.cmdline())
            if other.name() == "srun":
                lines += Path(f"/proc/{other.pid}/environ").read_bytes().decode(errors="replace")
            assert not [key for key in keys if key in lines], other
    assert cluster.node("judge") != cluster.node("strong"), "each node has two CPUs"
    complete(process)
    cluster.look()
    # Each was asked once: nothing failed.
    assert set(cluster.recorded.values()) == {1}
    cluster.check(expected)
    assert "ready http://10." in (cluster.run_dir / "servers" / "judge.log").read_text()


def secrets_on_nodes(rig: Rig) -> set[str]:
    """Keys of the servers, from the environments of their processes."""
    found = set()
    for process in rig.processes():
        with contextlib.suppress(psutil.Error):
            found.add(process.environ().get("ORCHESTRATOR_SERVER_KEY", ""))
    return found - {""}


@pytest.mark.parametrize("also", ["", "slurmstepd"])
def test_a_step_that_is_killed_is_started_again(cluster, expected, also):
    """Slurm tells the client of the end of a step, but not of that of the step's own daemon."""
    process = cluster.start()
    cluster.until_judging(process)
    cluster.look()
    node = cluster.node("judge")
    for one in cluster.rig.processes(node):
        with contextlib.suppress(psutil.Error):
            if one.name() != "slurmstepd" or also:
                one.kill()
    complete(process)
    assert sum(line == "server judge is ready" for line in cluster.log()) == 2
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
        cluster.rig.start_node(node)
        cluster.rig.until_idle()


def test_after_kill_9_of_the_client_the_same_command_continues(cluster, expected):
    process = cluster.start()
    cluster.until_judging(process)
    (client,) = [
        one for one in psutil.Process(process.pid).children() if "orchestrator" in one.cmdline()
    ]
    client.kill()
    process.communicate(timeout=LONG_S)
    cluster.until_gone()
    cluster.look()
    assert cluster.recorded
    complete(cluster.start())
    cluster.check(expected)


def test_a_warning_before_the_time_limit_stops_the_run_in_order(cluster, expected):
    process = cluster.start()
    cluster.until_judging(process)
    (client,) = [
        one for one in psutil.Process(process.pid).children() if "orchestrator" in one.cmdline()
    ]
    client.send_signal(signal.SIGUSR1)
    _, errors = process.communicate(timeout=LONG_S)
    assert process.returncode == EXIT_INTERRUPTED, errors
    cluster.until_gone()
    cluster.look()
    complete(cluster.start())
    cluster.check(expected)


def test_outside_an_allocation_it_is_refused(cluster):
    outside = {name: value for name, value in os.environ.items() if name != "SLURM_JOB_ID"}
    words = command(cluster.recipe, cluster.run_dir, "--on", "slurm", "--allow-code")
    ended = subprocess.run(
        words, cwd=ROOT, env=outside, capture_output=True, text=True, check=False
    )
    assert ended.returncode == EXIT_USAGE
    assert "salloc" in ended.stderr
