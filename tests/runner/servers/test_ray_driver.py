"""A command in an actor, without Ray: its streams, and what ends it."""

import subprocess
import sys
import time

import psutil
import pytest

from orchestrator.runner.servers import ray_driver
from orchestrator.runner.servers.ray_driver import Place
from tests.e2e.runs import ROOT

# Of a process that ends at once; a busy machine takes a while.
_SOON_S = 60.0
# A command that ends with its stdin, like the watchdog, in a place whose lease is `lease_s` once
# the command has begun.
ALONE = """
import sys, time
from orchestrator.runner.servers import ray_driver
ray_driver._where = dict
lease_s = float(sys.argv[1])
place = ray_driver.Place(["sh", "-c", "echo $$; cat"], 600.0)
while not (parts := place.read()[0]):
    pass
print(parts[0][1].decode(), flush=True)
place._lease_s = lease_s
time.sleep(600)
"""
# The same below a parent that ends when its stdin does.
BELOW = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {ALONE!r}, "600"], stdin=subprocess.DEVNULL)
sys.stdin.read()
"""


@pytest.fixture
def place(monkeypatch):
    monkeypatch.setattr(ray_driver, "_where", lambda: {"ORCHESTRATOR_NODE_NAME": "n7"})
    monkeypatch.setattr(ray_driver, "_POLL_S", 0.05)
    # It would end this process.
    monkeypatch.setattr(Place, "_fence", lambda *_: None)
    made = []

    def make(*words):
        made.append(Place(words, 1.0))
        return made[-1]

    yield make
    for one in made:
        one.write(b"")
        whole(one)
        for stream in (one._process.stdout, one._process.stderr):
            assert stream is not None
            stream.close()


def whole(place):
    """Return the output of a command until its end, and its exit code."""
    written = {1: b"", 2: b""}
    code = None
    end = time.monotonic() + _SOON_S
    while code is None:
        assert time.monotonic() < end
        parts, code = place.read()
        for number, part in parts:
            written[number] += part
    return written[1], written[2], code


def until_gone(pid):
    end = time.monotonic() + _SOON_S
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end, pid
        time.sleep(0.05)


def test_a_command_has_its_streams_and_its_exit_code(place):
    made = place("sh", "-c", "echo $ORCHESTRATOR_NODE_NAME; echo oh no >&2; cat; exit 7")
    made.write(b"told\n")
    made.write(b"")
    assert whole(made) == (b"n7\ntold\n", b"oh no\n", 7)


def test_a_command_that_was_killed_has_the_number_of_the_signal(place):
    assert whole(place("sh", "-c", "kill -9 $$")) == (b"", b"", -9)


def test_output_of_any_length_comes_whole(place):
    n = 3_000_000
    made = place(sys.executable, "-c", f"import sys; sys.stdout.write('x' * {n})")
    assert whole(made) == (b"x" * n, b"", 0)


def test_to_write_to_a_command_that_has_ended_is_harmless(place):
    made = place("true")
    whole(made)
    made.write(b"told\n")


def test_without_a_call_for_the_lease_it_ends_with_its_command():
    with subprocess.Popen(
        [sys.executable, "-c", ALONE, "0.5"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert process.wait(_SOON_S) == 1
        until_gone(pid)


def test_when_its_raylet_has_ended_it_ends_with_its_command():
    with subprocess.Popen(
        [sys.executable, "-c", BELOW], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as raylet:  # fmt: skip
        assert raylet.stdin is not None
        assert raylet.stdout is not None
        pid = int(raylet.stdout.readline())
        raylet.kill()
        until_gone(pid)
