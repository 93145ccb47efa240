"""Writing plain text to a stream; apart from `page`, which takes long to import."""

from collections.abc import Callable
from typing import TextIO


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
