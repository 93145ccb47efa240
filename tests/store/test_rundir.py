"""The run directory: one writer, numbered revisions, a status that tells who wrote it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import psutil
import pytest

from orchestrator.errors import RunDirectoryError, StoreError
from orchestrator.store import Owner, RunDirectory, Store, newest
from orchestrator.store import owner as owners

HOLDER = """
import sys
from pathlib import Path
from types import SimpleNamespace
import psutil
from orchestrator.store import RunDirectory

if len(sys.argv) > 2:
    psutil.disk_partitions = lambda **_: [SimpleNamespace(mountpoint="/", fstype="nfs")]
with RunDirectory.lock(Path(sys.argv[1])) as directory:
    directory.write_status({"n": 1})
    sys.stdout.write("held\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the run until its input ends."""
    command = [sys.executable, "-c", HOLDER, str(path), *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "pairwise"


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    root = SimpleNamespace(mountpoint="/", fstype="nfs")
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [root])


def test_run_directory_is_for_its_owner_only(run: Path) -> None:
    with RunDirectory.lock(run) as directory:
        assert directory.path == run
        assert run.stat().st_mode & 0o777 == 0o700
        assert directory.results.is_dir()
        assert directory.servers.is_dir()


def test_paths_are_where_the_documentation_says(run: Path) -> None:
    directory = RunDirectory(run)
    names = [directory.store_path, directory.log_path, directory.status_path]
    assert [path.name for path in names] == ["store.sqlite", "log.jsonl", "status.json"]
    assert directory.control.name == "control"


def test_second_process_is_told_who_holds_the_run(run: Path) -> None:
    with (
        held_elsewhere(run) as child,
        pytest.raises(RunDirectoryError, match=f"process {child.pid} "),
        RunDirectory.lock(run),
    ):
        pass


def test_second_writer_in_one_process_is_refused(run: Path) -> None:
    with RunDirectory.lock(run), pytest.raises(RunDirectoryError), RunDirectory.lock(run):
        pass


def test_killed_holder_is_no_obstacle(run: Path) -> None:
    with held_elsewhere(run) as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
    with RunDirectory.lock(run) as directory:
        assert directory.holder() is not None


def test_run_can_be_held_again_after_its_end(run: Path) -> None:
    for _ in range(2):
        with RunDirectory.lock(run) as directory:
            pass
        assert directory.holder() is None


def test_holder_can_be_asked_by_others(run: Path) -> None:
    with held_elsewhere(run) as child:
        holder = RunDirectory.open(run).holder()
        assert holder is not None
        assert holder.pid == child.pid


@pytest.mark.usefixtures("network")
def test_on_a_network_file_system_the_owner_file_excludes(run: Path) -> None:
    with (
        held_elsewhere(run, "network") as child,
        pytest.raises(RunDirectoryError, match=f"process {child.pid} "),
        RunDirectory.lock(run),
    ):
        pass


@pytest.mark.usefixtures("network")
def test_owner_file_of_a_killed_process_is_taken_over(run: Path) -> None:
    with held_elsewhere(run, "network") as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert (run / "owner.json").exists()
    with RunDirectory.lock(run):
        pass
    assert not (run / "owner.json").exists()


def leave_owner_file(run: Path, age_s: float) -> None:
    run.mkdir(parents=True)
    file = run / "owner.json"
    file.write_bytes(msgspec.json.encode(Owner("another-machine", 1, 0.0, "t")))
    then = time.time() - age_s  # noqa: TID251 (a file's time is wall time)
    os.utime(file, (then, then))


@pytest.mark.usefixtures("network")
def test_owner_on_another_machine_that_still_writes_is_respected(run: Path) -> None:
    leave_owner_file(run, age_s=5)
    with pytest.raises(RunDirectoryError, match="another-machine"), RunDirectory.lock(run):
        pass


@pytest.mark.usefixtures("network")
def test_owner_on_another_machine_that_went_silent_is_taken_over(run: Path) -> None:
    leave_owner_file(run, age_s=600)
    with RunDirectory.lock(run) as directory:
        assert directory.holder() == owners.read_owner(run / "owner.json")
    assert sorted(file.name for file in run.glob("owner*")) == []


def test_owner_keeps_its_file_fresh(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "_HEARTBEAT_S", 0.01)
    run.mkdir(parents=True)
    file = run / "owner.json"
    with owners.held_by_file(file, owners.this_process()):
        os.utime(file, (0, 0))
        deadline = time.monotonic() + 60
        while file.stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert file.stat().st_mtime > 0


def test_folder_with_other_files_is_left_alone(run: Path) -> None:
    run.mkdir(parents=True)
    (run / "thesis.tex").touch()
    with pytest.raises(RunDirectoryError, match="no run"), RunDirectory.lock(run):
        pass
    assert [file.name for file in run.iterdir()] == ["thesis.tex"]


def test_folder_that_a_kill_left_half_made_becomes_a_run(run: Path) -> None:
    run.mkdir(parents=True)
    (run / "lock").touch()
    (run / "run.json.part").touch()
    with RunDirectory.lock(run):
        pass
    RunDirectory.open(run)


def test_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(RunDirectoryError, match="run-dir"), RunDirectory.lock(tmp_path / "run"):
        pass


def test_folder_without_a_run_can_not_be_opened(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="no run"):
        RunDirectory.open(tmp_path)


def test_run_of_a_newer_version_is_refused(run: Path) -> None:
    with RunDirectory.lock(run):
        pass
    (run / "run.json").write_text(json.dumps({"name": "pairwise", "format": 9}))
    with pytest.raises(RunDirectoryError, match="newer"):
        RunDirectory.open(run)


def test_fresh_runs_are_numbered(run: Path) -> None:
    found = []
    for _ in range(3):
        with RunDirectory.lock(run, fresh=True) as directory:
            found.append(directory.path.name)
    assert found == ["pairwise", "pairwise.2", "pairwise.3"]


def test_same_command_goes_on_with_the_newest_run(run: Path) -> None:
    found = []
    for fresh in (False, True, False):
        with RunDirectory.lock(run, fresh=fresh) as directory:
            found.append(directory.path.name)
    assert found == ["pairwise", "pairwise.2", "pairwise.2"]
    assert newest(run).name == "pairwise.2"


def test_numbered_path_means_that_run(run: Path) -> None:
    for _ in range(3):
        with RunDirectory.lock(run, fresh=True):
            pass
    with RunDirectory.lock(run.with_name("pairwise.2")) as directory:
        assert directory.path.name == "pairwise.2"


def test_fresh_beside_a_numbered_path_takes_the_next_number(run: Path) -> None:
    for _ in range(2):
        with RunDirectory.lock(run, fresh=True):
            pass
    with RunDirectory.lock(run.with_name("pairwise.2"), fresh=True) as directory:
        assert directory.path.name == "pairwise.3"


def test_recipe_whose_name_ends_in_a_number_is_another_one(run: Path) -> None:
    for path in (run, run.with_name("pairwise.7")):
        with RunDirectory.lock(path):
            pass
    assert newest(run) == run


def test_revisions_are_numbered_and_the_last_one_counts(run: Path) -> None:
    with RunDirectory.lock(run) as directory:
        assert directory.last_revision is None
        assert [directory.write_revision(f"n: {n}") for n in range(11)] == list(range(1, 12))
        (directory.revisions / "99.yaml.part").write_text("cut off")
        assert directory.last_revision is not None
        assert directory.last_revision.read_text() == "n: 10"


def test_status_comes_back_with_its_writer(run: Path) -> None:
    with RunDirectory.lock(run) as directory:
        assert directory.status() is None
        directory.write_status({"done": 3, "failures": {"timeout": 1}, "rate": float("nan")})
        status = RunDirectory.open(run).status()
    assert status is not None
    assert status.values == {"done": 3, "failures": {"timeout": 1}, "rate": None}
    assert status.writer.pid == os.getpid()
    assert status.is_alive
    assert 0 <= status.age_s < 60


def test_a_status_from_before_the_clock_was_set_back_has_no_negative_age(run: Path) -> None:
    with RunDirectory.lock(run) as directory:
        directory.write_status({"units_done": 3})
        said = json.loads(directory.status_path.read_text())
        said["at"] = "2999-01-01T00:00:00+00:00"
        directory.status_path.write_text(json.dumps(said))
        status = directory.status()
    assert status is not None
    assert status.age_s == 0.0
    assert status.is_alive


def test_status_of_a_dead_run_says_so(run: Path) -> None:
    with held_elsewhere(run) as child:
        alive = RunDirectory.open(run).status()
        child.send_signal(signal.SIGKILL)
        child.wait()
    dead = RunDirectory.open(run).status()
    assert alive is not None
    assert dead is not None
    assert (alive.is_alive, dead.is_alive) == (True, False)


def test_pid_that_another_process_has_now_is_not_the_writer() -> None:
    me = owners.this_process()
    assert me.is_alive
    assert not msgspec.structs.replace(me, started_s=me.started_s - 1000).is_alive


def test_status_may_hold_what_is_not_utf8(run: Path) -> None:
    with RunDirectory.lock(run) as directory:
        directory.write_status({"message": "\ud800"})
        status = directory.status()
    assert status is not None
    assert status.values == {"message": "\ud800"}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"writer": {}}'])
def test_status_that_can_not_be_read_is_none(run: Path, content: str) -> None:
    with RunDirectory.lock(run) as directory:
        directory.status_path.write_text(content)
        assert directory.status() is None


def test_only_the_holder_writes_a_status(run: Path) -> None:
    with RunDirectory.lock(run):
        pass
    with pytest.raises(RunDirectoryError, match="reading"):
        RunDirectory.open(run).write_status({})


def test_server_logs_stay_in_their_folder_and_apart(run: Path) -> None:
    directory = RunDirectory(run)
    names = ["qwen", "org/model", "org_model", "../../etc/passwd", ".hidden", "x" * 300, "é"]
    logs = [directory.server_log(name) for name in names]
    assert {log.parent for log in logs} == {directory.servers}
    assert len(set(logs)) == len(names)
    assert logs[0].name == "qwen.log"


def test_local_disk_is_no_network_file_system(tmp_path: Path) -> None:
    assert not owners.is_network_fs(tmp_path / "not" / "there" / "yet")


def take_over(run: Path) -> None:
    """Have another machine take the run of an owner that was silent for long."""
    file = run / "owner.json"
    os.utime(file, (0, 0))
    other = Owner("another-machine", 7, 0.0, "u", "another boot")
    owners._take(file, other)


@pytest.mark.usefixtures("network")
def test_who_lost_the_run_writes_nothing_more(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunDirectory.lock(run) as directory:
        with Store.open(directory.store_path, check_owned=directory.check_owned) as store:
            store.set_meta("before", "1")
            store.flush()
            # A process that does not run touches nothing: this one is another machine's to judge.
            monkeypatch.setattr(Owner, "is_here", property(lambda _: False))
            take_over(run)
            before = {file.name: file.read_bytes() for file in run.glob("st*")}
            store.set_meta("after", "1")
            with pytest.raises(StoreError, match="process 7 on another-machine has taken it over"):
                store.flush()
            with pytest.raises(StoreError, match="writes nothing more"):
                directory.write_status({"n": 1})
        # Nor when it is closed, which moves SQLite's log into the file.
        assert {file.name: file.read_bytes() for file in run.glob("st*")} == before
        assert "store.sqlite-wal" in before
    holder = owners.read_owner(run / "owner.json")
    assert holder is not None
    assert holder.pid == 7


@pytest.mark.usefixtures("network")
def test_an_owner_file_that_is_gone_for_a_moment_loses_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunDirectory.lock(run) as directory:
        file = run / "owner.json"
        aside = file.rename(run / "aside")
        monkeypatch.setattr(owners, "_MISSING_S", 60.0)
        threading.Timer(0.2, aside.rename, (file,)).start()
        directory.check_owned()
        monkeypatch.setattr(owners, "_MISSING_S", 0.1)
        file.unlink()
        with pytest.raises(StoreError, match="gone"):
            directory.check_owned()


def test_a_process_of_a_machine_of_the_same_name_is_not_taken_for_ours() -> None:
    mine = owners.this_process()
    assert mine.is_here
    assert mine.is_alive
    for machine in ("another boot pid:[1]", ""):
        twin = msgspec.structs.replace(mine, machine=machine)
        # Versions before this one did not say.
        assert twin.is_here is (machine == "")
