"""A text file in which every row has its own lines: offsets in memory, rows read when asked for."""

import os
import weakref
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from orchestrator.errors import DatasetError

MAX_ROW_BYTES: Final = 64 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_CHUNK: Final = 1024 * 1024


class LineFile:
    """Rows by their offsets, 8 bytes a row.

    The file stays open: a file that is replaced by another under its name is still read as it was.

    Raises:
        DatasetError: If the file can't be opened.
    """

    def __init__(self, path: Path, shown: str) -> None:
        self.file = shown
        self._starts = array("q")
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise DatasetError(f"{shown}: cannot be read: {error.strerror}") from error
        weakref.finalize(self, os.close, self._fd)
        self._size = os.fstat(self._fd).st_size
        self.begin = len(_BOM) if os.pread(self._fd, len(_BOM), 0) == _BOM else 0

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int) -> None:
        """A row begins at this offset."""
        self._starts.append(start)

    def lines(self) -> Iterator[tuple[int, int, bytes]]:
        """Every line with its 1-based number and its offset.

        Raises:
            DatasetError: If a line is longer than `MAX_ROW_BYTES`.
        """
        with os.fdopen(os.dup(self._fd), "rb") as stream:
            stream.seek(self.begin)
            offset, number = self.begin, 1
            while line := stream.readline(MAX_ROW_BYTES + 1):
                if len(line) > MAX_ROW_BYTES:
                    raise DatasetError(
                        f"{self.file}:{number}: a line of more than {MAX_ROW_BYTES >> 20} MB; "
                        "is this a file with one row per line?"
                    )
                yield number, offset, line
                offset += len(line)
                number += 1

    def read(self, index: int) -> bytes:
        """The bytes of a row."""
        start = self._starts[index]
        end = self._starts[index + 1] if index + 1 < len(self._starts) else self._size
        return os.pread(self._fd, end - start, start)

    def where(self, index: int) -> str:
        """File and line of a row; counts lines, so for messages only."""
        end, position, number = self._starts[index], 0, 1
        while position < end:
            chunk = os.pread(self._fd, min(_CHUNK, end - position), position)
            if not chunk:
                break
            number += chunk.count(b"\n")
            position += len(chunk)
        return f"{self.file}:{number}"


def decoded(line: bytes) -> str:
    """The line as text.

    Raises:
        ValueError: If it is not UTF-8.
    """
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8 text; save the file as UTF-8") from error
