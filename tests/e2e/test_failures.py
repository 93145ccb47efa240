"""The real command where something breaks: how it ends, what it says, and what it leaves behind."""

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import time

import polars as pl
import psutil
import pytest

import orchestrator
from orchestrator.errors import (
    EXIT_COMPLETE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    RunDirectoryError,
)
from orchestrator.interface import api
from orchestrator.runner.results.frames import rows_by_epoch
from orchestrator.store import RunDirectory, Store
from tests.e2e.runs import MODELS, ROOT, command, fake_server, run, stats, write_recipe
from tests.growing import lines_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
SLOW = [{"latency_s": 0.05}]
# Of an end that waits for no reply, no start and no time limit, each of which takes minutes.
AT_ONCE_S = 30.0


def launched(path, *, n=200, kind="scripted", rules=SLOW, **changes):
    """A recipe whose models are served by a process of its own."""
    server = {"kind": kind, "rules": rules}
    models = {
        name: {"server": server, "weights": weights}
        for name, weights in zip(("weak", "mid", "strong", "judge"), MODELS, strict=True)
    }
    return write_recipe(path, "", n=n, models=models, limits={"max_in_flight": 4}, **changes)


@pytest.fixture
def start():
    """Starts the command; whatever a failing test leaves is ended."""
    started = []

    def begin(recipe, run_dir, *more):
        process = subprocess.Popen(
            command(recipe, run_dir, *more), cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def log_of(run_dir):
    return [json.loads(line) for line in lines_of(run_dir / "log.jsonl")]


def until(condition, seconds=60, process=None):
    """Wait for a condition, at most so many seconds; a process that ends first fails the test."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if process is not None and process.poll() is not None:
            pytest.fail(f"the run ended with {process.returncode} first: {process.communicate()}")
        assert time.monotonic() < deadline, f"not seen within {seconds} s"
        time.sleep(0.02)
    return found


def server_pid(run_dir):
    ready = [line for line in log_of(run_dir) if line["message"].endswith("is ready")]
    return next((line["pid"] for line in ready if "pid" in line), None)


def n_outcomes(run_dir):
    if not (run_dir / "store.sqlite").exists():
        return 0
    # It is empty for a moment after it was made.
    with (
        contextlib.suppress(RunDirectoryError),
        Store.open(run_dir / "store.sqlite", read_only=True) as store,
    ):
        return sum(count.n for count in store.counts())
    return 0


def n_sent(run_dir):
    """Requests that the run's status tells of; it is written each second."""
    path = run_dir / "status.json"
    return json.loads(path.read_text())["values"].get("requests_sent", 0) if path.exists() else 0


def has_begun_to_stop(run_dir):
    return any("interrupted by" in line["message"] for line in log_of(run_dir))


def said(process, seconds=60):
    out, err = process.communicate(timeout=seconds)
    return " ".join((out + err).split())


def test_a_full_disk_ends_the_run_with_the_words_of_the_store(tmp_path):
    recipe = launched(tmp_path / "r.json", rules=[])
    script = f"ulimit -f 400; exec {shlex.join(command(recipe, tmp_path / 'run'))}"
    process = subprocess.Popen(
        ["bash", "-c", script], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    words = said(process)
    assert process.returncode == EXIT_FAILED, words
    assert "store.sqlite" in words
    assert "Traceback" not in words
    pid = server_pid(tmp_path / "run")
    assert pid is not None
    assert not psutil.pid_exists(pid)


def test_a_method_that_raises_ends_the_run_with_its_traceback(tmp_path):
    with fake_server() as url:
        recipe = write_recipe(
            tmp_path / "r.json", url, methods=[{"kind": "tests.e2e.broken_method"}]
        )
        result = run(recipe, tmp_path / "run", "--allow-code")
        assert result.returncode == EXIT_FAILED
        assert "broken_method.py" in result.stderr
        assert "IndexError" in result.stderr
        assert stats(url)["total"] == n_outcomes(tmp_path / "run")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_a_server_starts_ends_both_at_once(start, tmp_path, number):
    recipe = launched(tmp_path / "r.json", kind="tests.e2e.slow_start")
    process = start(recipe, tmp_path / "run", "--allow-code")
    log = tmp_path / "run" / "servers" / "weak.log"
    found = until(lambda: re.search(r"pid (\d+)", "\n".join(lines_of(log))))
    process.send_signal(number)
    told = time.monotonic()
    words = said(process)
    assert process.returncode == EXIT_INTERRUPTED, words
    assert time.monotonic() - told < AT_ONCE_S
    assert "resume with the same command" in words
    until(lambda: not psutil.pid_exists(int(found[1])))


@contextlib.contextmanager
def silent_server():
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_ctrl_c_while_connecting_to_a_server_that_hangs_ends_at_once(start, tmp_path):
    with silent_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url)
        process = start(recipe, tmp_path / "run")
        until(lambda: any(x["message"] == "sending begins" for x in log_of(tmp_path / "run")))
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        told = time.monotonic()
        words = said(process)
    assert process.returncode == EXIT_INTERRUPTED, words
    assert time.monotonic() - told < AT_ONCE_S


def test_a_second_ctrl_c_does_not_wait_for_what_is_in_flight(start, tmp_path):
    recipe = launched(tmp_path / "r.json", rules=[{"latency_s": 300}])
    process = start(recipe, tmp_path / "run")
    until(lambda: n_sent(tmp_path / "run"), process=process)
    pid = server_pid(tmp_path / "run")
    process.send_signal(signal.SIGINT)
    # Two signals of one kind that come before either was taken are one.
    until(lambda: has_begun_to_stop(tmp_path / "run"), process=process)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    told = time.monotonic()
    words = said(process)
    assert process.returncode == EXIT_INTERRUPTED, words
    assert time.monotonic() - told < AT_ONCE_S
    until(lambda: not psutil.pid_exists(pid))


def claim_another_version(run_dir):
    """Let the store believe that other versions answered."""
    with contextlib.closing(sqlite3.connect(run_dir / "store.sqlite")) as connection, connection:
        connection.execute("UPDATE server SET provenance=replace(provenance,'fake-1','fake-0')")


def test_another_server_stops_the_run_unless_it_is_accepted_and_then_the_result_says_so(tmp_path):
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=6)
        assert run(recipe, tmp_path / "run", "--limit", "3").returncode == EXIT_COMPLETE
        claim_another_version(tmp_path / "run")
        total = stats(url)["total"]
        refused = run(recipe, tmp_path / "run")
        assert refused.returncode == EXIT_USAGE
        assert "--accept-server-change" in refused.stderr
        assert stats(url)["total"] == total
        accepted = run(recipe, tmp_path / "run", "--accept-server-change", "--display", "plain")
        assert accepted.returncode == EXIT_COMPLETE
        words = " ".join(accepted.stderr.split())
        assert "weak: outcomes of this run come from 2 different servers" in words
    loaded = orchestrator.load(tmp_path / "run")
    notes = [note for note in loaded.notes if "max_tokens" not in note]
    assert len(notes) == 4
    half = {0: 9, 1: 9}
    assert rows_by_epoch(loaded.frames) == {"answers": half, "pairwise_ranking": half}
    for frame in (loaded.frames["answers"], loaded.frames["judgments"]):
        of_items = frame.group_by("item").agg(pl.col("server_epoch").unique())
        assert sorted(of_items["server_epoch"].to_list()) == [[0]] * 3 + [[1]] * 3
    assert any(line["level"] == "WARNING" for line in log_of(tmp_path / "run"))


def test_a_changed_model_of_the_same_name_is_no_changed_server(tmp_path):
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=3)
        assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=3)
        again = run(recipe, tmp_path / "run")
        assert again.returncode == EXIT_COMPLETE, again.stderr
        assert stats(url)["total"] > 0
    assert not any("server" in note for note in orchestrator.load(tmp_path / "run").notes)


def test_two_names_for_one_model_share_what_is_asked(tmp_path):
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=5)
        made = json.loads(recipe.read_text())
        made["models"]["mid"] = made["models"]["weak"]
        recipe.write_text(json.dumps(made))
        result = run(recipe, tmp_path / "run")
        assert result.returncode == EXIT_COMPLETE, result.stderr
        assert stats(url)["by_model"][MODELS[0]]["chat"] == 5
        assert stats(url)["asked_again"] == 0
    answers = orchestrator.load(tmp_path / "run").frames["answers"]
    assert answers.filter(answers["model"] == "mid").height == 5


def test_the_log_tells_the_phases_and_holds_no_texts(tmp_path):
    recipe = launched(tmp_path / "r.json", n=4, rules=[{"fault": "429", "first": 1}])
    assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
    lines = log_of(tmp_path / "run")
    messages = [line["message"] for line in lines]
    assert "sending begins" in messages
    assert "sending ended" in messages
    assert "starting server weak" in messages
    assert "stopping server weak" in messages
    assert any(line.get("cause") == "rate_limited" for line in lines)
    assert {"at", "level", "logger", "message"} <= set(lines[0])
    assert (tmp_path / "run" / "log.jsonl").stat().st_mode & 0o077 == 0
    text = (tmp_path / "run" / "log.jsonl").read_text()
    answers = orchestrator.load(tmp_path / "run").frames["answers"]
    assert not any(prompt in text for prompt in answers["prompt"])
    assert not any(answer in text for answer in answers["text"] if len(answer) > 8)


SCRIPT = """
import asyncio, signal, sys, threading
import orchestrator

# A shell's background job, and with it its children, has SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def main():
    return orchestrator.run(sys.argv[1], run_dir=sys.argv[2])

if sys.argv[3] == "loop":
    async def cell():
        return main()
    # Not asyncio.run, which turns Ctrl-C into cancelling; a notebook's loop does not.
    loop = asyncio.new_event_loop()
    result = loop.run_until_complete(cell())
    loop.close()
else:
    found = []
    thread = threading.Thread(target=lambda: found.append(main()))
    thread.start()
    thread.join()
    (result,) = found
print(result.frames["answers"].height, result.ended.interrupted)
"""


@pytest.mark.parametrize("where", ["loop", "thread"])
def test_python_may_call_it_from_a_notebook_and_from_a_thread(tmp_path, where):
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=4)
        result = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(recipe), str(tmp_path / "run"), where],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert result.stdout.split() == ["12", "False"], result.stderr


def test_ctrl_c_in_a_notebook_ends_the_run_in_its_thread(tmp_path):
    with fake_server(SLOW) as url:
        recipe = write_recipe(tmp_path / "r.json", url, limits={"max_in_flight": 1})
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(recipe), str(tmp_path / "run"), "loop"],
            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        until(lambda: stats(url)["total"] > 3)
        process.send_signal(signal.SIGINT)
        words = said(process)
    assert "True" in words


def test_a_plan_can_be_counted_while_the_run_writes(start, tmp_path):
    with fake_server(SLOW) as url:
        # So long that it still writes when its plan has been counted.
        recipe = write_recipe(tmp_path / "r.json", url, n=400, limits={"max_in_flight": 2})
        process = start(recipe, tmp_path / "run")
        until(lambda: n_outcomes(tmp_path / "run") > 10, process=process)
        counted = api.plan(recipe, run_dir=tmp_path / "run")
        process.send_signal(signal.SIGINT)
        said(process)
    assert sum(stage.held for stage in counted.stages) > 10
    assert process.returncode == EXIT_INTERRUPTED


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_a_warning_of_a_batch_system_or_a_terminal_that_goes_away_stops_the_run_in_order(
    start, tmp_path, number
):
    """However often it comes, what is in flight is recorded."""
    recipe = launched(tmp_path / "r.json", n=40, rules=[{"latency_s": 1.0}])
    process = start(recipe, tmp_path / "run", "--display", "plain")
    pid = until(lambda: server_pid(tmp_path / "run"), process=process)
    until(lambda: n_outcomes(tmp_path / "run"), process=process)
    process.send_signal(number)
    until(lambda: has_begun_to_stop(tmp_path / "run"))
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED, errors
    assert "resume with the same command" in errors
    until(lambda: not psutil.pid_exists(pid))
    # All that was sent has an outcome: nothing was cut short.
    values = json.loads((tmp_path / "run" / "status.json").read_text())["values"]
    assert values["requests_sent"] == n_outcomes(tmp_path / "run")


def test_a_client_that_hands_itself_on_leaves_the_results_to_its_successor(
    start, tmp_path, monkeypatch
):
    monkeypatch.setenv("ORCHESTRATOR_HANDS_ON", "1")
    with fake_server(SLOW) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=16, limits={"max_in_flight": 2})
        process = start(recipe, tmp_path / "run")
        until(lambda: n_outcomes(tmp_path / "run") > 20, process=process)
        process.send_signal(signal.SIGUSR1)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == EXIT_INTERRUPTED, errors
        assert "Interrupted" in errors
        assert output == ""
        # Nothing delays the successor; whoever reads the run meanwhile makes the frames.
        assert not [*(tmp_path / "run" / "results").glob("judgments*")]
        assert len(orchestrator.load(tmp_path / "run").frames["judgments"])
        process = start(recipe, tmp_path / "run")
        output, errors = process.communicate(timeout=60)
        assert process.returncode == EXIT_COMPLETE, errors
        assert "rating" in output


def test_a_requeued_client_waits_for_the_one_that_lives_on(start, tmp_path, monkeypatch):
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=4)
        assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
        with RunDirectory.lock(tmp_path / "run"):
            assert run(recipe, tmp_path / "run").returncode == 2
            monkeypatch.setenv("ORCHESTRATOR_HANDS_ON", "1")
            process = start(recipe, tmp_path / "run")
            waiting = process.stderr.readline()
            assert f"is in use by process {os.getpid()}" in waiting
            assert "this job waits for it" in waiting
            assert process.poll() is None
        output, errors = process.communicate(timeout=60)
        assert process.returncode == EXIT_COMPLETE, errors
        assert "rating" in output


def test_a_run_under_nohup_goes_on_when_the_terminal_goes_away(tmp_path):
    with fake_server(SLOW) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=8)
        argv = ["nohup", *command(recipe, tmp_path / "run")]
        with subprocess.Popen(
            argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            until(lambda: n_outcomes(tmp_path / "run"), process=process)
            process.send_signal(signal.SIGHUP)
            assert process.wait(60) == EXIT_COMPLETE


def test_a_terminal_that_is_gone_leaves_a_run_that_can_be_resumed(tmp_path):
    """Let every write to it fail with EIO."""
    ours, theirs = pty.openpty()
    recipe = launched(tmp_path / "r.json", n=24)
    argv = [
        sys.executable, "-c",
        "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.argv[1], sys.argv[1:])", *command(recipe, tmp_path / "run"),
    ]  # fmt: skip
    with subprocess.Popen(argv, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        pid = until(lambda: server_pid(tmp_path / "run"), process=process)
        until(lambda: n_outcomes(tmp_path / "run"), process=process)
        os.close(ours)
        process.wait(60)
    until(lambda: not psutil.pid_exists(pid))
    assert any("interrupted by SIGHUP" in line["message"] for line in log_of(tmp_path / "run"))
    assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE


def test_a_bound_on_money_needs_the_price_of_every_model(tmp_path):
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=4, budget={"money": 1.0})
        result = run(recipe, tmp_path / "run")
        assert stats(url)["total"] == 0
    assert result.returncode == EXIT_USAGE
    assert "price" in result.stderr
