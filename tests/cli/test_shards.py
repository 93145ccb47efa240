"""`--shards`: what is submitted, what is refused, and how the runs of the shards become one."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import EXIT_PARTIAL, UsageError
from orchestrator.recipe import load
from orchestrator.recipe.load import loads
from orchestrator.recipe.settings import Cluster
from orchestrator.runner.planning import prepare
from orchestrator.runner.planning.budget import shares
from orchestrator.runner.results.runs import shards_of
from orchestrator.runner.servers.slurm_chain import SHARD, script
from orchestrator.runner.session import control
from orchestrator.store import RunDirectory
from tests.cli.test_incomplete import METHOD

FAKE = {
    # Counts from 71 what it is given.
    "sbatch": 'echo "$@" >> sbatch.words; echo $((70 + $(wc -l < sbatch.words)))',
    "squeue": "cat squeue.says 2>/dev/null || true",
    "scancel": 'echo "$@" >> scancel.words',
    "sinfo": "true",
    "srun": "false",
}


@pytest.fixture
def slurm(here, monkeypatch):
    """Put programs of a Slurm that runs nothing on the PATH, which write down their words."""
    for name in ("SLURM_JOB_ID", "ORCHESTRATOR_HANDS_ON"):
        monkeypatch.delenv(name, raising=False)
    folder = here / "bin"
    folder.mkdir()
    for name, line in FAKE.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return here


def options_in(file):
    lines = file.read_text().splitlines()
    return [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]


def run_shards(command, path, *parts, n=3):
    for part in parts:
        assert command("run", path, "-q", "--shard", f"{part}/{n}")[0] == 0


def test_an_array_and_a_job_that_waits_for_it_are_submitted(command, recipe, slurm):
    cluster = {"partition": "gpu", "options": {"gpus-per-node": "2", "account": "x"}}
    code, _, err = command("run", recipe(cluster=cluster), "--shards", "3%2", "--on", "slurm")
    assert code == 0, err
    run = slurm / "runs" / "made"
    assert "submitted job 72 (orch-made-" in err
    first, second = (slurm / "sbatch.words").read_text().splitlines()
    assert first == f"--parsable {run}/slurm-shards.sh"
    assert second == f"--parsable --dependency=afterany:71,singleton {run}/slurm.sh"
    array, last = options_in(run / "slurm-shards.sh"), options_in(run / "slurm.sh")
    assert {"--array=1,2,3%2", "--requeue", "--nodes=1", "--gpus-per-node=2"} <= set(array)
    assert {"--ntasks=1", "--account=x", "--partition=gpu", array[0]} <= set(last)
    assert not [option for option in last if "gpu" in option.partition("=")[0]]
    words = (run / "slurm-shards.sh").read_text()
    assert '--shard="$SLURM_ARRAY_TASK_ID"/3 ' in words
    assert f'--run-dir={run}.shard-"$SLURM_ARRAY_TASK_ID"-of-3 ' in words
    assert "--shards 3%2" in (run / "slurm.sh").read_text()


def test_what_waits_or_runs_is_not_submitted_again(command, recipe, slurm):
    (slurm / "squeue.says").write_text("71_2 PENDING Resources\n")
    code, _, err = command("run", recipe(), "--shards", "3", "--on", "slurm")
    assert (code, "the run has jobs (71_2 PENDING Resources)" in err) == (0, True)
    assert not (slurm / "sbatch.words").exists()
    (slurm / "bin" / "squeue").write_text("#!/bin/sh\necho down >&2; exit 1\n")
    code, _, err = command("run", recipe(), "--shards", "3", "--on", "slurm")
    assert (code, "squeue does not say" in err) == (2, True)
    assert not (slurm / "sbatch.words").exists()


@pytest.mark.slow
def test_only_what_has_not_ended_is_submitted_and_in_the_job_nothing(
    command, recipe, slurm, monkeypatch
):
    path = recipe()
    run_shards(command, path, 1, 3)
    assert command("run", path, "--shards", "3", "--on", "slurm")[0] == 0
    array = slurm / "runs" / "made" / "slurm-shards.sh"
    assert "--array=2%3" in options_in(array)
    monkeypatch.setenv("ORCHESTRATOR_HANDS_ON", "1")
    code, _, err = command("run", path, "--shards", "3", "--on", "slurm")
    assert (code, "shard 2 of 3: not begun" in err) == (2, True)
    assert len((slurm / "sbatch.words").read_text().splitlines()) == 2
    changed = recipe(dataset={"kind": "demo", "n": 5})
    _, out, _ = command("plan", changed, "--shards", "3", "--on", "slurm")
    assert "#SBATCH --array=1,2,3%3" in out, "shards of another recipe have not ended"


@pytest.mark.slow
def test_shards_that_ended_become_the_run_of_all_items(command, recipe, here):
    def frames(run):
        return {one.name: one.read_bytes() for one in (run / "results").glob("*.parquet")}

    path = recipe()
    assert command("run", path, "-q", "--run-dir", "whole")[0] == 0
    run_shards(command, path, 1, 2)
    code, _, err = command("run", path, "--shards", "3")
    assert (code, "shard 3 of 3: not begun" in err) == (2, True)
    assert not (here / "runs" / "made").exists()
    run_shards(command, path, 3)
    for _ in range(2):
        assert command("run", path, "-q", "--shards", "3")[0] == 0
        assert json.loads(command("status", "made", "--json")[1])["requests_sent"] == 0
        assert frames(here / "runs" / "made") == frames(here / "whole")
    # Another recipe of the same name: the run of all items had the one before.
    methods = [{"kind": "pointwise", "judges": ["judge"]}]
    other = recipe(methods=methods)
    assert command("run", other, "-q", "--run-dir", "other")[0] == 0
    run_shards(command, other, 1, 2, 3)
    assert command("run", other, "-q", "--shards", "3")[0] == 0
    assert json.loads(command("status", "made", "--json")[1])["requests_sent"] == 0
    found, expected = frames(here / "runs" / "made"), frames(here / "other")
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("changes", "words", "said"),
    [
        ({}, ["--shards=7"], "use at most 6"),
        ({"statistics": {"stop_when": {}}}, ["--shards=2"], "stop_when: decides from all items"),
        ({"subset": 4}, ["--shards=2"], "subset: 4 can't be used with --shards"),
        ({}, ["--shards=2", "--fresh"], "--fresh can't be used with --shards"),
        ({}, ["--shards=2", "--submit"], "--submit can't be used with --shards"),
        ({}, ["--shards=2", "--shard=1/2"], "subset: 1/2 can't be used"),
        ({"budget": {"requests": 2}}, ["--shards=3"], "budget.requests: 2 leaves nothing"),
        ({}, ["--shards=0"], "expected N or N%K"),
        ({}, ["--shards=2%0"], "expected N or N%K"),
        ({}, ["--shards=1/2"], "expected N or N%K"),
    ],
)
def test_what_has_no_shards_is_refused_before_the_queue(
    command, recipe, slurm, changes, words, said
):
    code, _, err = command("run", recipe(**changes), *words, "--on", "slurm")
    assert (code, said in " ".join(err.split())) == (2, True), err
    assert not (slurm / "sbatch.words").exists()


def test_a_plan_shows_the_first_shard_and_what_is_divided(command, recipe, slurm):
    path = recipe(budget={"requests": 100}, limits={"requests_per_minute": 90})
    code, out, _ = command("plan", path, "--shards", "3%2")
    shown = " ".join(out.split())
    assert code == 0
    assert "2 items" in shown
    assert "shard 1 of 3, of which 3 have not ended and 2 run at a time" in shown
    assert "budget.requests=33" in shown
    assert "models.judge.limits.requests_per_minute=45.0" in shown
    assert "#SBATCH" not in shown
    assert not (slurm / "runs").exists()


@given(
    requests=st.integers(1, 10**9),
    hours=st.floats(0.01, 1e4),
    rate=st.floats(0.1, 1e6),
    n=st.integers(1, 1000),
    data=st.data(),
)
def test_shares_keep_the_bounds_of_the_whole(requests, hours, rate, n, data):
    n_at_once = data.draw(st.integers(1, n))
    model = {"base_url": "http://127.0.0.1:9", "backend": "openai"}
    text = json.dumps(
        {
            "models": {"a.b": model, "judge": model},
            "dataset": {"kind": "demo"},
            "methods": [{"kind": "pointwise", "judges": ["judge"]}],
            "budget": {"requests": requests, "hours": hours},
            "limits": {"requests_per_minute": rate},
        }
    )
    loaded = partial(loads, text.encode(), Path("made.json"))
    if requests < n:
        with pytest.raises(UsageError, match=r"budget\.requests"):
            shares(loaded(), n, n_at_once)
        return
    made = loaded(overrides=shares(loaded(), n, n_at_once))
    part = made.settings.budget
    assert requests - n < n * part.requests <= requests
    assert n * part.hours == pytest.approx(hours)
    assert n_at_once * made.models["a.b"].limits.requests_per_minute == pytest.approx(rate)


def test_shards_stand_in_order_and_others_are_not_taken_for_them(tmp_path):
    names = [f"a.shard-{part}-of-11" for part in range(1, 12)]
    for name in (*names, "a.shard-1-of-2", "a.shard-x-of-2", "b.shard-1-of-2", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "store.sqlite").touch()
    (tmp_path / "a.shard-2-of-2").mkdir()
    found = [path.name for path in shards_of(tmp_path / "a")]
    assert found == ["a.shard-1-of-2", *names]


def test_a_shard_that_may_not_be_looked_into_has_not_begun(tmp_path, monkeypatch):
    (tmp_path / "a.shard-1-of-2").mkdir()
    (tmp_path / "a.shard-1-of-2" / "store.sqlite").touch()
    exists = Path.exists

    def exists_for_all_but_others(path):
        if path.name == "store.sqlite":
            raise PermissionError(13, "Permission denied")
        return exists(path)

    monkeypatch.setattr(Path, "exists", exists_for_all_but_others)
    assert shards_of(tmp_path / "a") == []


@pytest.mark.slow
def test_the_state_of_a_run_is_that_of_its_shards(command, recipe, slurm):
    path = recipe()
    assert command("run", path, "--shards", "3", "--on", "slurm")[0] == 0
    (slurm / "squeue.says").write_text("71_[1-3] PENDING Resources\n")
    assert "job 71_[1-3] PENDING Resources" in command("status", "made")[1]
    run_shards(command, path, 2)
    _, out, _ = command("status", "made")
    assert "shard-2-of-3  complete" in out
    (row,) = json.loads(command("status", "made", "--json")[1])["shards"]
    assert row["units_done"] == row["units_total"] > 0
    code, out, err = command("stop", "made")
    assert (code, "no shard is running" in out + err) == (0, True)
    name = options_in(slurm / "runs" / "made" / "slurm.sh")[0].partition("=")[2]
    assert (slurm / "scancel.words").read_text() == f"--me --name={name} --state=PENDING\n"


def test_jobs_that_wait_are_ended_before_any_shard_has_begun(command, recipe, slurm):
    assert command("run", recipe(), "--shards", "3", "--on", "slurm")[0] == 0
    code, out, err = command("stop", "made")
    assert (code, "no shard is running" in out + err) == (0, True)
    assert (slurm / "scancel.words").read_text().endswith("--state=PENDING\n")


@pytest.mark.slow
def test_the_call_that_puts_shards_together_reads_recipe_and_items_once(
    command, recipe, here, monkeypatch
):
    path = recipe()
    run_shards(command, path, 1, 2, n=2)
    read: Counter[str] = Counter()

    def counted(name, call, *given, **options):
        read[name] += 1
        return call(*given, **options)

    for name in ("loads", "open_dataset"):
        for module in (load, prepare):
            if (call := getattr(module, name, None)) is not None:
                monkeypatch.setattr(module, name, partial(counted, name, call))
    for _ in range(2):
        read.clear()
        assert command("run", path, "-q", "--shards", "2")[0] == 0
        assert read == {"loads": 1, "open_dataset": 1}


@pytest.mark.slow
def test_a_shard_without_frames_tells_as_many_failed_units_as_one_with_them(
    command, recipe, here, monkeypatch
):
    monkeypatch.syspath_prepend(here)
    (here / "failing_kinds").mkdir()
    (here / "failing_kinds" / "mine.py").write_text(METHOD, encoding="utf-8")
    methods = [{"kind": "failing_kinds.mine", "answer": {"max_tokens": 4}}]
    words = ("run", recipe(methods=methods), "-q", "--allow-code", "--shard", "1/3")
    assert command(*words)[0] == EXIT_PARTIAL

    def told():
        said = json.loads(command("status", "made.shard-1-of-3", "--json")[1])
        return said["units_failed"] + said["units_failed_before"]

    n_failed = told()
    shutil.rmtree(here / "runs")
    monkeypatch.setenv("ORCHESTRATOR_HANDS_ON", "shard")
    for _ in range(2):
        assert command(*words)[0] == EXIT_PARTIAL
        assert told() == n_failed > 0
    assert not [*(here / "runs" / "made.shard-1-of-3" / "results").glob("*.parquet")]


def test_shards_are_stopped_while_a_call_waits_for_them(command, here, monkeypatch):
    told = []

    def tell(run, _):
        told.append(run.path.name)
        return "stopping"

    monkeypatch.setattr(control, "tell", tell)
    run = here / "runs" / "made"
    with RunDirectory.lock(run):
        assert command("stop", "made")[0] == 0
        part = run.with_name("made.shard-2-of-3")
        with RunDirectory.lock(part):
            (part / "store.sqlite").touch()
            assert command("stop", "made")[0] == 0
    assert told == ["made", "made.shard-2-of-3"]


@pytest.mark.slow
def test_a_shard_that_is_damaged_or_of_another_user_is_named(command, recipe, here, monkeypatch):
    path = recipe()
    run_shards(command, path, 1, 2, 3)
    store = here / "runs" / "made.shard-2-of-3" / "store.sqlite"
    store.write_bytes(store.read_bytes()[: store.stat().st_size // 2])
    monkeypatch.setattr(
        "orchestrator.runner.results.runs.is_foreign", lambda run: run.name.endswith("3-of-3")
    )
    code, _, err = command("run", path, "--shards", "3")
    assert code == 2
    assert "shard 2 of 3: damaged\n" in err
    assert "shard 3 of 3: belongs to another user\n" in err


def test_any_name_of_a_run_can_stand_in_a_job(tmp_path):
    def options(name):
        run = tmp_path / name
        text = script(Cluster(), run, tmp_path, ["true"])
        return [
            word
            for line in text.splitlines()
            if line.startswith("#SBATCH ")
            for word in shlex.split(line.removeprefix("#SBATCH "))
        ]

    names = set()
    for name in ("a,b", "a b", "a'b", 'ä"b', "a%jb"):
        job, *others = options(name)
        # Slurm takes a comma for the end of a name.
        assert re.fullmatch(r"--job-name=orch-[a-z_]+-[0-9a-f]{8}", job)
        assert f"--output={tmp_path}/{name.replace('%', '%%')}/slurm-%j.log" in others
        names.add(job)
    assert len(names) == 5
    for name in ("a\nb", "a\\b"):
        with pytest.raises(UsageError, match="no line break or backslash"):
            options(name)


@pytest.mark.parametrize(
    ("client", "restarts", "again"),
    [
        ("exit 0", 0, False),
        ("exit 1", 0, False),
        ("exit 3", 0, False),
        ("exit 137", 0, True),
        ("exit 137", 2, True),
        ("exit 137", 3, False),
        # Near the limit: it stops in order, or has just ended.
        ("trap 'exit 130' USR1; kill -USR1 $PPID; while :; do sleep 0.1; done", 9, True),
        ("trap 'exit 0' USR1; kill -USR1 $PPID; while :; do sleep 0.1; done", 0, False),
        # Cancelled.
        ("trap 'exit 130' TERM; kill -TERM $PPID; while :; do sleep 0.1; done", 0, False),
        ("kill -TERM $PPID; while :; do sleep 0.1; done", 0, False),
    ],
)
def test_an_element_goes_back_into_the_queue_where_that_helps(tmp_path, client, restarts, again):
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$@" > scontrol.words\n')
    (tmp_path / "scontrol").chmod(0o755)
    words = ("sh", "-c", client, f"a b {SHARD}")
    text = script(Cluster(), tmp_path / "run", tmp_path, words, array="1-4")
    subprocess.run(
        ["bash", "-c", text],
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_RESTART_COUNT": str(restarts),
            "SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "4",
        },
        capture_output=True, check=False, timeout=30,
    )  # fmt: skip
    file = tmp_path / "scontrol.words"
    # Not job 7, by which Slurm would take all elements.
    assert (file.read_text() if file.exists() else "") == ("requeue 7_4\n" if again else "")


def test_the_number_of_the_element_stands_in_a_quoted_word(tmp_path):
    words = ("sh", "-c", 'echo "$0" > said', f"a  'b' {SHARD}/3")
    text = script(Cluster(), tmp_path / "run", tmp_path, words, array="1-4")
    env = {"PATH": os.environ["PATH"], "SLURM_ARRAY_TASK_ID": "2"}
    subprocess.run(["bash", "-c", text], env=env, capture_output=True, check=False, timeout=30)
    assert (tmp_path / "said").read_text() == "a  'b' 2/3\n"
