"""Runs of another user are read in a bounded process, and nothing is written into them."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import psutil
import pytest

from orchestrator import cli
from orchestrator.commands import guard
from orchestrator.errors import OrchestratorError
from orchestrator.interface import api
from orchestrator.interface.exporting import write_html
from orchestrator.store import Store
from tests.conftest import ROOT
from tests.store.hostile import changed, hostile_run
from tests.view.runs import made

ENDLESS = (
    "ALTER TABLE name RENAME TO old",
    "CREATE VIEW name AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id+1 FROM n) "
    "SELECT id, 'x' AS text FROM n",
)
TRIGGER = ("CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM outcome; END",)
BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 10)]
)  # fmt: skip


def start(here, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *arguments],
        cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ,
    )  # fmt: skip


def files_of(run):
    return {
        str(path.relative_to(run)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in sorted(run.rglob("*"))
    }


@pytest.fixture
def foreign(monkeypatch):
    """All folders that there are become those of another user, by a call."""
    return lambda: monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)


@pytest.mark.parametrize("statements", [ENDLESS, TRIGGER])
def test_a_store_with_views_or_triggers_is_refused_at_once(command, here, statements):
    changed(hostile_run(here / "runs" / "other"), *statements)
    for name in ("report", "export"):
        began = time.process_time()
        code, _, err = command(name, "runs/other", *(("--to", "out") if name == "export" else ()))
        assert code == 1
        assert "not part of a store" in err
        assert time.process_time() - began < 5


@pytest.mark.parametrize("statements", [ENDLESS, TRIGGER])
def test_a_run_is_not_gone_on_with_over_views_and_triggers(command, recipe, here, statements):
    changed(hostile_run(here / "runs" / "made"), *statements)
    code, _, err = command("run", recipe(), "--display", "none")
    assert code == 1
    assert "not part of a store" in err


def test_repair_writes_nothing_into_a_run_of_another_user(command, here, foreign):
    run = hostile_run(here / "runs" / "other")
    (run / "run.json").unlink()
    before = files_of(run)
    foreign()
    code, _, err = command("runs", "repair", "runs/other")
    assert (code, files_of(run)) == (2, before)
    assert "belongs to another user" in err


def test_repair_leaves_views_and_triggers_behind(command, here):
    run = changed(hostile_run(here / "runs" / "other"), *TRIGGER)
    assert command("runs", "repair", "runs/other")[0] == 0
    assert (run / "store.damaged-1.sqlite").exists()
    code, out, err = command("report", "runs/other")
    assert code == 0, err
    assert "repaired" in out


@pytest.mark.parametrize(
    "text", [BOMB, "[" * 100_000, "- " * 50_000, "a: &a [*a]", "\x00", "recipe: 5", "x" * (9 << 20)]
)
def test_a_recipe_that_is_made_to_take_all_memory_is_refused(command, here, text):
    run = hostile_run(here / "runs" / "other")
    (run / "revisions" / "2.yaml").write_text(text, encoding="utf-8")
    began = time.process_time()
    code, _, err = command("report", "runs/other")
    assert code == 1
    assert "2.yaml is damaged" in err
    assert time.process_time() - began < 10


def test_deep_json_is_no_traceback(command, here):
    run = hostile_run(here / "runs" / "other")
    (run / "status.json").write_text("[" * 200_000)
    assert command("status", "runs/other")[0] == 2
    assert command("runs", "list", "runs")[0] == 0
    changed(run, "DELETE FROM meta WHERE key='checksums'")
    changed(
        run, "UPDATE meta SET value=replace(hex(zeroblob(100000)), '0', '[') WHERE key='frames'"
    )
    code, _, err = command("report", "runs/other")
    assert code == 1
    assert "frames are damaged" in err


def test_loading_the_run_of_another_user_leaves_no_trace(here, foreign):
    run = hostile_run(here / "runs" / "other")
    foreign()
    for name in ("store.sqlite-wal", "store.sqlite-shm"):
        assert not (run / name).exists()
    before = files_of(run)
    result = api.load(run)
    assert result.frames["answers"].height == 1
    assert list(result.frames) == ["answers"]
    assert files_of(run) == before
    with pytest.raises(OrchestratorError, match="give a file"):
        write_html(result)
    assert result._repr_html_()
    assert files_of(run) == before


def test_frames_of_another_user_are_made_from_the_store(here, foreign):
    run = made(here / "runs" / "made", n=5)  # its results say more than its store
    foreign()
    assert api.load(run).frames["answers"].height == 0
    assert api.load(run).frames["items"].height == 5


def test_a_log_without_its_index_is_read_from_a_copy(here, foreign):
    run = hostile_run(here / "runs" / "other")
    foreign()
    connection = sqlite3.connect(run / "store.sqlite", isolation_level=None)
    connection.execute("INSERT INTO meta VALUES ('late', 'x')")
    held = (run / "store.sqlite").read_bytes(), (run / "store.sqlite-wal").read_bytes()
    connection.close()
    (run / "store.sqlite").write_bytes(held[0])
    (run / "store.sqlite-wal").write_bytes(held[1])
    before = files_of(run)
    with Store.open(run / "store.sqlite", read_only=True) as store:
        assert store.meta.get("late") == "x"
    assert files_of(run) == before


def test_a_run_that_is_distrusted_is_read_only(here):
    run = hostile_run(here / "runs" / "other")
    before = files_of(run)
    assert api.load(run, untrusted=True).frames["answers"].height == 1
    assert files_of(run) == before
    with pytest.raises(OrchestratorError, match="no code is imported"):
        api.load(run, allow_code=True)


@pytest.mark.slow
def test_the_commands_leave_no_trace_with_untrusted(here):
    run = hostile_run(here / "runs" / "other")
    before = files_of(run)
    said = {}
    for arguments in (
        ("report", "other", "--format", "json"),
        ("report", "other", "--html", "out.html"),
        ("export", "other", "--to", "out"),
        ("runs",),
    ):
        done = start(here, *arguments, "--untrusted")
        said[arguments[0]], err = done.communicate(timeout=60)
        assert done.returncode == 0, err
    assert (here / "out" / "answers.parquet").exists()
    assert (here / "out.html").exists()
    assert "1 rows" in said["export"]
    assert "other" in said["runs"]
    assert files_of(run) == before


@pytest.mark.slow
def test_nothing_of_the_working_directory_is_imported(here):
    run = hostile_run(here / "runs" / "other")
    for name in ("polars.py", "json.py", "orchestrator.py"):
        (run / name).write_text("raise SystemExit('imported')")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "orchestrator", "report", ".", "--untrusted"],
        cwd=run, capture_output=True, text=True, check=False, timeout=60,
        env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_reader_starts_ends_it(here, monkeypatch, number):
    hostile_run(here / "runs" / "other")
    monkeypatch.chdir(here)
    started = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            started.append(self)
            signal.raise_signal(number)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    if number == signal.SIGINT:
        assert cli.main(["report", "other", "--untrusted"]) == 130
    else:
        with pytest.raises(SystemExit) as ended:
            cli.main(["report", "other", "--untrusted"])
        assert ended.value.code == 143
    (reader,) = started
    assert reader.returncode is not None


@pytest.mark.parametrize("code", [0, 1, 3, -signal.SIGKILL, -signal.SIGXCPU, -signal.SIGSEGV])
def test_the_end_of_the_reader_is_that_of_the_command_and_a_kill_is_explained(
    command, here, monkeypatch, code
):
    class Ending(subprocess.Popen[bytes]):
        def __init__(self, _, **options):
            end = f"os.kill(os.getpid(), {-code})" if code < 0 else f"os._exit({code})"
            super().__init__([sys.executable, "-S", "-c", f"import os; {end}"], **options)

    hostile_run(here / "runs" / "other")
    monkeypatch.setattr(subprocess, "Popen", Ending)
    found, out, err = command("report", "other", "--untrusted")
    assert (found, out) == (code if code >= 0 else 1, "")
    assert signal.Signals(-code).name in err if code < 0 else not err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_reader_that_does_not_answer(here, number):
    hostile_run(here / "runs" / "other")
    process = start(here, "report", "other", "--untrusted")
    own = psutil.Process(process.pid)
    deadline = time.monotonic() + 30
    # Until the child is another program, this one waits for it in the kernel.
    while not any("-c" in child.cmdline() for child in own.children()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    (reader,) = own.children()
    reader.suspend()
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else 143)
    assert not reader.is_running() or reader.status() == psutil.STATUS_ZOMBIE


def ended(code):
    """Run code in a process of its own, which may bound itself."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_memory_of_the_reading_process_is_bounded():
    code = (
        "import os; os.environ['ORCHESTRATOR_GUARDED'] = 'report'\n"
        "from orchestrator.commands import guard; guard.enter(); import polars\n"
        "try: bytearray(guard.MEMORY_BYTES)\n"
        "except MemoryError: print('bounded', polars.Series([1]).sum())"
    )
    done = ended(code)
    assert done.stdout == "bounded 1\n", done.stderr


def test_time_of_the_reading_process_is_bounded_but_not_that_of_the_viewer():
    code = (
        "import os, resource\n"
        "from orchestrator.commands import guard\n"
        "for name in ('view', 'report'):\n"
        "    os.environ['ORCHESTRATOR_GUARDED'] = name\n"
        "    guard.enter()\n"
        "    print(resource.getrlimit(resource.RLIMIT_CPU)[0] == guard.CPU_S)"
    )
    done = ended(code)
    assert done.stdout.split() == ["False", "True"], done.stderr


@pytest.mark.slow
def test_what_breaks_the_reader_is_said_in_a_line(here):
    run = hostile_run(here / "runs" / "other")
    settings = {"models": 5, "methods": [{"kind": ["x"]}], "statistics": "y"}
    text = json.dumps({"orchestrator": "0", "identities": {}, "recipe": settings})
    (run / "revisions" / "2.yaml").write_text(text)
    done = start(here, "report", "other", "--untrusted")
    _, err = done.communicate(timeout=60)
    assert done.returncode == 1
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 2
    assert guard.CPU_S > 0
