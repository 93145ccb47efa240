"""Commands for a running run: what is carried out, refused, and never obeyed late."""

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orchestrator.errors import RunDirectoryError, UsageError
from orchestrator.runner.event_loop import DRAINS, DeferredInterrupts, Stop
from orchestrator.runner.session import control
from orchestrator.runner.session.control import Command, Interrupts, look, obey, tell
from orchestrator.store import RunDirectory


class Noting:
    """Carries out nothing, and keeps what it was told."""

    def __init__(self):
        self.told = []

    def __call__(self, command):
        self.told.append(command)
        return "yes"


def answered_by(directory, carry_out):
    """A run that looks for commands in another thread."""
    ended = threading.Event()

    def serve():
        while not ended.wait(0.02):
            look(directory.control, carry_out)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return ended


def test_a_command_is_carried_out_once_and_answered(directory):
    noting = Noting()
    ended = answered_by(directory, noting)
    try:
        assert tell(directory, Command("limit", "m", 3)) == "yes"
    finally:
        ended.set()
    look(directory.control, noting)
    assert noting.told == [Command("limit", "m", 3)]
    assert list(directory.control.iterdir()) == []


def test_what_is_refused_is_an_error_with_the_runs_words(directory):
    def refuse(_):
        raise UsageError("no such model")

    ended = answered_by(directory, refuse)
    try:
        with pytest.raises(UsageError, match="no such model"):
            tell(directory, Command("limit", "x", 3))
    finally:
        ended.set()


def test_a_command_that_nobody_takes_is_withdrawn(directory, monkeypatch):
    monkeypatch.setattr(control, "_ANSWER_S", 0.2)
    with pytest.raises(RunDirectoryError, match="did not answer"):
        tell(directory, Command("stop"))
    assert list(directory.control.iterdir()) == []


def test_a_run_that_does_not_run_takes_no_commands(tmp_path):
    with RunDirectory.lock(tmp_path / "run") as directory:
        pass
    with pytest.raises(RunDirectoryError, match="not running"):
        tell(RunDirectory.open(directory.path), Command("pause"))


@pytest.mark.parametrize("rubbish", [b"", b"\xff", b"[]", b'{"action": "rm -rf"}', b"{" * 10_000])
def test_rubbish_is_answered_and_does_nothing(directory, rubbish):
    (directory.control / "1.json").write_bytes(rubbish)
    noting = Noting()
    look(directory.control, noting)
    assert noting.told == []
    assert b"invalid command" in (directory.control / "1.answer").read_bytes()


class Session:
    """A session that does nothing but note what it is told."""

    def __init__(self):
        self.told = []
        self.stopped = asyncio.Event()
        self.models = {"m": None}
        self.scheduler = self.adaptive = self

    def pause(self):
        self.told.append("pause")

    def resume(self):
        self.told.append("resume")

    def set_limit(self, model, n):
        self.told.append(f"limit {model} {n}")
        return 8

    def withdraw(self, then):
        self.told.append("withdraw")
        then()

    def stop(self, why):
        self.told.append(why)
        self.stopped.set()


COMMANDS = [
    (Command("pause"), ["pause"], "paused"),
    (Command("resume"), ["resume"], "resumed"),
    (Command("limit", "m", 1), ["limit m 1"], "m: 1 concurrent requests (was 8)"),
    (Command("limit", "m", 0), [], "at least 1"),
    (Command("limit", "other", 1), [], "unknown model 'other'; available: m"),
    (Command("stop"), ["stopped by a command"], "stopping"),
]
"""Commands, what the session is told of each, and what the terminal is answered."""


async def test_each_command_is_carried_out_and_answered(directory):
    def answered(command):
        try:
            return tell(directory, command)
        except UsageError as refused:
            return str(refused)

    session: Any = Session()
    async with asyncio.TaskGroup() as group:
        obeying = group.create_task(obey(directory, session, Interrupts(session, Stop())))
        await asyncio.sleep(0)
        commands = [command for command, _, _ in COMMANDS]
        with ThreadPoolExecutor() as pool:
            answers = await asyncio.to_thread(list, pool.map(answered, commands))
        obeying.cancel()
    for (_, _, expected), answer in zip(COMMANDS, answers, strict=True):
        assert expected in answer
    assert sorted(session.told) == sorted(one for _, told, _ in COMMANDS for one in told)


async def test_what_an_earlier_process_was_told_is_not_obeyed(directory):
    (directory.control / "1.json").write_text('{"action": "stop"}')
    session: Any = Session()
    async with asyncio.TaskGroup() as group:
        obeying = group.create_task(obey(directory, session, Interrupts(session, Stop())))
        await asyncio.sleep(0.01)
        obeying.cancel()
    assert session.told == []
    assert list(directory.control.iterdir()) == []


async def test_batches_are_withdrawn_before_a_run_stops(directory):
    session: Any = Session()
    async with asyncio.TaskGroup() as group:
        obeying = group.create_task(obey(directory, session, Interrupts(session, Stop())))
        await asyncio.sleep(0)
        await asyncio.to_thread(tell, directory, Command("cancel"))
        obeying.cancel()
    assert session.told == ["withdraw", "batches cancelled by a command"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, *DRAINS])
@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN, DeferredInterrupts()])
async def test_a_signal_stops_a_run_unless_the_caller_ignores_it(number, before):
    session: Any = Session()
    own = signal.signal(number, before)
    interrupts = Interrupts(session, Stop())
    try:
        with interrupts.handled():
            is_taken = signal.getsignal(number) is not before
            if is_taken:
                signal.raise_signal(number)
                await session.stopped.wait()
        assert signal.getsignal(number) is before
    finally:
        signal.signal(number, own)
    # Ctrl-C and `kill` stop a run even where a shell has them ignored.
    assert is_taken == (before is not signal.SIG_IGN or number not in DRAINS)
    assert session.told == ["interrupted"] * is_taken
