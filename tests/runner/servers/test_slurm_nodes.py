"""Servers on the nodes of a job: what Slurm tells of them, and where and when each server runs."""

import json
import os

import pytest

from orchestrator.errors import UsageError
from orchestrator.placement import GIB, Node, Size
from orchestrator.recipe.load import load
from orchestrator.recipe.settings import Cluster
from orchestrator.runner.planning.prepare import prepare
from orchestrator.runner.servers.slurm import (
    SlurmServer,
    commands,
    nodes_of_job,
    nodes_of_partition,
    places_on,
)

MIB = 2**20
# Of Slurm 22.05, shortened.
JOB = (
    "JobId=12 JobName=x NodeList=n[1-3],big NumNodes=4 NumCPUs=70 TRES=cpu=70,mem=5000M,node=4 "
    "JOB_GRES=gpu:a100:12   Nodes=n[1-2] CPU_IDs=0-1 Mem=1024 GRES=gpu:a100:2(IDX:0-1)   "
    "Nodes=n3 CPU_IDs=0-3,8,10-11 Mem=2048 GRES=   "
    "Nodes=big CPU_IDs=0-63 Mem=0 GRES=gpu:a100:6(IDX:0-5),gpu:h100:2(IDX:6-7),shard:0(0/0) "
    "MinCPUsNode=2 Features=(null)\n"
)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Commands of Slurm that answer with what the files of their names say."""
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "4")
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("srun", "scontrol", "sinfo"):
        program = folder / name
        program.write_text(
            f'#!/bin/sh\nif [ "$2" = hostnames ]; then printf "n1\\nn2\\n"; exit; fi\n'
            f"cat {folder}/{name}.said || exit 1\n"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    (folder / "scontrol.said").write_text(JOB)
    return folder


@pytest.fixture
def prepared(tmp_path):
    def make(**cluster):
        servers = {
            name: {"kind": "fake", "start_timeout_s": 30 + n} for n, name in enumerate("abj", 1)
        }
        recipe = {
            "name": "made",
            "models": {
                "a": {"server": servers["a"], "weights": "fake:0.2"},
                "b": {"server": servers["b"], "weights": "fake:0.9"},
                "judge": {"server": servers["j"], "weights": "j:1", "replicas": 2},
            },
            "cluster": cluster,
            "dataset": {"kind": "demo", "n": 4},
            "methods": [{"kind": "pairwise_ranking", "judges": ["judge"]}],
        }
        path = tmp_path / "r.json"
        path.write_text(json.dumps(recipe))
        return prepare(load(path))

    return make


def test_the_nodes_of_a_job_have_what_the_job_has_of_them(slurm):
    assert nodes_of_job("12") == (
        Node("n1", Size(2, 2, 1024 * MIB)),
        Node("n2", Size(2, 2, 1024 * MIB)),
        Node("n3", Size(7, 0, 2048 * MIB)),
        Node("big", Size(64, 8, None)),
    )


def test_where_slurm_does_not_answer_it_alone_places(slurm, prepared):
    (slurm / "scontrol.said").unlink()
    assert nodes_of_job("12") == ()
    placed = places_on(prepared(gpus=9), "slurm")
    assert placed.turns() is None
    assert len(*(one.shares for one in placed.servers if "judge" in one.models)) == 2


def test_servers_that_do_not_fit_together_run_in_waves(slurm, prepared):
    found = JOB.replace("Nodes=big CPU_IDs=0-63", "Nodes=big CPU_IDs=0")
    (slurm / "scontrol.said").write_text(found)
    placed = places_on(prepared(cpus=2, gpus=2), "slurm")
    assert placed.turns() is not None
    assert placed.words() == (
        "nodes: n1, n2 (2 CPUs, 2 GPUs, 1.0 GiB each); n3 (7 CPUs, 2.0 GiB); big (1 CPU, 8 GPUs)",
        "wave 1 of 2: a (n1); b (n2)",
        "wave 2 of 2: judge (n1 and n2)",
    )


def test_the_plan_has_the_inventory_the_places_and_a_command_for_each_process(slurm, prepared):
    lines = commands(prepared(cpus=2, gpus=2))
    assert lines[1] == "servers: a (big); b (big); judge (big and n1)"
    assert [line.partition(":")[0] for line in lines[2:]] == ["a", "b", "judge", "judge.2"]
    assert "--nodelist=big --immediate=10 " in lines[4]
    assert "--nodelist=n1 --immediate=10 " in lines[5]


def test_a_server_that_fits_on_no_node_is_an_error(slurm, prepared):
    sizes = {"judge": {"cpus": 4, "gpus": 16, "memory": "200G"}}
    with pytest.raises(UsageError, match="no node of the job has room for") as error:
        commands(prepared(models=sizes))
    assert (
        "the server of 'judge': it needs 4 CPUs, 16 GPUs, 200.0 GiB on one node; the largest "
        "node, big, has 64 CPUs, 8 GPUs" in str(error.value)
    )


def test_a_job_that_no_node_of_its_partition_can_run_is_an_error(slurm, prepared, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID")
    (slurm / "sinfo.said").write_text(
        "n1|2|2000|gpu:2|a*\nn2|2|2000|gpu:2|a*\nn3|8|4000+|(null)|a*\n"
    )
    assert nodes_of_partition(Cluster()) == (Node("n1", Size(2, 2, 2000 * MIB)),)
    assert nodes_of_partition(Cluster(options={"clusters": "other"})) == ()
    placed = places_on(prepared(cpus=2, gpus=2), "slurm")
    assert placed.turns() is None, "each waits in the queue"
    assert not any(share.node for one in placed.servers for share in one.shares)
    with pytest.raises(UsageError, match="the largest node, n1, has 2 CPUs, 2 GPUs"):
        places_on(prepared(gpus=3), "slurm")


def test_the_planned_node_is_asked_for_once_and_one_to_avoid_comes_before():
    step = SlurmServer(Cluster(), ("m",), n_nodes=2)
    step.prefer = "n1"
    assert {"--nodelist=n1", "--immediate=10"} <= set(step.command(()))
    assert not any("nodelist" in word for word in step.command(()))
    step.prefer, step.avoid = "n1", "n1"
    command = step.command(())
    assert "--exclude=n1" in command
    assert "--nodelist=n1" not in command


def test_sizes_are_said_in_words():
    assert str(Size(1, 1, 3 * GIB)) == "1 CPU, 1 GPU, 3.0 GiB"
    assert str(Size(0, 0, None)) == "0 CPUs"
