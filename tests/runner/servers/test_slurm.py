"""The command of a server's step, and what is refused before one is started."""

import json

import pytest

from orchestrator.errors import RecipeError, UsageError
from orchestrator.recipe.cluster import ServerSize
from orchestrator.recipe.load import load
from orchestrator.runner import api
from orchestrator.runner.planning.prepare import prepare
from orchestrator.runner.servers.slurm import SlurmStep, carriers, check, commands

SERVER = {"kind": "fake"}
RECIPE = {
    "name": "made",
    "models": {
        "a": {"server": SERVER, "weights": "fake:0.2"},
        "judge": {"server": {"kind": "fake", "stop_grace_s": 1}, "weights": "j:1", "replicas": 3},
    },
    "dataset": {"kind": "demo", "n": 4},
    "methods": [{"kind": "pointwise", "judges": ["judge"]}],
}


@pytest.fixture
def prepared(tmp_path):
    """Loads a recipe with changes."""

    def make(**changes):
        path = tmp_path / "r.json"
        path.write_text(json.dumps(RECIPE | changes))
        return prepare(load(path), tmp_path)

    return make


def test_a_step_asks_for_what_the_recipe_says():
    command = SlurmStep(ServerSize(cpus=8, gpus=4, memory="64G")).command(("python", "x"))
    assert command[0] == "srun"
    assert {"--cpus-per-task=8", "--gres=gpu:4", "--mem=64G", "--exact"} <= set(command)
    assert command[-2:] == ("python", "x")


def test_without_memory_steps_share_that_of_the_job_and_without_gpus_none_is_asked_for():
    command = SlurmStep(ServerSize()).command(())
    assert "--mem=0" in command
    assert not any("gres" in word for word in command)


def test_a_node_is_avoided_once_and_only_where_there_are_others():
    step = SlurmStep(ServerSize(), n_nodes=2)
    step.avoid = "n3"
    assert {"--exclude=n3", "--immediate=3"} <= set(step.command(()))
    assert "--exclude=n3" not in step.command(())
    alone = SlurmStep(ServerSize(), n_nodes=1)
    alone.avoid = "n3"
    assert "--exclude=n3" not in alone.command(())


def test_srun_gets_no_options_from_the_variables_of_the_job(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_GPUS", "8")
    assert SlurmStep(ServerSize()).environment()["SLURM_JOB_ID"] == "12"
    assert "SLURM_GPUS" not in SlurmStep(ServerSize()).environment()


def test_the_plan_has_a_line_for_each_server(prepared):
    first, second = commands(prepared(cluster={"cpus": 2, "models": {"judge": {"gpus": 1}}}))
    assert first.startswith("a: srun ")
    assert "--cpus-per-task=2" in first
    assert second.startswith("judge (3 times): srun ")
    assert "--gres=gpu:1" in second


def test_a_plan_for_slurm_needs_no_slurm(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    path = tmp_path / "r.json"
    path.write_text(json.dumps(RECIPE))
    assert len(api.plan(path, run_dir=tmp_path / "run", on="slurm").servers) == 2
    assert api.plan(path, run_dir=tmp_path / "run").servers == ()


def test_outside_an_allocation_nothing_is_started(prepared, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(UsageError, match="salloc"):
        carriers(prepared(), "slurm")
    assert carriers(prepared(), "local") is None


def test_what_can_not_be_a_step_is_refused(prepared):
    with pytest.raises(UsageError, match="unknown model 'jugde'; available: a, judge"):
        check(prepared(cluster={"models": {"jugde": {}}}))
    with pytest.raises(UsageError, match="--keep-servers"):
        check(prepared(), keep_servers=True)


def test_sizes_are_checked(prepared):
    with pytest.raises(RecipeError, match="memory"):
        prepared(cluster={"memory": "lots"})
    with pytest.raises(RecipeError, match="cpus"):
        prepared(cluster={"cpus": 0})
