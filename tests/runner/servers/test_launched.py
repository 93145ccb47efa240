"""Servers that a run launches: started again after a crash, and given up in the end."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.errors import LaunchError, NodeLostError
from orchestrator.placement import Share
from orchestrator.records import Failure
from orchestrator.runner.servers.health import Restarts
from orchestrator.runner.servers.launched import Launched
from orchestrator.runner.servers.replicas import Listener
from orchestrator.scheduler.core import Limits
from orchestrator.serving import ServedModel

AT_ONCE = Restarts(at_most=3, first_wait_s=0.0)


class Process:
    """A server that ends when told."""

    base_url = "http://127.0.0.1:1"
    api_key = "k"
    log_path = Path("m.log")

    def __init__(self, pid):
        self.pid = pid
        self.code = None
        self.error = ""
        self.stopped = 0

    def exit_code(self):
        return self.code

    def first_error(self):
        return self.error

    async def stop(self):
        self.stopped += 1


class Kind:
    """A launch kind: each start is the next of `fates`, an error to raise or None."""

    carrier: Any = None

    def __init__(self, *fates):
        self.fates = list(fates)
        self.started = []

    async def start(self, models, log_path):
        fate = self.fates.pop(0) if self.fates else None
        await asyncio.sleep(0)
        if fate is not None:
            raise fate
        self.started.append(Process(len(self.started) + 1))
        return self.started[-1]


class Run(Listener):
    """A run that is told of its servers; `lose` plans anew what was on a node."""

    def __init__(self, *, has_answered, lose=lambda _: None):
        self._has_answered = has_answered
        self._lose = lose

    def has_answered(self, model):
        return self._has_answered

    def lost(self, node):
        self._lose(node)


def launched(kind, restarts=AT_ONCE, *, has_answered=True):
    made = Launched("m", "fake", kind, Path("servers/m.log"), restarts)
    made.models = (ServedModel("m", ""),)
    made.listener = Run(has_answered=has_answered)
    return made


async def test_a_server_that_ended_is_started_again_after_the_old_one_is_cleared_away():
    kind = Kind()
    server = launched(kind)
    first = await server.running()
    first.code = -9
    second = await server.running()
    assert second.pid == 2
    assert first.stopped == 1
    assert await server.running() is second


async def test_those_who_ask_together_wait_for_one_restart():
    kind = Kind()
    server = launched(kind)
    (await server.running()).code = 1
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(server.running()) for _ in range(5)]
    assert {task.result().pid for task in tasks} == {2}


async def test_a_server_that_ends_again_and_again_is_given_up_for_good():
    kind = Kind()
    server = launched(kind)
    for _ in range(AT_ONCE.at_most + 1):
        (await server.running()).code = 3
    failure = await server.running()
    assert isinstance(failure, Failure)
    assert failure.permanent
    assert "exited with code 3" in failure.message
    assert "servers/m.log" in failure.message
    assert await server.running() is failure
    assert len(kind.started) == AT_ONCE.at_most + 1


async def test_a_first_start_that_fails_is_an_error_and_a_later_one_is_tried_again():
    with pytest.raises(LaunchError, match="no weights"):
        await launched(Kind(LaunchError("no weights"))).running()
    server = launched(Kind(None, LaunchError("memory"), LaunchError("memory")))
    (await server.running()).code = -9
    assert (await server.running()).pid == 2


async def test_a_server_that_fails_for_ever_is_given_up_the_second_time_with_its_own_error():
    kind = Kind()
    server = launched(kind, has_answered=False)
    for size in (4, 5):
        running = await server.running()
        running.code, running.error = 0, f"RuntimeError: subscript b has size {size}"
    failure = await server.running()
    assert isinstance(failure, Failure)
    assert failure.permanent
    assert "RuntimeError: subscript b has size 5" in failure.message
    assert "twice for the same reason" in failure.message
    assert len(kind.started) == 2


async def test_a_server_that_fails_otherwise_each_time_is_started_as_often_as_any():
    kind = Kind()
    server = launched(kind, has_answered=False)
    for name in "ABCD":
        running = await server.running()
        running.code, running.error = 1, f"{name}Error: x"
    failure = await server.running()
    assert isinstance(failure, Failure)
    assert "4 times" in failure.message
    assert len(kind.started) == AT_ONCE.at_most + 1


@pytest.mark.parametrize(
    ("code", "said"),
    [(0, "exited by itself (exit code 0)"), (3, "exited with code 3"), (-9, "by signal 9")],
)
async def test_how_a_server_ended_is_said(caplog, code, said):
    server = launched(Kind())
    (await server.running()).code = code
    await server.running()
    assert said in caplog.text


async def test_a_first_start_that_fails_twice_for_the_same_reason_is_not_tried_again():
    kind = Kind(LaunchError("no memory: 3 GB\nlog"), LaunchError("no memory: 2 GB\nlog"), None)
    server = launched(kind, has_answered=False)
    with pytest.raises(LaunchError):
        await server.running()
    failure = await server.running()
    assert isinstance(failure, Failure)
    assert failure.permanent
    assert "no memory: 2 GB" in failure.message
    assert "log" not in failure.message.partition("see")[0]
    assert await server.running() is failure
    assert len(kind.fates) == 1


async def test_a_first_start_that_fails_once_is_tried_again():
    kind = Kind(LaunchError("no memory"), None)
    server = launched(kind, has_answered=False)
    with pytest.raises(LaunchError):
        await server.running()
    assert (await server.running()).pid == 1


async def test_a_server_that_never_comes_up_again_is_given_up():
    kind = Kind(None, *[LaunchError("memory")] * 9)
    server = launched(kind)
    (await server.running()).code = -9
    failure = await server.running()
    assert isinstance(failure, Failure)
    assert len(kind.fates) == 9 - AT_ONCE.at_most


async def test_crashes_are_forgotten_after_a_steady_time():
    server = launched(Kind(), Restarts(at_most=1, first_wait_s=0.0, steady_s=0.0))
    for _ in range(5):
        (await server.running()).code = 1
    assert (await server.running()).pid == 6


def test_waits_double_up_to_a_bound_and_end():
    restarts = Restarts(at_most=4, first_wait_s=1.0, max_wait_s=3.0)
    assert [restarts.wait_s(n) for n in range(1, 6)] == [1.0, 2.0, 3.0, 3.0, None]


def test_a_request_that_ends_its_server_runs_out_of_attempts_first():
    assert Restarts().at_most > Limits().max_attempts


class Far(Process):
    """A server on a node; what stands for it here does not notice its end."""

    was_told = False
    was_lost = False
    node = "n3"

    def kill(self):
        self.code = -9


async def test_a_server_on_a_node_that_is_out_of_reach_is_started_elsewhere(monkeypatch):
    monkeypatch.setattr("orchestrator.runner.servers.launched._LOST_S", 0.2)
    kind = Kind()
    kind.carrier = carrier = SimpleNamespace(avoid="")
    server = launched(kind)
    first = await server.running()
    # Nothing listens at its address, but for a moment that may pass.
    far = server.server = Far(first.pid)
    assert await server.running() is far
    await asyncio.sleep(0.25)
    assert (await server.running()).pid == 2
    assert carrier.avoid == "n3"
    assert far.stopped == 1


async def test_a_server_on_a_node_that_accepts_connections_is_kept(monkeypatch):
    monkeypatch.setattr("orchestrator.runner.servers.launched._LOST_S", 0.0)
    server = launched(Kind())
    await server.running()
    far = server.server = Far(1)
    listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with listening:
        far.base_url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        assert await server.running() is far


def lost(kind, lose):
    """A server whose node is out of reach, before it is asked for again."""
    kind.carrier = kind.carrier or SimpleNamespace(avoid="", prefer="")
    server = launched(kind)
    server.node = "n3"
    server.listener = Run(has_answered=True, lose=lambda node: lose(server, node))
    server.server = Far(1)
    return server


@pytest.fixture
def at_once(monkeypatch):
    """A node that is out of reach is lost at once."""
    monkeypatch.setattr("orchestrator.runner.servers.launched._LOST_S", 0.0)


async def test_a_server_whose_node_is_lost_starts_where_it_is_planned_anew(at_once):
    kind = Kind()
    kind.carrier = carrier = SimpleNamespace(avoid="", prefer="")
    server = lost(kind, lambda server, node: server.move(Share(node="n1"), node))
    assert (await server.running()).pid == 1
    assert carrier.prefer == "n1"


def planned(kind, move):
    """A server of a run that plans anew; `move` gives it its new place."""
    kind.carrier = carrier = SimpleNamespace(avoid="", prefer="", lost=())
    server = launched(kind, has_answered=False)
    server.node = "n3"

    def lose(node):
        carrier.lost = (*carrier.lost, node)
        move(server, node)

    server.listener = Run(has_answered=False, lose=lose)
    return server


async def test_a_server_whose_start_shows_that_its_node_is_lost_starts_where_it_is_planned_anew():
    kind = Kind(NodeLostError("n3", "n3 is gone"), NodeLostError("n4", "n4 is gone"))
    places = {"n3": "n4", "n4": "n1"}
    server = planned(kind, lambda server, node: server.move(Share(node=places[node]), node))
    assert (await server.running()).pid == 1
    assert kind.carrier.prefer == "n1"


async def test_a_start_on_a_lost_node_is_a_failure_where_nobody_plans():
    kind = Kind(*[NodeLostError("n3", "n3 is gone")] * 2)
    kind.carrier = SimpleNamespace(avoid="", prefer="", lost=())
    server = launched(kind, has_answered=False)
    with pytest.raises(NodeLostError):
        await server.running()
    assert (await server.running()).permanent
    assert kind.carrier.avoid == "n3"


async def test_a_replica_whose_start_shows_that_no_node_has_room_is_given_up():
    kind = Kind(NodeLostError("n3", "n3 is gone"))
    server = planned(kind, lambda server, node: server.move(Share(), node))
    with pytest.raises(LaunchError, match="node n3 is out of reach, and no other has room"):
        await server.running()
    assert (await server.running()).permanent
    assert not kind.started


async def test_a_server_that_ended_with_its_node_starts_where_it_is_planned_anew():
    kind = Kind()
    server = planned(kind, lambda server, node: server.move(Share(node="n1"), node))
    far = server.server = Far(1)
    far.was_lost, far.code = True, 1
    assert (await server.running()).pid == 1
    assert kind.carrier.prefer == "n1"


async def test_a_server_that_ended_by_itself_keeps_its_place():
    kind = Kind()
    server = planned(kind, lambda *_: pytest.fail("its node is not lost"))
    far = server.server = Far(1)
    far.code = 1
    assert (await server.running()).pid == 1
    assert kind.carrier.avoid == kind.carrier.prefer == "n3"


async def test_a_server_that_its_machine_ended_is_no_crash_although_its_command_lives_on(at_once):
    kind = Kind(*[None] * (AT_ONCE.at_most + 3))
    kind.carrier = carrier = SimpleNamespace(avoid="")
    server = launched(kind)
    for _ in range(AT_ONCE.at_most + 1):
        await server.running()
        far = server.server = Far(1)
        far.was_told = True
    assert isinstance(await server.running(), Process)
    assert carrier.avoid == ""


async def test_a_server_that_has_to_wait_for_room_starts_when_it_is_let(at_once):
    server = lost(Kind(), lambda server, _: server.may_start.clear())
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(server.running())
        done, _ = await asyncio.wait([starting], timeout=0.1)
        assert not done
        server.may_start.set()
    assert starting.result().pid == 1


async def test_a_replica_without_a_place_is_given_up(at_once):
    kind = Kind()
    server = lost(kind, lambda server, node: server.move(Share(), node))
    failure = await server.running()
    assert failure.permanent
    assert failure.message.startswith("node n3 is out of reach, and no other has room")
    assert not kind.started


async def test_a_server_that_fits_on_no_node_is_tried_once_and_refused_with_the_reason(at_once):
    kind = Kind(LaunchError("no machine took it\nlog"), LaunchError("another"))
    server = lost(kind, lambda server, _: setattr(server, "no_room", "it needs 8 GPUs"))
    failure = await server.running()
    assert failure.permanent
    assert failure.message == "no machine took it; it needs 8 GPUs"
    assert await server.running() is failure
    first = launched(Kind(LaunchError("no machine took it\nlog")))
    first.no_room = "it needs 8 GPUs"
    with pytest.raises(LaunchError, match=r"^no machine took it; it needs 8 GPUs$"):
        await first.running()
