"""Progress of a command that reads a whole run: a bar on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from rich import progress as rich_progress
from rich.console import Console

from orchestrator.report.streams import is_quiet, write_to

_EVERY_S: Final = 10.0
_AT_ONCE: Final = 0.25

Advance = Callable[[int], None]
"""Called with how much more is done."""


@contextmanager
def progress(what: str, total: int | None, stream: TextIO | None = None) -> Iterator[Advance]:
    """Show how far a task is while the block runs, on stderr; nothing remains of a bar.

    Args:
        what: Task and unit, such as "counting items".
        total: How much there is; None where that is not known.
        stream: Instead of stderr.
    """
    stream = sys.stderr if stream is None else stream
    if is_quiet():
        yield _unseen
        return
    if not stream.isatty():
        yield _lines(what, total, stream)
        return
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
    )
    bar = rich_progress.Progress(
        *columns, rich_progress.TimeRemainingColumn(), console=Console(file=stream), transient=True
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield _seldom(lambda n: bar.advance(task, n))


def _unseen(_n: int) -> None:
    """Show nothing."""


def _lines(what: str, total: int | None, stream: TextIO) -> Advance:
    """Write a line each ten seconds, none for a short task."""
    done, last = 0, time.monotonic()

    def advance(n: int) -> None:
        nonlocal done, last
        done += n
        if time.monotonic() - last >= _EVERY_S:
            last = time.monotonic()
            of = "" if total is None else f" of {total:,}"
            write_to(stream, f"{what}: {done:,}{of}\n")

    return advance


def _seldom(show: Advance) -> Advance:
    """Collect advances: drawing takes longer than most of what is counted."""
    pending, last = 0, 0.0

    def advance(n: int) -> None:
        nonlocal pending, last
        pending += n
        if time.monotonic() - last >= _AT_ONCE:
            last = time.monotonic()
            show(pending)
            pending = 0

    return advance
