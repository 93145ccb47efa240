"""The real command and the servers it launches: killed on either side in mid-run."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_PARTIAL
from tests.e2e.runs import (
    MODELS,
    ROOT,
    command,
    fake_server,
    frames,
    run,
    stats,
    write_recipe,
)
from tests.e2e.test_failures import launched, log_of, n_outcomes, said, server_pid, start, until

__all__ = ["start"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LONG = (pytest.mark.models, pytest.mark.long)
ANSWER = {"kind": "answers", "answer": {"max_tokens": 24}}
# What a busy machine adds.
BUSY_S = 20.0


def embedded(path, n):
    models = {name: {"server": {"kind": "embedded", "threads": 1}, "weights": f"bundled:{name}"}
              for name in ("novice", "expert")}  # fmt: skip
    methods = [ANSWER]
    return write_recipe(path, "", n=n, models=models, methods=methods, limits={"max_in_flight": 2})


def pids(run_dir):
    return [
        line["pid"]
        for line in log_of(run_dir)
        if line["message"].endswith("is ready") and "pid" in line
    ]


def warnings(run_dir):
    return [line["message"] for line in log_of(run_dir) if line["level"] == "WARNING"]


def kill_in_mid_run(start, recipe, run_dir, n_before, number=signal.SIGKILL):
    process = start(recipe, run_dir, "--set", "limits.silent_after_s=1")
    pid = until(lambda: server_pid(run_dir), 60)
    until(lambda: n_outcomes(run_dir) > n_before, 60)
    os.kill(pid, number)
    return process, said(process, 200)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: launched(path, n=40), id="fake"),
        pytest.param(lambda path: embedded(path, 40), id="embedded", marks=LONG),
    ],
)
def test_a_server_that_is_killed_in_mid_run_is_started_again_and_the_run_completes(
    start, tmp_path, make
):
    recipe = make(tmp_path / "r.json")
    process, words = kill_in_mid_run(start, recipe, tmp_path / "cut", 8)
    assert process.returncode == EXIT_COMPLETE, words
    assert "restarting in" in " ".join(warnings(tmp_path / "cut"))
    first, second = pids(tmp_path / "cut")
    assert not psutil.pid_exists(first)
    assert not psutil.pid_exists(second)
    assert run(recipe, tmp_path / "whole").returncode == EXIT_COMPLETE
    cut, whole = frames(tmp_path / "cut"), frames(tmp_path / "whole")
    assert cut["answers"]["status"].unique().to_list() == ["ok"]
    assert sorted(cut["answers"]["text"]) == sorted(whole["answers"]["text"])


def test_a_server_that_hangs_in_mid_run_is_started_again_and_the_run_completes(start, tmp_path):
    recipe = launched(tmp_path / "r.json", n=40)
    process, words = kill_in_mid_run(start, recipe, tmp_path / "run", 8, signal.SIGSTOP)
    assert process.returncode == EXIT_COMPLETE, words
    assert "answered nothing any more" in " ".join(warnings(tmp_path / "run"))
    first, second = pids(tmp_path / "run")
    assert not psutil.pid_exists(first)
    assert not psutil.pid_exists(second)
    assert frames(tmp_path / "run")["answers"]["status"].unique().to_list() == ["ok"]


def test_a_model_whose_server_ends_again_and_again_is_dead_and_others_go_on(tmp_path):
    crashing = {"kind": "scripted", "rules": [{"fault": "exit", "after": 3}]}
    models = {
        "weak": {"server": crashing, "weights": MODELS[0]},
        "mid": {"server": "scripted", "weights": MODELS[1]},
    }
    recipe = write_recipe(
        tmp_path / "r.json", "", n=60, models=models, methods=[ANSWER], limits={"max_in_flight": 2}
    )
    result = run(recipe, tmp_path / "run")
    assert result.returncode == EXIT_PARTIAL, result.stderr
    answers = frames(tmp_path / "run")["answers"]
    mid, weak = (answers.filter(answers["model"] == name) for name in ("mid", "weak"))
    assert mid["status"].unique().to_list() == ["ok"]
    assert "dead_server" in weak["cause"].to_list()
    assert not [pid for pid in pids(tmp_path / "run") if psutil.pid_exists(pid)]


def test_a_server_that_never_answers_is_started_twice_and_its_model_given_up_at_once(tmp_path):
    models = {
        "weak": {
            "server": {"kind": "scripted", "rules": [{"fault": "exit"}]},
            "weights": MODELS[0],
        },
        "mid": {"server": "scripted", "weights": MODELS[1]},
    }
    recipe = write_recipe(
        tmp_path / "r.json", "", n=30, models=models, methods=[ANSWER], limits={"max_in_flight": 2}
    )
    result = run(recipe, tmp_path / "run")
    assert result.returncode == EXIT_PARTIAL, result.stderr
    starts = [line["message"] for line in log_of(tmp_path / "run")].count("starting server weak")
    assert starts == 2
    (given_up,) = [line for line in warnings(tmp_path / "run") if "stopped using" in line]
    assert "the server 'weak' exited with code 1" in given_up
    assert "twice for the same reason" in given_up
    answers = frames(tmp_path / "run")["answers"]
    mid, weak = (answers.filter(answers["model"] == name) for name in ("mid", "weak"))
    assert mid["status"].unique().to_list() == ["ok"]
    assert weak["cause"].unique().to_list() == ["dead_server"]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: launched(path), id="fake"),
        pytest.param(lambda path: embedded(path, 400), id="embedded", marks=LONG),
    ],
)
def test_no_server_outlives_a_killed_orchestrator_by_more_than_ten_seconds(tmp_path, make):
    recipe = make(tmp_path / "r.json")
    process = subprocess.Popen(
        command(recipe, tmp_path / "run"),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        pid = until(lambda: server_pid(tmp_path / "run"), 60)
        until(lambda: n_outcomes(tmp_path / "run") > 2, 60)
        family = psutil.Process(process.pid).children(recursive=True)
        assert pid in [child.pid for child in family]
    finally:
        process.kill()
        process.wait()
    until(lambda: not any(child.is_running() for child in family), 10 + BUSY_S)


def orchestrator(state, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments], cwd=ROOT, capture_output=True,
        text=True, check=False, env={**os.environ, "ORCHESTRATOR_STATE": str(state)},
    )  # fmt: skip


def test_servers_are_kept_on_request_found_again_and_ended_by_command(tmp_path):
    state, recipe = tmp_path / "state", launched(tmp_path / "r.json", n=4, rules=[])
    more = ("--display", "none", "--run-dir")
    first = orchestrator(state, "run", str(recipe), "--keep-servers", *more, str(tmp_path / "1"))
    try:
        assert first.returncode == EXIT_COMPLETE, first.stderr
        (pid,) = pids(tmp_path / "1")
        assert psutil.pid_exists(pid)
        second = orchestrator(state, "run", str(recipe), *more, str(tmp_path / "2"))
        assert second.returncode == EXIT_COMPLETE, second.stderr
        assert pids(tmp_path / "2") == []
        assert psutil.pid_exists(pid)
        assert "scripted at http://127.0.0.1" in orchestrator(state, "servers").stdout
        other = launched(tmp_path / "o.json", n=4)
        third = orchestrator(state, "run", str(other), *more, str(tmp_path / "3"))
        assert third.returncode == EXIT_COMPLETE, third.stderr
        (own,) = pids(tmp_path / "3")
        assert not psutil.pid_exists(own)
    finally:
        ended = orchestrator(state, "servers", "stop", "--all")
    assert "stopped" in ended.stdout
    until(lambda: not psutil.pid_exists(pid))
    assert "no kept servers" in orchestrator(state, "servers").stdout


def test_a_kept_server_that_is_killed_in_mid_run_is_replaced_by_one_of_the_runs_own(tmp_path):
    state, recipe = tmp_path / "state", launched(tmp_path / "r.json", n=30)
    more = ("--display", "none", "--run-dir")
    try:
        first = orchestrator(
            state, "run", str(recipe), "--keep-servers", "--limit", "2", *more, str(tmp_path / "1")
        )
        assert first.returncode == EXIT_COMPLETE, first.stderr
        (pid,) = pids(tmp_path / "1")
        process = subprocess.Popen(
            command(recipe, tmp_path / "2"), cwd=ROOT,
            env={**os.environ, "ORCHESTRATOR_STATE": str(state)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        until(lambda: n_outcomes(tmp_path / "2") > 8, 60)
        os.kill(pid, signal.SIGKILL)
        words = said(process, 60)
        assert process.returncode == EXIT_COMPLETE, words
        (own,) = pids(tmp_path / "2")
        assert not psutil.pid_exists(own)
    finally:
        orchestrator(state, "servers", "stop", "--all")


def n_of(url):
    return stats(url)["total"]


def test_replicas_share_the_requests_and_one_that_is_killed_comes_back(start, tmp_path):
    server = {"kind": "scripted", "rules": [{"latency_s": 0.05}]}
    models = {"m": {"server": server, "weights": MODELS[0], "replicas": 2}}
    # So many that a server has time to start again before the other has answered the rest.
    recipe = write_recipe(
        tmp_path / "r.json", "", n=400, models=models, methods=[ANSWER], limits={"max_in_flight": 2}
    )
    process = start(recipe, tmp_path / "run")
    until(lambda: len(pids(tmp_path / "run")) == 2)
    until(lambda: n_outcomes(tmp_path / "run") > 8)
    _, second = pids(tmp_path / "run")
    os.kill(second, signal.SIGKILL)
    words = said(process, 100)
    assert process.returncode == EXIT_COMPLETE, words
    started = pids(tmp_path / "run")
    assert len(started) == 3
    assert not [pid for pid in started if psutil.pid_exists(pid)]
    logs = sorted(path.name for path in (tmp_path / "run" / "servers").iterdir())
    assert logs == ["m.2.log", "m.log"]


def test_several_addresses_share_the_requests_of_a_model(tmp_path):
    # Where replies come at once, the first server has nothing in flight and is asked again.
    slow = [{"latency_s": 0.05}]
    with fake_server(slow) as one, fake_server(slow) as other:
        models = {"m": {"base_url": [one, other], "backend": "fake", "model": MODELS[0]}}
        recipe = write_recipe(
            tmp_path / "r.json", "", n=40, models=models, methods=[ANSWER],
            limits={"max_in_flight": 4},
        )  # fmt: skip
        assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
        counts = [n_of(one), n_of(other)]
        assert sum(counts) == 40
        assert min(counts) >= 10
        # The order of the addresses plays no part: nothing is asked again.
        models["m"]["base_url"] = [other, one]
        write_recipe(tmp_path / "r.json", "", n=40, models=models, methods=[ANSWER])
        assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
        assert n_of(one) + n_of(other) == 40
