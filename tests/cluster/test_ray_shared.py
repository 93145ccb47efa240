"""Servers on the nodes of a real Ray that a program keeps, and the shards that share them."""

import json
import signal
import sys

import psutil
import pytest

from orchestrator.errors import EXIT_COMPLETE
from tests.cluster.ray_rig import RayRig
from tests.cluster.runs import LONG_S, complete
from tests.cluster.test_ray_shards import N, Shards

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def ray_rig(tmp_path_factory):
    made = RayRig(tmp_path_factory.mktemp("rig"))
    # Tasks have the environment of their node.
    made.env["ORCHESTRATOR_STATE"] = str(tmp_path_factory.mktemp("state"))
    with made:
        yield made


@pytest.fixture(scope="module")
def expected(ray_rig, tmp_path_factory):
    return Shards(ray_rig, tmp_path_factory.mktemp("local")).here()


@pytest.fixture
def cluster(ray_rig, tmp_path):
    made = Shards(ray_rig, tmp_path)
    yield made
    made.end()


class Kept:
    """Servers that a program keeps for a run, until it is interrupted."""

    def __init__(self, run: Shards) -> None:
        self._run = run
        recipe = str(run.recipe)
        words = ("servers", "start", recipe, "--on=ray", "--allow-code")
        self._keeper = run.begin([sys.executable, "-m", "orchestrator", *words])
        run.until(lambda: len(self.urls()) == 2, self._keeper)

    def urls(self) -> dict[str, str]:
        """Addresses by the models that are served there."""
        said = self._run.said(sys.executable, "-m", "orchestrator", "servers", "list", "--json")
        return {",".join(one["models"]): one["base_url"] for one in json.loads(said)}

    def processes(self, model: str) -> list[psutil.Process]:
        """Find those of the server of a model."""
        port = self.urls()[model].rpartition(":")[2]
        found = [(one, " ".join(one.cmdline())) for one in self._run.rig.servers()]
        return [one for one, words in found if f"--port {port}" in words.replace("=", " ")]

    def stop(self) -> None:
        """Have the program end its servers by the command of another; nothing is left."""
        stop = [sys.executable, "-m", "orchestrator", "servers", "stop", "judge-ray"]
        stopped = self._run.ended(*stop)
        assert stopped.returncode == EXIT_COMPLETE, stopped.stderr
        assert not self._run.rig.servers()
        _, errors = self._keeper.communicate(timeout=LONG_S)
        assert self._keeper.returncode == EXIT_COMPLETE, errors
        assert not self.urls()
        self._run.until_gone()


def test_shards_share_the_servers_that_a_program_keeps(cluster, expected):
    kept = Kept(cluster)
    complete(cluster.start(f"--shards={N}", "--set=cluster.jobs=shared"))
    assert set(cluster.asked().values()) == {1}
    assert len(kept.urls()) == 2
    kept.stop()
    cluster.check(expected)


def kill_server(kept, cluster):
    for one in kept.processes("judge"):
        one.kill()


def hang_server(kept, cluster):
    for one in kept.processes("judge"):
        one.send_signal(signal.SIGSTOP)


def kill_node(kept, cluster):
    rig = cluster.rig
    pids = {one.pid for one in kept.processes("judge")}
    (node,) = [one for one in rig.nodes if pids & {found.pid for found in rig.servers(one)}]
    rig.kill_node(node)
    rig.until_lost(node)
    # Clients of shards have the rest of the nodes, so it is there that there is room.
    rig.start_node(node)


@pytest.mark.parametrize("strike", [kill_server, hang_server, kill_node])
def test_shards_go_on_with_the_server_that_takes_the_place_of_one(cluster, expected, strike):
    cluster.judge_in(1.0)
    kept = Kept(cluster)
    before = kept.urls()["judge"]
    process = cluster.start(f"--shards={N}", "--set=cluster.jobs=shared")
    cluster.until(lambda: all(cluster.judged_by(part) >= 3 for part in range(1, N + 1)), process)
    assert kept.processes("judge")
    strike(kept, cluster)
    cluster.until(lambda: kept.urls().get("judge", before) != before, process)
    complete(process)
    kept.stop()
    again = [n - 1 for n in cluster.asked().values() if n > 1]
    assert set(again) <= {1}
    # Of the judge from each shard; with a node the other model's, and one shard itself.
    assert len(again) <= 4 * N
    cluster.check(expected)
