"""Servers that a job of a real Slurm keeps, and the shards that share them."""

import json
import signal
import subprocess
import sys
from typing import Any

import psutil
import pytest

from orchestrator.errors import EXIT_COMPLETE
from tests.cluster.slurm_runs import Cluster
from tests.cluster.test_shards import (
    N,
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


# Of the servers: steps of the job that keeps them, or jobs of their own.
ARE: dict[str, dict[str, Any]] = {"steps": {"nodes": 1}, "spread": {"nodes": 2}, "jobs": {}}


@pytest.fixture
def cluster(rig, tmp_path, request):
    """A run whose shards share servers."""
    before = dict(rig.env)
    rig.env["ORCHESTRATOR_STATE"] = str(tmp_path / "state")
    yield Cluster(
        rig, tmp_path, is_inside=False, time="20m", drain="5m", models={}, **ARE[request.param]
    )
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
    return next(job for job, name in jobs(cluster) if name.startswith("orch-made.servers-"))


def jobs(cluster: Cluster, *more: str) -> list[tuple[str, str]]:
    """Return the number and the name of each job or element that waits or runs."""
    states = "--states=PENDING,RUNNING"
    shown = cluster.rig.run("squeue", "--noheader", "--array", states, "--format=%i %j", *more)
    return [(job, name) for job, name in map(str.split, shown.splitlines())]


def kept(cluster: Cluster) -> dict[str, str]:
    """Addresses of the servers by the models that they serve."""
    said = json.loads(orchestrator(cluster, "servers", "list", "--json"))
    return {",".join(one["models"]): one["base_url"] for one in said}


def log(cluster: Cluster) -> str:
    folder = cluster.run_dir.parent / "runs" / "made.servers"
    return "".join(file.read_text() for file in folder.glob("slurm-*.log"))


def until_kept(cluster: Cluster) -> None:
    until(lambda: len(kept(cluster)) == 2, cluster)


def until_shards_have_ended(cluster: Cluster) -> None:
    until(lambda: not any(name.startswith("orch-run-") for _, name in jobs(cluster)), cluster)


def stop(cluster: Cluster) -> None:
    orchestrator(cluster, "servers", "stop", "--all")
    assert not kept(cluster)
    until_no_jobs(cluster)
    cluster.until_gone()


@pytest.mark.parametrize(
    "cluster", ["steps", "jobs", pytest.param("spread", marks=pytest.mark.long)], indirect=True
)
def test_shards_share_the_servers_that_a_job_keeps(cluster, expected):
    begin(cluster)
    submit(cluster, SHARED)
    script = (cluster.run_dir / "slurm-shards.sh").read_text()
    # An element is a client and nothing else.
    assert "--cpus-per-task=1\n" in script
    until_kept(cluster)
    until_shards_have_ended(cluster)
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


def kill_server(cluster: Cluster, _: str) -> None:
    for one in servers(cluster, kept(cluster)["judge"]):
        one.kill()


def hang_server(cluster: Cluster, _: str) -> None:
    for one in servers(cluster, kept(cluster)["judge"]):
        one.send_signal(signal.SIGSTOP)


def kill_keeper(cluster: Cluster, job: str) -> None:
    (keeper,) = [one for one in clients(cluster) if "start" in one.cmdline()]
    keeper.kill()
    until(lambda: job not in [found for found, _ in jobs(cluster)], cluster)
    begin(cluster)


def requeue_keeper(cluster: Cluster, job: str) -> None:
    cluster.rig.run("scontrol", "requeue", job)
    begin_again(cluster, job)


def end_keeper_in_time(cluster: Cluster, job: str) -> None:
    """Its limit is so near that Slurm warns when it looks next, which it does each half minute."""
    cluster.rig.run("scontrol", "update", f"JobId={job}", "TimeLimit=6")
    until(lambda: job not in [found for found, _ in jobs(cluster)], cluster)
    assert "near the time limit: ends" in log(cluster)
    assert not kept(cluster)
    begin(cluster)


def kill_node(cluster: Cluster, _: str) -> None:
    """The node of the judge, with all that is there; it is soon back."""
    (node,) = {
        node
        for one in servers(cluster, kept(cluster)["judge"])
        for node in cluster.rig.nodes
        if one in cluster.rig.processes(node)
    }
    there = jobs(cluster, f"--nodelist={node}")
    cluster.rig.kill_node(node)
    cluster.rig.bring_back(node)
    for job, name in there:
        if name.startswith(("orch-run-", "orch-made.servers-")):
            begin_again(cluster, job)


@pytest.mark.long
@pytest.mark.parametrize("cluster", ["steps", "jobs"], indirect=True)
@pytest.mark.parametrize(
    "strike",
    [kill_server, hang_server, kill_keeper, requeue_keeper, end_keeper_in_time, kill_node],
)
def test_shards_go_on_with_the_server_that_takes_the_place_of_one(cluster, expected, strike):
    cluster.judge_in(1.0 if strike is not end_keeper_in_time else 4.0)
    job = begin(cluster)
    submit(cluster, SHARED)
    until_all_judge(cluster)
    before = kept(cluster)["judge"]
    assert servers(cluster, before)
    strike(cluster, job)
    until(lambda: kept(cluster).get("judge", before) != before, cluster)
    until_shards_have_ended(cluster)
    stop(cluster)
    check(cluster, expected, N)
