"""The command of a server's step, and what is refused before one is started."""

import json
import os
import subprocess

import pytest

from launch import _watchdog
from orchestrator.cli import main
from orchestrator.errors import EXIT_USAGE, RecipeError, UsageError
from orchestrator.interface import api
from orchestrator.recipe.settings import Cluster
from orchestrator.runner.servers.slurm import (
    SlurmServer,
    carriers,
    check,
    commands,
    see_that_all_fit,
)
from orchestrator.runner.servers.slurm_chain import name_of, room_of_job, script

SERVER = {"kind": "fake"}
RECIPE = {
    "name": "made",
    "models": {
        "a": {"server": SERVER, "weights": "fake:0.2"},
        "judge": {
            "server": {"kind": "fake", "start_timeout_s": 31},
            "weights": "j:1",
            "replicas": 3,
        },
    },
    "dataset": {"kind": "demo", "n": 4},
    "methods": [{"kind": "pointwise", "judges": ["judge"]}],
}


def test_a_step_asks_for_what_the_recipe_says():
    command = SlurmServer(Cluster(cpus=8, gpus=4, memory="64G"), ("m",)).command(("python", "x"))
    assert command[0] == "srun"
    assert {"--cpus-per-task=8", "--gres=gpu:4", "--mem=64G", "--exact"} <= set(command)
    assert command[-2:] == ("python", "x")


def test_without_memory_steps_share_that_of_the_job_and_without_gpus_they_take_none():
    command = SlurmServer(Cluster(), ("m",)).command(())
    assert {"--mem=0", "--gres=none"} <= set(command)
    job = SlurmServer(Cluster(), ("m",), 0).command(())
    assert not any("gres" in word for word in job)


def test_a_node_is_avoided_once_and_only_where_there_are_others():
    step = SlurmServer(Cluster(), ("m",), n_nodes=2)
    step.avoid = "n3"
    assert {"--exclude=n3", "--immediate=10"} <= set(step.command(()))
    assert "--exclude=n3" not in step.command(())
    alone = SlurmServer(Cluster(), ("m",), n_nodes=1)
    alone.avoid = "n3"
    assert "--exclude=n3" not in alone.command(())


def test_nodes_that_are_lost_are_never_chosen_again():
    step = SlurmServer(Cluster(), ("m",), n_nodes=4)
    step.lost, step.avoid, step.prefer = ("n2", "n3"), "n3", "n1"
    assert {"--nodelist=n1", "--immediate=10"} <= set(step.command(()))
    assert "--exclude=n2,n3" in step.command(())
    step.avoid = "n4"
    assert {"--exclude=n2,n3,n4", "--immediate=10"} <= set(step.command(()))
    assert "--exclude=n2,n3" in step.command(())


def test_a_server_of_several_nodes_is_one_step_with_a_task_on_each():
    cluster = Cluster(models={"big": {"nodes": 2, "gpus": 8}})
    step = SlurmServer(cluster, ("big",), n_nodes=2)
    step.avoid = "n2"
    command = step.command(())
    asked = {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--gres=gpu:8"}
    assert asked | {"--kill-on-bad-exit=1"} <= set(command)
    assert "--exclude=n2" not in command, "there are no others"
    assert "--ntasks=1" in SlurmServer(cluster, ("small",)).command(())


def test_the_end_of_a_part_that_ends_the_others_is_no_order_of_the_cluster():
    cancelled = "slurmstepd-n1: error: *** STEP 1.1 ON n1 CANCELLED AT 2026-11-28T06:11:49 ***"
    killed = "srun: launch/slurm: _step_signal: Terminating StepId=1.1\n"
    server = SlurmServer(Cluster(), ("m",))
    assert server.ended_it(cancelled)
    assert not server.ended_it(killed + cancelled)
    assert server.ended_it(cancelled + killed)


def test_what_can_not_be_split_over_nodes_is_refused_with_the_reason(prepared):
    judge = {"cluster": {"models": {"judge": {"nodes": 2}}}}
    with pytest.raises(UsageError, match=r"judge\.nodes: 2 of kind 'fake': its server runs on one"):
        check(prepared(**judge))
    with pytest.raises(UsageError, match="on Ray a server has one node"):
        check(prepared(**judge), "ray")


def test_srun_gets_no_options_from_the_variables_of_the_job(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_GPUS", "8")
    assert SlurmServer(Cluster(), ("m",)).environment()["SLURM_JOB_ID"] == "12"
    assert "SLURM_GPUS" not in SlurmServer(Cluster(), ("m",)).environment()


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


def test_outside_an_allocation_steps_are_refused(prepared, monkeypatch, slurm):
    with pytest.raises(UsageError, match="salloc"):
        carriers(prepared(cluster={"jobs": False}), "slurm")
    assert carriers(prepared(), "local") is None


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Commands of a Slurm that answer with what the environment variable of their name says."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("srun", "squeue", "scancel", "sinfo"):
        program = folder / name
        program.write_text(f'#!/bin/sh\nprintf "%s" "${{{name}}}"; exit ${{code:-0}}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return monkeypatch


def test_outside_an_allocation_a_server_is_a_job_of_its_own(prepared, slurm):
    settings = {"partition": "gpu", "time": "4h", "options": {"account": "x", "exclusive": ""}}
    carrier_of = carriers(prepared(cluster=settings), "slurm")
    assert carrier_of is not None
    carrier = carrier_of(("judge",))
    assert carrier.queues
    command = carrier.command(("python", "x"))
    assert {"--partition=gpu", "--time=240", "--account=x", "--exclusive"} <= set(command)
    assert "--exact" not in command
    assert "SLURM_JOB_ID" not in carrier.environment()
    assert _watchdog.OWN_JOB in carrier.environment()
    # Two of them are told apart by name.
    assert named(command) != named(carrier.command(("python", "x")))


def named(command):
    (name,) = [word for word in command if word.startswith("--job-name=")]
    return name


def test_inside_an_allocation_a_server_is_a_job_of_its_own_if_the_recipe_says_so(prepared, slurm):
    slurm.setenv("SLURM_JOB_ID", "12")
    carrier_of = carriers(prepared(cluster={"jobs": True}), "slurm")
    assert carrier_of is not None
    assert "SLURM_JOB_ID" not in carrier_of(("a",)).environment()


def test_what_squeue_does_not_tell_is_not_known(slurm):
    carrier = SlurmServer(Cluster(), ("m",), 0)
    carrier.command(())
    slurm.setenv("squeue", "12 PENDING Resources\n")
    assert carrier.waiting() == "job 12 is pending (Resources)"
    slurm.setenv("code", "1")
    assert carrier.waiting() == ""


@pytest.mark.parametrize(
    ("said", "is_silent"),
    [
        ("srun: error: Unable to contact slurm controller (connect failure)", True),
        ("srun: error: Unable to allocate resources: Socket timed out on send/recv", True),
        ("srun: error: invalid partition specified: gpuu", False),
    ],
)
def test_a_controller_that_is_down_is_told_from_a_wrong_option(said, is_silent):
    assert SlurmServer(Cluster(), ("m",)).was_silent(said) is is_silent


@pytest.mark.parametrize(
    ("said", "ended_it"),
    [
        ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T10:00:00 ***", True),
        ("*** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO PREEMPTION ***", True),
        ("*** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO NODE FAILURE ***", False),
        ("srun: error: n1: task 0: Killed", False),
    ],
)
def test_a_cancelled_server_is_told_from_one_that_failed(said, ended_it):
    assert SlurmServer(Cluster(), ("m",)).ended_it(said) is ended_it


# Of srun 22.05, as the rig's tests see it say.
UNREACHED = (
    "srun: error: Task launch for StepId=1.1 failed on node n2: Communication connection failure\n"
    "srun: error: Application launch failed: Communication connection failure\n"
    "srun: Job step aborted\n"
)


@pytest.mark.parametrize(
    ("said", "node"),
    [
        (UNREACHED, "n2"),
        ("starting\nsrun: error: Node failure on n3\n", "n3"),
        ("srun: error: n2: task 0: Killed\nsrun: Force Terminated StepId=1.0\n", ""),
        ("srun: error: n2: task 0: Exited with exit code 3\n", ""),
        ("srun: error: Unable to create step for job 1: Requested nodes are busy\n", ""),
        ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026 DUE TO NODE FAILURE ***", ""),
        ("the server writes: Node failure on n2\n", ""),
    ],
)
def test_a_node_that_is_lost_is_told_from_a_server_that_crashed(said, node):
    assert SlurmServer(Cluster(), ("m",)).lost_machine(said) == node


@pytest.mark.parametrize(
    ("state", "is_down"), [("down*", True), ("down", True), ("alloc", False), ("drng", False)]
)
def test_a_node_is_down_if_the_controller_says_so(slurm, state, is_down):
    slurm.setenv("sinfo", f"{state}\n")
    assert SlurmServer(Cluster(), ("m",)).is_down("n2") is is_down


def test_a_controller_that_does_not_answer_says_of_no_node_that_it_is_down(slurm):
    slurm.setenv("sinfo", "down\n")
    slurm.setenv("code", "1")
    assert not SlurmServer(Cluster(), ("m",)).is_down("n2")


def test_lines_of_set_up_come_before_the_server_and_its_container_around_it():
    cluster = Cluster(
        setup=("module load cuda", "export A=1"), container=("apptainer", "exec", "x.sif")
    )
    server = SlurmServer(cluster, ("m",))
    command = server.command(("python", "watchdog"))
    lines = '{\nmodule load cuda\nexport A=1\n} >&2 && exec "$@"'
    assert command[-6:] == ("bash", "-lc", lines, "bash", "python", "watchdog")
    assert server.inside(("vllm", "serve")) == ("apptainer", "exec", "x.sif", "vllm", "serve")


def test_a_program_of_the_recipes_choice_needs_permission(prepared):
    for settings in (
        {"setup": ["module load cuda"]},
        {"container": ["apptainer"]},
        {"python": "python3"},
        {"options": {"prolog": "x"}},
    ):
        with pytest.raises(RecipeError, match="--allow-code"):
            prepared(cluster=settings)
    with pytest.raises(RecipeError, match="'gres' is decided by"):
        prepared(cluster={"options": {"gres": "gpu:1"}})
    prepared(cluster={"options": {"account": "x"}})


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


def test_the_job_of_a_client_hands_on_in_time_and_runs_alone(tmp_path):
    cluster = Cluster(time="4h", drain="15m", partition="gpu", options={"account": "x"})
    text = script(cluster, tmp_path / "run", tmp_path, ("python", "-m", "orchestrator", "a b"))
    assert f"#SBATCH --job-name={name_of(tmp_path / 'run')}\n" in text
    assert "#SBATCH --dependency=singleton\n" in text
    assert "#SBATCH --signal=B:USR1@900\n" in text
    assert "#SBATCH --time=240\n" in text
    assert "python -m orchestrator 'a b' --set=cluster.jobs=true &\n" in text
    assert "export ORCHESTRATOR_HANDS_ON=1\n" in text
    with_nodes = script(Cluster(nodes=2), tmp_path / "run", tmp_path, ("python",))
    assert "#SBATCH --nodes=2\n" in with_nodes
    assert "python --set=cluster.jobs=false &\n" in with_nodes


def test_a_job_must_be_longer_than_its_drain(tmp_path):
    with pytest.raises(UsageError, match="10m must be longer than drain, 10m"):
        script(Cluster(time="10m"), tmp_path, tmp_path, ())


@pytest.mark.parametrize("code", [0, 3])
def test_the_job_ends_with_the_exit_code_of_its_client(tmp_path, code):
    text = script(Cluster(), tmp_path, tmp_path, ("sh", "-c", f"exit {code}"))
    assert subprocess.run(["bash", "-c", text], check=False).returncode == code


@pytest.mark.parametrize("name", ["USR1", "TERM"])
def test_a_signal_before_there_is_a_client_is_passed_on(tmp_path, name):
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho 71\n")
    (tmp_path / "sbatch").chmod(0o755)
    client = f"trap 'exit 7' {name}; touch ready; while :; do sleep 0.1; done"
    text = script(Cluster(), tmp_path, tmp_path, ("sh", "-c", client))
    # The job's own shell gets it first of all, and its client is slow to be told.
    early = text.replace("say begins\n", f"say begins\nkill -{name} $$\n")
    late = 'until [ -e ready ]; do sleep 0.1; done; case "$early"'
    job = subprocess.run(
        ["bash", "-c", early.replace('case "$early"', late)],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NUM_NODES": "1"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert job.returncode == 7, job


@pytest.mark.parametrize("kind", [{"nodes": 3}, {}])
def test_a_job_that_hands_on_leaves_a_step_on_each_node_for_slurm_to_end(tmp_path, kind):
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for name, line in {"sbatch": "echo 71", "srun": 'echo "$@" > srun.words'}.items():
        (bin_dir / name).write_text(f"#!/bin/sh\n{line}\n")
        (bin_dir / name).chmod(0o755)
    # Sends the warning itself, and ends once it is told to and the step has begun.
    client = """trap told=1 USR1; kill -USR1 $PPID
until [ "$told" ] && [ -s srun.words ]; do sleep 0.1; done; exit 130"""
    text = script(Cluster(**kind), tmp_path, tmp_path, ("sh", "-c", client, "client"))
    job = subprocess.run(
        ["bash", "-c", text],
        env={"PATH": f"{bin_dir}:{os.environ['PATH']}", "SLURM_JOB_NUM_NODES": "3"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "handing on to job 71" in job.stdout
    assert job.returncode == 130
    words = (tmp_path / "srun.words").read_text().split()
    assert {"--nodes=3", "--ntasks-per-node=1", "--overlap", "--mem=0"} <= set(words)


def test_what_can_not_be_submitted_is_refused(tmp_path, capsys):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(RECIPE))
    assert main(["run", str(path), "--submit"]) == EXIT_USAGE
    assert "add --on slurm" in capsys.readouterr().err
    assert main(["run", str(path), "--on", "slurm", "--submit", "--fresh"]) == EXIT_USAGE
    assert "--run-dir" in capsys.readouterr().err


def test_a_submission_writes_the_job_and_says_its_number(tmp_path, capsys, slurm):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(RECIPE))
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text("#!/bin/sh\necho 71\n")
    sbatch.chmod(0o755)
    run = tmp_path / "run"
    assert main(["run", str(path), "--on", "slurm", "--submit", "--run-dir", str(run)]) == 0
    assert "submitted job 71" in capsys.readouterr().err
    text = (run / "slurm.sh").read_text()
    assert "--submit" not in text.split("client=$!")[0].split("begins")[1]
    sbatch.write_text("#!/bin/sh\necho sbatch: error: invalid account >&2; exit 1\n")
    assert main(["run", str(path), "--on", "slurm", "--submit", "--run-dir", str(run)]) == 2
    assert "invalid account" in capsys.readouterr().err


def test_an_abbreviated_option_does_not_make_the_job_submit_itself(tmp_path, slurm):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(RECIPE))
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text("#!/bin/sh\necho 71\n")
    sbatch.chmod(0o755)
    run = tmp_path / "run"
    assert main(["run", str(path), "--on", "slurm", "--submi", "--run-dir", str(run)]) == 0
    assert "--sub" not in (run / "slurm.sh").read_text().partition("begins")[2].split("client=")[0]


def test_a_planned_submission_shows_what_would_be_submitted_and_sends_nothing(
    tmp_path, capsys, slurm
):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(RECIPE | {"cluster": {"nodes": 2, "time": "4h"}}))
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(f"#!/bin/sh\ntouch {tmp_path}/sent; echo 71\n")
    sbatch.chmod(0o755)
    run = tmp_path / "run"
    words = [str(path), "--on", "slurm", "--submit", "--run-dir", str(run)]
    assert main(["plan", *words, "--exact"]) == 0
    shown = capsys.readouterr().out
    assert not run.exists()
    assert not (tmp_path / "sent").exists()
    assert f"sbatch --parsable {run}/slurm.sh:\n\n#!/bin/bash\n" in shown
    assert "srun --exact" in " ".join(shown.split()), "its servers are steps"
    assert main(["run", *words]) == 0
    assert shown.endswith((run / "slurm.sh").read_text())
    assert main(["plan", *words, "--json"]) == EXIT_USAGE
    assert "--json can't be used with --submit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cluster", "sinfo", "asked"),
    [
        ({"nodes": 2}, "", {"--cpus-per-task=1"}),
        ({"nodes": 1}, "n1|1|0|(null)|main*\nn2|16|0|(null)|main*\n", {"--cpus-per-task=4"}),
        (
            {"nodes": 3, "models": {"judge": {"cpus": 2}}},
            "n1|2|0|(null)|main*\n",
            {"--cpus-per-task=2"},
        ),
        (
            {"nodes": 4, "models": {"judge": {"cpus": 2}}},
            "n1|2|0|(null)|main*\n",
            {"--cpus-per-task=2"},
        ),
        (
            {"nodes": 1, "gpus": 1, "cpus": 4, "memory": "10G"},
            "n1|64|512000|gpu:a100:4|main*\n",
            {"--cpus-per-task=16", "--gres=gpu:4", "--mem=40960M"},
        ),
        (
            {"nodes": 1, "memory": "10G", "models": {"judge": {"gpus": 2}}},
            "n1|64|512000|gpu:a100:4|main*\n",
            {"--cpus-per-task=3", "--gres=gpu:4"},
        ),
        (
            {"nodes": 1, "memory": "1500K"},
            "n1|64|512000|(null)|main*\n",
            {"--cpus-per-task=4", "--mem=8M"},
        ),
        (
            {"nodes": 1},
            "n1|2|0|(null)|other\nn2|3|0|(null)|main*\n",
            {"--cpus-per-task=3"},
        ),
        (
            {"nodes": 1, "partition": "other"},
            "n1|2|0|(null)|other\n",
            {"--cpus-per-task=2"},
        ),
    ],
)
def test_the_job_of_a_client_with_nodes_has_room_for_its_servers(
    prepared, slurm, cluster, sinfo, asked
):
    slurm.setenv("sinfo", sinfo)
    assert {*room_of_job(prepared(cluster=cluster))} == {"--ntasks-per-node=1", *asked}


def test_a_server_that_fits_on_no_node_is_refused_before_the_queue(prepared, slurm):
    slurm.setenv("sinfo", "n1|1|0|(null)|main*\n")
    with pytest.raises(
        UsageError,
        match=r"no node of the partition has room for\nthe server of 'judge': it needs 2 CPUs",
    ):
        see_that_all_fit(prepared(cluster={"nodes": 3, "models": {"judge": {"cpus": 2}}}))
