"""Disks that are full, that may not be written, that readers hold up, and that are another's."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import time

import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_FAILED, EXIT_PARTIAL, EXIT_USAGE
from orchestrator.store import connections, schema
from tests.chaos.arena import Arena, Oracle, end_of, module, outcomes, until_recorded, until_sent
from tests.e2e.test_failures import until

SECTION = "The disk"
NETWORK = """
from types import SimpleNamespace
import psutil
psutil.disk_partitions = lambda **_: [SimpleNamespace(mountpoint="/", fstype="nfs")]
"""


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    return Arena(tmp_path_factory.mktemp("arena"), n=40, limits={"max_in_flight": 8})


@contextlib.contextmanager
def disk(folder, kilobytes):
    """A file system of its own, and what mounts it again with options; None where nobody may."""
    folder.mkdir()

    def mount(options):
        call = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        return subprocess.run(call, check=False, capture_output=True).returncode == 0

    if not mount(f"size={kilobytes}k"):
        yield None
        return
    try:
        yield mount
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def noted(note, fault, ended, oracle, recorded, said, then="same command: frames equal"):
    note(fault, times=1, exit=str(ended.code), said=said, recorded=recorded,
         lost=len(oracle.lost), asked_again=len(oracle.asked_again), then=then)  # fmt: skip


def test_a_full_disk(arena, note, tmp_path):
    with disk(tmp_path / "small", 64_000) as mount, arena.serving():
        run_dir = tmp_path / "small" / "run"
        oracle = Oracle(arena, run_dir)
        # Something is recorded before there is no more room.
        assert arena.run(run_dir, "--set", "budget.requests=60").code == EXIT_PARTIAL
        used = sum(file.stat().st_blocks for file in run_dir.rglob("*")) // 2
        if mount is None:
            # Nobody may mount here: a bound on the size of files instead.
            store = (run_dir / "store.sqlite").stat().st_size // 1024
            bound = ("bash", "-c", f'ulimit -f {store + 24}; exec "$@"', "-")
            ended = end_of(arena.start(run_dir, under=bound))
        else:
            assert mount(f"remount,size={used + 60}k")
            ended = arena.run(run_dir)
        assert ended.code == EXIT_FAILED, ended
        assert "free space and run the same command again" in ended.words
        assert "Traceback" not in ended.words
        oracle.look()
        recorded = oracle.n_recorded
        assert recorded
        assert mount is None or mount("remount,size=64m")
        assert arena.run(run_dir).code == EXIT_COMPLETE
        oracle.check()
    noted(note, "disk full" if mount else "bound on file sizes", ended, oracle, recorded,
          "the disk is full or failing. Committed data is safe: free space and run the same "
          "command again")  # fmt: skip


def test_a_disk_that_becomes_read_only(arena, note, tmp_path):
    with disk(tmp_path / "frozen", 64_000) as mount, arena.serving([{"latency_s": 0.05}]) as url:
        run_dir = tmp_path / "frozen" / "run"
        oracle = Oracle(arena, run_dir)
        process = arena.start(run_dir)
        until_sent(process, url, 40)
        until_recorded(process, run_dir)
        process.kill()
        end_of(process)
        if mount is None:
            run_dir.chmod(0o500)
        else:
            assert mount("remount,ro")
        oracle.look()
        recorded = oracle.n_recorded
        ended = arena.run(run_dir)
        assert ended.code in {EXIT_FAILED, EXIT_PARTIAL, EXIT_USAGE}, ended
        assert "Traceback" not in ended.words
        assert str(run_dir) in ended.words
        if mount is None:
            run_dir.chmod(0o700)
        else:
            assert mount("remount,rw")
        assert arena.run(run_dir).code == EXIT_COMPLETE
        oracle.check()
    noted(note, "read-only directory", ended, oracle, recorded, ended.words.split(str(run_dir))[-1])


def test_a_reader_that_holds_a_snapshot_for_long(arena, note, monkeypatch):
    # As if 16 MB were ten pages, and a quarter of a gigabyte 100 kB.
    monkeypatch.setattr(schema, "_CHECKPOINT_PAGES", 10)
    monkeypatch.setattr(connections, "WAL_WARNING_BYTES", 100_000)
    monkeypatch.setattr(connections, "_RESTART_S", 0.1)
    run_dir = arena.new_run()
    with arena.serving([{"latency_s": 0.02}]):
        oracle = Oracle(arena, run_dir)
        # Something is recorded before, for the reader to read.
        assert arena.run(run_dir, "--set", "budget.requests=20").code == EXIT_PARTIAL
        with contextlib.closing(sqlite3.connect(run_dir / "store.sqlite")) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM outcome").fetchall()
            ended = arena.run(run_dir)
            assert ended.code == EXIT_COMPLETE, ended
            assert "the write-ahead log has grown" in ended.words
            wal = schema.wal_path(run_dir / "store.sqlite")
            assert wal.stat().st_size > 100_000
        assert arena.run(run_dir).code == EXIT_COMPLETE
        assert not wal.exists()
        oracle.check()
    noted(note, "a reader that holds a snapshot throughout", ended, oracle, oracle.n_recorded,
          "the write-ahead log has grown to … MB: a reader blocks checkpoints",
          "log moved into the file by the next command; frames equal")  # fmt: skip


def test_a_file_system_without_shared_memory(arena, note, tmp_path):
    run_dir = arena.new_run()
    oracle = Oracle(arena, run_dir)
    network = module(tmp_path / "network", NETWORK)
    with arena.serving([{"latency_s": 0.05}]) as url:
        process = arena.start(run_dir, **network)
        until_sent(process, url, 40)
        until_recorded(process, run_dir)
        # It holds its run also while it does nothing.
        process.send_signal(signal.SIGSTOP)
        assert not (run_dir / "store.sqlite-shm").exists()
        assert (run_dir / "owner.json").exists()
        refused = end_of(arena.start(run_dir, **network))
        assert refused.code == EXIT_USAGE, refused
        assert str(process.pid) in refused.words
        process.send_signal(signal.SIGKILL)
        end_of(process)
        oracle.look()
        recorded = oracle.n_recorded
        assert recorded
        ended = end_of(arena.start(run_dir, **network))
        assert ended.code == EXIT_COMPLETE, ended
        oracle.check()
    noted(note, "a file system without shared memory, and kill -9", ended, oracle, recorded,
          "store.sqlite stays locked, as its (network) file system requires …")  # fmt: skip


def as_owner(run_dir, host, age_s):
    """Leave the files of a process that went away from a machine so long ago."""
    owner = run_dir / "owner.json"
    owner.write_text(f'{{"host":"{host}","pid":1,"started_s":0.0,"token":"t"}}', encoding="utf-8")
    then = time.time() - age_s  # noqa: TID251 (a file's time is wall time)
    os.utime(owner, (then, then))


@pytest.mark.parametrize(("age_s", "code"), [(600, EXIT_COMPLETE), (5, EXIT_USAGE)])
def test_a_lock_of_another_host(arena, note, tmp_path, age_s, code):
    run_dir = arena.new_run()
    oracle = Oracle(arena, run_dir)
    network = module(tmp_path / "network", NETWORK)
    with arena.serving():
        assert end_of(arena.start(run_dir, "--limit", "10", **network)).code == EXIT_COMPLETE
        oracle.look()
        recorded = oracle.n_recorded
        as_owner(run_dir, "another-machine", age_s)
        ended = end_of(arena.start(run_dir, **network))
        assert ended.code == code, ended
        if code == EXIT_USAGE:
            assert "process 1 on another-machine" in ended.words
            (run_dir / "owner.json").unlink()
            assert end_of(arena.start(run_dir, **network)).code == EXIT_COMPLETE
        oracle.check()
    said = "is in use by process 1 on another-machine" if code else "nothing; it is taken over"
    noted(note, f"a lock of another host, silent for {age_s} s", ended, oracle, recorded, said)


# A machine of another name, whose locks the file server keeps from nobody.
HOST = """
import socket, sqlite3
connect = sqlite3.connect

def unlocked(path, *rest, **settings):
    return connect(f"{path}&vfs=unix-none" if settings.get("uri") else path, *rest, **settings)

sqlite3.connect = unlocked
socket.gethostname = lambda: "node-%s"
"""


def test_a_process_that_lost_its_run_to_another_host(arena, note, tmp_path):
    """Suspended for longer than the other host waits; meanwhile that one goes on with the run."""
    run_dir = arena.new_run()
    oracle = Oracle(arena, run_dir)
    first, second = (module(tmp_path / name, NETWORK + HOST % name) for name in "ab")
    with arena.serving([{"latency_s": 0.1}]) as url:
        suspended = arena.start(run_dir, **first)
        until_sent(suspended, url, 40)
        until_recorded(suspended, run_dir)
        suspended.send_signal(signal.SIGSTOP)
        recorded = len(outcomes(run_dir))
        os.utime(run_dir / "owner.json", (0, 0))
        other = arena.start(run_dir, **second)
        until_sent(other, url, 20)
        suspended.send_signal(signal.SIGCONT)
        lost, ended = end_of(suspended), end_of(other)
        assert lost.code == EXIT_FAILED, lost
        assert f"process {other.pid} on node-b has taken it over" in lost.words
        assert ended.code == EXIT_COMPLETE, ended
        oracle.check()
    noted(note, "suspended until another host took over", lost, oracle, recorded,
          "… has taken it over … This process writes nothing more",
          "the other host: complete, frames equal")  # fmt: skip


def test_two_processes_on_one_run(arena, note):
    run_dir = arena.new_run()
    oracle = Oracle(arena, run_dir)
    processes = [arena.start(run_dir) for _ in range(3)]
    # Whoever holds it waits for the server until the others have come.
    until(lambda: sum(process.poll() is not None for process in processes) == 2)
    with arena.serving():
        all_ended = sorted((end_of(process) for process in processes), key=lambda one: one.code)
        assert [ended.code for ended in all_ended] == [EXIT_COMPLETE, EXIT_USAGE, EXIT_USAGE]
        refused = all_ended[1:]
        assert all("is in use by" in ended.words for ended in refused), refused
        oracle.check()
    noted(note, "three processes on one run", refused[0], oracle, 0,
          "… is in use by process …: wait for it, stop it, or start another run",
          "one runs, the others are refused; frames equal")  # fmt: skip
