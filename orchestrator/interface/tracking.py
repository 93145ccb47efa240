"""What is told of a run elsewhere: its trackers (`log_to`), and the command of `on_end`.

Progress and results go to trackers of experiments, each in a thread of its own. No tracker can
break or slow a run: one that fails, or that is slow, is noted and left behind. The command is run
by the shell when a call of a run ends, bounded, with the result.
"""

import contextlib
import logging
import math
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from orchestrator.errors import OrchestratorError, UsageError, need
from orchestrator.recipe.schema import Recipe
from orchestrator.recipe.settings import LogTo, OnEnd
from orchestrator.report.lines import Display
from orchestrator.report.progress import Completeness, Progress
from orchestrator.report.text import safe_line
from orchestrator.secrets import is_secret, is_secret_name
from orchestrator.store import newest
from orchestrator.tables import Measured
from orchestrator.trackers import TRACKERS, Parameters, State, Tracker

if TYPE_CHECKING:
    from orchestrator.interface.result import Result

_log = logging.getLogger(__name__)
# Seconds between two points of progress, how many of them may wait for a slow tracker, and how
# many seconds the end does.
_GAP_S: Final = 10.0
_MOST_WAITING: Final = 10
_END_S: Final = 60.0
_MAX_METRICS: Final = 500
_MAX_NAME: Final = 200


def needed(trackers: Sequence[LogTo]) -> None:
    """See that the libraries of the trackers are installed.

    Raises:
        UsageError: If one is missing, with its extra.
    """
    for one in trackers:
        need(f"log_to: {one.kind}", one.kind, [one.kind])


class Tracking(Display):
    """A display that hands progress on to another display and to trackers; a context of the run.

    Attributes:
        result: The results, for the end of the context; None for a run that failed.
    """

    def __init__(self, recipe: Recipe, where: Path, shown: Display) -> None:
        self._recipe = recipe
        self._where = where
        self._shown = shown
        self._threads: list[_Thread] = []
        self._next = 0.0
        self.result: Result | None = None

    def __enter__(self) -> Self:
        """Return the display."""
        return self

    def __exit__(self, *_: object) -> None:
        """Log the results, wait for the trackers for a bounded time, and say which ones failed."""
        if not self._recipe.settings.log_to:
            return
        self._begin()
        state: State = "failed" if self.result is None else state_of(self.result)
        found = {} if self.result is None else metrics(self.result)
        for thread in self._threads:
            thread.put(lambda tracker: tracker.end(found, state))
            thread.put(None)
        until = time.monotonic() + _END_S
        for thread in self._threads:
            if fault := thread.fault(max(0.0, until - time.monotonic())):
                self._shown.note(f"log_to: {thread.kind}: {fault}; the run is not affected")

    def _begin(self) -> None:
        # The run directory is there now.
        if not self._threads and self._recipe.settings.log_to:
            settings = parameters(self._recipe.resolved())
            name, folder = self._recipe.name, newest(self._where).absolute()
            self._threads = [
                _Thread(one, name, folder, settings) for one in self._recipe.settings.log_to
            ]

    def start(self, title: str, total: int) -> None:
        """Begin: the run's title and its number of units."""
        self._shown.start(title, total)
        self._begin()

    def update(self, progress: Progress) -> None:
        """Show the run's state; trackers get one now and then."""
        self._shown.update(progress)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _GAP_S
            done = progress.units_stored + progress.units_done
            said = {
                "progress/units": float(done),
                "progress/units_failed": float(progress.units_failed),
                "progress/requests": float(progress.requests_sent),
            }
            if total := progress.units_total - progress.units_not_needed:
                said["progress/share"] = done / total
            for thread in self._threads:
                thread.put(
                    lambda tracker: tracker.log(said, int(progress.elapsed_s)), _MOST_WAITING
                )

    def note(self, text: str) -> None:
        """Show a message."""
        self._shown.note(text)

    def stop(self) -> None:
        """End the display; trackers wait for the results."""
        self._shown.stop()


class _Thread:
    """A tracker in its thread."""

    def __init__(self, log_to: LogTo, name: str, folder: Path, parameters: Parameters) -> None:
        self.kind = log_to.kind
        self._tracker = TRACKERS[self.kind]()
        self._fault = ""
        self._tasks: queue.SimpleQueue[Callable[[Tracker], None] | None] = queue.SimpleQueue()
        # A daemon: what it waits for must not keep the process.
        self._thread = threading.Thread(target=self._work, name=f"log_to-{self.kind}", daemon=True)
        self.put(lambda tracker: tracker.begin(log_to, name, folder, parameters))
        self._thread.start()

    def put(self, task: Callable[[Tracker], None] | None, most: float = math.inf) -> None:
        """Have it do something, unless so much waits for it already; None ends it."""
        if self._tasks.qsize() < most:
            self._tasks.put(task)

    def fault(self, timeout_s: float) -> str:
        """Return why it failed, empty if it did not, after waiting for it."""
        self._thread.join(timeout_s)
        return f"no answer after {_END_S:g} s" if self._thread.is_alive() else self._fault

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                if not self._fault:
                    task(self._tracker)
            except Exception as error:  # noqa: BLE001 (stated boundary: no tracker may break a run)
                _log.debug("log_to: %s failed", self.kind, exc_info=True)
                self._fault = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:400]


def metrics(result: "Result") -> dict[str, float]:
    """Return the results of a run as metrics: ratings, and the tables with a row for each model.

    A metric is `TABLE/COLUMN/MODEL`, with `.low` and `.high` where it has an interval. What is
    undefined is left out. A ranking by a judge that can't be trusted is left out too.
    """
    found: dict[str, float] = {}
    for one in result.rankings:
        if one.warning:
            continue
        for model in one.ratings:
            name = _name("rating", one.source or "ranking", one.judge or "all judges", model.model)
            found |= _numbers(name, Measured(model.rating, model.low, model.high))
    for table in result.tables:
        models = [row[0] for row in table.rows]
        if table.warning or not table.columns or table.columns[0].name != "model":
            continue
        for row in table.rows if len(set(models)) == len(models) else ():
            for column, cell in zip(table.columns[1:], row[1:], strict=True):
                name = _name(table.source or table.key, column.name, str(row[0]))
                found |= _numbers(name, cell)
    done = result.completeness
    found |= {"units/ended": float(done.ended), "units/failed": float(done.failed)}
    return dict(list(found.items())[:_MAX_METRICS])


def _numbers(name: str, cell: object) -> dict[str, float]:
    values = {name: cell}
    if isinstance(cell, Measured):
        values = {name: cell.value, f"{name}.low": cell.low, f"{name}.high": cell.high}
    return {
        one: float(number)
        for one, number in values.items()
        if isinstance(number, int | float) and math.isfinite(number)
    }


def _name(*parts: str) -> str:
    """Return a name of these parts, in characters that all trackers accept."""
    kept = (re.sub(r"[^A-Za-z0-9_\-. ]", "_", part).strip() or "_" for part in parts)
    return "/".join(kept)[:_MAX_NAME]


def parameters(
    settings: Mapping[str, Any] | Sequence[Any], prefix: str = ""
) -> dict[str, str | int | float | bool]:
    """Return the settings of a recipe by dotted name, as trackers keep parameters."""
    found: dict[str, str | int | float | bool] = {}
    named = settings if isinstance(settings, Mapping) else dict(enumerate(settings))
    for name, value in named.items():
        path = f"{prefix}{_name(str(name))}"
        if isinstance(value, Mapping | list | tuple):
            found |= parameters(value, f"{path}.")
        elif value is not None:
            found[path[:_MAX_NAME]] = value if isinstance(value, int | float) else str(value)
    return found


LOG: Final = "on_end.log"
_INHERITED: Final = frozenset({
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TEMP", "TMP", "TMPDIR", "TZ", "USER",
})  # fmt: skip
_INHERITED_PREFIXES: Final = ("LC_", "XDG_")
_GRACE_S: Final = 2.0
_MAX_TEXT: Final = 1000


@contextlib.contextmanager
def hooked(hook: OnEnd | None, name: str, where: Path, shown: Display) -> "Iterator[list[Result]]":
    """Run the command when the block ends, also by an error; it never changes how the block ends.

    Yields a list that the block puts its result in.
    """
    ended: list[Result] = []
    error: BaseException | None = None
    try:
        yield ended
    except BaseException as raised:
        error = raised
        raise
    finally:
        if hook is not None:
            result = ended[0] if ended else None
            path = where if result is None else result.path
            told = {"ORCHESTRATOR_NAME": name, **_told(result, path, error)}
            if fault := call(hook, path, told):
                shown.note(f"on_end: {fault}")


def own_hook(command: str) -> OnEnd:
    """Return a command that the user gave with the call; unlike a recipe's it gets all variables.

    Raises:
        UsageError: If it is empty, or holds a secret.
    """
    if not command.strip():
        raise UsageError("on_end: the command is empty")
    if is_secret(command):
        raise UsageError(
            "on_end: the command looks as if it holds a secret; name a variable of your "
            "environment instead, all of which it gets"
        )
    names = [name for name in os.environ if name.isascii() and name.isidentifier()]
    return OnEnd(command=command, env_from=names)


def state_of(result: "Result") -> State:
    """Return how a call that has a result ended."""
    if result.ended is not None and result.ended.interrupted:
        return "interrupted"
    return "complete" if result.ok else "partial"


def _told(result: "Result | None", path: Path, error: BaseException | None) -> dict[str, str]:
    done = Completeness() if result is None else result.completeness
    if result is None:
        state: State = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
    else:
        state = state_of(result)
    told = {
        "ORCHESTRATOR_RUN": str(path.absolute()),
        "ORCHESTRATOR_STATE": state,
        "ORCHESTRATOR_UNITS": str(done.total - done.not_needed),
        "ORCHESTRATOR_UNITS_ENDED": str(done.ended),
        "ORCHESTRATOR_UNITS_FAILED": str(done.failed),
        "ORCHESTRATOR_UNITS_LEFT": str(done.left),
    }
    if isinstance(error, OrchestratorError):
        told["ORCHESTRATOR_ERROR"] = safe_line(str(error))[:_MAX_TEXT]
    return told | ({} if result is None else _found(result))


def _found(result: "Result") -> dict[str, str]:
    """The findings of a run, in sentences, and the verdict on the gates of its recipe."""
    gate, fault = result.gate, result.gate_fault
    said = "" if gate is None else gate.words()
    if fault is not None:
        said = f"The gate cannot be decided: {fault}"
    try:
        brief = result.brief
        answers = [brief.incomplete, *(question.answer.text() for question in brief.questions)]
    except OrchestratorError:
        # The call is about to show this error itself.
        answers = []
    sentences = " ".join(filter(None, answers))
    return {
        "ORCHESTRATOR_ANSWER": safe_line(sentences)[:_MAX_TEXT],
        "ORCHESTRATOR_GATE": "" if gate is None else gate.verdict,
        "ORCHESTRATOR_GATE_SUMMARY": safe_line(said)[:_MAX_TEXT],
    }


def call(hook: OnEnd, path: Path, told: Mapping[str, str]) -> str:
    """Run the command to its end; return why it failed, empty if it did not.

    Its output goes to `on_end.log` in the run directory. What it leaves running is ended with it.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in hook.env_from
        or (
            (name in _INHERITED or name.startswith(_INHERITED_PREFIXES))
            and not is_secret_name(name)
        )
    }
    log = path / LOG
    try:
        with contextlib.ExitStack() as stack:
            output: BinaryIO | int = subprocess.DEVNULL
            if path.is_dir():
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                output = stack.enter_context(os.fdopen(os.open(log, flags, 0o600), "wb"))
            process = subprocess.Popen(  # noqa: S603 (a command that the user allowed)
                ["/bin/sh", "-c", hook.command],
                env={**environment, **told},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        return f"cannot be started: {error.strerror or error}"
    try:
        code = process.wait(hook.timeout_s)
    except subprocess.TimeoutExpired:
        return f"stopped after {hook.timeout_s:g} s (timeout_s); its output is in {log}"
    else:
        return f"exit code {code}; its output is in {log}" if code else ""
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, ending)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
