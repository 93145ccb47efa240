"""The shards of a run as tasks of a real Ray, put together by the command that began them."""

import contextlib
import json

import pytest

from orchestrator.errors import EXIT_USAGE
from tests.chaos.test_disk import disk
from tests.cluster.ray_rig import RayRig
from tests.cluster.runs import LONG_S, Run, complete

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(300)]
N = 3


class Shards(Run):
    """A run on the rig's Ray, in shards."""

    def __init__(self, rig: RayRig, folder) -> None:
        self.rig = rig
        super().__init__(folder, "ray", env=rig.env, left=rig.servers)

    def judged_by(self, part: int) -> int:
        path = self.run_dir.with_name(f"run.shard-{part}-of-{N}") / "status.json"
        if not path.exists():
            return 0
        values = json.loads(path.read_text())["values"]
        return sum(one["done"] for one in values["models"] if one["name"] == "judge")


@pytest.fixture
def cluster(ray_rig, tmp_path):
    made = Shards(ray_rig, tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="module")
def expected(ray_rig, tmp_path_factory):
    return Shards(ray_rig, tmp_path_factory.mktemp("local")).here()


def test_shards_end_as_one_run(cluster, expected):
    complete(cluster.start(f"--shards={N}"))
    assert set(cluster.asked().values()) == {1}
    cluster.check(expected)


@contextlib.contextmanager
def kill_client(cluster, node, process):
    for one in cluster.rig.tasks(node):
        one.kill()
    yield process


@contextlib.contextmanager
def kill_node(cluster, node, process):
    cluster.rig.kill_node(node)
    try:
        yield process
    finally:
        cluster.rig.replace(node)


@contextlib.contextmanager
def silence(cluster, node, process):
    """Its client may live on and end its shard; then the task that is begun again finds that."""
    cluster.rig.silence(node)
    try:
        yield process
    finally:
        cluster.rig.replace(node)


@contextlib.contextmanager
def kill_command(cluster, _, process):
    """Its tasks go on, and the same command waits for them."""
    process.kill()
    process.communicate()
    yield cluster.start(f"--shards={N}")


@pytest.mark.parametrize("strike", [kill_client, kill_node, silence, kill_command])
def test_a_shard_that_ends_early_is_resumed(cluster, expected, strike):
    cluster.judge_in(1.0)
    process = cluster.start(f"--shards={N}")
    cluster.until(lambda: all(cluster.judged_by(part) >= 3 for part in range(1, N + 1)), process)
    node = cluster.rig.nodes[0]
    assert cluster.rig.tasks(node)
    with strike(cluster, node, process) as waits:
        complete(waits)
    again = [n - 1 for n in cluster.asked().values() if n > 1]
    # Requests of one client that were in flight, at two servers.
    assert len(again) <= 4
    assert set(again) <= {1}
    cluster.check(expected)


def test_shards_that_met_a_full_disk_go_on_when_it_has_room(ray_rig, tmp_path, expected):
    with disk(tmp_path / "small", 64_000) as mount:
        # A node sees the disks that were there when it began.
        ray_rig.restart()
        ray_rig.until_whole()
        full = Shards(ray_rig, tmp_path / "small")
        full.judge_in(1.0)
        process = full.start(f"--shards={N}")
        full.until(lambda: all(full.judged_by(part) >= 3 for part in range(1, N + 1)), process)
        used = sum(file.stat().st_blocks for file in (tmp_path / "small").rglob("*")) // 2
        assert mount(f"remount,size={used + 8}k")
        _, errors = process.communicate(timeout=LONG_S)
        assert process.returncode == EXIT_USAGE, errors
        assert "nothing was put together" in errors
        assert mount("remount,size=64m")
        complete(full.start(f"--shards={N}"))
        full.check(expected)


def test_shards_of_two_runs_on_the_same_nodes_share_nothing(ray_rig, tmp_path, expected):
    """Ray has one user, who started it: these are two runs of theirs."""
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    runs = [Shards(ray_rig, folder) for folder in folders]
    processes = [run.start(f"--shards={N}") for run in runs]
    for run, process in zip(runs, processes, strict=True):
        complete(process)
        assert set(run.asked().values()) == {1}
    for run in runs:
        run.check(expected)
