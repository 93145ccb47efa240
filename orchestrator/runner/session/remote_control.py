"""Steering a running run from another terminal: pause, resume, limit, stop.

A command is a file in the run's directory, which only its user may enter, and of this user. The run
looks there twice a second, carries out what it finds and writes an answer beside it; why files and
no socket: docs/design/0013-control.md.
"""

import contextlib
import logging
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from orchestrator.disk import files
from orchestrator.disk.foreign import is_foreign
from orchestrator.errors import RunDirectoryError, UsageError
from orchestrator.store import RunDirectory

Action = Literal["pause", "resume", "limit", "stop"]

LOOK_S: Final = 0.5
"""Seconds between two looks of a run for commands."""

_ANSWER_S: Final = 10.0
_WAIT_S: Final = 0.05
_LONGEST: Final = 4096

_log = logging.getLogger(__name__)


class Command(msgspec.Struct, frozen=True):
    """A command to a run.

    Attributes:
        action: "pause" (send nothing more until "resume"), "resume", "limit" or "stop" (as Ctrl-C).
        model: Whose limit.
        n: Requests that the model's servers may have at a time.
    """

    action: Action
    model: str = ""
    n: int = 0


class Answer(msgspec.Struct, frozen=True):
    """The answer of a run to a command.

    Attributes:
        text: For the user.
        refused: Whether nothing was done.
    """

    text: str
    refused: bool = False


class CommandInbox:
    """The run's side: takes commands and answers them.

    Args:
        folder: Where commands are put.
        carry_out: Does what a command says.
    """

    def __init__(self, folder: Path, carry_out: Callable[[Command], Answer]) -> None:
        self._folder = folder
        self._carry_out = carry_out

    def open(self) -> None:
        """Drop what an earlier process was told."""
        for file in self._files("*"):
            with contextlib.suppress(IsADirectoryError):
                file.unlink(missing_ok=True)

    def look(self) -> None:
        """Carry out the commands that are there, oldest first."""
        for file in self._files("*.json"):
            try:
                command = msgspec.json.decode(files.read(file, _LONGEST, own=True), type=Command)
            except (OSError, msgspec.MsgspecError) as error:
                answer = Answer(f"invalid command: {error}", refused=True)
            else:
                answer = self._carry_out(command)
            _log.info("command: %s", answer.text, extra={"refused": answer.refused})
            # A disk that takes no file stops no run; who asked is told that nobody answered.
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)
                _write(file.with_suffix(".answer"), msgspec.json.encode(answer))

    def _files(self, pattern: str) -> list[Path]:
        return sorted(self._folder.glob(pattern))


def tell(run_dir: RunDirectory, command: Command) -> str:
    """Give a running run a command and wait for its answer.

    Raises:
        RunDirectoryError: If the run does not run, is another user's, or does not answer within ten
            seconds.
        UsageError: If it refuses.
    """
    if is_foreign(run_dir.path):
        raise RunDirectoryError(
            f"{run_dir.path} belongs to another user; only that user may control it"
        )
    holder = run_dir.holder()
    if holder is None:
        raise RunDirectoryError(f"{run_dir.path}: this run is not running")
    try:
        files.real_folder(run_dir.control)
    except OSError as error:
        raise RunDirectoryError(f"{run_dir.control}: {error.strerror or error}") from error
    # Names sort by time; two terminals never share one.
    asked = run_dir.control / f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.json"
    _write(asked, msgspec.json.encode(command))
    answered = asked.with_suffix(".answer")
    deadline = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            answer = msgspec.json.decode(answered.read_bytes(), type=Answer)
            answered.unlink(missing_ok=True)
            if answer.refused:
                raise UsageError(answer.text)
            return answer.text
        if run_dir.holder() is None:
            break
        time.sleep(_WAIT_S)
    # What nobody took must not be obeyed later.
    asked.unlink(missing_ok=True)
    raise RunDirectoryError(
        f"{run_dir.path}: {holder} did not answer within {_ANSWER_S:.0f} s; it is starting or "
        "ending; the command was withdrawn"
    )


def _write(path: Path, content: bytes) -> None:
    """Write a file as a whole: who looks for its name never sees a part of it."""
    files.write(path, content)
