"""The shards of a run as an array of a real Slurm, and the job that puts them together."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator

import polars as pl
import psutil
import pytest

from orchestrator.errors import EXIT_COMPLETE
from tests.chaos.test_disk import disk
from tests.cluster.runs import LONG_S
from tests.cluster.slurm_runs import Cluster, hold, said
from tests.cluster.users import users
from tests.matrix.served import kept_server

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(400)]
N = 3
# Of the judge and of the model with the other server, for each client that is ended.
IN_FLIGHT = 4
MINUTES = 20


@pytest.fixture
def cluster(rig, tmp_path):
    # Jobs of this partition give way to others.
    yield Cluster(rig, tmp_path, is_inside=False, partition="spare", time=f"{MINUTES}m", drain="5m")
    rig.run("scancel", "--user=root")


def submit(cluster: Cluster, *more: str) -> str:
    process = cluster.start(f"--shards={N}", *more)
    _, errors = process.communicate()
    assert process.returncode == EXIT_COMPLETE, errors
    return errors


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


def until(is_so: Callable[[], bool], cluster: Cluster, every_s: float = 0.1) -> None:
    end = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < end, (cluster.jobs(), said(cluster))
        time.sleep(every_s)


def judged(cluster: Cluster, part: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        path = cluster.run_dir.with_name(f"run.shard-{part}-of-{N}") / "status.json"
        values = json.loads(path.read_text())["values"]
        return sum(one["done"] for one in values["models"] if one["name"] == "judge")
    return 0


def until_all_judge(cluster: Cluster) -> None:
    until(lambda: all(judged(cluster, part) >= 3 for part in range(1, N + 1)), cluster)


def begin_again(cluster: Cluster, what: str) -> None:
    """Wait until Slurm has put a job or element back into its queue, and let it begin at once."""

    def shown() -> str:
        return cluster.rig.run("scontrol", "--oneliner", "show", "job", what)

    def may_begin() -> bool:
        # One that still leaves its former nodes can't be changed.
        if "JobState=PENDING Reason=BeginTime" not in (words := shown()):
            return "Restarts=0" not in words
        soon = ("StartTime=now", f"TimeLimit={MINUTES}")
        cluster.rig.run("scontrol", "update", f"JobId={what}", *soon)
        return False

    until(lambda: "JobState=PENDING" in (words := shown()) and "Restarts=0" not in words, cluster)
    # In the second in which a job ended, slurmd refuses it.
    time.sleep(2.0)
    until(may_begin, cluster, every_s=2.0)


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


def check(cluster: Cluster, expected: dict[str, pl.DataFrame], n_ended: int = 1) -> None:
    """The whole equals one run, and only requests in flight of ended clients were sent twice."""
    assert sent(cluster) == 0
    again = [n - 1 for n in cluster.asked().values() if n > 1]
    assert len(again) <= n_ended * IN_FLIGHT, again
    assert set(again) <= {1}
    cluster.check(expected)


Struck = Iterator[list[str]]
"""Yields the elements that begin again, and mends what was broken."""


def kill_client(cluster: Cluster, element: str, node: str) -> Struck:
    for one in clients(cluster, node):
        one.kill()
    yield [element]


def requeue(cluster: Cluster, element: str, _: str) -> Struck:
    cluster.rig.run("scontrol", "requeue", element)
    yield [element]


def reach_time_limit(cluster: Cluster, element: str, _: str) -> Struck:
    # The warning is due at once: Slurm gives it when it looks next, which it does each half minute.
    cluster.rig.run("scontrol", "update", f"JobId={element}", "TimeLimit=5")
    until(lambda: "goes back into the queue" in said(cluster), cluster)
    # Else it is warned again as soon as it begins again.
    cluster.rig.run("scontrol", "update", f"JobId={element}", f"TimeLimit={MINUTES}")
    yield [element]


def preempt(cluster: Cluster, _: str, __: str) -> Struck:
    elements = [one for one, _ in running(cluster)]
    blocker = hold(cluster.rig, len(cluster.rig.nodes))
    cluster.rig.run("scancel", blocker)
    yield elements


def kill_node(cluster: Cluster, element: str, node: str) -> Struck:
    cluster.rig.kill_node(node)
    try:
        yield [element]
    finally:
        cluster.rig.replace(node)


def silence(cluster: Cluster, element: str, node: str) -> Struck:
    """Slurm begins its element again elsewhere; the client there lives, and sees the disk."""
    cluster.rig.silence(node)
    try:
        yield [element]
    finally:
        cluster.rig.hear(node)
        cluster.rig.until_idle()


@pytest.mark.parametrize(
    "strike",
    [
        kill_client,
        *(
            pytest.param(one, marks=pytest.mark.long)
            for one in (requeue, reach_time_limit, preempt, kill_node, silence)
        ),
    ],
)
def test_an_element_that_ends_early_resumes_its_shard(cluster, expected, strike):
    # Slurm takes half a minute to see some of this.
    cluster.judge_in(1.0 if strike in (kill_client, requeue) else 4.0)
    submit(cluster)
    until_all_judge(cluster)
    struck = contextlib.contextmanager(strike)
    with struck(cluster, *running(cluster)[0]) as elements:
        for element in elements:
            begin_again(cluster, element)
        until_no_jobs(cluster)
    check(cluster, expected, len(elements))


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


@pytest.mark.long
def test_shards_that_met_a_full_disk_go_on_when_it_has_room(rig, tmp_path, expected):
    with disk(tmp_path / "small", 64_000) as mount:
        full = Cluster(rig, tmp_path / "small", is_inside=False, time="20m", drain="5m")
        full.judge_in(1.0)
        submit(full)
        until_all_judge(full)
        used = sum(file.stat().st_blocks for file in (tmp_path / "small").rglob("*")) // 2
        assert mount(f"remount,size={used + 8}k")
        until_no_jobs(full)
        words = said(full)
        assert mount("remount,size=64m")
        submit(full)
        until_no_jobs(full)
        assert "free space and run the same command again" in words
        assert "back into the queue" not in words
        check(full, expected, N)


@pytest.mark.long
def test_shards_of_two_users_on_the_same_nodes_share_nothing(rig, expected):
    with users("a", "b") as both:
        runs = [
            Cluster(rig, user.home, is_inside=False, user=user, time="20m", drain="5m", models={})
            for user in both
        ]
        try:
            for run in runs:
                submit(run)
            until_no_jobs(runs[0])
            for run, user, other in zip(runs, both, reversed(both), strict=True):
                check(run, expected, 0)
                private = [run.run_dir / "log.jsonl", *run.run_dir.parent.glob("run.*/log.jsonl")]
                assert len(private) == 1 + N
                assert all(map(user.may_read, private))
                assert not any(map(other.may_read, private))
        finally:
            for user in both:
                rig.run("scancel", f"--user={user.name}")


@pytest.mark.long
def test_shards_whose_server_is_swapped_behind_a_proxy_end_as_no_run(cluster):
    """No connection breaks, and no element compares servers before its last answer."""
    slow = {"latency_s": 1.0}
    with kept_server({"dialect": "openai", "rules": [slow]}, ("m",), cluster.rig.host) as kept:
        cluster.write(
            models={"judge": {"base_url": kept.url, "model": "m", "backend": "openai"}},
            methods=[{"kind": "answers", "answer": {"max_tokens": 4}}],
            dataset={"kind": "demo", "n": 100},
            limits={"max_in_flight": 1},
            probe=True,
        )
        submit(cluster)
        until_all_judge(cluster)
        other = {"rules": [slow, {"noise": 0.1, "sticky": True}], "dialect": "openai"}
        kept.swap = (len(kept.bodies) + 1, other)
        until_no_jobs(cluster)
    words = said(cluster)
    assert words.count("its server behaves differently than before") == N, words
    assert words.count("ends with exit code 2") == N + 1, words
    assert words.count("judge: its server was found to be another one at") == 1, words
    assert "exit code 0" not in words
    assert not list(cluster.run_dir.parent.glob("run*/results/answers.parquet"))
