"""Commands for a running run: what is carried out, refused, and never obeyed late."""

import threading

import pytest

from orchestrator.errors import RunDirectoryError, UsageError
from orchestrator.runner.session import control
from orchestrator.runner.session.control import Command, CommandInbox, tell
from orchestrator.store import RunDirectory


class Noting:
    """Carries out nothing, and keeps what it was told."""

    def __init__(self):
        self.told = []

    def __call__(self, command):
        self.told.append(command)
        return "yes"


def answered_by(desk):
    """A run that looks for commands in another thread."""
    ended = threading.Event()

    def serve():
        while not ended.wait(0.02):
            desk.look()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return ended


def test_a_command_is_carried_out_once_and_answered(directory):
    noting = Noting()
    desk = CommandInbox(directory.control, noting)
    ended = answered_by(desk)
    try:
        assert tell(directory, Command("limit", "m", 3)) == "yes"
    finally:
        ended.set()
    desk.look()
    assert noting.told == [Command("limit", "m", 3)]
    assert list(directory.control.iterdir()) == []


def test_what_is_refused_is_an_error_with_the_runs_words(directory):
    def refuse(_):
        raise UsageError("no such model")

    ended = answered_by(CommandInbox(directory.control, refuse))
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


def test_what_an_earlier_process_was_told_is_not_obeyed(directory):
    (directory.control / "1.json").write_text('{"action": "stop"}')
    noting = Noting()
    desk = CommandInbox(directory.control, noting)
    desk.open()
    desk.look()
    assert noting.told == []


@pytest.mark.parametrize("rubbish", [b"", b"\xff", b"[]", b'{"action": "rm -rf"}', b"{" * 10_000])
def test_rubbish_is_answered_and_does_nothing(directory, rubbish):
    (directory.control / "1.json").write_bytes(rubbish)
    noting = Noting()
    CommandInbox(directory.control, noting).look()
    assert noting.told == []
    assert b"invalid command" in (directory.control / "1.answer").read_bytes()
