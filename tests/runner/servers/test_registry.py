"""The folder of kept servers: found by what they serve, forgotten when gone, closed to others."""

import os
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from orchestrator.errors import UsageError
from orchestrator.runner.servers import registry
from orchestrator.runner.servers.registry import Keeping, Kept, ServerRegistry


class Process:
    """A server that can be kept; its watchdog is a sleeping process."""

    base_url = "http://127.0.0.1:5"
    api_key = "sk-kept"
    log_path = Path("m.log")
    pid = 4

    def __init__(self, watchdog):
        self._watchdog = watchdog

    def exit_code(self):
        return None

    def first_error(self):
        return ""

    async def stop(self):
        raise AssertionError("a kept server is not ours to end")

    def keep(self):
        return self._watchdog.pid


@pytest.fixture
def watchdog():
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def kept(watchdog, tmp_path):
    before = ServerRegistry(tmp_path / "before", "kept")
    keeping = Keeping(before, "key", "fake", ("a", "b"))
    assert keeping.keep(Process(watchdog))
    (found,) = before.all()
    return found


@pytest.fixture
def shelf(tmp_path):
    return ServerRegistry(tmp_path / "state" / "servers")


def changed(kept: Kept, **more):
    return Kept(**{name: getattr(kept, name) for name in Kept.__struct_fields__} | more)


def test_a_server_is_found_by_its_key_with_its_secret(shelf, kept):
    shelf.put(kept, "sk-kept")
    found = shelf.find("key")
    assert (found.base_url, found.api_key, found.pid) == (kept.base_url, "sk-kept", 4)
    assert found.exit_code() is None
    assert "sk-kept" not in repr(found)
    assert shelf.find("other") is None


def test_the_folder_and_its_files_are_the_users_alone(shelf, kept, tmp_path):
    shelf.put(kept, "sk-kept")
    folder = tmp_path / "state" / "servers"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    holding = [path.name for path in folder.iterdir() if b"sk-kept" in path.read_bytes()]
    assert holding == [f"{kept.name}.key"]


def test_a_folder_that_others_may_read_is_refused(shelf, kept, tmp_path):
    (tmp_path / "state" / "servers").mkdir(parents=True, mode=0o755)
    (tmp_path / "state" / "servers").chmod(0o755)
    with pytest.raises(UsageError, match="accessible only to you"):
        shelf.put(kept, "k")


def test_a_server_that_is_gone_is_forgotten(shelf, kept, watchdog, tmp_path):
    shelf.put(kept, "k")
    watchdog.kill()
    watchdog.wait()
    assert shelf.find("key") is None
    assert list(shelf.all()) == []
    assert list((tmp_path / "state" / "servers").iterdir()) == []


def test_another_process_with_the_same_number_is_not_the_server(shelf, kept):
    shelf.put(changed(kept, started=kept.started - 1000), "k")
    assert shelf.find("key") is None


def test_a_server_of_another_machine_is_listed_but_neither_found_nor_ended(shelf, kept):
    away = changed(kept, host=socket.gethostname() + "-other")
    shelf.put(away, "k")
    assert shelf.find("key") is None
    assert list(shelf.all()) == [away]
    with pytest.raises(UsageError, match="stop it there"):
        shelf.stop(away)


def test_stopping_ends_the_process_and_forgets_it(shelf, kept, watchdog):
    shelf.put(kept, "k")
    shelf.stop(kept)
    assert not psutil.pid_exists(watchdog.pid)
    assert list(shelf.all()) == []


def test_a_file_that_is_no_record_is_passed_over(shelf, kept, tmp_path):
    shelf.put(kept, "k")
    (tmp_path / "state" / "servers" / "odd.json").write_text("{")
    assert [one.name for one in shelf.all()] == [kept.name]


def test_the_users_own_folder_is_taken_from_the_environment(monkeypatch, tmp_path, kept):
    monkeypatch.setenv("ORCHESTRATOR_STATE", str(tmp_path / "mine"))
    ServerRegistry().put(kept, "k")
    assert (tmp_path / "mine" / "servers" / f"{kept.name}.json").exists()
    assert psutil.pid_exists(kept.watchdog)
    assert os.getuid() == (tmp_path / "mine" / "servers").stat().st_uid


def test_of_two_that_are_shared_the_one_that_was_heard_of_last_is_found(shelf, kept):
    """The keeper of the other may have been killed without a word."""
    now = datetime.now(UTC).timestamp()
    for job, ago_s in ("7", 20.0), ("8", 1.0), ("9", 90.0):
        one = changed(kept, name=f"m-{job}", job=job, started=now - ago_s, host="n1")
        shelf.put(one, f"k{job}")
    assert shelf.find("key") is None, "a run that starts servers of its own takes none of these"
    assert shelf.find("key", shared=True).api_key == "k8"


def test_a_shared_server_of_which_nothing_is_heard_any_more_is_forgotten(shelf, kept):
    shelf.put(changed(kept, job="7", started=datetime.now(UTC).timestamp() - 600, host="n1"), "k")
    assert list(shelf.all()) == []


def kept_on_ray(shelf, kept, watchdog):
    now = datetime.now(UTC).timestamp()
    shared = changed(kept, job="ray", started=now, host="n1", watchdog=watchdog)
    shelf.put(shared, "k")
    return shared


def test_a_shared_server_is_not_ended_beside_who_keeps_it(shelf, kept, monkeypatch):
    monkeypatch.setattr(registry, "_STOP_S", 0.0)
    shared = kept_on_ray(shelf, kept, 12)
    with pytest.raises(UsageError, match="process 12 on n1 has not ended it"):
        shelf.stop(shared)
    assert list(shelf.all()) == [shared]
    assert not shelf.interrupted(shared)


def test_who_keeps_a_shared_server_is_told_to_end_it_and_tells_when_that_is_done(shelf, kept):
    shared = kept_on_ray(shelf, kept, os.getpid())
    with ThreadPoolExecutor() as pool:
        stopping = pool.submit(shelf.stop, shared)
        while not shelf.interrupted(shared):
            time.sleep(0.01)
        shelf.forget(shared)
        assert not stopping.done(), "it waits for the end of the server itself"
        shelf.stopped(shared)
        stopping.result()
    shelf.stop(shared)  # ended with another of the same program


def test_a_word_to_a_program_that_has_gone_is_not_for_the_one_after_it(shelf, kept):
    shared = kept_on_ray(shelf, kept, os.getpid())
    (shelf._folder / f"{shared.name}.stop").write_text("1")
    assert not shelf.interrupted(shared)
