"""Writing plain text to a stream; apart from `page`, which takes long to import."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TextIO

_QUIET: Final[ContextVar[bool]] = ContextVar("quiet", default=False)


@contextmanager
def quiet(*, wanted: bool) -> Iterator[None]:
    """Inside this block, print no progress and no notes, if that is wanted."""
    token = _QUIET.set(wanted)
    try:
        yield
    finally:
        _QUIET.reset(token)


def is_quiet() -> bool:
    """Return whether progress and notes are left out."""
    return _QUIET.get()


def write_to(stream: TextIO, text: str) -> bool:
    """Write to a stream whatever its encoding; False if the reader is gone."""
    encoding = stream.encoding or "utf-8"
    shown = text.encode(encoding, "backslashreplace").decode(encoding)
    return printed(lambda: (stream.write(shown), stream.flush()))


def printed(write: Callable[[], object]) -> bool:
    """Call `write`; return False if the reader is gone before the end."""
    try:
        write()
    except BrokenPipeError:
        return False
    return True
