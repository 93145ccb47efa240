"""Showing a run while it runs: live on a terminal, as plain lines, as JSON events, or not at all.

No display can break or slow a run. What is shown is handed to a thread of its own, which writes to
its own copy of the stream: a terminal that stands still (Ctrl-S), a pipe that nobody reads or that
is closed, and a fault in a display stop the display only. Displays belong on stderr; results go to
stdout and are not printed from here.
"""

import atexit
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal, TextIO, get_args

from orchestrator.errors import UsageError
from orchestrator.report.lines import Display, JsonPainter, NotebookPainter, PlainPainter
from orchestrator.report.progress import Progress

Kind = Literal["auto", "live", "plain", "json", "notebook", "none"]
KINDS: Final = get_args(Kind)

_log = logging.getLogger(__name__)

# What may wait for a reader that is slow; then the oldest is dropped.
_MAX_WAITING: Final = 1000
# How long `stop` waits for a stream that takes nothing, seconds.
_STOP_S: Final = 2.0


_Event = Callable[[Display], None]


class ThreadedDisplay(Display):
    """Hands what is to be shown to a painter in a thread."""

    def __init__(self, make_painter: Callable[[TextIO], Display], stream: TextIO) -> None:
        self._make_painter = make_painter
        self._stream = stream
        self._waiting: deque[_Event] = deque(maxlen=_MAX_WAITING)
        self._latest: Progress | None = None
        self._changed = threading.Condition()
        self._ending = False
        self._thread: threading.Thread | None = None

    def start(self, title: str, total: int) -> None:
        """Begin: the run's title and its number of units."""
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, name="display", daemon=True)
        self._put(lambda painter: painter.start(title, total))
        self._thread.start()
        atexit.register(self.stop)

    def update(self, progress: Progress) -> None:
        """Show the run's state; only the latest one counts."""
        with self._changed:
            self._latest = progress
            self._changed.notify()

    def note(self, text: str) -> None:
        """Show a message; before `start` and after `stop` it is written at once."""
        if self._thread is not None and not self._ending:
            self._put(lambda painter: painter.note(text))
            return
        with suppress(OSError, ValueError):
            self._make_painter(self._stream).note(text)

    def stop(self) -> None:
        """Show what is left, and end."""
        thread = self._thread
        if thread is None or self._ending:
            return
        with self._changed:
            self._ending = True
            self._changed.notify()
        thread.join(_STOP_S)
        atexit.unregister(self.stop)

    def _put(self, event: _Event) -> None:
        with self._changed:
            self._waiting.append(event)
            self._changed.notify()

    def _run(self) -> None:
        own = _opened(self._stream)
        next_update = 0.0
        ending = False
        try:
            painter = self._make_painter(own or self._stream)
            while not ending:
                events, latest, ending = self._take(next_update)
                for event in events:
                    event(painter)
                if latest is not None:
                    painter.update(latest)
                    next_update = time.monotonic() + painter.min_gap_s
            painter.stop()
        except (OSError, ValueError) as error:
            # The reader is gone, or the stream was closed.
            _log.debug("the display ended: %s", error)
        except Exception:  # noqa: BLE001 (stated boundary: no display may break a run)
            _log.warning("the display failed; the run continues without it", exc_info=True)
        finally:
            if own is not None:
                with suppress(OSError):
                    own.close()

    def _take(self, next_update: float) -> tuple[list[_Event], Progress | None, bool]:
        """Wait for the next events and return them."""
        with self._changed:
            while not (self._waiting or self._ending):
                pause = None
                if self._latest is not None:
                    pause = next_update - time.monotonic()
                    if pause <= 0:
                        break
                self._changed.wait(pause)
            events = list(self._waiting)
            self._waiting.clear()
            latest = None
            if self._ending or time.monotonic() >= next_update:
                latest, self._latest = self._latest, None
            return events, latest, self._ending


class SayingHandler(logging.Handler):
    """Says what is logged by a function, such as `note` of a display, which it does not tear up."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Say one record."""
        self._say(self.format(record))


def make_display(kind: Kind | None, stream: TextIO) -> Display:
    """A display that writes to `stream` (stderr, as a rule).

    Args:
        kind: None chooses live on a terminal that can move its cursor, plain elsewhere; so does
            "live", because it needs such a terminal. "auto" chooses notebook in a notebook, and
            none elsewhere.
        stream: A terminal, a file or a pipe.

    Raises:
        UsageError: If there is no such kind.
    """
    if kind in {None, "live"}:
        redraws = stream.isatty() and os.environ.get("TERM", "") not in {"dumb", "unknown"}
        kind = "live" if redraws else "plain"
    if kind == "auto":
        python = sys.modules.get("IPython")
        is_kernel = python is not None and getattr(python.get_ipython(), "kernel", None) is not None
        kind = "notebook" if is_kernel else "none"
    match kind:
        case "notebook":
            # Its output is made here, in the thread that belongs to the cell.
            painter = NotebookPainter()
            return ThreadedDisplay(lambda _: painter, stream)
        case "none":
            return Display()
        case "live":
            # What it draws with takes long to import; most commands draw nothing.
            from orchestrator.report.live import LivePainter  # noqa: PLC0415

            return ThreadedDisplay(LivePainter, stream)
        case "plain":
            return ThreadedDisplay(PlainPainter, stream)
        case "json":
            return ThreadedDisplay(JsonPainter, stream)
        case _:
            raise UsageError(f"no display {kind!r}; available: {', '.join(KINDS)}")


def _opened(stream: TextIO) -> TextIO | None:
    """The same file with a buffer of its own; None where the stream has no descriptor.

    A thread that is stuck in a write holds the buffer's lock, and Python flushes stderr when it
    ends: with the shared buffer it would then hang, or exit with 120 for a closed pipe.
    """
    try:
        descriptor = os.dup(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return None
    return os.fdopen(descriptor, "w", encoding=stream.encoding, errors="backslashreplace")
