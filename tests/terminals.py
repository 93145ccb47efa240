"""Streams that say that they are terminals."""

import io


class Terminal(io.StringIO):
    """Text that a person types or sees."""

    def isatty(self) -> bool:
        return True
