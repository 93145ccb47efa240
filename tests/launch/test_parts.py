"""A server that several machines share; here all of them are this one."""

import asyncio
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from launch import _supervisor
from launch._starting import start_server
from tests.cluster.logged import split
from tests.launch.test_carried import MODELS, Near, health, launch
from tests.launch.test_supervisor import wait_gone

BOTH = str(Path(__file__).with_name("both.py"))


class Shared(Near):
    """Runs parts here."""

    def __init__(self, n_nodes):
        super().__init__(sys.executable, BOTH, str(n_nodes))
        self.n_nodes = n_nodes

    def environment(self):
        return {}


async def started(folder, n=3):
    spec = launch(None).spec(MODELS)
    spec = replace(spec, argv=partial(split, spec.argv))
    return await start_server(spec, folder / "m.log", Shared(n))


def watchdogs(server):
    """The processes that watch the parts, by rank."""
    parts = psutil.Process(server._process.pid).children()
    return {int(one.environ()["SLURM_PROCID"]): one for one in parts}


async def test_parts_start_together_and_the_first_answers(tmp_path):
    server = await started(tmp_path)
    try:
        assert (server.node, server._parts.nodes) == ("n0", ("n0", "n1", "n2"))
        assert await health(server, server.api_key) == 200
        assert "part 2 of 3 is connected" in server.log.text()
        parts = {rank: one.children()[0] for rank, one in watchdogs(server).items()}
        assert len(parts) == 3
        assert all(server.api_key not in " ".join(one.cmdline()) for one in parts.values())
    finally:
        await server.stop()
    assert all(wait_gone(one.pid) for one in parts.values())
    assert not server.was_told


@pytest.mark.parametrize("rank", [0, 2])
async def test_the_end_of_one_ends_all(tmp_path, rank):
    server = await started(tmp_path)
    found = watchdogs(server)
    for one in found[rank].children():
        one.kill()
    assert all(wait_gone(one.pid) for one in found.values())
    await server.stop()
    assert not server.was_told
    assert not server.was_lost


@pytest.mark.parametrize("ranks", [(0,), (2,), (0, 1, 2), (2, 1, 0)])
async def test_the_cluster_ended_it_where_it_told_a_part_before_one_ended(tmp_path, ranks):
    server = await started(tmp_path)
    found = watchdogs(server)
    for rank in ranks:
        # What it ends may have ended the others by now.
        with suppress(psutil.NoSuchProcess):
            found[rank].terminate()
    assert all(wait_gone(one.pid) for one in found.values())
    await server.stop()
    assert server.was_told


@pytest.mark.parametrize("is_told", [False, True])
async def test_a_server_may_obey_the_cluster_before_its_watchdog_does(tmp_path, is_told):
    server = await started(tmp_path)
    found = watchdogs(server)
    for one in found.values():
        one.suspend()
    parts = [part for one in found.values() for part in one.children()]
    for one in parts:
        one.terminate()
    assert all(wait_gone(one.pid) for one in parts)
    for one in found.values():
        if is_told:
            one.terminate()
        one.resume()
    assert all(wait_gone(one.pid) for one in found.values())
    await server.stop()
    assert server.was_told == is_told


async def test_a_part_that_says_nothing_was_not_told(tmp_path):
    server = await started(tmp_path)
    found = watchdogs(server)
    asleep = (*found[1].children(recursive=True), found[1])
    found[1].suspend()
    try:
        found[0].terminate()
        found[2].terminate()
        assert all(wait_gone(found[rank].pid) for rank in (0, 2))
        await asyncio.to_thread(server.kill)
        assert not server.was_told
    finally:
        for one in filter(psutil.Process.is_running, asleep):
            one.kill()


@pytest.mark.parametrize("rank", [0, 1])
async def test_a_part_that_is_silent_is_to_blame(tmp_path, monkeypatch, rank):
    monkeypatch.setattr(_supervisor, "_BEAT_S", 0.1)
    server = await started(tmp_path, 2)
    # Its watchdogs have more patience, as on a busy machine they may hear late from here.
    monkeypatch.setattr(_supervisor, "LEASE_S", 2.0)
    found = watchdogs(server)
    asleep = (*found[rank].children(recursive=True), found[rank])
    found[rank].suspend()
    try:
        assert await asyncio.to_thread(wait_gone, server._process.pid)
        await server.stop()
        assert server.was_lost
        assert server.node == f"n{rank}"
    finally:
        # What is killed in its sleep ends nothing of its own.
        for one in filter(psutil.Process.is_running, asleep):
            one.kill()
