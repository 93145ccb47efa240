"""Servers that a job of a real Slurm keeps, and the shards that share them."""

import json
import signal
import subprocess
import sys

import psutil
import pytest

from orchestrator.errors import EXIT_COMPLETE
from tests.cluster.slurm_runs import Cluster
from tests.cluster.test_shards import (
    begin_again,
    check,
    clients,
    sent,
    submit,
    until,
    until_all_judge,
    until_no_jobs,
)
from tests.e2e.runs import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(400)]
SHARED = "--set=cluster.jobs=shared"


@pytest.fixture
def cluster(rig, tmp_path):
    """A run whose shards share servers, which are steps of a job on two nodes."""
    before = dict(rig.env)
    rig.env["ORCHESTRATOR_STATE"] = str(tmp_path / "state")
    yield Cluster(rig, tmp_path, is_inside=False, time="20m", drain="5m", nodes=2)
    rig.env.clear()
    rig.env.update(before)
    rig.run("scancel", "--user=root")


def orchestrator(cluster: Cluster, *words: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        cwd=cluster.run_dir.parent,
        env={**cluster.rig.env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == EXIT_COMPLETE, ended.stdout + ended.stderr
    return ended.stdout


def begin(cluster: Cluster) -> str:
    """Start the servers; return the number of the job that keeps them."""
    orchestrator(cluster, "servers", "start", str(cluster.recipe), "--on=slurm", "--allow-code")
    return max(numbers(cluster), key=int)


def numbers(cluster: Cluster) -> list[str]:
    return [line.split()[0] for line in cluster.jobs()]


def kept(cluster: Cluster) -> dict[str, str]:
    """Addresses of the servers by the models that they serve."""
    said = json.loads(orchestrator(cluster, "servers", "list", "--json"))
    return {",".join(one["models"]): one["base_url"] for one in said}


def log(cluster: Cluster) -> str:
    folder = cluster.run_dir.parent / "runs" / "made.servers"
    return "".join(file.read_text() for file in folder.glob("slurm-*.log"))


def until_kept(cluster: Cluster) -> None:
    until(lambda: len(kept(cluster)) == 2, cluster)


def until_shards_have_ended(cluster: Cluster, job: str) -> None:
    until(lambda: all(line.split()[0] == job for line in cluster.jobs()), cluster)


def stop(cluster: Cluster) -> None:
    orchestrator(cluster, "servers", "stop", "--all")
    assert not kept(cluster)
    until_no_jobs(cluster)
    cluster.until_gone()


def test_shards_share_the_servers_that_a_job_keeps(cluster, expected):
    job = begin(cluster)
    submit(cluster, SHARED)
    script = (cluster.run_dir / "slurm-shards.sh").read_text()
    # An element is a client and nothing else.
    assert "--cpus-per-task=1\n" in script
    until_kept(cluster)
    until_shards_have_ended(cluster, job)
    assert sent(cluster) == 0
    assert set(cluster.asked().values()) == {1}
    assert len(kept(cluster)) == 2
    stop(cluster)
    cluster.check(expected)


def servers(cluster: Cluster, url: str) -> list[psutil.Process]:
    """Processes of a server that listen at an address, on its node."""
    port = url.rpartition(":")[2]
    return [
        one
        for one in cluster.rig.processes()
        if port in " ".join(one.cmdline()).replace("=", " ").split()
        and "watchdog" not in " ".join(one.cmdline())
    ]


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "hung", "keeper killed", "requeued"])
def test_shards_go_on_with_the_server_that_takes_the_place_of_one(cluster, expected, how):
    cluster.judge_in(1.0)
    job = begin(cluster)
    submit(cluster, SHARED)
    until_all_judge(cluster)
    before = kept(cluster)["judge"]
    if how == "killed":
        for one in servers(cluster, before):
            one.kill()
    elif how == "hung":
        for one in servers(cluster, before):
            one.send_signal(signal.SIGSTOP)
    elif how == "keeper killed":
        (keeper,) = [one for one in clients(cluster) if "start" in one.cmdline()]
        keeper.kill()
        until(lambda: job not in numbers(cluster), cluster)
        begin(cluster)
    else:
        cluster.rig.run("scontrol", "requeue", job)
        begin_again(cluster, job)
    until(lambda: kept(cluster).get("judge", before) != before, cluster)
    until(lambda: (cluster.run_dir / "results" / "judgments.parquet").exists(), cluster)
    until(lambda: all("orch-mad" in line for line in cluster.jobs()), cluster)
    stop(cluster)
    check(cluster, expected)
