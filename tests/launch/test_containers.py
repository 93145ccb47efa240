"""Containers of TGI end with their server, however that ends; docker is a script of ours."""

import os
import signal
import subprocess
import sys

import pytest

from launch import tgi
from orchestrator.serving import ServedModel
from tests.launch.test_supervisor import STUB, wait_gone

DOCKER = STUB.with_name("fake_docker.py")


@pytest.fixture
def containers(tmp_path, monkeypatch):
    """The folder that has a file for each container, by name; `docker` is on the PATH."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {DOCKER} "$@"\n')
    program.chmod(0o755)
    folder = tmp_path / "containers"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    return folder


class Impatient(tgi.TgiLaunch):
    stop_grace_s = 0.2


async def start(tmp_path):
    config = tgi.Config(image="tgi:3")
    return await Impatient(config).start((ServedModel("m", str(tmp_path)),), tmp_path / "log")


def only(containers):
    (file,) = containers.iterdir()
    assert file.name.startswith("orchestrator-tgi-")
    return int(file.read_text())


async def test_a_container_that_ignores_the_signal_passed_on_is_ended_by_name(containers, tmp_path):
    server = await start(tmp_path)
    container = only(containers)
    await server.stop()
    assert wait_gone(container, 5)


async def test_a_container_whose_client_is_killed_is_ended(containers, tmp_path):
    server = await start(tmp_path)
    container = only(containers)
    os.kill(server.pid, signal.SIGKILL)
    assert wait_gone(container, 10)
    await server.stop()


async def test_a_container_whose_watchdog_is_killed_is_ended_with_its_server(containers, tmp_path):
    server = await start(tmp_path)
    container = only(containers)
    server._process.kill()
    server._process.wait()
    await server.stop()
    assert wait_gone(container, 5)


async def test_two_containers_have_names_of_their_own(containers, tmp_path):
    servers = [await start(tmp_path) for _ in range(2)]
    assert len(list(containers.iterdir())) == 2
    for server in servers:
        await server.stop()


ORPHANING = """
import asyncio, sys
from pathlib import Path
from tests.launch.test_containers import start
async def main():
    server = await start(Path({folder!r}))
    print(server.pid, flush=True)
    await asyncio.sleep(120)
asyncio.run(main())
"""


def test_no_container_outlives_a_killed_orchestrator(containers, tmp_path):
    ours = subprocess.Popen(
        [sys.executable, "-c", ORPHANING.format(folder=str(tmp_path))],
        cwd=STUB.parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with ours:
        assert ours.stdout is not None
        assert ours.stdout.readline()
        container = only(containers)
        ours.kill()
        assert wait_gone(container, 10)
