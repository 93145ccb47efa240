"""Writing plain text to a stream; apart from `page`, which takes long to import."""

import errno
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TextIO

from orchestrator.report.text import safe_line

# A pipe without a reader, and a terminal that was closed.
_GONE: Final = frozenset({errno.EPIPE, errno.EIO})
_QUIET: Final[ContextVar[bool]] = ContextVar("quiet", default=False)


@contextmanager
def quiet(*, wanted: bool) -> Iterator[None]:
    """Inside this block, print no progress, notes and confirmations, if that is wanted."""
    token = _QUIET.set(wanted)
    try:
        yield
    finally:
        _QUIET.reset(token)


def is_quiet() -> bool:
    """Return whether progress, notes and confirmations are left out."""
    return _QUIET.get()


def confirm(text: str) -> None:
    """Print on stdout, on a line, what a command has done; `--quiet` leaves it out."""
    if not is_quiet():
        write_to(sys.stdout, f"{safe_line(text)}\n")


def write_to(stream: TextIO, text: str) -> bool:
    """Write to a stream whatever its encoding; False if the reader is gone."""
    if stream.closed:
        return False
    encoding = stream.encoding or "utf-8"
    shown = text.encode(encoding, "backslashreplace").decode(encoding)
    return printed(lambda: (stream.write(shown), stream.flush()))


def printed(write: Callable[[], object]) -> bool:
    """Call `write`; return False if the reader is gone before the end."""
    try:
        write()
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return False
    return True
