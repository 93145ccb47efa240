"""The shards of a run as an array of a real Slurm, and the job that puts them together."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable

import polars as pl
import psutil
import pytest

from orchestrator.errors import EXIT_COMPLETE
from tests.cluster.runs import LONG_S
from tests.cluster.slurm_runs import Cluster, said
from tests.e2e.runs import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]
N = 3
# Of the judge and of the model with the other server, for the client that is ended.
IN_FLIGHT = 4


@pytest.fixture
def cluster(rig, tmp_path):
    yield Cluster(rig, tmp_path, is_inside=False, time="20m", drain="5m")
    rig.run("scancel", "--user=root")


def submit(cluster: Cluster, *more: str) -> str:
    words = cluster.words(f"--shards={N}", *more)
    ended = subprocess.run(
        words, cwd=ROOT, env=cluster.rig.env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == EXIT_COMPLETE, ended.stderr
    return ended.stderr


def until_no_jobs(cluster: Cluster) -> None:
    end = time.monotonic() + LONG_S
    while cluster.jobs():
        assert time.monotonic() < end, (cluster.jobs(), said(cluster))
        time.sleep(0.2)


def sent(cluster: Cluster) -> int:
    """Count the requests of the call that put the shards together."""
    return int(json.loads((cluster.run_dir / "status.json").read_text())["values"]["requests_sent"])


def clients(cluster: Cluster, node: str | None = None) -> list[psutil.Process]:
    """Find the clients of the run on a node, or on all."""
    found = []
    for process in cluster.rig.processes(node):
        with contextlib.suppress(psutil.Error):
            if "orchestrator" in process.cmdline() and process.name() != "slurmstepd":
                found.append(process)
    return found


def until(is_so: Callable[[], bool], cluster: Cluster) -> None:
    end = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < end, (cluster.jobs(), said(cluster))
        time.sleep(0.1)


def judged(cluster: Cluster, part: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        path = cluster.run_dir.with_name(f"run.shard-{part}-of-{N}") / "status.json"
        values = json.loads(path.read_text())["values"]
        return sum(one["done"] for one in values["models"] if one["name"] == "judge")
    return 0


def until_all_judge(cluster: Cluster) -> None:
    until(lambda: all(judged(cluster, part) >= 3 for part in range(1, N + 1)), cluster)


def begin_again(cluster: Cluster, what: str) -> None:
    """Wait until Slurm has put an element back into its queue, and let it begin at once."""

    def waits() -> bool:
        shown = cluster.rig.run("scontrol", "--oneliner", "show", "job", what)
        return "JobState=PENDING" in shown and "Restarts=0" not in shown

    until(waits, cluster)
    time.sleep(2.0)
    cluster.rig.run("scontrol", "update", f"JobId={what}", "StartTime=now")


def test_shards_end_as_one_run(cluster, expected):
    assert "submitted job" in submit(cluster)
    assert "nothing was submitted: the run has jobs" in submit(cluster)
    until_no_jobs(cluster)
    assert sent(cluster) == 0
    assert set(cluster.asked().values()) == {1}
    cluster.check(expected)


def running(cluster: Cluster) -> list[tuple[str, str]]:
    """Return the elements that run, each as Slurm names it and with its node."""
    shown = cluster.rig.run("squeue", "--noheader", "--array", "--states=R", "--format=%i %N")
    return [(element, node) for element, node in map(str.split, shown.splitlines())]


def check(cluster: Cluster, expected: dict[str, pl.DataFrame]) -> None:
    """The whole equals one run, and only requests in flight were sent twice."""
    assert sent(cluster) == 0
    again = [n - 1 for n in cluster.asked().values() if n > 1]
    assert len(again) <= IN_FLIGHT, again
    assert set(again) <= {1}
    cluster.check(expected)


def test_an_element_whose_client_is_killed_resumes_its_shard(cluster, expected):
    cluster.judge_in(1.0)
    submit(cluster)
    until_all_judge(cluster)
    element, node = running(cluster)[0]
    for one in clients(cluster, node):
        one.kill()
    begin_again(cluster, element)
    until_no_jobs(cluster)
    check(cluster, expected)


@pytest.mark.long
@pytest.mark.parametrize("how", ["limit", "requeue"])
def test_an_element_that_slurm_ends_resumes_its_shard(cluster, expected, how):
    cluster.judge_in(1.0)
    submit(cluster)
    until_all_judge(cluster)
    element, _ = running(cluster)[0]
    if how == "limit":
        # As Slurm does five minutes before the limit.
        cluster.rig.run("scancel", "--batch", "--signal=USR1", element)
    else:
        cluster.rig.run("scontrol", "requeue", element)
    begin_again(cluster, element)
    until_no_jobs(cluster)
    assert ("goes back into the queue" in said(cluster)) == (how == "limit")
    check(cluster, expected)


@pytest.mark.long
def test_what_was_cancelled_or_killed_is_submitted_again_and_nothing_else(cluster, expected):
    cluster.judge_in(1.0)
    submit(cluster)
    until_all_judge(cluster)
    element, _ = running(cluster)[0]
    part = element.partition("_")[2]
    cluster.rig.run("scancel", element)
    until_no_jobs(cluster)
    words = said(cluster)
    assert f"shard {part} of {N}: stopped" in words
    assert words.count(f" of {N}: ") == 1, words
    assert not (cluster.run_dir / "results" / "judgments.parquet").exists()
    submit(cluster)
    assert f"#SBATCH --array={part}%{N}\n" in (cluster.run_dir / "slurm-shards.sh").read_text()

    def merging() -> list[psutil.Process]:
        return [one for one in clients(cluster) if f"--shards={N}" in one.cmdline()]

    until(lambda: bool(merging()), cluster)
    for one in merging():
        one.kill()
    until_no_jobs(cluster)
    assert "ends with exit code 137" in said(cluster)
    # Nothing is left to submit, so they are put together here.
    assert "submitted" not in submit(cluster)
    check(cluster, expected)


@pytest.mark.long
def test_a_run_that_is_stopped_goes_on_by_the_same_command(cluster, expected):
    cluster.judge_in(1.0)
    submit(cluster)
    until_all_judge(cluster)
    shown = [sys.executable, "-m", "orchestrator", "status", str(cluster.run_dir)]
    assert cluster.said(*shown).count("running") >= N
    words = [sys.executable, "-m", "orchestrator", "stop", str(cluster.run_dir)]
    assert cluster.said(*words).count("stopping; resume with the same command") == N
    # Neither the job that waited for them is there any more, nor do they begin again.
    until_no_jobs(cluster)
    assert said(cluster).count("ends with exit code 130") == N
    assert "back into the queue" not in said(cluster)
    submit(cluster)
    until_no_jobs(cluster)
    check(cluster, expected)
