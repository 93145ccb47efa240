"""A server of two nodes on a real Slurm: its parts start, end and start again together."""

import itertools

import pytest

from tests.cluster.runs import complete
from tests.cluster.slurm_runs import Cluster, end_server, hold

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]
PLACED = "server for judge is placed on "


@pytest.fixture(params=[True, False], ids=["steps", "jobs"])
def split(rig, tmp_path, request):
    """A run whose judge has two of the three nodes, one CPU of each."""
    judge = {"cpus": 1, "nodes": 2}
    made = Cluster(rig, tmp_path, is_inside=request.param, models={"judge": judge})
    yield made
    made.end()
    rig.run("scancel", "--user=root")


def places(run: Cluster) -> list[list[str]]:
    """Nodes of the judge's parts, each time it was started."""
    found = [line.partition(PLACED)[2] for line in run.log() if PLACED in line]
    return [line.partition(" (")[0].split(" and ") for line in found]


def test_two_nodes_share_a_model(split, expected):
    process = split.start()
    split.until_judging(process)
    (nodes,) = places(split)
    assert len(set(nodes)) == 2
    complete(process)
    split.look()
    assert set(split.recorded.values()) == {1}
    assert "part 1 of 2 is connected" in (split.run_dir / "servers" / "judge.log").read_text()
    split.check(expected)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_end_of_one_part_ends_and_restarts_all(split, expected, rank):
    process = split.begun()
    end_server(split.rig, places(split)[0][rank])
    complete(process)
    assert split.ready("judge") == 2
    assert split.times("restart 1 of") >= 1, "it counts as a crash"
    split.check(expected)


# Any two of form, loss and part meet in four of the eight; the others are among the long tests.
LOST = [
    pytest.param(
        *(is_step, is_silent, rank),
        id=f"{'steps' if is_step else 'jobs'}-{'silent' if is_silent else 'killed'}-{rank}",
        marks=pytest.mark.long if (is_step + is_silent + rank) % 2 else (),
    )
    for is_step, is_silent, rank in itertools.product([True, False], [True, False], [0, 1])
]


@pytest.mark.parametrize(("split", "is_silent", "rank"), LOST, indirect=["split"])
def test_a_lost_node_is_noticed_and_others_share_the_model(split, expected, rank, is_silent):
    split.judge_in(2.0)  # so that the run goes on for longer than a lease
    process = split.begun()
    node = places(split)[0][rank]
    (split.rig.silence if is_silent else split.rig.kill_node)(node)
    try:
        complete(process)
        assert node not in places(split)[-1]
        split.check(expected)
    finally:
        if is_silent:
            split.rig.hear(node)
            split.rig.until_idle()
        else:
            split.rig.replace(node)


def test_a_preempted_server_ends_and_comes_back_whole(rig, tmp_path, expected):
    judge = {"cpus": 1, "nodes": 2}
    # Jobs of this partition give way to others.
    run = Cluster(rig, tmp_path, is_inside=False, partition="spare", models={"judge": judge})
    try:
        run.judge_in(0.4)  # so that the run goes on for longer than Slurm takes to preempt
        process = run.begun()
        blocker = hold(rig, len(rig.nodes))
        run.until_said(process, "the server 'judge' was told to end by its machine")
        run.until_said(process, "starting server judge", 2)
        rig.run("scancel", blocker)
        complete(process)
        assert [len(set(nodes)) for nodes in places(run)] == [2, 2]
        assert not run.times("restart 1 of"), "it is no fault of the server"
        run.check(expected)
    finally:
        run.end()
        rig.run("scancel", "--user=root")
