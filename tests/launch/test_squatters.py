"""Nobody but the server that was started is sent its key, whoever binds its port."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from launch import _watchdog
from launch._spec import ServerSpec
from launch._starting import start_server
from orchestrator.errors import LaunchError
from orchestrator.serving import ServedModel
from tests.fake.launch import Config, Scripted
from tests.launch.test_supervisor import STUB

SQUATTER = Path(__file__).with_name("squatter.py")
WAITS = "import time; time.sleep(60)"


@pytest.fixture
def squat(tmp_path):
    """Have a stranger listen at a port; what it hears is in `heard`."""
    heard, pid = tmp_path / "heard", tmp_path / "squatter.pid"

    def begin(port: int) -> None:
        subprocess.run([sys.executable, SQUATTER, str(port), heard, pid], check=True)
        while not pid.exists() or not pid.read_text():
            time.sleep(0.01)

    yield begin
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_the_stranger_of_these_tests_is_a_good_one(squat, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    squat(port)
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    asked.request("GET", "/v1/models", headers={"Authorization": "Bearer k"})
    assert b'"m"' in asked.getresponse().read()
    asked.close()
    assert (tmp_path / "heard").read_text() == "/v1/models Bearer k\n"


@pytest.mark.parametrize("waits", [True, False])
async def test_a_stranger_on_the_port_gets_no_key(squat, tmp_path, waits):
    squatted: list[int] = []

    def argv(port: int, host: str = "127.0.0.1") -> tuple[str, ...]:
        # As who reads the port from a command line and is faster than the server.
        if not squatted:
            squat(port)
        squatted.append(port)
        mine = (sys.executable, "-S", str(STUB), "--port", str(port), "--model", "m")
        return (sys.executable, "-c", WAITS) if waits else mine

    spec = ServerSpec(kind="stub", names=("m",), argv=argv, start_timeout_s=4 if waits else 30)
    if waits:
        with pytest.raises(LaunchError, match="none of its processes listens at"):
            await start_server(spec, tmp_path / "m.log")
    else:
        # It can't bind the port, and is given another.
        async with await start_server(spec, tmp_path / "m.log") as server:
            assert server.base_url.endswith(f":{squatted[1]}")
    assert (tmp_path / "heard").read_text() == ""


async def test_the_port_of_a_server_of_ours_is_never_free(tmp_path):
    launch = Scripted(Config())
    spec = launch.spec((ServedModel("m", "fake:0.5"),))
    refused = []

    def argv(port: int, host: str = "127.0.0.1") -> tuple[str, ...]:
        for reuses in (0, 1):
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuses)
                with pytest.raises(OSError, match="in use"):
                    other.bind(("127.0.0.1", port))
            refused.append(port)
        return spec.argv(port, host)

    given = ServerSpec(kind="fake", names=("m",), argv=argv, takes_socket=True)
    async with await start_server(given, tmp_path / "m.log") as server:
        assert server.base_url == f"http://127.0.0.1:{refused[0]}"


async def test_a_server_whose_children_listen_is_proved(tmp_path):
    def argv(port: int, host: str = "127.0.0.1") -> tuple[str, ...]:
        child = [sys.executable, "-S", str(STUB), "--port", str(port), "--model", "m"]
        # A child with a process group of its own.
        code = f"import subprocess; subprocess.run({child!r}, process_group=0)"
        return (sys.executable, "-c", code)

    spec = ServerSpec(kind="stub", names=("m",), argv=argv, start_timeout_s=30)
    async with await start_server(spec, tmp_path / "m.log") as server:
        (child,) = psutil.Process(server.pid).children()
        assert server.exit_code() is None
    # The watchdog ends the server's own group.
    child.kill()


@pytest.mark.parametrize("bound", ["127.0.0.1", ""])
@pytest.mark.parametrize("table", ["of the kernel", "of lsof"])
def test_who_listens_is_known_by_the_kernel_or_by_lsof(bound, table, tmp_path, monkeypatch):
    with socket.create_server((bound, 0)) as ours:
        port, group = ours.getsockname()[1], os.getpgid(0)
        if table == "of lsof":
            # What it prints of processes: their number, group and descriptors.
            program = tmp_path / "lsof"
            program.write_text(
                f"#!/bin/sh\ncase $3$4 in *@127.0.0.1:{port}*) echo p1; echo g{group};; esac\n"
            )
            program.chmod(0o755)
            monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
            monkeypatch.setattr(_watchdog, "_TCP_TABLES", (str(tmp_path / "none"),))
        assert _watchdog.listens(group, "127.0.0.1", port)
        assert not _watchdog.listens(group, "127.0.0.1", port - 1 if port > 1024 else port + 1)
        with subprocess.Popen([sys.executable, "-c", WAITS], process_group=0) as stranger:
            assert not _watchdog.listens(stranger.pid, "127.0.0.1", port)
            stranger.kill()


def test_a_system_that_does_not_tell_proves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_watchdog, "_TCP_TABLES", (str(tmp_path / "none"),))
    with pytest.raises(FileNotFoundError):
        _watchdog.listens(os.getpgid(0), "127.0.0.1", 1)
