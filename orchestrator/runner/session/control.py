"""Control of a running run: signals, another thread, and commands from other terminals.

A command is a file in the run's directory, which only its user may enter, and of this user. The run
looks there twice a second, carries out what it finds and writes an answer beside it; why files and
no socket: docs/design/0013-control.md.
"""

import asyncio
import contextlib
import logging
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from orchestrator.disk import files
from orchestrator.disk.paths import is_foreign
from orchestrator.errors import RunDirectoryError, UsageError, on_disk_error
from orchestrator.runner.event_loop import DRAINS, DeferredInterrupts, Stop
from orchestrator.store import RunDirectory

if TYPE_CHECKING:
    from orchestrator.runner.session.session import Session

Action = Literal["pause", "resume", "limit", "stop", "cancel"]

# How long requests in flight may go on after a first interrupt, seconds.
_GRACE_S: Final = 15.0
# Between two looks of a run for commands, seconds.
_LOOK_S: Final = 0.5
_ANSWER_S: Final = 10.0
_WAIT_S: Final = 0.05
_LONGEST: Final = 4096

_log = logging.getLogger(__name__)


class Command(msgspec.Struct, frozen=True):
    """A command to a run.

    Attributes:
        action: "pause" (send nothing more until "resume"), "resume", "limit", "stop" (as Ctrl-C) or
            "cancel" (batches, then stop).
        model: Whose limit.
        n: Requests that the model's servers may have at a time.
    """

    action: Action
    model: str = ""
    n: int = 0


def look(folder: Path, carry_out: Callable[[Command], str]) -> None:
    """Carry out and answer the commands that are in a folder, oldest first.

    What carries one out returns words for the user, and raises `UsageError` to refuse it.
    """
    for file in sorted(folder.glob("*.json")):
        try:
            command = msgspec.json.decode(files.read(file, _LONGEST, own=True), type=Command)
            answer = {"text": carry_out(command), "refused": False}
        except (OSError, msgspec.MsgspecError) as error:
            answer = {"text": f"invalid command: {error}", "refused": True}
        except UsageError as error:
            answer = {"text": str(error), "refused": True}
        _log.info("command: %s", answer["text"], extra={"refused": answer["refused"]})
        # A disk that takes no file stops no run; who asked is told that nobody answered.
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
            files.write(file.with_suffix(".answer"), msgspec.json.encode(answer))


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
    with on_disk_error(str(run_dir.control), RunDirectoryError):
        files.real_folder(run_dir.control)
    # Names sort by time; two terminals never share one.
    asked = run_dir.control / f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.json"
    files.write(asked, msgspec.json.encode(command))
    answered = asked.with_suffix(".answer")
    deadline = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            answer = msgspec.json.decode(answered.read_bytes(), type=dict[str, str | bool])
            answered.unlink(missing_ok=True)
            if answer["refused"]:
                raise UsageError(str(answer["text"]))
            return str(answer["text"])
        if run_dir.holder() is None:
            break
        time.sleep(_WAIT_S)
    # What nobody took must not be obeyed later.
    asked.unlink(missing_ok=True)
    raise RunDirectoryError(
        f"{run_dir.path}: {holder} did not answer within {_ANSWER_S:.0f} s; it is starting or "
        "ending; the command was withdrawn"
    )


class Interrupts:
    """SIGINT and SIGTERM: the first stops sending, the second stops waiting too.

    `DRAINS` stop sending, and never cut short what is in flight: a shell whose terminal goes away
    sends SIGHUP to its jobs although the kernel has done so.

    Python gives signals to the main thread only; elsewhere `stop` is looked at.
    """

    def __init__(self, session: "Session", stop: Stop) -> None:
        self._session = session
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self.count = 0
        self.task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals inside this block."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in DRAINS:
            handler = signal.getsignal(number)
            if handler == signal.SIG_DFL or isinstance(handler, DeferredInterrupts):
                before[number] = handler
        for number in before:
            self._loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number, handler in before.items():
                if isinstance(handler, DeferredInterrupts):
                    handler.begin()
                self._loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def look(self) -> None:
        """Do what another thread asked for: stop, or from the second time on stop waiting too."""
        n_asked = self._stop.count
        if n_asked:
            self.once("interrupted")
        if n_asked > 1:
            self._give_up()

    def once(self, why: str) -> None:
        """Stop sending, if nothing has stopped it yet."""
        if self.count == 0:
            self.count = 1
            self._session.stop(why)
            self._loop.call_later(_GRACE_S, self._give_up)

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        _log.info("interrupted by %s", name, extra={"n_signals": self.count + 1})
        if self.count == 0:
            self.once("interrupted")
        elif number not in DRAINS:
            self.count += 1
            self._give_up()

    def _give_up(self) -> None:
        if self.task is not None:
            self.task.cancel()


async def obey(run_dir: RunDirectory, session: "Session", interrupts: Interrupts) -> None:
    """Carry out what other terminals say, until cancelled."""
    # Drop what an earlier process was told.
    for file in run_dir.control.glob("*"):
        with contextlib.suppress(IsADirectoryError):
            file.unlink(missing_ok=True)
    while True:
        look(run_dir.control, partial(_carry_out, session, interrupts))
        await asyncio.sleep(_LOOK_S)


def _carry_out(session: "Session", interrupts: Interrupts, command: Command) -> str:
    """One command; what it can't do is refused with a reason."""
    match command.action:
        case "pause":
            session.scheduler.pause()
            return "paused; requests in flight are still recorded"
        case "resume":
            session.scheduler.resume()
            return "resumed"
        case "limit":
            models = session.models
            if command.model not in models:
                known = ", ".join(models)
                raise UsageError(f"unknown model {command.model!r}; available: {known}")
            if command.n < 1:
                raise UsageError("a limit must be at least 1; use `pause` to stop sending")
            before = session.adaptive.set_limit(command.model, command.n)
            return f"{command.model}: {command.n} concurrent requests (was {before})"
        case "stop":
            interrupts.once("stopped by a command")
            return "stopping; resume with the same command"
        case "cancel":
            session.scheduler.withdraw(lambda: interrupts.once("batches cancelled by a command"))
            return "cancelling batches; the run stops when what they had answered is read"
