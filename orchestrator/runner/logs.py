"""The log of a run: JSON lines in its directory, and warnings as notes of the display.

It holds what happened when: phases, servers, models out of reach, what was tried again. It never
holds prompts, answers or keys: what a server says about a request is not written, only its cause.
"""

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final

from orchestrator.disk import files
from orchestrator.records import Failure
from orchestrator.report.display import SayingHandler
from orchestrator.report.lines import Display

_OWN: Final = ("orchestrator", "backends", "launch")
# What the event loop complains of belongs into the log too, not onto a live display.
_FOREIGN: Final = ("asyncio",)
_DOWNLOADS: Final = "orchestrator.datasets"
_CONVERSIONS: Final = "launch._converted"
_STANDARD: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})

# From how many on attempts that failed alike are worth a warning.
_MANY: Final = 10

_log = logging.getLogger(__name__)

_RUN: Final[ContextVar[object]] = ContextVar("run")
_lock: Final = threading.Lock()
_running: Final[list[ExitStack]] = []
_levels: Final[dict[str, int]] = {}


class JsonLines(logging.Formatter):
    """One JSON object a record: at, level, logger, message, and whatever `extra` gave."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info is not None and record.exc_info[1] is not None:
            # The words of an exception may quote a prompt; where it was raised does not.
            error = record.exc_info[1]
            line["error"] = type(error).__name__
            line["raised_at"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in extract_tb(error.__traceback__)
            ]
        return json.dumps(line, default=str)


@contextmanager
def logged(path: Path, display: Display) -> Iterator[None]:
    """Inside this block the program's log goes to a file, its warnings also to the display.

    A log that can't be opened or written is no reason to end a run.
    """
    run = object()
    with ExitStack() as stack:
        token = _RUN.set(run)
        stack.callback(_RUN.reset, token)
        notes = SayingHandler(display.note)
        # Warnings, and what is marked as worth a note by `extra={"note": True}`.
        notes.addFilter(lambda one: one.levelno >= logging.WARNING or getattr(one, "note", False))
        _attach(notes, run, stack)
        try:
            handler = _LogFile(path)
        except OSError as error:
            display.note(f"{path}: no log is written: {error.strerror or error}")
        else:
            stack.callback(handler.close)
            _attach(handler, run, stack)
        # Loggers pass what a log holds until the last run has ended.
        with _lock:
            _running.append(stack)
            for name in _OWN:
                logger = logging.getLogger(name)
                if logger.getEffectiveLevel() > logging.INFO:
                    _levels[name] = logger.level
                    logger.setLevel(logging.INFO)
        stack.callback(_restore_levels, stack)
        yield


def _attach(handler: logging.Handler, run: object, stack: ExitStack) -> None:
    # Of two runs at once in a process each logs its own. A thread of the store has no context: what
    # it says is in the logs of both.
    handler.addFilter(lambda _: _RUN.get(run) is run)
    for name in (*_OWN, *_FOREIGN):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        stack.callback(logger.removeHandler, handler)


def _restore_levels(stack: ExitStack) -> None:
    with _lock:
        _running.remove(stack)
        if not _running:
            for name, level in _levels.items():
                logging.getLogger(name).setLevel(level)
            _levels.clear()


class _LogFile(logging.Handler):
    """Appends records to a file that only its owner reads, each at once and whole."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.INFO)
        self._descriptor = files.open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; where the disk is full the store will say so."""
        with suppress(OSError):
            os.write(self._descriptor, f"{self.format(record)}\n".encode("utf-8", "replace"))

    def close(self) -> None:
        """Close the file; may be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        super().close()


@contextmanager
def downloads_said(say: Callable[[str], None]) -> Iterator[None]:
    """Inside this block, say what is downloaded or converted, how large it is and where it is."""
    with ExitStack() as stack:
        for name in (_DOWNLOADS, _CONVERSIONS):
            handler = SayingHandler(say)
            if name == _CONVERSIONS:
                # In a run its display says it.
                handler.addFilter(lambda _: _RUN.get(None) is None)
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            stack.callback(logger.removeHandler, handler)
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
        yield


class RepeatedEvents:
    """Says of things that happen again and again when they are worth a line."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, ...]] = Counter()

    def count(self, *what: str) -> int:
        """Count an event; return its count if that is a power of ten (1, 10, 100, …), else 0."""
        self._counts[what] += 1
        n = self._counts[what]
        return n if n == 10 ** (len(str(n)) - 1) else 0

    def retried(self, model: str, failure: Failure, wait_s: float) -> None:
        """Say that an attempt failed; a warning only where many have failed alike."""
        n = self.count(model, failure.cause)
        if n:
            _log.log(
                logging.WARNING if n >= _MANY else logging.INFO,
                "%s: %s, retrying after %.1f s (%d so far)",
                model,
                failure.cause,
                wait_s,
                n,
                extra={"model": model, "cause": failure.cause, "status": failure.status, "n": n},
            )
